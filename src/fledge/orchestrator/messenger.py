"""Sending from the outside in: read the request, find the session, check the permission, send, wait for the answer.

One door for the tool, slash commands, the Python API and the gateway. The message and its checks are one commit; the
wait for the answer holds nothing but the caller. A wait that a crash cut short is taken up by asking again with the
same id.
"""

from collections.abc import Callable
from typing import Annotated, Concatenate, Final, Literal, ParamSpec

from msgspec import Meta, Struct
from msgspec.structs import replace

from fledge.config import Config
from fledge.core.exchange import IN_A_TURN, Exchange, Over, how_read
from fledge.core.freeze import classify_reply
from fledge.core.keys import agent_of, check_agent_id, parse_key
from fledge.core.params import also_called
from fledge.core.policy import enforce
from fledge.core.run import Run
from fledge.errors import BadInput, Refused
from fledge.orchestrator import messages, visibility
from fledge.orchestrator.commit import Commit, check_lease
from fledge.orchestrator.engine import Changes, Engine
from fledge.orchestrator.messages import Sending
from fledge.orchestrator.spawn_params import Caller
from fledge.store.base import Tx

P = ParamSpec("P")

WAIT_S: Final = 30.0
"""How long an answer is waited for unless the sender says otherwise."""
MOST_WAIT_S: Final = 600
SendStatus = Literal["ok", "accepted", "timeout", "done", "forbidden", "error"]


class SendParams(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The parameters of `sessions_send`, as they stand on the wire."""

    message: Annotated[str, Meta(description="what to say")]
    session_key: Annotated[
        str, Meta(description="whom: a session key; or a child's number or run id"), also_called("session")
    ] = ""
    label: Annotated[str, Meta(description="whom: the label of a session, instead of its key")] = ""
    agent_id: Annotated[str, Meta(description="with label: the agent it belongs to"), also_called("agent")] = ""
    timeout_seconds: Annotated[
        float, Meta(ge=0, le=MOST_WAIT_S, description="how long to wait for the answer; 0: do not wait")
    ] = WAIT_S


class Sent(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The answer to a sender: what happened to its message."""

    status: SendStatus
    session_key: str = ""
    run_id: str = ""
    message_id: str = ""
    reply: str = ""
    delivery: str = ""
    """How the message is read, or that the exchange goes on."""
    error: str = ""


class Messenger:
    """Sends messages from session to session, and from people to sessions."""

    def __init__(self, engine: Engine, config: Config, changes: Changes | None = None) -> None:
        self._engine, self._config = engine, config
        self.changes = changes or Changes(engine)

    async def send(self, params: SendParams, caller: Caller) -> Sent:
        """Send, wait, and answer the sender. A refusal is an answer with its status."""
        try:
            return await self._sent(self._begin, params, caller)
        except (Refused, BadInput) as error:
            return Sent(status=_status(error), error=str(error))

    async def tell(self, session: str, target: str, message: str, wait_s: float = WAIT_S) -> Sent:
        """A person's message, from the session they are in to one below it. Raises Refused or BadInput."""
        sending = Sending(
            id=f"{session}#{self._engine.ids.unique()}",
            sender=session,
            target=target,
            message=message,
            wait_s=wait_s,
            by_person=True,
        )
        return await self._sent(messages.begin_exchange, sending)

    async def _sent(self, begin: Callable[Concatenate[Commit, P], Exchange], *args: P.args, **kwargs: P.kwargs) -> Sent:
        begun = await self._engine.commit(begin, *args, **kwargs)
        found = await self._first_answer(begun)
        return await self._engine.store.read(lambda tx: _told(tx, found))

    async def _first_answer(self, exchange: Exchange) -> Exchange:
        """The exchange once it has its first answer or is over, or its sender has waited long enough."""
        if exchange.until_at is None:
            return exchange

        def look(tx: Tx) -> Exchange | None:
            now = tx.exchanges.get(exchange.id)
            return now if now is None or now.reply is not None or now.speaker is None else None

        return await self.changes.until(look, [exchange.target], exchange.until_at) or exchange

    # ---- reading the request

    def _begin(self, c: Commit, params: SendParams, caller: Caller) -> Exchange:
        check_lease(c, caller.session, caller.lease)
        known = messages.find_exchange(c, caller.key, params.timeout_seconds) if caller.key else None
        return known or messages.begin_exchange(c, self._read(c, params, caller))

    def _read(self, c: Commit, params: SendParams, caller: Caller) -> Sending:
        """The message as rules and configuration complete it. Raises BadInput or Refused."""
        looks = visibility.looker(self._config, c.tx, caller.session)
        target = self._target(c.tx, params, looks)
        session = c.tx.sessions.get(target)
        theirs = agent_of(target) if session is None else session.facts.agent_id
        enforce(visibility.refuse_look(c.tx, looks, target, theirs))
        return Sending(
            id=caller.key or f"{caller.session}#{c.ids.unique()}",
            sender=caller.session,
            target=target,
            message=params.message,
            wait_s=params.timeout_seconds,
            max_turns=looks.agents.max_turns,
            generations=caller.generations,
            lease=caller.lease,
            opens=parse_key(target).kind == "main" and self._is_configured(theirs),
        )

    def _target(self, tx: Tx, params: SendParams, looks: visibility.Looker) -> str:
        if bool(params.session_key.strip()) == bool(params.label.strip()):
            raise BadInput("sessionKey", "give either sessionKey or label")
        if params.label.strip():
            agent_id = check_agent_id(params.agent_id) if params.agent_id else ""
            return visibility.find_labelled(tx, looks, params.label, agent_id)
        if params.agent_id:
            raise BadInput("agentId", "goes with label; a sessionKey names its agent itself")
        return visibility.key_meant(tx, looks.session, params.session_key)

    def _is_configured(self, agent_id: str) -> bool:
        return agent_id == "main" or any(one.id == agent_id for one in self._config.agents.list)


def _status(error: Refused | BadInput) -> SendStatus:
    match error.status:
        case "forbidden" | "done" as status:
            return status
        case _:
            return "error"


def _told(tx: Tx, exchange: Exchange) -> Sent:
    """The exchange as it stands, as the sender's answer."""
    run, stage, reply = tx.runs.find(exchange.target), exchange.stage, exchange.reply
    sent = Sent(
        status="accepted",
        session_key=exchange.target,
        run_id="" if run is None else run.run_id,
        message_id=exchange.row,
    )
    if exchange.kind == "tell":
        return replace(sent, delivery=_of_a_tell(exchange, run))
    if reply is not None:
        goes_on = "" if isinstance(stage, Over) else "the exchange goes on; further turns reach both of you"
        return replace(sent, status="ok", reply=reply if classify_reply(reply) == "text" else "", delivery=goes_on)
    if isinstance(stage, Over):
        return replace(sent, status="error", error=stage.why)
    if exchange.until_at is None:
        return replace(sent, delivery=IN_A_TURN)
    return replace(sent, status="timeout", error="no answer yet; the message stays. Look later with sessions_history")


def _of_a_tell(exchange: Exchange, run: Run | None) -> str:
    stage = exchange.stage
    if isinstance(stage, Over) and stage.why in ("approved", "rejected"):
        return f"the plan is {stage.why}"
    return how_read(run)
