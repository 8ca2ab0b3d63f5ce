"""Messages that come in from a channel: read, and put into the inbox of the session they are meant for.

How they reached this computer, and whether their sender is proven, is the gateway's business. Replies leave
by the outbox; only a message to a run whose plan awaits its answer is answered here.
"""

import msgspec
from msgspec import Struct

from fledge.core.exchange import how_answered, how_read
from fledge.core.keys import main_key
from fledge.core.params import read_params
from fledge.core.route import Address, check_address, origin_of
from fledge.core.run import AwaitingApproval
from fledge.errors import BadInput
from fledge.orchestrator import bindings, control, outbox, spawn
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine

MOST_CHARS = 200_000


class Incoming(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message from a webhook channel: the JSON body that is posted to us."""

    sender: str
    """The person who wrote it: the answer goes `to` them."""
    text: str
    thread: str = ""


def read_incoming(body: bytes) -> Incoming:
    """The content of a message that was posted to us, and whose signature holds. Refused: one not of this form."""
    try:
        return read_params(Incoming, msgspec.json.decode(body), "body").params
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadInput("body", "must be JSON: {sender, text, thread?}") from None


async def inbound(
    engine: Engine, channel: str, sender: str, thread: str, text: str, message_id: str, agent_id: str = "main"
) -> str:
    """Put the message into the inbox of the session bound to that address, else of the agent's main conversation.

    Answers the session's key. The same message id of a channel twice is one message. Refused: a bad address, an empty
    or too long text or id, a session that takes no messages now.
    """
    address = check_address(Address(channel, sender, thread))
    if len(text) > MOST_CHARS:
        raise BadInput("text", f"must have at most {MOST_CHARS} characters", len(text))
    if not 0 < len(message_id) <= 512:
        raise BadInput("id", "must have 1 to 512 characters", message_id)
    return await engine.commit(heard, address, text, message_id, agent_id)


def heard(c: Commit, address: Address, text: str, message_id: str, agent_id: str = "main") -> str:
    """The same inside a commit. From now on that session's words go to this address, unless it is bound elsewhere."""
    session = bindings.session_at(c.tx, address)
    if session is None:
        session = main_key(agent_id)
        spawn.open_conversation(c, session)
    row_key = f"in:{address.channel}:{message_id}"
    if c.tx.inbox.get(row_key) is None:
        awaits = control.may_answer_plan(c, c.find(session), None)
        try:
            control.send(c, session, text, row_key=row_key, origin=origin_of(address))
        except BadInput as error:
            if not awaits:
                raise
            outbox.answer(c, session, row_key, address, f"not taken: {error}")
            return session
        if awaits:
            run = c.run(session)
            kept = isinstance(run.phase, AwaitingApproval)
            outbox.answer(c, session, row_key, address, how_read(run) if kept else how_answered(run))
    return session
