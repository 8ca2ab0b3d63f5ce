"""What a store holds, as values: sessions, rows, entries, turns, drivers, posts, routes, questions, budget accounts."""

from typing import Any, Literal

from msgspec import Struct

from fledge.core.attachments import Receipt
from fledge.core.events import Event
from fledge.core.heartbeat import Cause
from fledge.core.images import ImageEntry
from fledge.core.permission import Offer
from fledge.core.policy import Budget, Spent
from fledge.core.route import Address, RouteSource
from fledge.core.run import Instant, Path, TextId
from fledge.core.turn import TurnEnd

SessionKind = Literal["main", "named", "subagent", "acp", "program"]
EntryKind = Literal["user", "assistant", "tool", "event", "note"]
CompletionKind = Literal["outcome", "plan", "expired", "late"]
InboxRowKind = Literal["outcome", "plan", "expired", "late", "task", "steer", "wake", "approval", "send", "notice"]
RowState = Literal["unread", "consumed", "suppressed", "void", "undelivered", "dismissed", "dropped"]

COMPLETIONS: frozenset[InboxRowKind] = frozenset(("outcome", "plan", "expired", "late"))


class SessionFacts(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is known of a session besides its place in the tree. A person may change label, model and thinking."""

    agent_id: str = "main"
    label: str = ""
    role: Literal["main", "orchestrator", "leaf"] = "main"
    workspace: str = ""
    """The folder it works in; empty: its agent's."""
    tools: tuple[str, ...] | None = None
    """The ceiling: tools its parent had when it spawned it. None: nothing but the settings limits it."""
    boxed: bool = False
    """Its commands run in the sandbox, whatever the settings say."""
    offline: bool = False
    """That sandbox has no network, whatever the settings say."""
    cwd: str = ""
    """Where in its folder it starts; relative paths begin there."""
    artifacts: str = ""
    """Where in its folder it puts what it hands over; empty: nothing is looked for."""
    model: str = ""
    """What a person set for its turns; empty: as configured."""
    thinking: str = ""
    project: str = ""
    """Of a conversation: the folder it was begun in, by real path. It works there, unless the settings name a
    workspace. Empty: where its holder works."""


class Session(Struct, frozen=True, gc=False):
    """A durable conversation."""

    key: str
    kind: SessionKind
    parent: str | None
    depth: int
    facts: SessionFacts
    deleted: bool
    epoch: int
    generation: int
    """Raised by every kill or stop that names this session."""
    created_at: Instant

    @property
    def is_main(self) -> bool:
        """A main conversation of its agent: the one called `main`, or that of a project folder."""
        return self.kind == "main"


class Spec(Struct, frozen=True, gc=False, omit_defaults=True):
    """What was asked of a run: read by people and prompts, never by decisions."""

    task: str
    label: str = ""
    agent_id: str = "main"
    model: str = ""
    thinking: str = ""
    runtime: str = "subagent"
    controller: str = ""
    """Who may list, steer and kill; empty: the parent."""
    created_at: Instant = 0.0
    idempotency_key: str = ""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema its answer is to meet, if one was asked for."""
    instructions: str = ""
    """What it is told about itself besides its agent's instructions."""
    tools: tuple[str, ...] | None = None
    """Names, or globs of names, of the tools it may use of those its agent has; None: all of them."""
    needs: tuple[str, ...] = ()
    """What only a program can bring, as `agent:<name>` and `tool:<name>`: without it the run waits."""
    attachments: tuple[Receipt, ...] = ()
    """Files it was given."""
    images: tuple[ImageEntry, ...] = ()
    """Those of them that are images, which its task is shown with."""
    origin: str = ""
    """Where the words of the turn that spawned it came from: where its answer should go."""
    asked: dict[str, Any] = {}
    """Parameters of its spawn that are not told above, as they stood on the wire: for a run with the same ones."""


class ChildrenPage(Struct, frozen=True, gc=False):
    """The first of a session's children in list order, and how many there are in all. Archived ones do not count."""

    keys: list[str]
    active: int
    """Their outcome is open, or something below them is unsettled."""
    done: int


RunFilter = Literal["all", "active", "done", "waiting", "stuck", "failed", "undelivered"]
"""`done`: not active. `waiting`: for a person. `failed`: with an error, a timeout or an unknown outcome. `undelivered`:
something of it found nobody."""


class RunWalk(Struct, frozen=True, gc=False, kw_only=True):
    """Which runs are gone through, the newest first. Archived ones are in no list."""

    filter: RunFilter = "all"
    root: str = ""
    """Only what is below this conversation or program; empty: everything."""
    requester: str = ""
    """Only this session's own children; empty: everybody's."""
    since: Instant | None = None
    """Only what was admitted then or later."""
    until: Instant | None = None
    """Only what was admitted earlier."""


class RunMark(Struct, frozen=True, gc=False):
    """A place in the order of admission. It stays where it is, whatever becomes of runs."""

    at: Instant
    number: int
    """Of the run's row: runs that were admitted at the same time are told apart by it."""


class ListedRun(Struct, frozen=True, gc=False):
    """A run that was come across."""

    key: str
    root: str
    mark: RunMark


class RunCounts(Struct, frozen=True, gc=False, kw_only=True):
    """How many runs each filter finds."""

    all: int = 0
    active: int = 0
    waiting: int = 0
    stuck: int = 0
    failed: int = 0
    undelivered: int = 0


class ListedSession(Struct, frozen=True, gc=False):
    """A session that was come across, and when something was last said in it."""

    session: "Session"
    last_at: Instant


class AgentDay(Struct, frozen=True, gc=False):
    """What an agent began and spent on a day."""

    agent: str
    day: int
    """Since the epoch, in UTC."""
    runs: int
    cost_usd: float | None
    """None: nothing with a known price."""


class Counts(Struct, frozen=True, gc=False):
    """A session's children."""

    spawned: int
    unsettled: int

    @property
    def settled(self) -> int:
        """How many of those ever admitted are settled now."""
        return self.spawned - self.unsettled


class Used(Struct, frozen=True, gc=False):
    """What a session's replies used, those that a note stands for included; None where no provider said."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    tokens_cached: int | None = None
    """Input that the provider's cache served or stored; it is not among `tokens_in`."""


class InboxRow(Struct, frozen=True, gc=False):
    """One thing in an inbox."""

    seq: int
    key: str
    session: str | None
    kind: InboxRowKind
    source: str | None
    """The run a completion announces; who sent a message."""
    origin: str
    """Where it came from, and so where the answer goes: an address as text, or empty."""
    state: RowState
    path: Path
    """How it was to be delivered when it arrived."""
    body: str
    text: TextId | None
    """A completion's words."""
    arrived_at: Instant
    closed_at: Instant | None = None
    """When it left the inbox; of a dropped row: when its line was told, if one was to be."""
    route: RouteSource = "fallback"
    """How the origin of a completion was found."""
    carried: str = ""
    """What came with a message, as `core.transcript.carried_body` writes it; empty if nothing did."""

    @property
    def announces(self) -> CompletionKind | None:
        """What it announces of the run `source`; None if it is a message."""
        match self.kind:
            case "outcome" | "plan" | "expired" | "late" as kind:
                return kind
            case _:
                return None


class Entry(Struct, frozen=True, gc=False):
    """One line of a transcript."""

    seq: int
    at: Instant
    kind: EntryKind
    body: str


class Happened(Struct, frozen=True, gc=False):
    """An event with its place in the order of all events: what a feed resumes from."""

    seq: int
    run: str
    version: int
    event: Event


class HeartbeatRow(Struct, frozen=True, gc=False):
    """What is wanted of a conversation by itself."""

    session: str
    cause: Cause | Literal[""] = ""
    """Of the wake that waits, or whose turn is queued; empty if none is wanted."""
    reason: str = ""
    due_at: Instant | None = None
    """When that wake is looked at; None once its turn is queued, or if its hours never come."""
    held: Literal["", "busy", "quiet-hours"] = ""
    """Why it was not a turn yet."""
    beat_at: Instant | None = None
    """When the periodic one is due."""
    said: str = ""
    """What such a turn last said aloud."""
    said_at: Instant | None = None


class TurnRan(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a turn really ran with, as its driver had it when the model first answered."""

    model: str
    """As it was asked for by its provider's name; which one answered stands in each reply."""
    thinking: str = "off"
    tools: tuple[str, ...] = ()
    boxed: bool = False
    workspace: str = ""


class Driver(Struct, frozen=True, gc=False):
    """Who drives a session: the lease and the slot."""

    session: str
    epoch: int
    owner: str
    lane: str
    suspect: bool
    claimed_at: Instant
    progress_at: Instant
    step_open: bool
    release_at: Instant | None
    """Set once it was superseded or told to stop: then the slot is free even if it never exits."""
    interrupts: int = 0
    """How many of its steps were called off."""
    patient_until: Instant | None = None
    """Its tools may take that long: until then it is not stuck."""


PostState = Literal["waiting", "sent", "undelivered", "dismissed"]


class OutboxPost(Struct, frozen=True, gc=False):
    """One thing in the outbox."""

    key: str
    kind: str
    run: str | None
    body: str
    tries: int
    """How often it failed."""
    due_at: Instant | None
    """When it is sent; of an undelivered one, when it is dismissed."""
    lane: str = ""
    """Posts of one lane are sent one after the other, in order; without a lane, each by itself."""
    retries: int = 3
    expires_at: Instant | None = None
    state: PostState = "waiting"
    error: str = ""


class Route(Struct, frozen=True, gc=False, kw_only=True):
    """Where a session's words go."""

    session: str
    kind: Literal["last", "bound"]
    """Where somebody last spoke to it; or it belongs to that place, and what is said there is said to it."""
    address: Address
    used_at: Instant
    """When something was last said there."""
    owner: str = ""
    """Who bound it."""
    made_by: Literal["spawn", "focus"] = "spawn"
    """A binding was made for the session, or somebody chose it for their place."""
    idle_s: float = 0.0
    """A binding ends after this long without a word; 0: never."""
    ends_at: Instant | None = None
    """A binding ends then at the latest."""

    @property
    def due_at(self) -> Instant | None:
        """When the binding ends if nothing more is said."""
        if self.kind == "last":
            return None
        ends = [at for at in (self.used_at + self.idle_s if self.idle_s else None, self.ends_at) if at is not None]
        return min(ends, default=None)


ApprovalState = Literal["waiting", "allowed", "denied", "expired", "void", "started"]


class Approval(Struct, frozen=True, gc=False, kw_only=True):
    """A question to a person: may this very call be run?"""

    id: str
    session: str
    entry: int
    index: int
    tool: str
    arguments: str
    digest: str
    """Of tool and arguments: an answer counts only for these."""
    state: ApprovalState
    asked_at: Instant
    expires_at: Instant
    answered_by: str = ""
    offer: Offer | None = None
    """The rule that an *always* makes of it; None if none can be made."""
    words: str = ""
    """What the person said with a no, for the model."""
    rule: str = ""
    """The id of the rule by which it was allowed unasked, or which was made with the answer."""
    why: str = ""
    """Why a person is asked."""

    @property
    def by_rule(self) -> bool:
        """Nobody was asked: a rule of a person's covered the call."""
        return self.rule != "" and self.offer is None


class Wishes(Struct, frozen=True, gc=False, omit_defaults=True):
    """What is wished for the turn that reads a commission's words; empty: as usual."""

    model: str = ""
    thinking: str = ""
    extra_system_prompt: str = ""
    lane: str = ""
    timeout_s: float = 0.0
    """How long that turn may take; 0: no limit."""
    deliver: bool = True
    """False: its reply goes to no channel."""
    compact: bool = False
    """True: what was said before is summarised first."""


class MessageRequest(Struct, frozen=True, gc=False, kw_only=True):
    """What somebody asked of a session and waits for under a run id."""

    run_id: str
    session: str
    row: str
    """The key of the inbox row that carries the words."""
    wishes: Wishes = Wishes()
    accepted_at: Instant
    turn: int | None = None
    """The turn that read the words."""
    started_at: Instant | None = None
    ended_at: Instant | None = None
    ended: TurnEnd | None = None
    """How that turn ended."""
    entry: int = 0
    """The newest entry of the transcript when it ended: its reply, if it replied."""


class BudgetAccount(Struct, frozen=True, gc=False):
    """What a session and everything below it may use, and what became of it."""

    session: str
    budget: Budget
    used: Spent = Spent()
    reserved: Spent = Spent()
    """Set aside for model steps under way."""
    warned: bool = False


class LaneQueue(Struct, frozen=True, gc=False):
    """Who waits for a slot of a lane."""

    lane: str
    count: int
    oldest: str
    """The session that has waited longest."""


class QueuePlace(Struct, frozen=True, gc=False):
    """A queued session that may be claimed."""

    session: str
    lane: str
    rank: int
    suspect: bool
    due_at: Instant | None = None
