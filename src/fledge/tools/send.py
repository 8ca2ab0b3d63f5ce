"""`sessions_send`: a model sends a message to another session, and gets the answer if there is one to wait for."""

import msgspec

from fledge.orchestrator.messenger import MOST_WAIT_S, Messenger, SendParams
from fledge.tools.base import Tool, ToolContext, tool_taking
from fledge.tools.sessions import caller_of

GRACE_S = 20.0
"""The time that a call may take beyond the longest wait; it ends by itself before."""


def send_tool(messenger: Messenger) -> Tool:
    """The tool `sessions_send`, with the parameters of `SendParams`. A call may be repeated."""

    async def sessions_send(context: ToolContext, params: SendParams) -> str:
        sent = await messenger.send(params, caller_of(context))
        return msgspec.json.encode(sent).decode()

    return tool_taking(
        SendParams,
        sessions_send,
        name="sessions_send",
        description="Say something to another session: to a subagent of yours, which reads it without being stopped, or"
        " to another agent. Where it is answered in a turn of its own, you get the answer. APPROVED: or REJECTED:"
        " answers a plan.",
        timeout=MOST_WAIT_S + GRACE_S,
    )
