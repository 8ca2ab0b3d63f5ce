"""Limits for clients that hold the gateway's token: the methods and addresses that only the private socket allows."""

from typing import Final

from fledge.channels.terminal import HERE
from fledge.commands.gateway_state import GatewayState
from fledge.commands.methods import call
from fledge.commands.wire import WireObject
from fledge.errors import BadInput, Refused

SPEAKING: Final = ("agent", "sessions.open", "slash.run", "commands.run")
"""Methods that take the address from which a person speaks."""
OWNERS: Final = ("page.link",)
"""Methods for the folder's owner alone."""


async def call_as_guest(gateway: GatewayState, name: str, given: WireObject) -> object:
    """Carry out a method. Refused: a method for the owner alone, and speaking from an address on a channel, where a
    signature is the proof. A chat elsewhere speaks from its own terminal."""
    if name in OWNERS:
        raise Refused("forbidden", f"{name} is available only on the private socket of the state folder")
    address = given.get("address") if name in SPEAKING else None
    if address is not None and address not in ([HERE.channel, HERE.to], [HERE.channel, HERE.to, ""]):
        raise BadInput("address", f'must be ["{HERE.channel}", "{HERE.to}"] here', address)
    return await call(gateway, name, given)
