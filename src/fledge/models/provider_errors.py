"""Maps a provider's error to one of the kinds of `ProviderErrorKind`, with words that are safe to show.

The error bodies of all wire protocols are close enough to be read by one struct. This file does not know how a body was
fetched.
"""

import re
from collections.abc import Mapping
from math import isfinite

import msgspec

from fledge.egress import Headers
from fledge.models.base import Broke, ProviderErrorKind
from fledge.models.keys import SecretKey, without_keys

MOST_SHOWN = 500
"""Characters of a provider's error that are shown."""

_OVERFLOW = re.compile(
    r"context[_ ]length[_ ]exceeded|maximum context length|prompt is too long|exceed\w*[^.]{0,40}context"
    r"|context (?:window|size|limit)[^.]{0,40}exceed|input is too long|reduce the length of the (?:messages|prompt)"
    r"|exceeds? the maximum (?:number of tokens|input)|too many input tokens",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient_quota|billing_error|billing_hard_limit|credit balance|insufficient (?:credits|balance|funds)"
    r"|exceeded your current quota|payment required",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"content_policy|content_filter|content management policy|usage policies|usage policy|safety_violation"
    r"|moderation|input was flagged|invalid_prompt|responsibleaipolicy|(?:bio|cyber)_policy|policy_violation",
    re.IGNORECASE,
)
_BY_KIND: Mapping[str, ProviderErrorKind] = {
    "authentication_error": "auth",
    "permission_error": "auth",
    "invalid_api_key": "auth",
    "billing_error": "quota",
    "insufficient_quota": "quota",
    "request_too_large": "overflow",
    "context_length_exceeded": "overflow",
    "exceed_context_size_error": "overflow",
    "rate_limit_error": "retryable",
    "rate_limit_exceeded": "retryable",
    "overloaded_error": "retryable",
    "api_error": "retryable",
    "timeout_error": "retryable",
    "server_error": "retryable",
    "invalid_request_error": "bad_request",
    "not_found_error": "bad_request",
}
_TAG = re.compile(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>")


class ErrorBody(msgspec.Struct):
    """The error inside a body or a chunk. Some services send a number as `code`, some send only a message."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None

    @property
    def status(self) -> int | None:
        """The HTTP status that a gateway put into `code`."""
        return self.code if isinstance(self.code, int) and 400 <= self.code <= 599 else None


class _Body(msgspec.Struct):
    error: ErrorBody | str | None = None
    message: str | None = None
    detail: str | None = None


def fault_in(raw: bytes) -> ErrorBody | None:
    """The error of a JSON body; None if it has none or is not JSON."""
    try:
        found = msgspec.json.decode(raw, type=_Body | list[_Body])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    # Gemini's errors come in a list of one.
    body = found if isinstance(found, _Body) else next(iter(found), _Body())
    if isinstance(body.error, ErrorBody):
        return body.error
    words = body.error or body.message or body.detail
    return None if words is None else ErrorBody(message=words)


def trouble_of(status: int | None, fault: ErrorBody) -> ProviderErrorKind:
    """The kind of trouble that a status and an error mean. Without a status the error came inside a stream."""
    words = f"{fault.code} {fault.type} {fault.message}"
    status = status or fault.status
    if _QUOTA.search(words) or status == 402:
        return "quota"
    if status == 413 or (status in (None, 400, 422) and _OVERFLOW.search(words)):
        return "overflow"
    if status in (None, 400, 403, 422) and _REFUSED.search(words):
        return "refused"
    if status in (401, 403):
        return "auth"
    if status is None:
        by_code = _BY_KIND.get(str(fault.code)) or _BY_KIND.get(str(fault.type))
        return by_code or "retryable"
    return "retryable" if status in (408, 409, 425, 429) or status >= 500 else "bad_request"


def broke(status: int, raw: bytes, headers: Headers, now: float, key: SecretKey | None) -> Broke:
    """The `Broke` of a refused request: its trouble, bounded words without keys, and the time to wait."""
    fault = fault_in(raw)
    words = plain(raw) if fault is None or not fault.message else fault.message
    label = f"HTTP {status}"
    return Broke(
        trouble_of(status, fault or ErrorBody(message=words)),
        shown(f"{label}: {words}" if words else label, key),
        retry_after(headers, now),
        status,
    )


def remedy(event: Broke, provider: str, key_place: str, base_url: str) -> str:
    """The change that the user must make so that this provider answers; empty if none is known."""
    if event.status == 407:
        return ""  # the message about the proxy says it
    another = "or name another model: `fledge models` lists them"
    match event.trouble:
        case "auth" if event.status == 403:
            return f"the key in {key_place} may not use this model at {provider}: correct it, {another}"
        case "auth":
            return f"{provider} refuses the key: correct {key_place}"
        case "quota":
            return f"the account at {provider} is used up: add credit there, {another}"
        case "bad_request" if event.status == 404:
            return f"{provider} has no such model at {base_url}: correct the address, {another}"
        case _:
            return ""


def plain(raw: bytes) -> str:
    """The words of a body of any kind: without markup, on one line."""
    return " ".join(_TAG.sub(" ", raw.decode("utf-8", "replace")).split())


def shown(text: str, key: SecretKey | None = None) -> str:
    """The text as it may be shown: printable, without keys, at most `MOST_SHOWN` characters."""
    # Cut after cleaning: a key that is cut in half would no longer be found.
    text = without_keys("".join(mark if mark.isprintable() else " " for mark in text), key)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def retry_after(headers: Headers, now: float) -> float | None:
    """Seconds to wait, from `retry-after-ms` or `Retry-After` (seconds or a date); None if absent or not readable."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) / unit
        except (KeyError, ValueError):
            continue
        if isfinite(seconds):
            return max(0.0, seconds)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - now)
    except (KeyError, ValueError, OverflowError):
        return None
