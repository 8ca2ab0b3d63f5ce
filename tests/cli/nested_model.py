"""A scripted model for a tree of two levels: an orchestrator that yields for its workers."""

from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import ScriptedReply, use


def nested(request: Request) -> ScriptedReply:
    """Main spawns an orchestrator; that one spawns three workers, yields, and adds up what they say."""
    last = request.messages[-1]
    if "# Subagent Context" not in request.system:
        if isinstance(last, ToolMessage):
            return ScriptedReply("It is under way.")
        if last.text == "go":
            return ScriptedReply("", (use("sessions_spawn", task="orchestrate", label="orchestrator"),))
        return ScriptedReply("The whole is done." if "all three" in last.text else "NO_REPLY")
    if "orchestrate" in request.system:
        told = [message for message in request.messages if "background tasks completed" in message.text]
        if told:
            return ScriptedReply("SUMMARY: all three reported.")
        if any(isinstance(message, ToolMessage) and message.is_error for message in request.messages):
            return ScriptedReply("SUMMARY: I cannot spawn.")
        spawns = [use("sessions_spawn", task=f"work {n}", label=f"worker {n}") for n in range(3)]
        return ScriptedReply("", (*spawns, use("sessions_yield", **{"for": "all", "message": "waiting for three"})))
    return ScriptedReply("SUMMARY: worked.")
