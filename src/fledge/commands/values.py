"""What the verbs answer, besides the values of the library: a folder, a run in full, sessions. Plain data."""

from typing import Literal

from fledge.api.values import Plan, Question, RunInfo, TimelineEvent
from fledge.core.announce import AnnounceOutcome, DeliveryTrace
from fledge.core.doing import Doing
from fledge.core.freeze import Stats
from fledge.core.handover import Artifact
from fledge.core.run import EndedReason, Instant
from fledge.core.spans import Mark
from fledge.core.standing import Limit, NextDue, UnansweredTurn
from fledge.core.value import NamedValue


class Try(NamedValue):
    """A try at delivering something of a run."""

    at: Instant
    trace: DeliveryTrace


class RanWith(NamedValue):
    """What a run really ran with, as recorded while it ran."""

    model: str
    thinking: str
    tools: tuple[str, ...]
    boxed: bool
    folder: str


class RunWorkspace(NamedValue):
    """Where a run works."""

    kind: Literal["inherit", "dir", "worktree"]
    """Its requester's folder, a folder of its own, or a git worktree of its own."""
    folder: str
    """Empty: its agent's."""
    cwd: str = ""
    """Where in the folder it starts."""
    is_sandboxed: bool = False
    """Its commands run in a sandbox, whatever the settings say."""


class BudgetUse(NamedValue):
    """How much of a budget is used."""

    name: str
    used: float
    most: float


class Story(NamedValue):
    """A run in full."""

    now_at: Instant
    run: RunInfo
    timeline: tuple[TimelineEvent, ...]
    tries: tuple[Try, ...]
    announced: AnnounceOutcome | None
    """How its announce came out so far; null while it is under way, or the run has no outcome."""
    text: str
    """Its frozen words; empty while it has none, or while they are held back."""
    stats: Stats
    """What all its attempts have used so far."""
    models: tuple[str, ...]
    """Those that really answered."""
    ran: RanWith | None = None
    timeout_s: float = 0.0
    budget: tuple[BudgetUse, ...] = ()
    spawned: int = 0
    """How many children it ever had."""
    unanswered: tuple[UnansweredTurn, ...] = ()
    """Turns that have read its answer and could not answer it for half an hour."""
    questions: tuple[Question, ...] = ()
    """Its calls that asked a person, or ran by a rule of theirs."""
    question: Question | None = None
    """The call that waits for a person now."""
    limits: tuple[Limit, ...] = ()
    """What was asked for and what holds, with the rule where they differ."""
    workspace: RunWorkspace
    artifacts: tuple[Artifact, ...] = ()
    """Files that it handed over: GET /artifacts/<run>/<name> has each."""
    more_artifacts: int = 0
    """Files besides those named."""
    due: NextDue | None = None
    """What happens next if nothing else does."""


class SessionRow(NamedValue):
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
    waits_for: str = ""
    """Of a conversation that has yielded: what it waits for, and for how much longer."""
    status: str = ""
    """Of a run: how it stands."""
    unanswered: str = ""
    """For how long something that it has read is unanswered; empty if nothing is, for half an hour."""
    project: str = ""
    """Of a conversation: the project folder it was begun in."""
    first_words: str = ""
    """The beginning of the first thing that was said there."""
    workspace: str = ""
    """The folder that it works in; empty: it has not worked, and was given none."""
    model: str = ""
    """The model that it last ran with; empty: it has not run."""
    waits: int = 0
    """Of a conversation or program: how many calls and plans, its own and those below it, wait for a person."""
    stuck: int = 0
    """How many runs below it are stuck."""
    cost_usd: float | None = None
    """In dollars; None if no price is known."""
    cost_below_usd: float | None = None
    """What everything below it has cost."""


class SessionPage(NamedValue):
    """A page of sessions, the latest active first."""

    rows: tuple[SessionRow, ...]
    next: str
    """The cursor of the next page; empty: there is none. A search may find less than a page holds before it ends."""
    now_at: Instant


class RunDelivery(NamedValue):
    """How the result of a run is handed over."""

    state: Literal["pending", "deferred", "delivered", "skipped", "undelivered"]
    tries: int
    why: str = ""
    """Why it is deferred, was skipped, or found nobody."""
    delivered_at: Instant | None = None
    """When its requester read it."""


class RunRow(NamedValue):
    """A run as lists show it, in one row."""

    run_id: str
    session_key: str
    number: int
    """Its place in the list of its requester's runs, as `#2` means it there; 0: too far down to be numbered."""
    ordinal: int
    """Orders runs that were created at the same time: the later one has the larger ordinal."""
    label: str
    task: str
    """Its first 200 characters."""
    agent_id: str
    model: str
    """The model it last ran with; empty: it has not run."""
    phase: str
    status: str
    """The outcome's word once there is one, else the phase."""
    ended_reason: EndedReason | None
    error: str
    """Why it failed, in plain words; empty if it did not."""
    parent: str | None
    """The run that spawned it; None if a conversation or a program did."""
    root: str
    """The conversation or program at the top."""
    requester: str
    """The session that gets its answer."""
    depth: int
    attempt: int
    crashes: int
    """How often a process died or hung while it drove the run."""
    marks: tuple[Mark, ...]
    """When it crashed, was steered, killed or resumed, or went on after a restart: the newest 20."""
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant | None
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    cost_usd: float | None
    """In dollars; None if no price is known."""
    cost_below_usd: float | None
    """What everything below it has cost."""
    budget: tuple[BudgetUse, ...]
    """What holds for it and for everything below it; empty: it has no budget of its own."""
    lane: str
    place: int
    """In the queue of its lane; 0: it is not queued, or far behind."""
    now: Doing | None
    """What it does or waits for; None: nothing more will happen."""
    stuck_at: Instant | None
    """Since when it is told as stuck; None: it is not."""
    delivery: RunDelivery | None
    """None while it has no outcome."""
    children: int
    """How many it ever had."""
    unsettled: int
    """How many of them have not settled."""
    question_id: str
    """Its oldest call that waits for a person; empty: none does."""
    plan_id: str
    """Its run id while its plan waits for an answer; else empty."""
    is_active: bool
    """Its outcome is open, or something below it has not settled."""


class FilterCounts(NamedValue):
    """How many runs each filter finds in the folder, or below the root or requester that was asked about. Search, agent
    and time do not narrow them."""

    all: int
    active: int
    waiting: int
    stuck: int
    failed: int
    undelivered: int


class RunPage(NamedValue):
    """A page of runs."""

    rows: tuple[RunRow, ...]
    counts: FilterCounts
    next: str
    """The cursor of the next page; empty: there is none. A page may hold less than was asked for before it ends: so
    much is gone through for one page."""
    now_at: Instant
    is_driven: bool
    """Somebody is at work in the folder."""
    feed_cursor: int
    """The last event that the rows know of: a feed that begins here tells what has happened since."""


class Ends(NamedValue):
    """What a kill would end."""

    rows: tuple[RunRow, ...]
    left_out: int
    """How many more."""


class Rest(NamedValue):
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


class Target(NamedValue):
    """What a subagent may be called."""

    word: str
    meaning: str
    """How it stands."""


class ChildAtWork(NamedValue):
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


class Below(NamedValue):
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


class Overview(NamedValue):
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
    unanswered: tuple[UnansweredTurn, ...]
    questions: tuple[Question, ...]
    plans: tuple[Plan, ...]
    undelivered: int
