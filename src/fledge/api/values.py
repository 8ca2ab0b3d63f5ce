"""What a program gets to see, as values: results, replies, runs in lists. They are copies; nothing in them is live."""

from typing import ClassVar, Final, Generic, Literal, TypeVar, cast

from msgspec import UNSET, Struct, UnsetType

from fledge.core.entries import AttachmentShown, CompletionValue
from fledge.core.freeze import Stats, duration, one_line
from fledge.core.goods import Worktree
from fledge.core.run import EndedReason, Instant, Outcome
from fledge.errors import RunFailed

T = TypeVar("T")

SHOWN: Final = 60
"""How many characters of a text are shown where a value is printed."""

Status = Literal["ok", "error", "timeout", "killed", "unknown", "pending"]
"""How a run came out; `pending`: it has not, as far as anyone waited."""


class Result(Struct, Generic[T], frozen=True, kw_only=True):
    """What came of a run, or that nothing has yet: failing is a value, not an exception.

    >>> result = await (await fl.spawn("Say hello"))
    >>> result.ok, result.status, result.text
    (True, 'ok', 'echo: Say hello')
    """

    status: Status
    text: str = ""
    """Its frozen words; of a timeout or kill, what it had done so far."""
    error: str | None = None
    ended_reason: EndedReason | None = None
    """Why it is over; on the gateway's wire a killed run's status is `error`, and this says `killed`."""
    outcome: Outcome | None = None
    """The same as `status` and `error`, typed; None while pending."""
    value_: T | UnsetType | None = UNSET
    """What `value` answers, on the wire as `value`: the JSON in the text, where a type or schema was asked for."""
    value_error: str | None = None
    """Why the text does not fit that type or schema."""
    stats: Stats = Stats()
    run_id: str
    """Of the attempt that stands now; older ids find the same run."""
    session_key: str
    label: str = ""
    artifacts: tuple[str, ...] = ()
    """Files that it hands over, by their paths."""
    worktree: Worktree | None = None
    """Of a run that worked in a git worktree: its folder and branch, and what is there to be merged."""
    phase: str
    """Where the run is in its life."""
    started_at: Instant | None = None
    ended_at: Instant | None = None

    @property
    def ok(self) -> bool:
        """True if it finished what it was asked, in the form that was asked for."""
        return self.status == "ok" and self.value_error is None

    @property
    def done(self) -> bool:
        """True once there is an outcome."""
        return self.status != "pending"

    @property
    def value(self) -> T:
        """The answer as the type that was asked for; as plain data for a schema; its text if neither was.

        Raises `RunFailed` if there is none: the run failed, has not ended, or its answer is of another form.
        """
        return self.unwrap()

    def unwrap(self) -> T:
        """The same as `value`.

        >>> (await (await fl.spawn("Say hello"))).unwrap()
        'echo: Say hello'
        """
        if self.ok:
            return cast(T, self.text if self.value_ is UNSET else self.value_)
        raise RunFailed(self._why_no_value(), self)

    def _why_no_value(self) -> str:
        name = f"run {quoted(self.label) if self.label else self.run_id}"
        if not self.done:
            return f"{name} has not ended: it is {self.phase}"
        if self.status == "ok":
            return f"the answer of {name} is not what was asked for: {self.value_error}; `text` has its words"
        return f"{name} ended with status {self.status}" + (f": {self.error}" if self.error else "")

    def __repr__(self) -> str:
        parts = [
            quoted(self.label) if self.label else self.run_id,
            self.status if self.done else f"{self.status} ({self.phase})",
            *([f"after {duration(self.ended_at - self.started_at)}"] if self.started_at and self.ended_at else []),
            *([f"error: {self.error}"] if self.error else []),
            *([f"value error: {self.value_error}"] if self.value_error else []),
            *([quoted(self.text)] if self.text else []),
        ]
        return f"<fledge result {', '.join(parts)}>"


class RunInfo(Struct, frozen=True, kw_only=True):
    """A run as lists and trees show it.

    >>> run = await fl.spawn("Say hello", label="greeting")
    >>> (await run.info()).label
    'greeting'
    """

    session_key: str
    run_id: str
    label: str
    task: str
    status: str
    """The outcome's word once there is one, else the phase."""
    phase: str
    error: str | None
    ended_reason: EndedReason | None
    requester: str
    depth: int
    attempt: int
    plan: str
    """`none`, `planning` or `approved`."""
    delivery: str | None
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant | None
    unsettled: int
    """How many of its own children have not settled."""
    model: str = ""
    """The model it last ran with; empty: it has not run."""
    tokens: int = 0
    """What it has used so far, in and out."""
    cost_usd: float | None = None
    """In dollars; None if no price is known."""
    children: tuple["RunInfo", ...] = ()
    """Filled in by `fl.tree()`."""
    left_out: int = 0
    """How many of its children are not among them, where an answer is limited."""
    stuck: bool = False
    """It has been silent for long, and its requester was told so."""
    queued_at: Instant | None = None
    """Since when it waits for a slot, if it does."""
    retry_at: Instant | None = None
    """When it goes on, while it is queued because no model could answer."""
    retry_reason: str = ""
    """Why none could."""


class TimelineEvent(Struct, frozen=True, kw_only=True):
    """One thing that happened to a run, and the phase that left it in.

    >>> run = await fl.spawn("Say hello")
    >>> [event.name async for event in run.events() if event.kind == "phase"]
    ['Admitted', 'Prepared', 'Claimed', 'AttemptEnded']
    """

    kind: ClassVar[Literal["phase"]] = "phase"
    """What it is among the events of a stream."""
    at: Instant
    name: str
    phase: str
    attempt: int
    words: str
    """What happened, in people's words."""
    reason: str = ""
    """Why it happened, where the name does not say it."""

    @property
    def text(self) -> str:
        """The same as `words`."""
        return self.words


class Message(Struct, frozen=True, kw_only=True):
    """One entry of a transcript.

    >>> reply = await fl.session("main").send("Hello")
    >>> [(message.role, message.text) for message in await fl.session("main").history()]
    [('user', 'Hello'), ('assistant', 'echo: Hello')]
    """

    seq: int
    at: Instant
    role: Literal["user", "assistant", "tool", "event", "note"]
    text: str
    kind: str = ""
    """Of a user's entry: task, send, steer, wake, approval or notice; of a tool's, its name."""
    calls: tuple[str, ...] = ()
    """The tools an assistant's entry calls, as `name arguments`."""
    run_id: str = ""
    """Of a message: the run id under which it was accepted."""
    is_cut: bool = False
    """Of a reply: the token limit cut it, and no rest follows."""
    completions: tuple[CompletionValue, ...] = ()
    """Of an event: what came of children, as values."""
    attachments: tuple[AttachmentShown, ...] = ()
    """Of a message: the files that came with it."""


class Question(Struct, frozen=True, kw_only=True):
    """A tool call that waits for a person: answer it with `fl.approve(id)` or `fl.deny(id)`.

    >>> await fl.approvals()
    []
    """

    id: str
    session_key: str
    tool: str
    arguments: str
    digest: str
    """What an answer is bound to: a hash of tool and arguments."""
    asked_at: Instant
    expires_at: Instant
    always: str = ""
    """How commands begin that `fl.approve(id, always=True)` allows from now on; empty if no rule can be made of it."""
    for_subagents: bool = False
    """A subagent asks: such a rule covers the subagents that run as its agent, too."""
    state: Literal["waiting", "allowed", "denied", "expired", "void", "started"] = "waiting"
    """`void`: the turn went on without it. `started`: it was allowed, and has begun."""
    answered_by: str = ""
    words: str = ""
    """What was said with a no, for the model."""
    rule: str = ""
    """The id of the rule that covered the call, so that nobody was asked, or that was made with the answer."""
    why: str = ""
    """Why a person is asked, in words."""
    run_id: str = ""
    """Of a subagent's call: its run."""
    label: str = ""
    """Of the session that asks."""
    lineage: tuple[str, ...] = ()
    """The labels of the sessions above it, the conversation first."""
    cwd: str = ""
    """The folder in which the call would run."""
    is_sandboxed: bool = False
    """Its commands run in a sandbox."""


class Plan(Struct, frozen=True, kw_only=True):
    """A plan that awaits its answer: `fl.approve_plan(plan.session_key)` or `fl.reject_plan(…, why)`.

    >>> await fl.plans()
    []
    """

    session_key: str
    run_id: str
    label: str
    text: str
    expires_at: Instant
    asked_at: Instant
    requester: str
    """The session that is told of it, and may answer it."""
    lineage: tuple[str, ...] = ()
    """The labels of the sessions above it, the conversation first."""


class GivenUp(Struct, frozen=True, kw_only=True):
    """What found nobody and was given up, a result or a message: `fl.retry(…)` or `fl.dismiss(…)` it by its key.

    >>> await fl.undelivered()
    []
    """

    key: str
    """Of a result, the session key of its run; of a message, its own."""
    session_key: str
    """Of the run whose result it is; of a message, the conversation that speaks."""
    run_id: str
    kind: str
    """`message`: to a person outside. Others are kinds of results."""
    label: str
    """Of a message: to whom."""
    status: str
    reason: str = ""
    """Why it could not be delivered."""
    text: str
    arrived_at: Instant | None
    to: str = ""
    """For whom: of a result, the session key of its requester; of a message, the address."""
    tries: int = 0
    """How often it was tried."""
    kept_until_at: Instant | None = None
    """When it is taken off the list."""


class Reply(Struct, frozen=True, kw_only=True):
    """What a conversation answered, or why it has not.

    >>> reply = await fl.session("main").send("Hello")
    >>> reply.status, reply.text
    ('ok', 'echo: Hello')
    """

    kind: ClassVar[Literal["reply"]] = "reply"
    """What it is among the events of a stream, which it ends."""
    status: Literal["ok", "error", "stopped", "pending"]
    """`error`: the turn failed; it is tried again by itself. `stopped`: it ended without an answer. `pending`: time ran
    out, or a person is asked first."""
    text: str = ""
    """Empty too if the model chose to say nothing."""
    error: str | None = None
    run_id: str
    """`session.reply(run_id)` waits for the answer again."""
    questions: tuple[Question, ...] = ()
    """What a person must answer before the turn goes on."""

    @property
    def ok(self) -> bool:
        """True if there is an answer."""
        return self.status == "ok"


class Accepted(Struct, frozen=True, kw_only=True, rename="camel"):
    """What `fl.agent` answers."""

    run_id: str
    status: Literal["accepted"] = "accepted"
    failures: int | UnsetType = UNSET
    """Where the open turn of its session had failed by then: how often."""


class Waited(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What `fl.agent_wait` answers; `pending` is never terminal."""

    status: Literal["ok", "error", "timeout", "pending"]
    run_id: str
    """Of the attempt that stands now."""
    started_at: Instant | None = None
    ended_at: Instant | None = None
    error: str | None = None


class Forest(Struct, frozen=True, kw_only=True):
    """What is below some sessions, each run with its children, oldest first; archived ones only while something below
    them is not archived."""

    runs: list[RunInfo]
    left_out: int
    """How many there are directly below the sessions that are not among them."""


def quoted(text: str) -> str:
    """A text as it is shown in one line."""
    return f'"{one_line(text, SHOWN)}"'
