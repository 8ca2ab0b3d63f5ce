"""Slash commands as a person gives them to an open folder, for tests that have no chat."""

from msgspec import Struct

from fledge.api.fledge import Fledge
from fledge.commands.gateway_state import GatewayState
from fledge.commands.orders import CommandResult, run_line
from fledge.core.route import Address


class Person(Struct, frozen=True):
    """Who gives a command, and where they stand: the place that `/focus` binds."""

    name: str = "user"
    at: Address | None = None
    """None: nowhere that could be bound."""


async def run_command(fl: Fledge, session: str, line: str, by: Person | None = None) -> CommandResult:
    """Do what a line says in a session, for this person."""
    by = by or Person()
    return await run_line(GatewayState(fl, client=by.name), session, line, by.at)
