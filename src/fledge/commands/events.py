"""`events.*`: feeds of events. A feed lasts, so only a connection that lasts can carry one."""

from typing import Annotated, Final

from msgspec import Meta

from fledge.api.views import session_key
from fledge.commands.feed import Live, Subscribe, live_event
from fledge.commands.gateway_state import GatewayState
from fledge.commands.rpc import REFUSED, RpcFault
from fledge.commands.table import Params, method
from fledge.core.value import NamedValue

NEEDS: Final = "a feed needs a WebSocket or the private socket; over HTTP: GET /events"
"""The error text for a request that came on its own, not on a connection that lasts."""


class Subscribed(NamedValue):
    """A feed has begun: its events after `cursor` come as notifications `event`."""

    subscription: int
    cursor: int


class Unsubscribe(Params):
    """`events.unsubscribe`."""

    subscription: Annotated[int, Meta(ge=1)]


class WatchSession(Params):
    """`events.watch`."""

    session: Annotated[str, Meta(min_length=1, max_length=256, description="the session that is shown")]


class Watching(NamedValue):
    """This process gets the live events of the session, whichever process drives its turns."""

    again_s: float
    """Call `events.watch` again within so many seconds while the session is shown; 0: there is no need to."""
    so_far: Live | None = None
    """The text so far of the session's open reply, as this process knows it: an event as in a feed. `offset` says where
    pieces of the feed continue it, whichever of the two comes first."""


@method("events.watch")
async def events_watch(gateway: GatewayState, params: WatchSession) -> Watching:
    """Say that a client shows this session, and get the text so far of its open reply. For a while, feeds of all
    sessions then also have the live events of turns that another process drives in it. A feed with this `session` has
    them anyway."""
    session = session_key(params.session, "session")
    again_s, so_far = gateway.watch_session(session), gateway.text_so_far(session)
    return Watching(again_s=again_s, so_far=None if so_far is None else live_event(so_far))


@method("events.subscribe")
async def events_subscribe(gateway: GatewayState, params: Subscribe) -> Subscribed:
    """Begin a feed of the events after a cursor: they come as notifications `event` on this connection (a WebSocket or
    the private socket). Over HTTP: GET /events."""
    raise RpcFault(REFUSED, NEEDS, status="error")


@method("events.unsubscribe")
async def events_unsubscribe(gateway: GatewayState, params: Unsubscribe) -> dict[str, bool]:
    """End a feed that was begun on this connection."""
    raise RpcFault(REFUSED, NEEDS, status="error")
