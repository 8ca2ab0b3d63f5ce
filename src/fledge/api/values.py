"""The values that the API returns: results, replies, runs in lists. They are copies; nothing in them changes later."""

from typing import ClassVar, Final, Generic, Literal, TypeVar, cast

from msgspec import UNSET, Struct, UnsetType

from fledge.core.entries import AttachmentShown, CompletionValue
from fledge.core.figures import duration
from fledge.core.file_change import FileChange
from fledge.core.freeze import Stats, one_line
from fledge.core.handover import Worktree
from fledge.core.run import Cleanup, EndedReason, Instant, Mode, Outcome
from fledge.core.value import NamedValue
from fledge.errors import RunFailed

T = TypeVar("T")

SHOWN: Final = 60
"""How many characters of a text are shown where a value is printed."""

Status = Literal["ok", "error", "timeout", "killed", "unknown", "pending"]
"""The outcome of a run; `pending`: it had not ended when the wait was over."""


class Result(Struct, Generic[T], frozen=True, kw_only=True):
    """The outcome of a run. A failed run is a `Result` with a status, not an exception.

    >>> result = await (await fl.spawn("Say hello"))
    >>> result.ok, result.status, result.text
    (True, 'ok', 'echo: Say hello')
    """

    status: Status
    """`pending`: the run had not ended when the wait was over."""
    text: str = ""
    """The answer; after a timeout or kill, the partial work."""
    error: str | None = None
    """Why the run failed."""
    ended_reason: EndedReason | None = None
    """Why the run ended; `complete` if it finished its task. In the gateway's JSON a killed run has the status `error`,
    and only this field is `killed`."""
    outcome: Outcome | None = None
    """`status` and `error` as one typed value; None while pending."""
    value_: T | UnsetType | None = UNSET
    """The stored value behind the property `value`; `value` on the wire."""
    value_error: str | None = None
    """Why the text does not fit the requested type or schema."""
    stats: Stats = Stats()
    """Run time in seconds, tokens and cost; None where unknown."""
    run_id: str
    """The id of the current attempt; earlier ids find the same run."""
    session_key: str
    label: str = ""
    artifacts: tuple[str, ...] = ()
    """Files that the run handed over, by their paths."""
    worktree: Worktree | None = None
    """If the run worked in a git worktree: the folder, the branch, the number of commits and the files with uncommitted
    changes."""
    phase: str
    """The phase of the run (docs/lifecycle.md)."""
    started_at: Instant | None = None
    ended_at: Instant | None = None

    @property
    def ok(self) -> bool:
        """True if the run finished its task and its answer has the requested type."""
        return self.status == "ok" and self.value_error is None

    @property
    def done(self) -> bool:
        """True once the run has ended."""
        return self.status != "pending"

    @property
    def value(self) -> T:
        """The answer: as `output_type`, as plain data for an output schema, as text if neither was given.

        Raises `RunFailed` if the run failed, has not ended, or its answer does not have that type.
        """
        return self.unwrap()

    def unwrap(self) -> T:
        """Return `value`, or raise `RunFailed`.

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
            return (
                f"the answer of {name} does not fit its output type: {self.value_error}; `text` has the answer as text"
            )
        return f"{name} ended with status {self.status}" + (f": {self.error}" if self.error else "")

    def __repr__(self) -> str:
        parts = [
            quoted(self.label) if self.label else self.run_id,
            self.status if self.done else f"{self.status} ({self.phase})",
            f"after {duration(self.ended_at - self.started_at)}" if self.started_at and self.ended_at else "",
            f"error: {self.error}" if self.error else "",
            f"value error: {self.value_error}" if self.value_error else "",
            quoted(self.text) if self.text else "",
        ]
        return f"<fledge result {', '.join(filter(None, parts))}>"


class RunInfo(NamedValue):
    """A run as listed by `fl.runs()` and `fl.tree()`.

    >>> run = await fl.spawn("Say hello", label="greeting")
    >>> (await run.info()).label
    'greeting'
    """

    session_key: str
    run_id: str
    number: int
    """Its number among the runs of its requester, as in `#2`, in the order in which they were spawned. It never
    changes, and no other run of that requester ever gets it."""
    label: str
    task: str
    status: str
    """The outcome once the run has ended, else the phase."""
    phase: str
    error: str | None
    ended_reason: EndedReason | None
    requester: str
    depth: int
    attempt: int
    plan: str
    """`none`, `planning` or `approved`."""
    delivery: str | None
    """How the announcement to the requester went: `delivered`, `skipped` or `undelivered`; None before that."""
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant | None
    unsettled: int
    """How many of its own children have not settled."""
    mode: Mode
    """`run`: it ends with its task. `session`: its conversation goes on."""
    cleanup: Cleanup
    """What happens to its conversation once its result was read."""
    controller: str
    """The session that may steer and kill it: its requester, unless another was set."""
    model: str = ""
    """The model it last ran with; empty: it has not run."""
    tokens: int = 0
    """Tokens used so far, input and output."""
    cost_usd: float | None = None
    """In dollars; None if no price is known."""
    children: tuple["RunInfo", ...] = ()
    """Filled in by `fl.tree()`."""
    left_out: int = 0
    """How many children are missing in `children` because of a limit."""
    stuck: bool = False
    """True if it has made no progress for `stuckAfterSeconds`."""
    queued_at: Instant | None = None
    """When it began to wait for a slot, if it waits."""
    retry_at: Instant | None = None
    """When it is tried again, if it is queued because no model could answer, or because a program that it needs is not
    running."""
    retry_reason: str = ""
    """Why it must be tried again."""
    archive_at: Instant | None = None
    """When it leaves the lists; None until it is completed, and if it stays."""
    origin: str = ""
    """The address of the message that asked for it, such as `ops on chat`; empty if none did."""


class TimelineEvent(NamedValue):
    """One event in the life of a run, and the phase after it.

    >>> run = await fl.spawn("Say hello")
    >>> [event.name async for event in run.events() if event.kind == "phase"]
    ['Admitted', 'Prepared', 'Claimed', 'AttemptEnded']
    """

    kind: ClassVar[Literal["phase"]] = "phase"
    """The kind of this event in `run.events()`."""
    at: Instant
    name: str
    phase: str
    attempt: int
    words: str
    """The event as a sentence."""
    reason: str = ""
    """Why it happened, if `name` does not say so."""

    @property
    def text(self) -> str:
        """The same as `words`."""
        return self.words


class Message(NamedValue):
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
    """For `user`: task, send, steer, wake, approval or notice. For `tool`: the tool's name."""
    calls: tuple[str, ...] = ()
    """For `assistant`: its tool calls, as `name arguments`."""
    run_id: str = ""
    """For a message: the run id that its sender got."""
    is_cut: bool = False
    """For `assistant`: the token limit cut the reply."""
    completions: tuple[CompletionValue, ...] = ()
    """For `event`: the results of subagents."""
    attachments: tuple[AttachmentShown, ...] = ()
    """For `user`: the files that came with the message."""


class Question(NamedValue):
    """A tool call that waits for a person: answer it with `fl.approve(id)` or `fl.deny(id)`.

    >>> await fl.approvals()
    []
    """

    id: str
    session_key: str
    tool: str
    arguments: str
    digest: str
    """A hash of tool and arguments; an answer with another digest is refused."""
    asked_at: Instant
    expires_at: Instant
    always: str = ""
    """The commands that `fl.approve(id, always=True)` would allow: this one, or, with `…` at the end, those with any
    paths of the folder there; empty if no rule can be made."""
    for_subagents: bool = False
    """True if a subagent asks; a rule then covers subagents of its agent too."""
    state: Literal["waiting", "allowed", "denied", "expired", "void", "started"] = "waiting"
    """`void`: the turn went on or ended without the call. `started`: the call was allowed and has begun."""
    answered_by: str = ""
    words: str = ""
    """The reason given with a denial, for the model."""
    rule: str = ""
    """The id of the rule that allowed the call, or that was made with the answer."""
    why: str = ""
    """Why a person is asked."""
    change: FileChange | None = None
    """What a call that waits would change in a file, as the file was when the question was asked; None for calls that
    change no file by themselves."""
    run_id: str = ""
    """The run of the subagent that asks; empty for a conversation."""
    label: str = ""
    """The label of the session that asks."""
    lineage: tuple[str, ...] = ()
    """The labels of the sessions above it, the conversation first."""
    cwd: str = ""
    """The folder in which the call would run."""
    is_sandboxed: bool = False
    """True if commands of this session run in a sandbox."""


class Plan(NamedValue):
    """A plan that waits for approval: `fl.approve_plan(plan.session_key)` or `fl.reject_plan(…, why)`.

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
    """The session that gets the plan and may answer it."""
    lineage: tuple[str, ...] = ()
    """The labels of the sessions above it, the conversation first."""


class GivenUp(NamedValue):
    """An undelivered result or message. `fl.retry(key)` delivers it again, `fl.dismiss(key)` removes it.

    >>> await fl.undelivered()
    []
    """

    key: str
    """For a result, the session key of its run; for a message, its own key."""
    session_key: str
    """For a result, the session of its run; for a message, the conversation that sent it."""
    run_id: str
    kind: str
    """`message` for a message to a person; other values are kinds of results."""
    label: str
    """For a message: its recipient."""
    status: str
    reason: str = ""
    """Why it could not be delivered."""
    text: str
    arrived_at: Instant | None
    to: str = ""
    """For a result, the session key of its requester; for a message, the address."""
    tries: int = 0
    """How often delivery was tried."""
    kept_until_at: Instant | None = None
    """When it is removed from the list."""


class Reply(NamedValue):
    """The answer of a conversation, or the reason why there is none.

    >>> reply = await fl.session("main").send("Hello")
    >>> reply.status, reply.text
    ('ok', 'echo: Hello')
    """

    kind: ClassVar[Literal["reply"]] = "reply"
    """The kind of this event in `conversation.stream()`; it is the last one."""
    status: Literal["ok", "error", "stopped", "pending"]
    """`error`: the turn failed and will be retried. `stopped`: it ended without an answer. `pending`: the wait timed
    out, or a person must answer a question first."""
    text: str = ""
    """The answer; empty also if the model chose to say nothing."""
    error: str | None = None
    run_id: str
    """The run id of the message: `Conversation.reply(run_id)` waits for its answer again."""
    questions: tuple[Question, ...] = ()
    """Tool calls that a person must answer before the turn continues."""
    delivery: str = ""
    """While it is pending and unread: how the message is read. If the run waits for an answer to its plan, how to give
    it."""

    @property
    def ok(self) -> bool:
        """True if there is an answer."""
        return self.status == "ok"


class Accepted(NamedValue, rename="camel"):
    """The return value of `fl.agent`."""

    run_id: str
    status: Literal["accepted"] = "accepted"
    failures: int | UnsetType = UNSET
    """How often the session's open turn had failed by then; unset if it had not, or if no turn was open."""


class Waited(NamedValue, rename="camel", omit_defaults=True):
    """The return value of `fl.agent_wait`. The status `pending` is never final: wait again."""

    status: Literal["ok", "error", "timeout", "pending"]
    run_id: str
    """The run id of the current attempt."""
    started_at: Instant | None = None
    ended_at: Instant | None = None
    error: str | None = None


class Forest(NamedValue):
    """The runs below some sessions, each with its children, oldest first. An archived run is among them only while a
    run below it is not archived."""

    runs: list[RunInfo]
    left_out: int
    """How many runs directly below these sessions are missing in `runs`, because of a limit."""


def quoted(text: str) -> str:
    """A text on one line, cut and in quotes, to be printed."""
    return f'"{one_line(text, SHOWN)}"'
