"""The values that verbs answer, besides those of the library: a folder, a run in full, sessions. Plain data."""

from typing import Literal

from fledge.api.values import Plan, Question, RunInfo, TimelineEvent
from fledge.core.announce import AnnounceOutcome, DeliveryTrace
from fledge.core.doing import Doing
from fledge.core.freeze import Stats
from fledge.core.handover import Artifact
from fledge.core.run import EndedReason, Instant
from fledge.core.spans import Mark
from fledge.core.standing import FailingTurn, Limit, NextDue, UnansweredTurn
from fledge.core.value import NamedValue


class Try(NamedValue):
    """One try to deliver a result or a plan of a run."""

    at: Instant
    trace: DeliveryTrace


class RanWith(NamedValue):
    """The model, tools and folder that a run really had, as recorded while it ran."""

    model: str
    thinking: str
    tools: tuple[str, ...]
    boxed: bool
    folder: str


class RunWorkspace(NamedValue):
    """Where a run works."""

    kind: Literal["inherit", "dir", "worktree"]
    """`inherit`: its requester's folder. `dir`: a folder of its own. `worktree`: a git worktree of its own."""
    folder: str
    """Its path; empty: the folder of its agent."""
    cwd: str = ""
    """The place in that folder where it starts."""
    is_sandboxed: bool = False
    """Its commands run in a sandbox, whatever the settings say."""


class BudgetUse(NamedValue):
    """One limit of a budget, by its name, and how much of it is used."""

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
    """Its result; empty while it has none, or while it is held back for runs below it."""
    stats: Stats
    """Tokens and cost of all its attempts so far; the run time once it has ended."""
    models: tuple[str, ...]
    """The models that really answered."""
    ran: RanWith | None = None
    timeout_s: float = 0.0
    budget: tuple[BudgetUse, ...] = ()
    spawned: int = 0
    """The number of children it ever had."""
    unanswered: tuple[UnansweredTurn, ...] = ()
    """Turns that have read its result and could not answer for half an hour."""
    failing: tuple[FailingTurn, ...] = ()
    """Its own turn, and the one that has read its result, if these fail and are tried again."""
    questions: tuple[Question, ...] = ()
    """Its tool calls that a person was asked about, or that a rule of a person allowed; at most the newest 300."""
    question: Question | None = None
    """The tool call that waits for a person now."""
    limits: tuple[Limit, ...] = ()
    """Its limits: the value asked for, the value that holds, and the rule that set it where they differ."""
    workspace: RunWorkspace
    artifacts: tuple[Artifact, ...] = ()
    """Files that it handed over: GET /artifacts/<run>/<name> returns each."""
    more_artifacts: int = 0
    """The number of files that it handed over besides those."""
    due: NextDue | None = None
    """The next change of the run that needs no event but time."""


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
    """Of a conversation that has yielded: the condition that it waits for, and the time that is left."""
    status: str = ""
    """Of a run: the status of its outcome once there is one, else its phase."""
    unanswered: str = ""
    """For how long its turn has been without an answer, and how often an answer was tried, in words; empty: for less
    than half an hour."""
    failing: FailingTurn | None = None
    """How its open turn fails; None if it does not."""
    project: str = ""
    """Of a conversation: the project folder in which it began."""
    first_words: str = ""
    """The beginning of the first entry in its transcript."""
    workspace: str = ""
    """The folder that it works in; empty: it has not worked yet, and was given none."""
    model: str = ""
    """The model that it last ran with; empty: it has not run."""
    waits: int = 0
    """Of a conversation or program: how many calls and plans, its own and those below it, wait for a person."""
    stuck: int = 0
    """Of a conversation or program: how many runs below it are stuck."""
    cost_usd: float | None = None
    """In dollars; None if no price is known."""
    cost_below_usd: float | None = None
    """The cost of everything below it, in dollars; None if no price is known."""


class SessionPage(NamedValue):
    """A page of sessions, the latest active first."""

    rows: tuple[SessionRow, ...]
    next: str
    """The cursor of the next page; empty: this is the last one. With a search or `kinds`, a page may have fewer rows
    than were asked for although another one follows."""
    now_at: Instant


class RunDelivery(NamedValue):
    """How the result of a run is handed over."""

    state: Literal["pending", "deferred", "delivered", "skipped", "undelivered"]
    tries: int
    why: str = ""
    """Why it is deferred, was skipped, or is undelivered."""
    delivered_at: Instant | None = None
    """When its requester read it."""


class RunRow(NamedValue):
    """A run as lists show it, in one row."""

    run_id: str
    session_key: str
    number: int
    """Its number among the runs of its requester, as in `#2`, in the order in which they were spawned. It never
    changes, and no other run of that requester ever gets it."""
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
    """When it crashed, restarted, was steered, killed or resumed, and when its plan was approved or rejected: the
    newest 20."""
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant | None
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    cost_usd: float | None
    """In dollars; None if no price is known."""
    cost_below_usd: float | None
    """The cost of everything below it, in dollars; None if no price is known."""
    budget: tuple[BudgetUse, ...]
    """The budget for it and for everything below it; empty: it has no budget of its own."""
    lane: str
    place: int
    """Its place in the queue of its lane, from 1 on; 0: it is not queued, it is paused, or it is behind place 1000."""
    now: Doing | None
    """Its present activity, or what it waits for; None: nothing more will happen."""
    stuck_at: Instant | None
    """When it was reported as stuck; None: it is not stuck."""
    delivery: RunDelivery | None
    """None while it has no outcome."""
    children: int
    """The number of children it ever had."""
    unsettled: int
    """The number of its children that have not settled."""
    question_id: str
    """The id of the question about its oldest call that waits for a person; empty: there is none."""
    plan_id: str
    """Its run id while its plan waits for an answer; else empty."""
    is_active: bool
    """Its outcome is open, or something below it has not settled."""


class FilterCounts(NamedValue):
    """How many runs each filter finds: in the folder, in the whole tree to which `below` belongs, or among the runs of
    `requester`. Search, agent and time do not narrow them."""

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
    """The cursor of the next page; empty: this is the last one. With a search, an agent or a subtree, a page may have
    fewer rows than were asked for although another one follows: at most 2000 runs are gone through for one page."""
    now_at: Instant
    is_driven: bool
    """A process drives the folder."""
    feed_cursor: int
    """The number of the last event that the rows include: a feed from this cursor has all later ones."""


class Ends(NamedValue):
    """The runs that a kill would end."""

    rows: tuple[RunRow, ...]
    left_out: int
    """How many more runs there are than rows."""


class Rest(NamedValue):
    """The work of a session: whether any is left, and the questions and failures that hold it up."""

    settled: bool
    questions: tuple[Question, ...] = ()
    """Tool calls that a person must answer before anything continues; empty while something continues without that."""
    plans: tuple[Plan, ...] = ()
    """Plans that wait for a person's answer."""
    failures: int = 0
    """How often in a row the open turn has failed; it is tried again automatically."""
    patience_seconds: float = 0.0
    """How long fledge waits for a model that cannot answer: models.patienceSeconds."""


class Target(NamedValue):
    """A word that names a subagent in slash commands."""

    word: str
    meaning: str
    """The status of the subagent, after its label where the word is a number."""


class ChildAtWork(NamedValue):
    """A subagent that has not settled."""

    session_key: str
    label: str
    """Its label, else the beginning of its task."""
    state: str
    """Its status, in words."""
    depth: int
    """1: a child of the conversation; 2: a child of such a child; and so on."""
    tokens: int = 0
    """The input and output tokens that it has used so far."""
    waits: bool = False
    """True if a tool call of it, or its plan, waits for a person."""
    started_at: Instant | None = None
    """When it first worked; None: it has not worked yet."""


class Below(NamedValue):
    """The present work of a conversation and of the subagents below it."""

    now_at: Instant
    state: Literal["idle", "busy", "queued"]
    opened_at: Instant | None = None
    """If it is busy: when its turn began."""
    waits: bool = False
    """True if a tool call of its own waits for a person."""
    unanswered: str = ""
    """For how long its turn has been without an answer, and how often an answer was tried, in words; empty: for less
    than half an hour."""
    failing: FailingTurn | None = None
    """How its open turn fails; None if it does not."""
    tokens_in: int = 0
    """The input tokens that the conversation itself has used so far; the next two are its output tokens and its
    cost."""
    tokens_out: int = 0
    cost_usd: float | None = None
    children: tuple[ChildAtWork, ...] = ()
    """The subagents that have not settled, in the order of their spawn, each before its own children."""
    targets: tuple[Target, ...] = ()


class Overview(NamedValue):
    """The present work in a folder, and everything that waits for a person."""

    now_at: Instant
    is_driven: bool
    """A process drives the folder."""
    is_unfinished: bool
    """Something is left to do, and no tool call waits for a person."""
    session_key: str
    """The conversation that is shown."""
    elsewhere: int
    """Runs of other conversations and of programs that are not settled."""
    state: str
    """The state of that conversation, in words."""
    unread: int
    runs: tuple[RunInfo, ...]
    left_out: int
    unanswered: tuple[UnansweredTurn, ...]
    questions: tuple[Question, ...]
    plans: tuple[Plan, ...]
    undelivered: int
