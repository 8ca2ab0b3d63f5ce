"""What the verbs answer, besides the values of the library: a folder, a run in full, sessions. Plain data."""

from typing import Literal

from msgspec import Struct

from fledge.api.values import Plan, Question, RunInfo, TimelineEvent
from fledge.core.announce import DeliveryTrace
from fledge.core.freeze import Stats
from fledge.core.run import Instant
from fledge.orchestrator.standing import StatusView, Unanswered

__all__ = [
    "Below",
    "ChildAtWork",
    "Overview",
    "Ran",
    "Rest",
    "SessionRow",
    "Spent",
    "Standing",
    "Story",
    "Target",
    "Try",
    "Unanswered",
]


class Try(Struct, frozen=True, kw_only=True):
    """A try at delivering something of a run."""

    at: Instant
    trace: DeliveryTrace


class Ran(Struct, frozen=True, kw_only=True):
    """What a run really ran with, as recorded while it ran."""

    model: str
    thinking: str
    tools: tuple[str, ...]
    boxed: bool
    folder: str


class Spent(Struct, frozen=True, kw_only=True):
    """How much of a budget is used."""

    name: str
    used: float
    most: float


class Story(Struct, frozen=True, kw_only=True):
    """A run in full."""

    now_at: Instant
    run: RunInfo
    timeline: tuple[TimelineEvent, ...]
    tries: tuple[Try, ...]
    text: str
    """Its frozen words; empty while it has none, or while they are held back."""
    stats: Stats
    """What all its attempts have used so far."""
    models: tuple[str, ...]
    """Those that really answered."""
    ran: Ran | None = None
    timeout_s: float = 0.0
    budget: tuple[Spent, ...] = ()
    spawned: int = 0
    """How many children it ever had."""
    unanswered: tuple[Unanswered, ...] = ()
    """Turns that have read its answer and could not answer it for half an hour."""
    questions: tuple[Question, ...] = ()
    """Its calls that asked a person, or ran by a rule of theirs."""


class SessionRow(Struct, frozen=True, kw_only=True):
    """A session in a list."""

    key: str
    kind: str
    agent_id: str
    label: str
    parent: str | None
    depth: int
    created_at: Instant
    updated_at: Instant
    state: Literal["idle", "busy", "queued"]
    unread: int
    unsettled: int
    status: str = ""
    """Of a run: how it stands."""
    unanswered: str = ""
    """For how long something that it has read is unanswered; empty if nothing is, for half an hour."""
    project: str = ""
    """Of a conversation: the project folder it was begun in."""
    first_words: str = ""
    """The beginning of the first thing that was said there."""


class Standing(Struct, frozen=True, kw_only=True):
    """How a session stands."""

    session_key: str
    view: StatusView
    left_out: tuple[str, ...]
    """Documents of its workspace that are not taken in."""


class Rest(Struct, frozen=True, kw_only=True):
    """Whether a session is at rest."""

    settled: bool
    questions: tuple[Question, ...] = ()
    """What a person must answer before anything goes on; empty while something does."""
    plans: tuple[Plan, ...] = ()
    """Plans that await a person's answer."""
    failures: int = 0
    """How often in a row the open turn has failed; it is tried again by itself."""
    patience_seconds: float = 0.0
    """How long a model that cannot answer is waited for: models.patienceSeconds."""


class Target(Struct, frozen=True, kw_only=True):
    """What a subagent may be called."""

    word: str
    meaning: str
    """How it stands."""


class ChildAtWork(Struct, frozen=True, kw_only=True):
    """A subagent that has not settled."""

    session_key: str
    label: str
    """Its label, else the beginning of its task."""
    state: str
    """How it stands, in words."""
    depth: int
    """1: a child of the conversation; more: of a child."""
    tokens: int = 0
    """All it has used so far."""
    waits: bool = False
    """It waits for a person: a call of its, or its plan."""
    started_at: Instant | None = None
    """When it first worked; None: it has not."""


class Below(Struct, frozen=True, kw_only=True):
    """What goes on in a conversation and below it."""

    now_at: Instant
    state: Literal["idle", "busy", "queued"]
    opened_at: Instant | None = None
    """Of a busy one: when its turn began."""
    waits: bool = False
    """A call of its own waits for a person."""
    unanswered: str = ""
    """For how long its turn cannot answer; empty: it is not half an hour."""
    tokens_in: int = 0
    """What the conversation itself has used so far, with the next two."""
    tokens_out: int = 0
    cost_usd: float | None = None
    children: tuple[ChildAtWork, ...] = ()
    """Those at work, a child before its own, in the order of their spawn."""
    targets: tuple[Target, ...] = ()


class Overview(Struct, frozen=True, kw_only=True):
    """What goes on in a folder, and what waits for a person."""

    now_at: Instant
    is_driven: bool
    """Somebody is at work here."""
    is_unfinished: bool
    """Something is left to do that needs no person."""
    session_key: str
    """The conversation that is shown."""
    elsewhere: int
    """Runs of other conversations and of programs that are not settled."""
    state: str
    """Of that conversation, in words."""
    unread: int
    runs: tuple[RunInfo, ...]
    left_out: int
    unanswered: tuple[Unanswered, ...]
    questions: tuple[Question, ...]
    plans: tuple[Plan, ...]
    undelivered: int
