"""What a chat gives its screen to show, and what the screen gives back: values, and the base of every screen.

A chat tells the state as it is now (`TurnShown`, `WorkingChild`, `CallQuestion`), again and again; what stays is said
once (`SpokenItem`, `NoticeItem`, `ErrorItem`, `EndedItem`, `AnswerItem`, `Verbatim`, `Called`, `OutputItem`). The
person's wishes come back as `WordsSent`, `StopWanted`, `Leave` and `QuestionAnswered`. Texts may be hostile: whoever
shows them makes them printable.
"""

import asyncio
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

# ---- what is going on


class TurnShown(Struct, frozen=True):
    """The turn under way."""

    state: Literal["thinking", "answering", "tool", "retrying", "waiting"]
    """`waiting`: for the person, who is asked something."""
    since: float
    """When it began, in seconds of the screen's clock."""
    tool: str = ""
    """Of `tool`: its name and arguments. Of `retrying`: what went wrong."""
    tokens: int = 0
    """Tokens of the answer so far."""
    attempt: int = 0
    retry_at: float = 0.0
    """Of `retrying`: which try comes next, and when; 0 if nobody knows when."""


class WorkingChild(Struct, frozen=True):
    """A subagent at work."""

    label: str
    doing: str
    """What it does: `thinking`, or a tool with its arguments."""
    since: float
    tokens: int = 0
    waits: bool = False
    """True if it waits for the person."""


WorkingChildren = tuple[WorkingChild, ...]
"""All subagents at work."""


PersonVerdict = Literal["once", "always", "no", "carry out", "reject", "edited"]
"""What a person answers to a question or a plan."""


class CallQuestion(Struct, frozen=True):
    """A tool call that waits for a person's yes."""

    id: str
    who: str
    text: str
    """The whole call: nobody may allow what they cannot see."""
    place: str = ""
    always: str = ""
    """What *always* would allow, in the words of the rule; empty if there is no such choice."""
    for_subagents: bool = False
    """True: such a rule covers subagents, too."""

    @property
    def verdicts(self) -> dict[str, PersonVerdict]:
        """What each key answers."""
        return {"y": "once", "n": "no", "a": "always"} if self.always else {"y": "once", "n": "no"}

    @property
    def granted(self) -> str:
        """What *always* would allow, and whom."""
        return f"`{self.always}` here{', subagents too' * self.for_subagents}" if self.always else ""


class PlanQuestion(Struct, frozen=True):
    """A plan that waits for a person's yes. Its text is shown in full in the scrollback first."""

    id: str
    who: str
    text: str

    @property
    def verdicts(self) -> dict[str, PersonVerdict]:
        """What each key answers."""
        return {"y": "carry out", "n": "reject"}


OpenQuestion = CallQuestion | PlanQuestion
OpenQuestions = tuple[OpenQuestion, ...]
"""All of them, the oldest first."""

# ---- what stays


class SpokenItem(Struct, frozen=True):
    """The person's own words."""

    text: str
    is_typed_here: bool = False
    """True of words that were typed at this screen: where typing leaves them standing they are not repeated."""


class NoticeItem(Struct, frozen=True):
    """Something the person should know."""

    text: str


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


class Verbatim(Struct, frozen=True):
    """A whole answer as the model wrote it, for those who want its markdown and not a picture of it."""

    text: str


class Called(Struct, frozen=True):
    """The agent has called a tool."""

    call: str
    """The tool and its argument that says most, on one line."""


class OutputItem(Struct, frozen=True):
    """What a tool call gave back. It is shown while the person wants to see outputs."""

    call: str
    text: str
    is_asked_for: bool = False
    """True: the person asked for this one."""


ChatItem = SpokenItem | NoticeItem | ErrorItem | EndedItem | AnswerItem | Verbatim | Called | OutputItem

# ---- what the person wants


class WordsSent(Struct, frozen=True):
    """Words for the agent, or a slash command."""

    text: str
    shown: str
    """The same as the person saw it in the input, with long pastes folded."""


class StopWanted(Struct, frozen=True):
    """Stop the turn; what is queued goes back into the input (`Screen.put_back`)."""


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
    """Shows a conversation, as far as it can, and reads what the person wants. Only `wish` waits."""

    in_turns = False
    """True if nobody types, so that each line is to be answered before the next is read."""

    def __init__(self) -> None:
        self._wishes: asyncio.Queue[Wish] = asyncio.Queue()
        self._turn: TurnShown | None = None
        self._children: WorkingChildren = ()
        self._asked: OpenQuestions = ()
        self._queued: tuple[str, ...] = ()
        self.now: Callable[[], float] = lambda: asyncio.get_running_loop().time()
        """The time that `since` and `retry_at` are told in."""

    def words(self, text: str) -> None:
        """A piece of an answer, as it comes."""

    def complete(self) -> None:
        """The answer is complete."""

    def say(self, item: ChatItem) -> None:
        """Something whole that stays. It waits for the end of a block of the answer."""

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
        """Whom words are for, shown before the input; empty: the main agent."""

    def clear(self) -> None:
        """Empty the terminal. What was said stays in the conversation."""

    def copy(self, text: str) -> bool:
        """Ask the terminal to put this into the clipboard; False where there is no way to ask."""
        return False

    def _change(self) -> None:
        """What is shown has changed."""

    async def wish(self) -> Wish:
        """What the person wants next."""
        return await self._wishes.get()
