"""The values that a chat gives its screen to show, and those that the screen gives back; and the base of every screen.

A chat passes the current state (`TurnShown`, `WorkingChild`, `CallQuestion`) again and again, and each item that stays
once (`SpokenItem`, `NoticeItem`, `ErrorItem`, `EndedItem`, `AnswerItem`, `Verbatim`, `Called`, `CallEnded`,
`OutputItem`). The person's wishes come back as `WordsSent`, `StopWanted`, `Leave` and `QuestionAnswered`. Texts may be
hostile: the screen makes them printable.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

# ---- the current state


class TurnShown(Struct, frozen=True):
    """The turn under way."""

    state: Literal["thinking", "answering", "tool", "retrying", "waiting"]
    """`waiting`: for the person's answer to a question."""
    since: float
    """When it began, in seconds of the screen's clock."""
    tool: str = ""
    """Of `tool`: its name and arguments. Of `retrying`: the error."""
    tokens: int = 0
    """Tokens of the answer so far."""
    attempt: int = 0
    retry_at: float = 0.0
    """Of `retrying`: the number of the next try, and its time; 0 if that is not known."""


class WorkingChild(Struct, frozen=True):
    """A subagent at work."""

    label: str
    doing: str
    """Its activity: `thinking`, or a tool with its arguments."""
    since: float
    tokens: int = 0
    waits: bool = False
    """True if it waits for the person."""
    session_key: str = ""
    """Tells subagents of one label apart."""


WorkingChildren = tuple[WorkingChild, ...]
"""All subagents at work."""


PersonVerdict = Literal["once", "always", "no", "carry out", "reject", "edited"]
"""A person's answer to a question or a plan."""


class CallQuestion(Struct, frozen=True):
    """A tool call that waits for a person's yes."""

    id: str
    who: str
    text: str
    """The whole call: a person must see all of what they allow."""
    place: str = ""
    always: str = ""
    """The rule that *always* would make, in its own words; empty if there is no such choice."""
    for_subagents: bool = False
    """True if such a rule covers subagents, too."""

    @property
    def verdicts(self) -> dict[str, PersonVerdict]:
        """The verdict of each key."""
        return {"y": "once", "n": "no", "a": "always"} if self.always else {"y": "once", "n": "no"}

    @property
    def granted(self) -> str:
        """The calls that *always* would allow, and whether subagents may make them, too."""
        return f"`{self.always}` here{', subagents too' * self.for_subagents}" if self.always else ""


class PlanQuestion(Struct, frozen=True):
    """A plan that waits for a person's yes. Its text is shown in full in the scrollback first."""

    id: str
    who: str
    text: str

    @property
    def verdicts(self) -> dict[str, PersonVerdict]:
        """The verdict of each key."""
        return {"y": "carry out", "n": "reject"}


OpenQuestion = CallQuestion | PlanQuestion
OpenQuestions = tuple[OpenQuestion, ...]
"""All open questions, the oldest first."""

# ---- items that stay


class SpokenItem(Struct, frozen=True):
    """The person's own words."""

    text: str
    is_typed_here: bool = False
    """True of words that were typed at this screen: where typing leaves them standing they are not repeated."""


class NoticeItem(Struct, frozen=True):
    """Something the person should know."""

    text: str
    is_asked_for: bool = False
    """True of an answer to something that the person typed or pressed."""


class ErrorItem(Struct, frozen=True):
    """Something went wrong."""

    text: str


class EndedItem(Struct, frozen=True):
    """A subagent has ended."""

    label: str
    status: str
    """`done`, `failed`, `killed`, `timed out` …"""
    seconds: float
    tokens: int = 0
    cost: float = 0.0
    """In dollars; 0 if it is not known."""
    text: str = ""
    """Its result; the first lines are shown."""


class AnswerItem(Struct, frozen=True):
    """A whole answer in markdown, such as one of an earlier sitting."""

    text: str
    is_asked_for: bool = False
    """True if the person asked for this text."""


class Verbatim(Struct, frozen=True):
    """A whole answer as the model wrote it, for those who want its markdown and not a picture of it."""

    text: str


class Called(Struct, frozen=True):
    """The agent has called a tool."""

    call: str
    """The tool and its argument that says most, on one line."""


class CallEnded(Struct, frozen=True):
    """A tool call of the agent has ended."""

    call: str
    """As in `Called`."""
    is_ok: bool
    seconds: float | None
    """How long it took; None if that is not known."""
    text: str = ""
    """Its result; the first lines are shown."""


class OutputItem(Struct, frozen=True):
    """The output of a tool call. It is shown while the person wants to see outputs."""

    call: str
    text: str
    is_asked_for: bool = False
    """True if the person asked for this one."""


ChatItem = SpokenItem | NoticeItem | ErrorItem | EndedItem | AnswerItem | Verbatim | Called | CallEnded | OutputItem


def may_wait(item: ChatItem | OpenQuestion) -> bool:
    """True if the item only informs: it waits for the end of a block of the answer, so that no sentence is torn. A
    question, an error, and what the person asked for end the block where it is."""
    match item:
        case CallQuestion() | PlanQuestion() | ErrorItem():
            return False
        case NoticeItem() | AnswerItem() | OutputItem():
            return not item.is_asked_for
        case SpokenItem() | EndedItem() | Called() | CallEnded() | Verbatim():
            return True


# ---- wishes of the person


class WordsSent(Struct, frozen=True):
    """Words for the agent, or a slash command."""

    text: str
    shown: str
    """The same as the person saw it in the input, with long pastes folded."""


class StopWanted(Struct, frozen=True):
    """Stop the turn; queued words go back into the input (`Screen.put_back`)."""


class Leave(Struct, frozen=True):
    """End the chat."""


class QuestionAnswered(Struct, frozen=True):
    """The answer to a question or a plan."""

    id: str
    verdict: PersonVerdict
    words: str = ""
    """Of `no` and `reject`: the reason, for the model. Of `edited`: the plan as it should be."""


Wish = WordsSent | StopWanted | Leave | QuestionAnswered


class Screen:
    """Shows a conversation, as far as it can, and reads the person's wishes. Only `wish` waits."""

    in_turns = False
    """True if lines come from a pipe: each is answered before the next is carried out."""

    def __init__(self) -> None:
        self._wishes: asyncio.Queue[Wish] = asyncio.Queue()
        self._turn: TurnShown | None = None
        self._children: WorkingChildren = ()
        self._asked: OpenQuestions = ()
        self._queued: tuple[str, ...] = ()
        self.now: Callable[[], float] = lambda: asyncio.get_running_loop().time()
        """The clock of `since` and `retry_at`."""

    def words(self, text: str) -> None:
        """A piece of an answer, as it comes."""

    def complete(self) -> None:
        """The answer is complete."""

    def say(self, item: ChatItem) -> None:
        """An item that stays. If it only informs (`may_wait`), it waits for the end of a block of the answer."""

    def turn(self, turn: TurnShown | None) -> None:
        """The turn under way; None between turns."""
        self._turn = turn
        self._change()

    def children(self, children: WorkingChildren) -> None:
        """All subagents at work."""
        self._children = children
        self._change()

    def ask(self, asked: OpenQuestions) -> None:
        """All questions that are open, the oldest first."""

    def queued(self, texts: tuple[str, ...]) -> None:
        """Words of the person that no turn has read yet."""
        self._queued = texts
        self._change()

    def put_back(self, text: str) -> None:
        """Words that were not read go back into the input, before what is typed there."""

    def talks_to(self, label: str) -> None:
        """The conversation or subagent that gets the words, shown before the input; empty: the main conversation."""

    def clear(self) -> None:
        """Empty the terminal. The transcript stays as it is."""

    def copy(self, text: str) -> bool:
        """Ask the terminal to put this into the clipboard; False where there is no way to ask."""
        return False

    def _change(self) -> None:
        """The turn, the children or the queued words have changed."""

    async def wish(self) -> Wish:
        """The person's next wish."""
        return await self._wishes.get()
