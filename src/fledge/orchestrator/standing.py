"""How a session stands, as values. Nothing here reads rows, so that whoever only shows them imports no store."""

from typing import Literal

from msgspec import Struct

from fledge.core.keys import ListKind
from fledge.core.run import Instant

State = Literal["idle", "working", "queued", "waiting", "deleted"]


class Unanswered(Struct, frozen=True, kw_only=True):
    """A turn that has read something and could not answer it for half an hour; it is still being tried."""

    session: str
    turn: int
    since_at: Instant
    tries: int
    rows: tuple[str, ...]
    """Keys of what it has read."""

    def words(self, now: Instant) -> str:
        """For how long, and how often an answer was tried."""
        times = "once" if self.tries == 1 else f"{self.tries} times"
        return f"unanswered for {(now - self.since_at) / 60:.0f} min, tried {times}"


class StatusView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How one session stands, read back from what was executed."""

    session_key: str
    agent_id: str
    kind: ListKind
    state: State
    label: str = ""
    run_id: str = ""
    run_status: str = ""
    started_at: int | None = None
    """When its run first worked, in milliseconds since the epoch; with the next two, as in a list of sessions."""
    ended_at: int | None = None
    runtime_ms: int | None = None
    model: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_cached: int | None = None
    """Input that the provider's cache served or stored; it is not among `tokens_in`."""
    cost_usd: float | None = None
    context_tokens: int | None = None
    """What the last request took of the model's window."""
    queue_mode: str = ""
    """How completions reach it while it is busy."""
    people_mode: str = ""
    """The same of what people say to it."""
    unread: int = 0
    children_active: int = 0
    children_done: int = 0
    questions: int = 0
    """Calls that wait for a person's approval."""
    note: str = ""
    """What is wrong with the last reply: that the token limit cut it."""
    unanswered: str = ""
    """For how long something that it has read is unanswered; empty if nothing is, for half an hour."""
