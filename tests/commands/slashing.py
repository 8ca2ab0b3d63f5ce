"""Slash commands as a person gives them to an open folder, for tests that have no chat."""

from fledge.api.fledge import Fledge
from fledge.commands.gateway_state import GatewayState
from fledge.commands.orders import CommandResult, run_line
from fledge.core.route import Address


async def run_command(fl: Fledge, session: str, line: str, at: Address | None = None) -> CommandResult:
    """Do what a line says in a session, for a person at this place, which `/focus` binds; None: nowhere that could be
    bound."""
    return await run_line(GatewayState(fl), session, line, at)
