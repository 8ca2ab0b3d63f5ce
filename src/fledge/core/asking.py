"""What follows a model's reply: keep it, have it continued, ask once more with a higher limit, or give up.

One policy for all providers. It is judged by the reply and by the transcript that it follows, so a crash between two
replies changes nothing. This file knows no provider, no store and no clock.
"""

from typing import Final, Literal

from msgspec import Struct

from fledge.core.freeze import one_line

Stop = Literal["end", "tools", "length", "refused"]
"""Why a reply ended: it was complete, it calls tools, it hit the token limit, the model would not answer."""
Trouble = Literal["retryable", "auth", "quota", "overflow", "refused", "bad_request", "interrupted"]
"""What kind of error: try again; the key is wrong; no money or quota; the context is too long; the provider's policy
forbids it; the request itself is wrong; the stream was cut after it had begun."""

CUT: Final = "cut at the token limit"
"""The note in the status of a run or conversation whose last reply is not whole."""
REFUSAL_CHARS: Final = 300
CONTINUE_WORDS: Final = (
    "[System] Your reply was cut at the token limit. Go on exactly where it stopped, in the middle of a word if need"
    " be; do not repeat anything and do not comment on this. Both parts are read as one reply."
)


def dropped_words(names: str) -> str:
    """What the model is told about calls that were cut in the middle of their arguments."""
    return (
        f"[System] Your reply was cut at the token limit inside a call of {one_line(names, 200)}. That call was dropped"
        " and was not run. Make it again with shorter arguments, for example in several calls."
    )


# ---- a reply came ----------------------------------------------------------------------------------------------------


class Heard(Struct, frozen=True, gc=False, kw_only=True):
    """A reply, as far as its consequences depend on it."""

    stop: Stop
    text: str = ""
    calls: int = 0
    """Whole calls."""
    dropped: str = ""
    """Names of the tools whose calls were cut in the middle of their arguments."""


class Keep(Struct, frozen=True, gc=False):
    """Commit the reply. `is_cut`: it is not whole and stays so. `notice`: what the model is told beside it."""

    is_cut: bool = False
    notice: str = ""


class Continue(Struct, frozen=True, gc=False):
    """Commit the reply and ask for the rest, which is one text with it."""

    words: str


class CallAgain(Struct, frozen=True, gc=False):
    """Commit the reply without the call that was cut, and tell the model so."""

    words: str


class AskAgain(Struct, frozen=True, gc=False):
    """Nothing can be kept: ask the same with this token limit."""

    max_tokens: int


class GiveUp(Struct, frozen=True, gc=False):
    """The turn ends with this error; asking again could not end otherwise."""

    error: str


Follows = Keep | Continue | CallAgain | AskAgain | GiveUp


def after_reply(heard: Heard, was_cut: bool, limit: int, first_limit: int, most: int) -> Follows:
    """What follows a reply.

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
        return CallAgain(dropped_words(heard.dropped))
    if heard.text.strip():
        return Keep(is_cut=True) if was_cut else Continue(CONTINUE_WORDS)
    if was_cut:
        return Keep(is_cut=True)
    higher = min(2 * limit, most or 2 * limit)
    if limit > first_limit or higher <= limit:
        return GiveUp(f"{CUT}: all {limit} tokens went into thinking, and no words came")
    return AskAgain(higher)
