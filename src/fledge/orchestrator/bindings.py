"""Which session a place outside belongs to, and where a session's words go: routes, and bindings to threads.

A route follows whoever last spoke to a session from a channel. A binding is a route that stays, and that brings what is
said in its place to its session. Nothing here sends.
"""

from msgspec.structs import replace

from fledge.core.keys import main_key
from fledge.core.route import Address, origin_of
from fledge.orchestrator import control, spawn
from fledge.orchestrator.commit import Commit
from fledge.store.base import Route


def heard(c: Commit, address: Address, text: str, message_id: str, agent_id: str = "main") -> str:
    """Somebody spoke there: put it into the inbox of the session it is meant for, once per message id.

    Answers that session's key. From now on its words go there, unless it is bound elsewhere.
    """
    binding = c.tx.bound_at(address.channel, address.place)
    session = main_key(agent_id) if binding is None else binding.session
    if binding is None:
        spawn.open_conversation(c, session)
    row_key = f"in:{address.channel}:{message_id}"
    if c.tx.row(row_key) is None:
        control.send(c, session, text, row_key=row_key, origin=origin_of(address))
        follow(c, session, address)
    return session


def follow(c: Commit, session: str, address: Address) -> None:
    """Somebody spoke to the session from there: its words go there, unless it is bound elsewhere."""
    route = c.tx.route(session)
    if route is None or route.kind == "last":
        c.tx.set_route(Route(session=session, kind="last", address=address, used_at=c.at))
    elif route.address.place == address.place and route.address.channel == address.channel:
        c.tx.set_route(replace(route, used_at=c.at))
