"""Data that a provider wants back with a reply: encrypted reasoning, signatures of thoughts. Kept as it came.

It is stored with the reply as one text that names the provider and the model it came from, and is handed back only
there: another provider, or another model after a fallback or `/model`, refuses it. The format of the data belongs to
the wire protocol that sealed it. A provider may refuse even its own data (the user changed the account behind the key);
then the request is sent again without it, so that the conversation goes on.
"""

import re
from typing import TypeVar

import msgspec

from fledge.core.value import Value
from fledge.models.base import AssistantMessage, Broke, Request

Data = TypeVar("Data")
_REFUSED = re.compile(r"encrypted.content|signature", re.IGNORECASE)


class _Sealed(Value):
    provider: str
    model: str
    data: msgspec.Raw


_decoder = msgspec.json.Decoder(_Sealed)


def seal(provider: str, model: str, data: object) -> str:
    """The text to store with a reply of this model."""
    return msgspec.json.encode(_Sealed(provider, model, msgspec.Raw(msgspec.json.encode(data)))).decode()


def unseal(text: str, provider: str, model: str, type: type[Data]) -> Data | None:
    """The data, for the provider and model it came from; None for any other, and for a text that cannot be read."""
    if not text:
        return None
    try:
        sealed = _decoder.decode(text)
        if (sealed.provider, sealed.model) != (provider, model):
            return None
        return msgspec.json.decode(sealed.data, type=type)
    except (msgspec.MsgspecError, UnicodeError):
        return None


def without_refused(request: Request, refusal: Broke) -> Request | None:
    """The request without the data that its provider refused; None if that is not why it was refused."""
    if refusal.trouble != "bad_request" or not _REFUSED.search(refusal.message):
        return None
    messages = tuple(
        msgspec.structs.replace(message, opaque="") if isinstance(message, AssistantMessage) else message
        for message in request.messages
    )
    return None if messages == request.messages else msgspec.structs.replace(request, messages=messages)
