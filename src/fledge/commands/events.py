"""`events.*`: being told what happens. A feed lasts, so only a connection that lasts can carry one."""

from typing import Annotated

from msgspec import Meta, Struct

from fledge.commands.gateway_state import GatewayState
from fledge.commands.rpc import REFUSED, RpcFault
from fledge.commands.table import Params, method
from fledge.core.params import formerly


class Subscribe(Params, frozen=True, kw_only=True):
    """`events.subscribe`."""

    cursor: Annotated[int, Meta(ge=0, description="only what came after; without it, from now on")] | None = None
    session: Annotated[
        str, Meta(max_length=256, description="only of this session and below"), formerly("sessionKey")
    ] = ""
    live: Annotated[bool, Meta(description="also what turns tell while they last")] = True
    rows: Annotated[bool, Meta(description="rows of runs, as `runs.query` has them, in place of their events")] = False
    entries: Annotated[bool, Meta(description="also new entries of transcripts, as values")] = False


class Subscribed(Struct, frozen=True, kw_only=True):
    """A feed is told from here on, as notifications `event`."""

    subscription: int
    cursor: int


class Unsubscribe(Params, frozen=True, kw_only=True):
    """`events.unsubscribe`."""

    subscription: Annotated[int, Meta(ge=1)]


@method("events.subscribe", Subscribed)
async def events_subscribe(gateway: GatewayState, params: Subscribe) -> Subscribed:
    """Be told events from a cursor on, as notifications `event` on this WebSocket. Elsewhere: GET /events."""
    raise RpcFault(REFUSED, "events need a WebSocket, or GET /events", status="error")


@method("events.unsubscribe", dict[str, bool])
async def events_unsubscribe(gateway: GatewayState, params: Unsubscribe) -> dict[str, bool]:
    """Be told no more of a feed."""
    raise RpcFault(REFUSED, "events need a WebSocket, or GET /events", status="error")
