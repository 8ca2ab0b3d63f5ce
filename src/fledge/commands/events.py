"""`events.*`: being told what happens. A feed lasts, so only a connection that lasts can carry one."""

from typing import Annotated

from msgspec import Meta

from fledge.api.views import session_key
from fledge.commands.feed import Subscribe
from fledge.commands.gateway_state import GatewayState
from fledge.commands.rpc import REFUSED, RpcFault
from fledge.commands.table import Params, method
from fledge.core.value import NamedValue


class Subscribed(NamedValue):
    """A feed is told from here on, as notifications `event`."""

    subscription: int
    cursor: int


class Unsubscribe(Params):
    """`events.unsubscribe`."""

    subscription: Annotated[int, Meta(ge=1)]


class WatchSession(Params):
    """`events.watch`."""

    session: Annotated[str, Meta(min_length=1, max_length=256, description="the session that is shown")]


class Watching(NamedValue):
    """What a session's turns tell is heard, whichever process drives them."""

    again_s: float
    """Call again within so many seconds, as long as the session is shown; 0: there is no need to."""


@method("events.watch")
async def events_watch(gateway: GatewayState, params: WatchSession) -> Watching:
    """Show a session for a while: feeds of all sessions then tell what its turns tell, also if another process drives
    them. A feed of one session does so by itself."""
    return Watching(again_s=gateway.watch_session(session_key(params.session, "session")))


@method("events.subscribe")
async def events_subscribe(gateway: GatewayState, params: Subscribe) -> Subscribed:
    """Be told events from a cursor on, as notifications `event` on this WebSocket. Elsewhere: GET /events."""
    raise RpcFault(REFUSED, "events need a WebSocket, or GET /events", status="error")


@method("events.unsubscribe")
async def events_unsubscribe(gateway: GatewayState, params: Unsubscribe) -> dict[str, bool]:
    """Be told no more of a feed."""
    raise RpcFault(REFUSED, "events need a WebSocket, or GET /events", status="error")
