"""The errors that a caller may get. The outcome of a *child* is a value (`core.run.Outcome`), never one of these.

FledgeError
├── BadInput            a field is wrong; nothing was changed
├── Refused             a rule forbids it now; nothing was changed
│   ├── NeedsProgram    a run needs something that only a program can bring, and none has brought it
│   ├── NotFound        no such run, session or row (or none that the caller may see)
│   └── Stopped         its run was killed: the driver has nothing more to do
├── StoreError          the database cannot be used as asked
│   ├── StoreLocked     another process owns it
│   ├── HolderLeft      the process that owned it ended before it answered
│   ├── StoreLost       its lock was taken away: another process may own it now
│   └── StaleWrite      a newer owner has taken over; nothing was written
│       └── Interrupted the step was cancelled; its driver reads the new messages, and goes on
├── RunFailed           a value was requested of a run that has none
├── NotArrived          a message or call to the outside did not arrive
│   └── Undeliverable   it cannot arrive: sending it again would fail the same way
└── IllegalTransition   a bug of ours: this event cannot happen in this phase
"""

from typing import Any, ClassVar

_NOTHING: Any = object()


class FledgeError(Exception):
    """The base class of all errors of fledge: `except fledge.FledgeError` catches every one."""


class BadInput(FledgeError):
    """An argument or setting is wrong; `field` names it. Nothing was changed."""

    status: ClassVar = "error"
    """The status in answers that have one, as those for refusals do."""

    def __init__(self, field: str, expected: str, got: object = _NOTHING) -> None:
        self.problem = expected if got is _NOTHING else f"{expected} (got {_short(got)})"
        """The expectation, and the value that was given instead."""
        super().__init__(f"{field}: {self.problem}")
        self.field, self.expected, self.got = field, expected, got


def check_text(field: str, given: object) -> None:
    """Raise `BadInput` unless this is text that can be stored and sent as UTF-8."""
    if not isinstance(given, str):
        raise BadInput(field, "must be text", given)
    if not is_unicode(given):
        at = next(index for index, sign in enumerate(given) if "\ud800" <= sign <= "\udfff")
        raise BadInput(field, f"must be valid Unicode: character {at + 1} is half of a surrogate pair ({given[at]!a})")


def is_unicode(text: str) -> bool:
    """False of a text with a lone surrogate, which has no UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Refused(FledgeError):
    """A rule or limit forbids this now; `reason` says which. Nothing was changed."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


class NotFound(Refused):
    """No run, session or message has this name, or the caller may not see it."""

    def __init__(self, reason: str) -> None:
        super().__init__("error", reason)


class NeedsProgram(Refused):
    """The run needs something that only a program can bring, such as a function: it waits until one does."""

    def __init__(self, reason: str) -> None:
        super().__init__("error", reason)


class Stopped(Refused):
    """The run was killed: its driver has nothing more to do."""

    def __init__(self, reason: str) -> None:
        super().__init__("forbidden", reason)


class StoreError(FledgeError):
    """The database in the state folder cannot be used: damaged, foreign, from a newer version, or locked."""


class StoreLocked(StoreError):
    """Another process holds the state folder and does not share it."""


class HolderLeft(StoreError):
    """The process that held the folder ended before it answered."""

    def __init__(self, reason: str, acted: bool) -> None:
        super().__init__(reason)
        self.acted = acted
        """True if it may have carried out the request before it ended; False if it surely did not."""


class StoreLost(StoreError):
    """The lock of this store was taken away; another process may own it now. Nothing was written."""


class StaleWrite(StoreError):
    """A newer owner has taken over; nothing was written."""


class Interrupted(StaleWrite):
    """The step was cancelled; its driver reads the new messages, and goes on."""


class RunFailed(FledgeError):
    """Raised by `Result.value`: the run failed, has not ended, or its answer does not have the requested type."""

    def __init__(self, reason: str, result: Any = None) -> None:
        super().__init__(reason)
        self.result = result
        """The `Result` without a value; its `text` holds the answer as text."""


class NotArrived(FledgeError):
    """A message or call to the outside did not arrive."""

    def __init__(self, reason: str, wait_s: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_s = wait_s
        """How many seconds the other side asks to wait before the next try."""


class Undeliverable(NotArrived):
    """It cannot arrive: sending it again would fail the same way."""


class IllegalTransition(FledgeError):
    """This event cannot happen in this phase: a bug in fledge."""

    def __init__(self, run: Any, event: Any) -> None:
        super().__init__(f"{type(event).__name__} cannot happen to {run.key} in phase {run.phase.name}")


def _short(value: object) -> str:
    """A value as its caller wrote it: booleans, lists, dictionaries and None in JSON, all else as Python shows it."""
    try:
        text = _json(value) if isinstance(value, bool | list | dict | None) else repr(value)
    except RecursionError:
        text = "a value that nests too deep"
    return text if len(text) <= 80 else text[:77] + "..."


def _json(value: object) -> str:
    import msgspec  # here, so that a command that prints its options does not pay for it

    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        return repr(value)
