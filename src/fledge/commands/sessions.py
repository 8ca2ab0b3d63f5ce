"""Verbs on sessions that change something or wait: `agent`, `agent.wait`, `send`, `reply`, `system.event`,
`heartbeat.request`, `sessions.*`; and `slash.*`."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from msgspec import UNSET, Meta, UnsetType

from fledge.api.conversation import Conversation
from fledge.api.values import Accepted, Reply, Waited
from fledge.cancellation import end_tasks
from fledge.commands import slash
from fledge.commands.gateway_state import GatewayState
from fledge.commands.listing import SessionReader
from fledge.commands.looking import is_begun, is_below, rest
from fledge.commands.orders import CommandResult, run_line
from fledge.commands.params import (
    DefaultModel,
    FolderParam,
    InSession,
    NamedSession,
    Nothing,
    RunId,
    SessionMessage,
    SessionName,
    ShortText,
    WaitMs,
    WaitSeconds,
)
from fledge.commands.table import Params, method
from fledge.commands.values import Rest, SessionRow
from fledge.config import DEFAULT_MODEL, Config, model_for_conversation
from fledge.core.attachments import Attachment
from fledge.core.images import MAX_IMAGES, Image
from fledge.core.keys import agent_of, is_child_key, is_main_key, main_key
from fledge.core.params import as_written
from fledge.core.route import Address, check_address
from fledge.core.run import Instant
from fledge.core.value import NamedValue, Value
from fledge.errors import BadInput
from fledge.models.base import Thinking
from fledge.orchestrator import bindings, control, messages, spawn, views
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.effects import Killing
from fledge.orchestrator.engine import kill_outcome
from fledge.orchestrator.messages import EVENT_CHARS
from fledge.store.base import Session, Tx

T = TypeVar("T")

Images = Annotated[
    tuple[Image, ...], Meta(max_length=MAX_IMAGES, description="PNG, JPEG, GIF or WebP: data in base64, and a name")
]
AttachmentsParam = Annotated[
    tuple[Attachment, ...], Meta(description="files: a plain name, and content as text or, with encoding, in base64")
]

AddressParam = Annotated[
    Address | None, Meta(description="where the message comes from, and so where its answer goes: [channel, to]")
]


async def while_open(gateway: GatewayState, wait: Callable[[float], Coroutine[Any, Any, T]], longest: float) -> T:
    """The answer of `wait` within this time; as soon as the gateway is about to close, its answer without waiting."""
    wanted = asyncio.ensure_future(wait(longest))
    closing = asyncio.ensure_future(gateway.closing.wait())
    try:
        await asyncio.wait((wanted, closing), return_when=asyncio.FIRST_COMPLETED)
        return await (wanted if wanted.done() else wait(0))
    finally:
        await end_tasks((wanted, closing))


async def replied(gateway: GatewayState, session: Conversation, run_id: str, seconds: float) -> Reply:
    """The answer to a message, as it stands after this time or when the gateway closes."""
    return await while_open(gateway, lambda wait_s: session.reply(run_id, timeout=wait_s), seconds)


StopsWait = Annotated[bool, Meta(description="wait up to 6 s until everything that must stop has stopped")]


async def stopped(gateway: GatewayState, done: Killing, wait: bool) -> Killing:
    """The result of a kill; with `wait`, once everything it stopped is gone, or the time for that is up."""
    return await kill_outcome(gateway.fl.engine, gateway.fl.messenger.changes, done) if wait else done


def conversation(gateway: GatewayState, session: str) -> Conversation:
    """The conversation that a parameter `session` names."""
    try:
        return gateway.fl.session(session)
    except BadInput as error:
        raise as_written(error, {"key": "session"}) from None


def _checked(address: Address | None) -> Address | None:
    return None if address is None else check_address(address)


class AgentParams(Params):
    """`agent`."""

    message: SessionMessage
    session: SessionName = "main"
    deliver: bool = True
    lane: Annotated[str, Meta(max_length=64)] = ""
    extra_system_prompt: Annotated[str, Meta(max_length=100_000)] = ""
    model: ShortText = ""
    thinking: Thinking | Literal[""] = ""
    timeout_seconds: Annotated[float, Meta(ge=0, le=86_400 * 365)] = 0
    idempotency_key: ShortText = ""
    default_model: DefaultModel = ""
    images: Images = ()
    attachments: AttachmentsParam = ()
    address: AddressParam = None
    compact: Annotated[bool, Meta(description="first summarise the conversation so far")] = False


@method("agent")
async def agent(gateway: GatewayState, params: AgentParams) -> Accepted:
    """Send a message to a session, with wishes for the turn that answers it, such as a model or a time limit. Returns a
    run id at once."""
    model, key = params.model, conversation(gateway, params.session).key
    if params.default_model and not model:
        known = await gateway.read(lambda tx: tx.sessions.get(key))
        model = params.default_model if _uses_default_model(gateway.fl.config, key, known) else ""
    return await gateway.fl.agent(
        params.message,
        session_key=key,
        deliver=params.deliver,
        lane=params.lane,
        extra_system_prompt=params.extra_system_prompt,
        model=model,
        thinking=params.thinking,
        timeout_seconds=params.timeout_seconds,
        idempotency_key=params.idempotency_key,
        images=params.images,
        attachments=params.attachments,
        address=params.address,
        compact=params.compact,
    )


def _uses_default_model(config: Config, key: str, known: Session | None) -> bool:
    """True of a conversation for which neither its agent's settings nor a person names a model."""
    if is_child_key(key) or (known is not None and known.facts.model):
        return False
    chosen = model_for_conversation(config, agent_of(key))
    return chosen is None or chosen.setting == DEFAULT_MODEL


class AgentWait(Params):
    """`agent.wait`."""

    run: RunId
    timeout_ms: WaitMs = 30_000


@method("agent.wait")
async def agent_wait(gateway: GatewayState, params: AgentWait) -> Waited:
    """Wait for the end of the turn that answers a message of `agent`, or for the end of any run: `ok`, `error` or
    `timeout`; `pending` if it has not ended by then."""
    return await while_open(gateway, partial(gateway.fl.agent_wait, params.run), params.timeout_ms)


class Send(NamedSession):
    """`send`."""

    message: SessionMessage
    timeout_seconds: WaitSeconds = 30.0
    images: Images = ()
    attachments: AttachmentsParam = ()


@method("send")
async def send(gateway: GatewayState, params: Send) -> Reply:
    """Send a message to a session without stopping anything, and wait for the answer, at most `timeoutSeconds`."""
    session = conversation(gateway, params.session)
    run_id = await session.post(params.message, images=params.images, attachments=params.attachments)
    return await replied(gateway, session, run_id, params.timeout_seconds)


class ReplyTo(NamedSession):
    """`reply`."""

    run: RunId
    timeout_ms: WaitMs = 30_000
    failures: Annotated[
        int, Meta(ge=0, description="how often its turn had failed before; only a later failure counts as the answer")
    ] = 0
    asks: Annotated[bool, Meta(description="a person will answer questions: wait for the answers too")] = False


@method("reply")
async def reply(gateway: GatewayState, params: ReplyTo) -> Reply:
    """Wait for the answer to the message with this run id."""
    reply_to = partial(conversation(gateway, params.session).reply, failures=params.failures, asks=params.asks or None)
    return await while_open(gateway, lambda wait_s: reply_to(params.run, timeout=wait_s), params.timeout_ms / 1000)


class SystemEvent(Params):
    """`system.event`."""

    text: Annotated[str, Meta(min_length=1, max_length=EVENT_CHARS)]
    session: SessionName = "main"


class Posted(Value):
    """The result of posting a system event."""

    posted: bool
    """False: the newest event that waits there has the same text, so this one was not added."""


@method("system.event")
async def system_event(gateway: GatewayState, params: SystemEvent) -> Posted:
    """Post a system event: an idle conversation reads it in a heartbeat turn, a busy one at its next step."""
    return Posted(await conversation(gateway, params.session).post_event(params.text))


class HeartbeatRequest(InSession):
    """`heartbeat.request`."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


class HeartbeatOf(Value):
    """The session that has the heartbeat."""

    session_key: str


@method("heartbeat.request")
async def heartbeat_request(gateway: GatewayState, params: HeartbeatRequest) -> HeartbeatOf:
    """Request a heartbeat of a conversation. For a run at work, the conversation above it has the heartbeat."""
    return HeartbeatOf(await conversation(gateway, params.session).request_heartbeat(params.reason))


# ---- sessions --------------------------------------------------------------------------------------------------------


class SessionsPatch(NamedSession):
    """`sessions.patch`."""

    label: Annotated[str, Meta(max_length=200)] | UnsetType = UNSET
    model: ShortText | UnsetType = UNSET
    thinking: Thinking | Literal[""] | UnsetType = UNSET


@method("sessions.patch")
async def sessions_patch(gateway: GatewayState, params: SessionsPatch) -> SessionRow:
    """Set a session's label, or the model and thinking level of its next turns. An empty text removes the value: the
    settings apply again."""
    fl, key = gateway.fl, params.key
    given = {"label": params.label, "model": params.model, "thinking": params.thinking}
    patch = {name: value for name, value in given.items() if isinstance(value, str)}
    if patch.get("model"):
        fl.check_model(patch["model"], patch.get("thinking") or None)
    await gateway.commit(control.patch_session, key, patch)
    return await gateway.read(lambda tx: SessionReader(tx, gateway.now()).row(*_known(tx, key)))


def _known(tx: Tx, key: str) -> tuple[Session, Instant]:
    found = tx.sessions.get(key)
    assert found is not None
    last = tx.transcripts.tail(key, 1)
    return found, last[0].at if last else found.created_at


class SessionsDelete(NamedSession):
    """`sessions.delete`."""

    delete_transcript: bool = True
    emit_lifecycle_hooks: bool = True


class Done(Value):
    """It was done."""

    ok: bool = True


@method("sessions.delete")
async def sessions_delete(gateway: GatewayState, params: SessionsDelete) -> Done:
    """Delete a session. Results of its children that it has not read, and later ones, go to its requester, or are kept
    as undelivered."""
    key = params.key
    await gateway.commit(
        control.delete_session, key, keep_transcript=not params.delete_transcript, hooks=params.emit_lifecycle_hooks
    )
    return Done()


class SessionsStop(InSession):
    """`sessions.stop`."""

    below: bool = True
    """False: stop only its turn; its subagents continue."""
    wait: StopsWait = False
    withdraw: Annotated[
        tuple[RunId, ...], Meta(max_length=1000, description="take these messages back, where they are not read yet")
    ] = ()


class StopDone(Killing, frozen=True, omit_defaults=True, kw_only=True):
    """The sessions that a stop ended, and the messages that it withdrew."""

    withdrawn: tuple[str, ...] = ()
    """The run ids of the messages: they were unread, and will not be read."""


@method("sessions.stop")
async def sessions_stop(gateway: GatewayState, params: SessionsStop) -> StopDone:
    """Stop a session's turn and everything below it."""
    key = conversation(gateway, params.session).key

    def stop(c: Commit) -> tuple[Killing, tuple[str, ...]]:
        withdrawn = tuple(one for one in params.withdraw if messages.withdraw_request(c, key, one))
        if params.below:
            return control.stop(c, key), withdrawn
        control.interrupt(c, key)
        return Killing((), ()), withdrawn

    done, withdrawn = await gateway.commit(stop)
    ended = await stopped(gateway, done, params.wait)
    return StopDone(ended.killed, ended.stopping, ended.finished, withdrawn=withdrawn)


class SessionsFocus(NamedSession):
    """`sessions.focus`."""

    address: Annotated[Address, Meta(description="the place: [channel, to, thread]")]


class Bound(NamedValue):
    """A binding, made or ended."""

    session_key: str


@method("sessions.focus")
async def sessions_focus(gateway: GatewayState, params: SessionsFocus) -> Bound:
    """Bind a place on a channel to a session: messages from there go to it from now on."""
    key = params.key
    route = await gateway.commit(bindings.focus, key, key, params.address, gateway.client)
    return Bound(session_key=route.session)


class SessionsUnfocus(InSession):
    """`sessions.unfocus`."""

    address: AddressParam = None
    """None: the place that the session is bound to."""


@method("sessions.unfocus")
async def sessions_unfocus(gateway: GatewayState, params: SessionsUnfocus) -> Bound:
    """End the binding of a place: messages from there go to the main conversation from now on."""
    key = params.key
    address = _checked(params.address)
    route = await gateway.commit(bindings.unfocus, key, address, gateway.client)
    return Bound(session_key=route.session)


class SessionsWait(InSession):
    """`sessions.wait`."""

    timeout_ms: WaitMs = 30_000
    or_asked: Annotated[bool, Meta(description="or until only a person's answer lets anything go on")] = False
    whole_folder: Annotated[
        bool, Meta(description="also for what programs have started, and for messages that are to be sent")
    ] = False


@method("sessions.wait")
async def sessions_wait(gateway: GatewayState, params: SessionsWait) -> Rest:
    """Wait until nothing of a session is left to do: no turn open, nothing unread, everything below settled."""
    fl, key = gateway.fl, conversation(gateway, params.session).key

    def stands(tx: Tx) -> Rest:
        return rest(tx, key, params.whole_folder, fl.engine.rules, fl.config.models.patience_seconds, gateway.now())

    def is_over(tx: Tx) -> Rest | None:
        found = stands(tx)
        return found if found.settled or (params.or_asked and found.questions) else None

    async def over(wait_s: float) -> Rest:
        found = await fl.until(is_over, timeout=wait_s)
        return await gateway.read(stands) if found is None else found

    return await while_open(gateway, over, params.timeout_ms / 1000)


class SessionsOpen(InSession):
    """`sessions.open`."""

    address: AddressParam = None
    folder: FolderParam = ""


class Begun(NamedValue):
    """The session that gets messages from the given address."""

    session_key: str
    name: str
    entry: int
    """The number of the newest entry in its transcript."""
    earlier: str = ""
    """The main conversation used until now, if this call has begun the conversation of the project folder; else
    empty."""


@method("sessions.open")
async def sessions_open(gateway: GatewayState, params: SessionsOpen) -> Begun:
    """Open a conversation: it begins if it does not exist yet, and sends its messages to `address` if it has no address
    yet. Answers the session that gets messages from that address: this one, unless `/focus` has bound the address to
    one below it. A conversation that begins in a project folder works there from then on."""
    key, address = conversation(gateway, params.session).key, _checked(params.address)
    await check_folder(gateway, params.folder, "" if key == main_key(agent_of(key)) else agent_of(key))
    if is_child_key(key) or agent_of(key) not in {"main", *(one.id for one in gateway.fl.config.agents.list)}:
        raise BadInput("session", "must be a conversation of an agent that is configured, and no run", params.session)

    def begin(c: Commit) -> Begun:
        is_new = not is_begun(c.tx, key)
        spawn.open_conversation(c, key, params.folder)
        if address is not None and c.tx.routes.get(key) is None:
            bindings.follow(c, key, address)
        bound = None if address is None else bindings.session_at(c.tx, address)
        there = bound if bound is not None and is_below(c.tx, key, bound) else key
        main = main_key(agent_of(key))
        is_first = is_new and key != main and is_main_key(key, params.folder) and c.tx.transcripts.last(main) > 0
        return Begun(
            session_key=there,
            name=views.name_of(c.tx, there),
            entry=c.tx.transcripts.last(there),
            earlier=main if is_first else "",
        )

    return await gateway.commit(begin)


async def check_folder(gateway: GatewayState, folder: str, agent_id: str) -> None:
    """Raise BadInput unless this is the real path of a folder here, or empty; Refused if this agent would work there,
    and it contains the home folder, and no person has confirmed that. Without an agent nothing works there."""
    if folder and not await asyncio.to_thread(_is_real_folder, folder):
        raise BadInput("folder", "must be the real path of a folder here", folder)
    if folder and agent_id:
        gateway.fl.spawner.check_folder(agent_id, folder)


def _is_real_folder(path: str) -> bool:
    return os.path.isabs(path) and os.path.realpath(path) == path and os.path.isdir(path)


class Command(InSession):
    """`slash.run`."""

    line: Annotated[str, Meta(min_length=1, max_length=100_000, description="a slash command, such as /subagents list")]
    address: AddressParam = None


@method("slash.run", formerly="commands.run")
async def commands_run(gateway: GatewayState, params: Command) -> CommandResult:
    """Carry out a slash command, as the user of that conversation."""
    return await run_line(gateway, params.key, params.line, _checked(params.address))


class SlashCommand(Value):
    """A slash command."""

    form: str
    """The name and the arguments, as people write them."""
    meaning: str
    name: str
    arguments: str = ""


@method("slash.list")
async def slash_list(gateway: GatewayState, params: Nothing) -> list[SlashCommand]:
    """All slash commands, with their arguments and meaning."""
    return [SlashCommand(one.form, one.meaning, *slash.parted(one.form)) for one in slash.USAGES]
