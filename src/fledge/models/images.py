"""Images on the wire: base64 for models that take images, words for the others, words again after a refusal.

The words for each image stand in its message's text already (`core/images.py`), so a model that takes none gets that
text alone. A provider may refuse an image that looks whole from its header; the request is then sent again in words,
because an image stays in the transcript and would make every later request fail too.
"""

import base64
import re

from msgspec.structs import replace

from fledge.core.images import ImageEntry
from fledge.models.base import AssistantMessage, Broke, ModelMessage, Request
from fledge.models.catalog import Card

REFUSED = "[the model's provider refused the images of this conversation: {reason}]"
_REASON_CHARS = 200
_ABOUT_IMAGES = re.compile(r"image|unexpected role", re.IGNORECASE)
"""Services with Mistral's models refuse images in a tool message, and in a user message that follows one
(https://github.com/LibreChat-AI/agents/issues/344)."""


def base64_of(request: Request, image: ImageEntry) -> str:
    """The bytes of an image of this request."""
    return base64.b64encode(request.images[image.sha256]).decode()


def data_url(request: Request, image: ImageEntry) -> str:
    """An image of this request as a `data:` address."""
    return f"data:{image.media_type};base64,{base64_of(request, image)}"


def for_model(request: Request, card: Card | None) -> Request:
    """The request as this model takes it: without images, unless its card says that it takes them."""
    return request if card is not None and card.images else without_images(request)


def without_images(request: Request) -> Request:
    """The same request without its images; the texts of its messages name them."""
    if not request.images:
        return request
    return replace(request, messages=tuple(_in_words(message) for message in request.messages), images={})


def _in_words(message: ModelMessage) -> ModelMessage:
    if isinstance(message, AssistantMessage) or not message.images:
        return message
    return replace(message, images=())


def without_refused_images(request: Request, refusal: Broke) -> Request | None:
    """The request without its images, if its provider refused one of them; the last message that had images then says
    why. None if it was refused for another reason."""
    if refusal.trouble != "bad_request" or not request.images or not _ABOUT_IMAGES.search(refusal.message):
        return None
    note = REFUSED.format(reason=refusal.message[:_REASON_CHARS])
    messages = list(without_images(request).messages)
    places = [at for at, one in enumerate(request.messages) if not isinstance(one, AssistantMessage) and one.images]
    last = messages[places[-1]]
    messages[places[-1]] = replace(last, text=f"{last.text}\n{note}")
    return replace(request, messages=tuple(messages), images={})
