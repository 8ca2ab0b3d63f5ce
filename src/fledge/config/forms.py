"""The forms of texts in settings: agent ids, durations, times of day, time zones, addresses, Python objects. Each form
returns the text in its canonical spelling or refuses it.

This file does not know which setting has which form.
"""

import re
from collections.abc import Callable
from functools import partial

from fledge.core.keys import check_agent_id
from fledge.core.route import check_channel
from fledge.errors import BadInput

UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)"
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d")


def duration_s(text: str, field: str = "duration") -> float:
    """Seconds in `30m`, `1h30m`, `90s`, `500ms`, `2d`, or a bare number of minutes; 0 for `off`.

    Refused: anything else, and anything above 0 but under a second.
    """
    spelled = text.strip().lower()
    if spelled == "off":
        return 0.0
    if re.fullmatch(r"\d{1,9}", spelled):
        spelled += "m"
    seconds = sum(float(number) * UNIT_S[unit] for number, unit in re.findall(_PART, spelled))
    if not re.fullmatch(f"(?:{_PART})+", spelled) or 0 < seconds < 1:
        raise BadInput(field, f"must be {FORMS['duration'][0]}", text)
    return float(seconds)


def check_text(value: str, field: str) -> str:
    """The text as it is; refused if blank, or with characters that cannot be shown or stored."""
    if not value.strip() or _UNPRINTABLE.search(value):
        raise BadInput(field, "must be text that is not blank and has no control characters", value)
    return value


def _duration(value: str, field: str) -> str:
    duration_s(value, field)
    return value.strip().lower()


def _target(value: str, field: str) -> str:
    return value if value == "*" else check_agent_id(value, field)


def _clock(form: str, value: str, field: str) -> str:
    if not _CLOCK.fullmatch(value) and (form, value) != ("end", "24:00"):
        raise BadInput(field, f"must be {FORMS[form][0]}", value)
    return value


def _timezone(value: str, field: str) -> str:
    if value in ("local", "user"):
        return "local"
    from zoneinfo import ZoneInfo  # imported only if a zone is named

    try:
        ZoneInfo(value)
    except (OSError, ValueError, KeyError):
        # KeyError: unknown here. OSError, ValueError: a name that leads to a folder, or out of the zone files.
        raise BadInput(field, f"must be {FORMS['timezone'][0]}", value) from None
    return value


def _object(value: str, field: str) -> str:
    module, _, name = value.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise BadInput(field, f"must be {FORMS['object'][0]}", value)
    return value


_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _webhook(value: str, field: str) -> str:
    from urllib.parse import urlsplit  # imported only if an address is given

    expected = f"must be {FORMS['webhook'][0]}"
    try:
        url = urlsplit(value.strip())
        host, _ = url.hostname, url.port
    except ValueError:
        raise BadInput(field, expected, value) from None
    plain = url.scheme == "http" and host in _LOOPBACK
    if not host or not (url.scheme == "https" or plain) or url.fragment or any(c.isspace() for c in value.strip()):
        raise BadInput(field, expected, value)
    if url.username is not None or url.password is not None:
        raise BadInput(field, f"{expected}; it may hold no name or password")  # so the address is not shown either
    return value.strip()


FORMS: dict[str, tuple[str, Callable[[str, str], str]]] = {
    "text": ("text", check_text),
    "agentId": ("1 to 64 letters, digits, '-' or '_'", check_agent_id),
    "target": ("an agent's id or *", _target),
    "duration": ("off, or a duration such as 30m or 1h30m, of at least 1s", _duration),
    "start": ("a time of day such as 08:30", partial(_clock, "start")),
    "end": ("a time of day such as 22:00, at most 24:00", partial(_clock, "end")),
    "webhook": ("an address that starts with https:// (http:// only on this computer)", _webhook),
    "outlet": ("last, none, or the name of a channel", check_channel),
    "object": ("an object of a Python module such as my_package.engine:engine", _object),
    "timezone": ("local, or a time zone such as Europe/Paris", _timezone),
}
"""By form: its description in words, and the check that returns the canonical spelling."""
