"""Verbs on runs that change something or wait: `runs.*` and `plans.*`. A target is a run id, a session key, or a word
that lists show."""

from typing import Annotated, Any

from msgspec import Meta, field
from msgspec.structs import replace

from fledge.api.fledge import open_program
from fledge.api.spawn_options import program_key
from fledge.api.values import Reply, Result
from fledge.api.views import session_key
from fledge.commands.gateway_state import GatewayState
from fledge.commands.looking import found, is_begun, session_of
from fledge.commands.params import (
    DefaultModel,
    FolderParam,
    One,
    RunId,
    SessionKeyParam,
    ShortText,
    WaitMs,
    WaitSeconds,
    WordsParam,
)
from fledge.commands.sessions import StopsWait, check_folder, replied, stopped, while_open
from fledge.commands.table import Params, method
from fledge.commands.wire import WireObject
from fledge.core.exchange import plan_words
from fledge.core.keys import agent_of, main_key
from fledge.core.params import formerly
from fledge.core.policy import STEER_CHARS
from fledge.core.run import Run
from fledge.core.targets import is_everybody
from fledge.core.value import NamedValue
from fledge.errors import NotFound
from fledge.orchestrator import control, spawn, views
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.effects import Killing
from fledge.orchestrator.messenger import Sent
from fledge.orchestrator.spawn_params import SpawnBudget, SpawnParams
from fledge.orchestrator.spawner import accepted
from fledge.store.base import Tx


class Spawn(SpawnParams, frozen=True, kw_only=True, rename="camel"):
    """`runs.spawn`: the parameters of `sessions_spawn`, and the requester of the run."""

    agent_id: Annotated[
        str, Meta(description="another agent's id, if the requester may spawn it"), formerly("agentId")
    ] = field(default="", name="agent")
    requester: SessionKeyParam = "main"
    """The conversation that gets the answer."""
    program: Annotated[str, Meta(max_length=64, description="instead: a program, which reads it by run id")] = ""
    folder: FolderParam = ""
    """Where a program's run works, unless the settings name a workspace."""
    default_model: DefaultModel = ""

    @property
    def spawn(self) -> SpawnParams:
        """The parameters of `sessions_spawn` alone."""
        return SpawnParams(**{name: getattr(self, name) for name in SpawnParams.__struct_fields__})


@method("runs.spawn", nested="params", formerly="subagents.spawn")
async def subagents_spawn(gateway: GatewayState, params: Spawn) -> WireObject:
    """Start a run on behalf of a conversation that exists, of the main conversation, or of a program that reads its
    result by run id."""
    session = session_key(params.requester, "requester")
    if params.program:
        session = program_key(params.program)

    def open_requester(c: Commit) -> None:
        if params.program:
            open_program(c, session)
        elif not is_begun(c.tx, session):
            if session != main_key():
                raise NotFound(f"no session {session}: say something to it first, or name a program")
            spawn.open_conversation(c, session)

    if params.program:
        await check_folder(gateway, params.folder, params.agent_id or agent_of(session))
        caller = gateway.fl.spawner.program_in(session, params.folder)
    else:
        caller = await gateway.fl.spawner.caller_for(session)
    caller = replace(caller, default_model=params.default_model)
    return accepted(await gateway.fl.spawner.spawn(params.spawn, caller, open_requester))


class ResultOf(Params):
    """`runs.result`."""

    run: RunId
    timeout_ms: WaitMs = 30_000
    peek: bool = False
    """Answer at once, without waiting; the result does not count as delivered."""


@method("runs.result", formerly="subagents.result")
async def subagents_result(gateway: GatewayState, params: ResultOf) -> Result[Any]:
    """The result of a run; waits until it has ended, at most `timeoutMs`. Reading the result of a program's run counts
    as its delivery."""
    run = await gateway.fl.run(params.run)
    result = await (run.peek() if params.peek else while_open(gateway, run.result, params.timeout_ms / 1000))
    return replace(result, status="error") if result.status == "killed" else result


class WordsForRun(One):
    """A message for a run."""

    message: WordsParam


class NextAttempt(NamedValue):
    """The new attempt of a run."""

    session_key: str
    run_id: str
    attempt: int


def _next_attempt(run: Run) -> NextAttempt:
    return NextAttempt(session_key=run.key, run_id=run.run_id, attempt=run.attempt)


@method("runs.steer", formerly="subagents.steer")
async def subagents_steer(gateway: GatewayState, params: WordsForRun) -> NextAttempt:
    """Stop what a run is doing and redirect it: a new attempt."""
    return _next_attempt(await gateway.commit(lambda c: control.steer(c, found(c.tx, params), params.message)))


async def _found(gateway: GatewayState, params: One) -> str:
    return await gateway.read(lambda tx: found(tx, params))


class ResumeParams(One):
    """`runs.resume`."""

    words: Annotated[str, Meta(max_length=STEER_CHARS, description="something to add, for the run")] = ""
    budget: Annotated[SpawnBudget, Meta(description="a new budget, for a run that has used up its own")] | None = None


@method("runs.resume")
async def runs_resume(gateway: GatewayState, params: ResumeParams) -> NextAttempt:
    """Let a run that was killed, failed or timed out continue in a new attempt, with all it had done, and what its end
    had left unread. Runs below it that were killed stay killed."""
    key = await _found(gateway, params)
    return _next_attempt(await gateway.fl.spawner.resume(key, params.words, params.budget))


class Again(One):
    """`runs.again`."""

    idempotency_key: ShortText = ""
    default_model: DefaultModel = ""


@method("runs.again")
async def runs_again(gateway: GatewayState, params: Again) -> WireObject:
    """Start a new run with the task and options of an earlier one, for the same requester, or for the nearest session
    above that still exists. Answers like `runs.spawn`."""
    key = await _found(gateway, params)
    return accepted(await gateway.fl.spawner.again(key, params.idempotency_key, params.default_model))


class ToldAndWaits(WordsForRun):
    """A message for a run, and how long to wait for its answer."""

    timeout_seconds: WaitSeconds = 0.0
    idempotency_key: Annotated[
        str, Meta(max_length=256, description="a message that is sent again with this key counts once")
    ] = ""


@method("runs.send", formerly="subagents.send")
async def subagents_send(gateway: GatewayState, params: ToldAndWaits) -> Reply:
    """Send a message to a run without stopping anything; a run at work reads it at its next step."""
    key = await _found(gateway, params)
    session = gateway.fl.session(key)
    run_id = (await gateway.fl.agent(params.message, session_key=key, idempotency_key=params.idempotency_key)).run_id
    return await replied(gateway, session, run_id, params.timeout_seconds)


class TellParams(WordsForRun):
    """`runs.tell`."""

    timeout_seconds: WaitSeconds = 30.0


@method("runs.tell")
async def runs_tell(gateway: GatewayState, params: TellParams) -> Sent:
    """Send a message to a run in the name of the session `requester`: `APPROVED:` or `REJECTED:` answers a plan. Waits
    for the answer if the run gives it in a turn of its own."""
    sender, key = await gateway.read(lambda tx: (session_of(tx, params), found(tx, params)))
    return await gateway.fl.messenger.tell(sender, key, params.message, params.timeout_seconds)


class Kill(One):
    """`runs.kill`."""

    wait: StopsWait = False


@method("runs.kill", formerly="subagents.kill")
async def subagents_kill(gateway: GatewayState, params: Kill) -> Killing:
    """End a run and everything below it, without an announcement. The target `all` ends every run of the session that
    is not over."""

    def kill(c: Commit) -> Killing:
        if is_everybody(params.target):
            return control.kill_all(c, session_of(c.tx, params))
        return control.kill(c, found(c.tx, params))

    return await stopped(gateway, await gateway.commit(kill), params.wait)


class RemovedRun(NamedValue):
    """A run that was taken off the lists."""

    session_key: str
    run_id: str
    name: str
    """Its label, else its session key."""


@method("runs.remove")
async def runs_remove(gateway: GatewayState, params: One) -> RemovedRun:
    """Take a finished run off the lists before its time, as archiving does: it makes room where a session retains only
    so many. A run that still works, or has something to tell, stays."""

    def look(tx: Tx) -> RemovedRun:
        run = tx.runs.load(found(tx, params))
        return RemovedRun(session_key=run.key, run_id=run.run_id, name=views.name_of(tx, run.key))

    run = await gateway.read(look)
    await (await gateway.fl.run(run.session_key)).remove()
    return run


# ---- plans -----------------------------------------------------------------------------------------------------------


class PlanShown(One):
    """A plan, as the person saw it."""

    run: Annotated[str, Meta(max_length=256, description="its run id: the answer to another plan is refused")] = ""


class ApprovePlanParams(PlanShown):
    """Approval of a plan."""

    words: Annotated[
        str, Meta(max_length=100_000, description="something to add, or the plan as it is to be carried out")
    ] = ""


@method("plans.approve")
async def plans_approve(gateway: GatewayState, params: ApprovePlanParams) -> NextAttempt:
    """Approve a plan: the run carries it out in a new attempt."""
    return await _answered(gateway, params, True, params.words)


class Rejected(PlanShown):
    """Rejection of a plan."""

    reason: Annotated[str, Meta(min_length=1, max_length=4000)]


@method("plans.reject")
async def plans_reject(gateway: GatewayState, params: Rejected) -> NextAttempt:
    """Reject a plan: the run reads the reason and plans again, in a new attempt."""
    return await _answered(gateway, params, False, params.reason)


async def _answered(gateway: GatewayState, params: PlanShown, approve: bool, words: str) -> NextAttempt:
    def answer(c: Commit) -> Run:
        return control.answer_plan(c, found(c.tx, params), approve, plan_words(approve, words), params.run)

    return _next_attempt(await gateway.commit(answer))
