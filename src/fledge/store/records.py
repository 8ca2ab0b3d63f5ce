"""The stored values: sessions, inbox rows, entries, turns, drivers, posts, routes, approvals, budget accounts."""

from typing import Any, Literal

from msgspec import field

from fledge.core.attachments import Receipt
from fledge.core.events import Event
from fledge.core.heartbeat import Cause
from fledge.core.images import ImageEntry
from fledge.core.permission import Offer
from fledge.core.policy import Budget, Spent
from fledge.core.route import Address, RouteSource
from fledge.core.run import Instant, Path, TextId
from fledge.core.turn import TurnEnd
from fledge.core.value import Value

SessionKind = Literal["main", "named", "subagent", "acp", "program"]
EntryKind = Literal["user", "assistant", "tool", "event", "note"]
CompletionKind = Literal["outcome", "plan", "expired", "late"]
InboxRowKind = Literal["outcome", "plan", "expired", "late", "task", "steer", "wake", "approval", "send", "notice"]
RowState = Literal["unread", "consumed", "suppressed", "void", "undelivered", "dismissed", "dropped"]

COMPLETIONS: frozenset[InboxRowKind] = frozenset(("outcome", "plan", "expired", "late"))


class SessionFacts(Value, omit_defaults=True):
    """Properties of a session besides its place in the tree. A person may change label, model and thinking."""

    agent_id: str = "main"
    label: str = ""
    role: Literal["main", "orchestrator", "leaf"] = "main"
    workspace: str = ""
    """Its workspace; empty: its agent's."""
    tools: tuple[str, ...] | None = None
    """The most it may have: the tools of its parent at the spawn. None: only the settings limit it."""
    boxed: bool = False
    """Its commands run in a sandbox, whatever the settings say."""
    offline: bool = False
    """The sandbox has no network, whatever the settings say."""
    cwd: str = ""
    """Its current folder, relative to the workspace."""
    artifacts: str = ""
    """The folder for files that it hands over, relative to `cwd`; empty: it hands over none."""
    model: str = ""
    """The model that a person has set; empty: the configured one."""
    thinking: str = ""
    project: str = ""
    """Of a conversation: the real path of the folder in which it was begun. It works there, unless the settings name a
    workspace. Empty: it works where the process works that holds the state folder."""


class Session(Value):
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


class Spec(Value, omit_defaults=True):
    """The parameters of a run: read by people and prompts, never by decisions."""

    task: str
    label: str = ""
    agent_id: str = "main"
    model: str = ""
    thinking: str = ""
    runtime: str = "subagent"
    controller: str = ""
    """The session that may list, steer and kill the run; empty: the parent."""
    created_at: Instant = 0.0
    idempotency_key: str = ""
    output_schema: dict[str, Any] | None = None
    """The JSON Schema of its answer; None: any text."""
    instructions: str = ""
    """Instructions in its prompt, besides its agent's."""
    tools: tuple[str, ...] | None = None
    """Names, or globs of names, of the tools it may use of those its agent has; None: all of them."""
    needs: tuple[str, ...] = ()
    """The needs that its program must meet, as `agent:<name>`, `tool:<name>`, `runtime:<name>`; it waits for that."""
    attachments: tuple[Receipt, ...] = ()
    """Attached files."""
    images: tuple[ImageEntry, ...] = ()
    """The attached images, which the model sees with the task."""
    origin: str = ""
    """The address of the message whose turn spawned it: its answer goes there."""
    asked: dict[str, Any] = field(default_factory=dict)
    """The other parameters of its spawn, as they were on the wire: `again` uses them."""

    @property
    def light_context(self) -> bool:
        """Its prompt has no documents of the workspace."""
        return bool(self.asked.get("lightContext"))

    @property
    def mount_path(self) -> str:
        """The folder of its attached files in the words of its task; empty if they have none."""
        return str(self.asked.get("attachAs", {}).get("mountPath", ""))


class ChildrenPage(Value):
    """The first children of a session in list order, and the number of all. Archived ones do not count."""

    keys: list[str]
    active: int
    """Runs without an outcome, or with unsettled runs below them."""
    done: int


RunFilter = Literal["all", "active", "done", "waiting", "stuck", "failed", "undelivered"]
"""`done`: not active. `waiting`: for a person. `failed`: with an error, a timeout or an unknown outcome. `undelivered`:
with an undelivered result."""


class RunWalk(Value, kw_only=True):
    """A filter of runs, which are listed newest first. Archived ones are in no list."""

    filter: RunFilter = "all"
    root: str = ""
    """Only runs below this conversation or program; empty: all."""
    requester: str = ""
    """Only children of this session; empty: all."""
    since: Instant | None = None
    """Only runs admitted at this time or later."""
    until: Instant | None = None
    """Only runs admitted before this time."""


class RunMark(Value):
    """A position in the order of admission. It stays valid when runs change or go."""

    at: Instant
    number: int
    """The id of the run's row: it orders runs that were admitted at the same time."""


class ListedRun(Value):
    """A run in a list."""

    key: str
    root: str
    mark: RunMark


class RunCounts(Value, kw_only=True):
    """How many runs each filter finds."""

    all: int = 0
    active: int = 0
    waiting: int = 0
    stuck: int = 0
    failed: int = 0
    undelivered: int = 0


class ListedSession(Value):
    """A session in a list, and the time of its last entry."""

    session: "Session"
    last_at: Instant


class AgentDay(Value):
    """Runs and cost of an agent on one day."""

    agent: str
    day: int
    """Since the epoch, in UTC."""
    runs: int
    cost_usd: float | None
    """None: nothing with a known price."""


class Counts(Value):
    """A session's children."""

    spawned: int
    unsettled: int

    @property
    def settled(self) -> int:
        """How many of all admitted children are settled now."""
        return self.spawned - self.unsettled


class Used(Value):
    """Tokens and cost of all replies of a session, summarised ones included; None where the provider gave no figure."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_usd: float | None = None
    tokens_cached: int | None = None
    """Input that the provider's cache served or stored; not included in `tokens_in`."""


class InboxRow(Value):
    """A message or completion in an inbox."""

    seq: int
    key: str
    session: str | None
    kind: InboxRowKind
    source: str | None
    """The run that a completion announces, or the sender of a message."""
    origin: str
    """The address it came from, to which the answer goes, as text; or empty."""
    state: RowState
    path: Path
    """The way of delivery that was chosen at its arrival."""
    body: str
    text: TextId | None
    """The text of a completion."""
    arrived_at: Instant
    closed_at: Instant | None = None
    """When it left the inbox; for a dropped row: when the session read the line about it, if there is one."""
    route: RouteSource = "fallback"
    """How the origin of a completion was found."""
    carried: str = ""
    """Images and files of a message, as `core.transcript.carried_body` writes them; empty if there are none."""

    @property
    def announces(self) -> CompletionKind | None:
        """The kind of completion; None for a message."""
        match self.kind:
            case "outcome" | "plan" | "expired" | "late" as kind:
                return kind
            case _:
                return None


class Entry(Value):
    """One line of a transcript."""

    seq: int
    at: Instant
    kind: EntryKind
    body: str


class Happened(Value):
    """An event with its number in the order of all events; a feed resumes from this number."""

    seq: int
    run: str
    version: int
    event: Event


class HeartbeatRow(Value):
    """The heartbeat of a conversation."""

    session: str
    cause: Cause | Literal[""] = ""
    """The cause of the wake that waits or whose turn is queued; empty if there is none."""
    reason: str = ""
    due_at: Instant | None = None
    """When that wake is due; None once its turn is queued, or if its active hours never come."""
    held: Literal["", "busy", "quiet-hours"] = ""
    """Why the wake has not become a turn yet."""
    beat_at: Instant | None = None
    """When the periodic heartbeat is due."""
    said: str = ""
    """The last text that a heartbeat turn delivered."""
    said_at: Instant | None = None


class TurnRan(Value, omit_defaults=True):
    """Model, tools and folder of a turn, as they were at the model's first reply."""

    model: str
    """The requested model, by its provider's name. Each reply names the model that answered."""
    thinking: str = "off"
    tools: tuple[str, ...] = ()
    boxed: bool = False
    workspace: str = ""


class Driver(Value):
    """The driver of a session: its lease and its slot."""

    session: str
    epoch: int
    owner: str
    lane: str
    suspect: bool
    claimed_at: Instant
    progress_at: Instant
    step_open: bool
    release_at: Instant | None
    """Set when it is superseded or stopped: at this time the slot is free even if it never exits."""
    interrupts: int = 0
    """How many of its steps were interrupted."""
    patient_until: Instant | None = None
    """The timeout of its running tools: until then it does not count as stuck."""
    works_in: str | None = None
    """The workspace in which its tools may write, by its real path; None before its first step with tools."""
    works_since: Instant | None = None


PostState = Literal["waiting", "sent", "undelivered", "dismissed"]


class OutboxPost(Value):
    """A message, a hook call or a removal in the outbox."""

    key: str
    kind: str
    run: str | None
    body: str
    tries: int
    """How often it failed."""
    due_at: Instant | None
    """When it is sent; for an undelivered one, when it is dismissed."""
    lane: str = ""
    """Posts of one lane are sent one after the other, in order; without a lane, each by itself."""
    retries: int = 3
    expires_at: Instant | None = None
    state: PostState = "waiting"
    error: str = ""


class Route(Value, kw_only=True):
    """The address to which a session's replies go."""

    session: str
    kind: Literal["last", "bound"]
    """`last`: the address of the last message. `bound`: messages from this address go to the session."""
    address: Address
    used_at: Instant
    """When a message last came from or went to this address."""
    owner: str = ""
    """The person or client that bound it."""
    made_by: Literal["spawn", "focus"] = "spawn"
    """Whether the binding was made at the spawn, or by `/focus`."""
    idle_s: float = 0.0
    """A binding ends after this time without a message; 0: never."""
    ends_at: Instant | None = None
    """A binding ends at this time at the latest."""

    @property
    def due_at(self) -> Instant | None:
        """When the binding ends without further messages."""
        if self.kind == "last":
            return None
        ends = [at for at in (self.used_at + self.idle_s if self.idle_s else None, self.ends_at) if at is not None]
        return min(ends, default=None)


ApprovalState = Literal["waiting", "allowed", "denied", "expired", "void", "started"]


class Approval(Value, kw_only=True):
    """A tool call that needs a person's approval."""

    id: str
    session: str
    entry: int
    index: int
    tool: str
    arguments: str
    digest: str
    """Digest of tool and arguments: an answer applies only to these."""
    state: ApprovalState
    asked_at: Instant
    expires_at: Instant
    answered_by: str = ""
    offer: Offer | None = None
    """The rule that *always* would add; None if no rule can be made."""
    words: str = ""
    """The person's reason for a refusal, for the model."""
    rule: str = ""
    """The id of the rule that allowed the call, or that the answer added."""
    why: str = ""
    """Why a person is asked."""

    @property
    def by_rule(self) -> bool:
        """True if a rule allowed the call without asking."""
        return self.rule != "" and self.offer is None


class Wishes(Value, omit_defaults=True):
    """Options of a request for the turn that reads its message; empty: the usual ones."""

    model: str = ""
    thinking: str = ""
    extra_system_prompt: str = ""
    lane: str = ""
    timeout_s: float = 0.0
    """The timeout of that turn; 0: none."""
    deliver: bool = True
    """False: the reply is sent to no channel."""
    compact: bool = False
    """True: the transcript is summarised first."""


class MessageRequest(Value, kw_only=True):
    """A message to a session whose answer can be waited for by a run id."""

    run_id: str
    session: str
    row: str
    """The key of the inbox row with the message."""
    wishes: Wishes = Wishes()
    accepted_at: Instant
    turn: int | None = None
    """The turn that read the message."""
    started_at: Instant | None = None
    ended_at: Instant | None = None
    ended: TurnEnd | None = None
    """How that turn ended."""
    entry: int = 0
    """The newest entry of the transcript when it ended: its reply, if it replied."""


class BudgetAccount(Value):
    """The budget of a session with everything below it, and what is used of it."""

    session: str
    budget: Budget
    used: Spent = Spent()
    reserved: Spent = Spent()
    """Reserved for current model steps."""
    warned: bool = False


class LaneQueue(Value):
    """The sessions that wait for a slot of a lane."""

    lane: str
    count: int
    oldest: str
    """The session that has waited longest."""


class QueuePlace(Value):
    """The place of a session in its lane's queue."""

    session: str
    lane: str
    rank: int
    suspect: bool
    due_at: Instant | None = None
