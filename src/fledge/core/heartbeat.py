"""Heartbeats: when a session is given a turn without a message, and whether its reply is sent.

Here are the rules for waking (coalesced, retried while busy, kept out of quiet hours), for which notices are worth a
turn, and for reading `HEARTBEAT_OK`. Times of day arrive as minutes; this file knows no clock and no row. Completions a
heartbeat speaks of are inbox rows: referenced there, never counted or cut here.
"""

import math
import re
from collections.abc import Mapping
from typing import Final, Literal

from fledge.core.freeze import HEARTBEAT_OK
from fledge.core.run import Instant
from fledge.core.value import Value
from fledge.errors import BadInput

Cause = Literal["action", "default", "interval", "retry"]
"""Why a heartbeat is wanted, the strongest first; `interval` is the periodic one."""
Skip = Literal["disabled", "quiet-hours", "busy", "empty"]

OK_EXTRA_CHARS: Final = 300
COALESCE_S: Final = 0.25
BUSY_RETRY_S: Final = 1.0
WAITING_RETRY_S: Final = 30.0
"""A session that waits for its children may do so for long."""
MAX_NOTICES: Final = 20
PROMPT: Final = (
    "[Heartbeat] Nobody has spoken to you. Look at what has come in, and at what you were told to look after; do what"
    f" is due, and speak up about what needs attention. If nothing does, answer only {HEARTBEAT_OK}."
)
"""The first message of a heartbeat turn, if the settings have none."""
REPEAT_S: Final = 24 * 3600.0
"""For this long the same heartbeat text is not sent again."""
DAY_MINUTES: Final = 24 * 60

_STRENGTH: Final[dict[Cause, int]] = {"action": 3, "default": 2, "interval": 1, "retry": 0}
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])|24:00")
_TAG: Final = re.compile(r"<[^<>]*>")
_OPENS: Final = re.compile(rf"[\W_]*{HEARTBEAT_OK}(?!_*[^\W_])")
_CLOSES: Final = re.compile(rf"(?:^|\W)_*{HEARTBEAT_OK}[\W_]*$")
_AROUND: Final = re.compile(r"(?:<[^<>]*>|&nbsp;|[\W_])*+")
"""Characters that may follow an ok at the end, or precede one at the beginning: tags, markup, punctuation, space."""
_GOES_ON: Final = re.compile(r"_*[^\W_]")
_MARKUP: Final = " \t\r\n*_~`([\"'"
_CLOSED: Final = re.compile(r"(?:</[^<>]*>|&nbsp;|[*_~`)\]\"'.,;:!?])*+(?:[ \t]*[-–—][ \t]+)?\s*")
"""The end of the markup and the sentence of an ok at the beginning."""
_EMPTY_LINE: Final = re.compile(r"(#.*|[-*+](\s*\[[ xX]?\])?|```.*)?")


# ---- wakes -----------------------------------------------------------------------------------------------------------


class Wake(Value):
    """A wanted heartbeat of one session: the strongest cause asked for, and when it is due."""

    cause: Cause
    reason: str
    """For people: what happened."""
    due_at: Instant


def request_wake(pending: Wake | None, cause: Cause, reason: str, now: Instant) -> Wake:
    """The one wake that stands for all requests of a session within 250 ms.

    The strongest cause wins, the newer on a tie; the due time never moves, so neither a burst can put a wake off nor a
    newcomer shorten a retry.
    """
    if pending is None:
        return Wake(cause, reason, now + COALESCE_S)
    if _STRENGTH[cause] < _STRENGTH[pending.cause]:
        return pending
    return Wake(cause, reason, pending.due_at)


# ---- active hours ----------------------------------------------------------------------------------------------------


class ActiveHours(Value):
    """`heartbeat.activeHours` in minutes of the day, start included, end not; it may wrap around midnight."""

    start_minute: int
    end_minute: int

    def __post_init__(self) -> None:
        """Refused: a start outside 0 to 1439, an end outside 0 to 1440."""
        if not 0 <= self.start_minute < DAY_MINUTES:
            raise BadInput("heartbeat.activeHours.start", "must lie between 00:00 and 23:59", self.start_minute)
        if not 0 <= self.end_minute <= DAY_MINUTES:
            raise BadInput("heartbeat.activeHours.end", "must lie between 00:00 and 24:00", self.end_minute)


def active_hours(start: str, end: str) -> ActiveHours:
    """Hours read from two times like `08:00` and `24:00`. Refused: anything that is not a time of day."""
    return ActiveHours(
        _minute("heartbeat.activeHours.start", start),
        _minute("heartbeat.activeHours.end", end),
    )


def _minute(field: str, text: str) -> int:
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise BadInput(field, "must be a time of day like 08:30", text)
    hours, minutes = found.groups()
    return DAY_MINUTES if hours is None else int(hours) * 60 + int(minutes)


def is_open(hours: ActiveHours | None, minute_of_day: int) -> bool:
    """True inside the hours; without hours always, with equal start and end never."""
    return minutes_until_open(hours, minute_of_day) == 0


def minutes_until_open(hours: ActiveHours | None, minute_of_day: int) -> int | None:
    """How many minutes of quiet are left: 0 inside the hours, None if they never begin."""
    if hours is None:
        return 0
    if hours.start_minute == hours.end_minute:
        return None
    length = (hours.end_minute - hours.start_minute) % DAY_MINUTES or DAY_MINUTES
    since_start = (minute_of_day - hours.start_minute) % DAY_MINUTES
    return 0 if since_start < length else DAY_MINUTES - since_start


# ---- whether to run --------------------------------------------------------------------------------------------------


class HeartbeatSettings(Value, kw_only=True):
    """The settings `heartbeat`, without the model of its turns."""

    every_s: float = 0.0
    """How often by itself; 0: not."""
    hours: ActiveHours | None = None
    zone: str = "local"
    """In which time zone the hours are."""
    ack_chars: int = OK_EXTRA_CHARS
    """How much may stand beside an ok."""
    prompt: str = ""
    """The first message of its turns; empty: `PROMPT`."""
    target: str = "last"
    """Where its words go: `last`, where the conversation's words go; `none`; or a channel."""
    to: str = ""
    """The receiver on that channel; empty: the conversation's own, if it is on that channel."""


class HeartbeatVerdict(Value):
    """Run it now (no skip), or why not and in how many seconds to look again; None is not by itself."""

    skip: Skip | None
    again_s: float | None = None


def verdict(
    cause: Cause,
    settings: HeartbeatSettings,
    minute_of_day: int,
    second: float,
    session: Literal["idle", "busy", "waiting"],
    unread: int,
) -> HeartbeatVerdict:
    """Whether a due wake becomes a turn; the first reason against it counts, in the order of `Skip`.

    Only the periodic one can be off. Outside the hours it waits for them. A busy session is tried again after a second,
    one that waits for its children after half a minute. A wake for something that was read meanwhile is let go:
    `unread` counts the notices and completions that a heartbeat turn would read.
    """
    if cause == "interval" and settings.every_s <= 0:
        return HeartbeatVerdict("disabled")
    quiet = minutes_until_open(settings.hours, minute_of_day)
    if quiet != 0:
        return HeartbeatVerdict("quiet-hours", None if quiet is None else quiet * 60.0 - second)
    if session != "idle":
        return HeartbeatVerdict("busy", BUSY_RETRY_S if session == "busy" else WAITING_RETRY_S)
    if unread == 0 and cause == "default":
        return HeartbeatVerdict("empty")
    return HeartbeatVerdict(None)


def is_idle_round(cause: str, checklist: str | None) -> bool:
    """True of a periodic heartbeat whose checklist, where there is one, asks for nothing."""
    return cause == "interval" and checklist is not None and is_blank_checklist(checklist)


def is_blank_checklist(text: str) -> bool:
    """True if a checklist holds only headings, fences, empty bullets and white space."""
    return all(_EMPTY_LINE.fullmatch(line.strip()) for line in text.splitlines())


def next_periodic_at(every_s: float, last_at: Instant, now: Instant) -> Instant | None:
    """The next beat after `now`, whole periods after the last; missed ones are not made up for. None: switched off."""
    if every_s <= 0:
        return None
    periods = max(1, math.floor((now - last_at) / every_s) + 1)
    return last_at + periods * every_s


def has_periodic(session: str, main: str, spoken: Mapping[str, Instant | None]) -> bool:
    """True if this one of an agent's main conversations has the periodic heartbeat: the one that a person spoke in
    last, else `main`, else any one of them. `spoken` says when a person last spoke in each."""
    return session == max(spoken, key=lambda one: (spoken[one] or 0.0, one == main, one), default=session)


# ---- what it is told and says ----------------------------------------------------------------------------------------


def is_worth_noticing(text: str, last: str | None) -> bool:
    """True of a notice that says something, and something else than the last one that waits."""
    return bool(text.strip()) and (last is None or text.strip() != last.strip())


def opening(settings: HeartbeatSettings) -> str:
    """The first message of a heartbeat turn. It always says how to answer if nothing needs attention."""
    own = settings.prompt.strip()
    if not own or HEARTBEAT_OK in own:
        return own or PROMPT
    return f"{own}\n\nIf nothing needs attention, answer only {HEARTBEAT_OK}."


def is_silence(reply: str, extra_chars: int = OK_EXTRA_CHARS) -> bool:
    """True if a heartbeat's reply asks for nothing: `HEARTBEAT_OK` at its beginning or end, whatever markup and
    punctuation surround it, with at most so many characters besides."""
    plain = _TAG.sub(" ", reply).replace("&nbsp;", " ").strip()
    found = _OPENS.match(plain) or _CLOSES.search(plain)
    if found is None:
        return False
    rest = plain[: found.start()] + plain[found.end() :]
    return len(rest.strip()) <= extra_chars


def spoken(reply: str, extra_chars: int = OK_EXTRA_CHARS) -> str:
    """The part of a heartbeat's reply that is sent: silence as it is, anything else without `HEARTBEAT_OK` at either
    end."""
    return reply if is_silence(reply, extra_chars) else _without_last_ok(_without_first_ok(reply))


def _without_first_ok(reply: str) -> str:
    before, token, after = reply.partition(HEARTBEAT_OK)
    if not token or not _AROUND.fullmatch(before) or _GOES_ON.match(after):
        return reply
    return _CLOSED.sub("", after, count=1)


def _without_last_ok(reply: str) -> str:
    before, token, after = reply.rpartition(HEARTBEAT_OK)
    if not token or not _AROUND.fullmatch(after) or before.rstrip("_")[-1:].isalnum():
        return reply
    return before.rstrip(_MARKUP).rstrip()


def is_repeat(text: str, said: str, said_at: Instant | None, now: Instant) -> bool:
    """True if a heartbeat says word for word what it said less than a day ago."""
    return said_at is not None and said.strip() == text.strip() and now - said_at < REPEAT_S
