"""Decisions after a model was asked: after a reply keep it, have it continued, ask once more with a higher limit or
give up; after an error ask the same model again, ask the next one, pause, or give up.

One policy for all providers. A reply is judged by the transcript that it follows and an error by what is stored of its
run, so a crash changes nothing. This file knows no provider, no store and no clock.
"""

import hashlib
from typing import Final, Literal

from fledge.core.freeze import one_line
from fledge.core.policy import doubled_s
from fledge.core.run import Failing, Instant
from fledge.core.value import Value

StopReason = Literal["end", "tools", "length", "refused"]
"""Why a reply ended: it was complete, it calls tools, it hit the token limit, the model would not answer."""
ProviderErrorKind = Literal["retryable", "auth", "quota", "overflow", "refused", "bad_request", "interrupted"]
"""The kinds of errors, in this order: try again; the key is wrong; no money or quota; the context is too long; the
provider's policy forbids it; the request itself is wrong; the stream was cut after it had begun."""

CUT: Final = "cut at the token limit"
"""The note in the status of a run or conversation whose last reply is not whole."""
REFUSAL_CHARS: Final = 300
CONTINUE_WORDS: Final = (
    "[System] Your reply was cut at the token limit. Go on exactly where it stopped, in the middle of a word if need"
    " be; do not repeat anything and do not comment on this. Both parts are read as one reply."
)


def dropped_words(names: str) -> str:
    """The words for the model about calls that were cut in the middle of their arguments."""
    return (
        f"[System] Your reply was cut at the token limit inside a call of {one_line(names, 200)}. That call was dropped"
        " and was not run. Make it again with shorter arguments, for example in several calls."
    )


# ---- a reply came ----------------------------------------------------------------------------------------------------


class Heard(Value, kw_only=True):
    """A reply, as far as its consequences depend on it."""

    stop: StopReason
    text: str = ""
    calls: int = 0
    """Whole calls."""
    dropped: str = ""
    """Names of the tools whose calls were cut in the middle of their arguments."""


class Keep(Value):
    """Commit the reply. `is_cut`: it is not whole and stays so. `notice`: words for the model beside it."""

    is_cut: bool = False
    notice: str = ""


class GoOn(Value):
    """Commit the reply and tell the model so: it continues it, as one text with it, or makes the call again that was
    cut and dropped."""

    words: str
    kind: Literal["continue", "dropped"]


class AskAgain(Value):
    """Nothing can be kept: ask again with this token limit."""

    max_tokens: int


class GiveUp(Value):
    """The turn ends with this error; asking again could not end otherwise."""

    error: str


Follows = Keep | GoOn | AskAgain | GiveUp


def after_reply(heard: Heard, was_cut: bool, limit: int, first_limit: int, most: int) -> Follows:
    """The decision after a reply.

    `was_cut`: the reply before it was cut and this is its continuation. `limit` is the token limit of this request,
    `first_limit` that of the first one of the step, `most` the longest reply that the model can give; 0: unknown.
    """
    if heard.stop == "refused":
        words = one_line(heard.text, REFUSAL_CHARS)
        return GiveUp(f"the model refused to answer: {words or 'no reason given'}")
    if heard.stop != "length":
        return Keep()
    if heard.calls:
        return Keep(notice=dropped_words(heard.dropped) if heard.dropped else "")
    if heard.dropped:
        if was_cut:
            return GiveUp(f"{CUT} twice, the second time inside a call of {one_line(heard.dropped, 200)}")
        return GoOn(dropped_words(heard.dropped), "dropped")
    if heard.text.strip():
        return Keep(is_cut=True) if was_cut else GoOn(CONTINUE_WORDS, "continue")
    if was_cut:
        return Keep(is_cut=True)
    higher = min(2 * limit, most or 2 * limit)
    if limit > first_limit or higher <= limit:
        return GiveUp(f"{CUT}: all {limit} tokens went into thinking, and no words came")
    return AskAgain(higher)


# ---- an error came: this model again, or the next one ----------------------------------------------------------------

QUICK_S: Final = 5.0
"""The longest pause that a driver waits out itself; for a longer one it gives its slot back."""
_PASSING: Final = ("retryable", "interrupted")
"""Troubles that may pass."""
_ELSEWHERE: Final = (*_PASSING, "auth", "quota")
"""Troubles that another provider need not have."""


class Retries(Value, kw_only=True):
    """How often one model is asked, and how long the pauses between are."""

    tries: int = 4
    """The first one included."""
    first_s: float = 0.5
    """Pause before the second try; each further one is twice as long."""


class RetryNow(Value):
    """Ask the same model after this pause."""

    pause_s: float


class FallBack(Value):
    """Ask the next model at once."""


class Report(Value):
    """No model is left to be asked now."""


def after_try(
    trouble: ProviderErrorKind, retry_after_s: float | None, tries: int, has_next: bool, retries: Retries, chance: float
) -> RetryNow | FallBack | Report:
    """The decision after the error of one try, the `tries`-th of its model. `chance`: from 0 up to 1."""
    if trouble in _PASSING and tries < retries.tries:
        # Half of the pause is chance: callers that broke together come back apart.
        own_s = doubled_s(retries.first_s, tries - 1, QUICK_S) * (0.5 + chance / 2)
        pause_s = max(own_s, retry_after_s or 0.0)
        if pause_s <= QUICK_S:
            return RetryNow(pause_s)
    return FallBack() if has_next and trouble in _ELSEWHERE else Report()


# ---- all models failed: patience -------------------------------------------------------------------------------------

FIRST_PAUSE_S: Final = 8.0
LONGEST_PAUSE_S: Final = 30.0
"""No pause of our own is longer; one that a provider asks for may be."""
LONGEST_PROGRAM_PAUSE_S: Final = 300.0
"""How often, at least, a run looks whether the program is here that has its agent."""
REASON_CHARS: Final = 200


class Failure(Value, kw_only=True):
    """No model of a session could answer a step."""

    trouble: ProviderErrorKind
    message: str
    first_at: Instant
    """When the first try of this step failed."""
    retry_after_s: float | None = None
    """The pause that the provider asked for."""

    @property
    def error(self) -> str:
        """The error in words for people."""
        return f"the model could not answer ({self.trouble}): {self.message}"

    @property
    def may_pass(self) -> bool:
        """True if it is worth waiting."""
        return self.trouble in _PASSING


class Pause(Value):
    """Give driver and slot back until then; patience counts from `since_at`."""

    until_at: Instant
    since_at: Instant
    reason: str


class Falter(Value):
    """Patience is over: a provisional error, which a reply within its grace takes back."""

    error: str


class Fail(Value):
    """Waiting is useless."""

    error: str


def after_failure(
    failure: Failure, failing: Failing | None, at: Instant, patience_s: float, session: str
) -> Pause | Falter | Fail:
    """The decision when no model of a run could answer now. `failing`: the stored pauses of this step."""
    if not failure.may_pass:
        return Fail(failure.error)
    since_at = failure.first_at if failing is None else failing.since_at
    left_s = since_at + patience_s - at
    asked_s = failure.retry_after_s or 0.0
    if left_s <= 0:
        return Falter(f"{failure.error} (waited {at - since_at:.0f} s: models.patienceSeconds)")
    if asked_s > left_s:
        wish = f"its provider asks to wait {asked_s:.0f} s, {left_s:.0f} s of models.patienceSeconds are left"
        return Falter(f"{failure.error} ({wish})")
    pauses = 0 if failing is None else failing.pauses
    own_s = doubled_s(FIRST_PAUSE_S, pauses, LONGEST_PAUSE_S)
    # A quarter of it is the session's own: children that broke together come back apart.
    own_s *= 1.0 - _share(session, pauses) / 4
    pause_s = min(left_s, max(own_s, asked_s))
    return Pause(at + pause_s, since_at, one_line(failure.message, REASON_CHARS))


def program_pause_s(failing: Failing | None) -> float:
    """How long a run pauses before it looks again whether its program is here. It never gives up."""
    return doubled_s(FIRST_PAUSE_S, 0 if failing is None else failing.pauses, LONGEST_PROGRAM_PAUSE_S)


def _share(session: str, pauses: int) -> float:
    """A number from 0 up to, not including, 1: the same for the same pause of the same session."""
    return int(hashlib.sha256(f"{session} {pauses}".encode()).hexdigest()[:8], 16) / 2**32


def is_worth_waiting(may_pass: bool, since_at: Instant, now: Instant, patience_s: float) -> bool:
    """True while a caller that waits for a conversation's answer should go on waiting: its turn is tried again because
    the error may pass, and has not failed for longer than a run would be patient."""
    return may_pass and now - since_at < patience_s


def retry_text(at: Instant, reason: str, now: Instant) -> str:
    """How a pause is shown: `retrying in 8 s: HTTP 429: slow down`."""
    return f"retrying in {max(0.0, at - now):.0f} s: {reason}"
