"""Hooks: events of runs for listeners, and the answers they may give.

Four moments of a run's life. Two are news (`spawned`, `ended`), two are questions with a bounded time for the answer:
`spawning` may bind a thread or forbid it, `delivery_target` may send an answer elsewhere. Pure values: this file does
not know the listeners.
"""

from typing import Any, Final, Literal, get_args

from fledge.core.params import read_params
from fledge.core.route import Address, check_address
from fledge.core.run import Instant, Mode
from fledge.core.value import Value
from fledge.errors import BadInput, FledgeError, Refused

HookName = Literal["subagent_spawning", "subagent_spawned", "subagent_delivery_target", "subagent_ended"]
HOOKS: Final[tuple[HookName, ...]] = get_args(HookName)
Left = Literal["completed", "deleted", "swept", "released"]
"""Why a context engine need not keep a run's context any more: done and kept; done and deleted; archived in its time;
taken off the lists."""
EndedOutcome = Literal["ok", "error", "timeout", "killed", "unknown", "reset", "deleted"]
"""How it came out; `reset`: nothing of the run ended, its thread was unbound."""


class _Told(Value, kw_only=True, rename="camel", tag_field="hook"):
    channel: str = ""
    """With `to` and `thread`: the place outside that is concerned; empty if there is none."""
    to: str = ""
    thread: str = ""

    @property
    def address(self) -> Address | None:
        """The place outside that is concerned, if any."""
        return Address(self.channel, self.to, self.thread) if self.channel else None


class _Spawn(_Told, kw_only=True):
    child_session_key: str
    requester_session_key: str
    agent_id: str
    label: str
    mode: Mode


class SubagentSpawning(_Spawn, kw_only=True, tag="subagent_spawning"):
    """A child that wants a thread is being prepared; the place is where it was asked for."""

    thread_requested: bool = True


class SubagentSpawned(_Spawn, kw_only=True, tag="subagent_spawned"):
    """A child was accepted; the place is its thread, else where it was asked for."""

    run_id: str
    thread_requested: bool = False


class DeliveryTarget(_Told, kw_only=True, tag="subagent_delivery_target"):
    """A child's answer is about to be announced; the place is where it would go."""

    child_session_key: str
    requester_session_key: str
    run_id: str
    mode: Mode
    expects_completion_message: bool


class SubagentEnded(_Told, kw_only=True, tag="subagent_ended"):
    """A run is over, or its thread was unbound; the place is that thread."""

    target_session_key: str
    target_kind: Literal["subagent", "acp"]
    run_id: str
    reason: str
    outcome: EndedOutcome
    error: str = ""
    send_farewell: bool = False
    """The run leaves a thread: the people there should get a farewell."""
    ended_at: Instant


HookEvent = SubagentSpawning | SubagentSpawned | DeliveryTarget | SubagentEnded


class HookCall(Value):
    """One event for one listener, as it stands in the outbox."""

    listener: str
    event: HookEvent


class Binding(Value, kw_only=True, rename="camel"):
    """The answer to `subagent_spawning`: the thread is ready, or the spawn must not happen."""

    status: Literal["ok", "error"] = "ok"
    error: str = ""
    thread_binding_ready: bool = False
    channel: str = ""
    """Left out: the channel, and the person, it was asked for from."""
    to: str = ""
    thread: str = ""


class _Place(Value, kw_only=True):
    channel: str
    to: str
    thread: str = ""


def thread_for(asked: SubagentSpawning, answer: object) -> Address | None:
    """The thread that an answer binds; None if it says nothing. Refused, each in its own words: that it forbids the
    spawn, that no thread is ready, that its answer cannot be read or names no place."""
    if answer is None:
        return None
    said = _read(answer, Binding, "the subagent_spawning hook answered what cannot be read")
    if said.status == "error":
        raise Refused("error", f"thread: the subagent_spawning hook refused it: {said.error or 'no reason given'}")
    if not said.thread_binding_ready:
        raise Refused("error", "thread: the subagent_spawning hook made no thread ready")
    address = Address(said.channel or asked.channel, said.to or asked.to, said.thread)
    try:
        if not said.thread:
            raise BadInput("thread", "must not be empty")
        return check_address(address)
    except BadInput as error:
        raise Refused("error", f"thread: the subagent_spawning hook named no thread: {error}") from None


def target_in(answer: object) -> Address | None:
    """The address an answer to `subagent_delivery_target` names; None for anything that names none."""
    if isinstance(answer, Address):
        answer = {"channel": answer.channel, "to": answer.to, "thread": answer.thread}
    try:
        said = _read(answer, _Place, "")
        return check_address(Address(said.channel, said.to, said.thread))
    except FledgeError:
        return None


def _read(answer: object, kind: type[Any], words: str) -> Any:
    try:
        return answer if isinstance(answer, kind) else read_params(kind, answer, "answer").params
    except BadInput as error:
        raise Refused("error", f"thread: {words} ({error})") from None
