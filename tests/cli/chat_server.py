"""A model server for chats: what the main agent does follows from the last words it heard."""

from fledge.models.base import Call
from fledge.models.scripted import ScriptedReply
from tests.models.serving import Body

SPAWN = '{"task": "dig deep", "label": "digger"}'
PLAN = '{"task": "dig deep", "label": "planner", "planMode": true}'
WRITE = '{"path": "made.txt", "content": "made"}'


def talk(body: Body) -> ScriptedReply:
    """One reply of a main agent that does as it is told, or of a child that digs."""
    system, last = body["messages"][0]["content"], body["messages"][-1]
    if "# Subagent Context" in system:
        return ScriptedReply("gold, at the very bottom")
    if last["role"] == "tool":
        return ScriptedReply(f"The tool said: {last['content'][:60]}")
    match last["content"].strip():
        case "hello":
            return ScriptedReply("Hello there.\nHow can I help?")
        case "spawn":
            return ScriptedReply("", (Call("", "sessions_spawn", SPAWN),))
        case "plan":
            return ScriptedReply("", (Call("", "sessions_spawn", PLAN),))
        case "write":
            return ScriptedReply("", (Call("", "write", WRITE),))
        case "escape":
            return ScriptedReply("red \x1b[31malert\x07 over")
        case "flood":
            return ScriptedReply("x" * 200_000 + " and that was it")
        case "quiet":
            return ScriptedReply("NO_REPLY")
        case text if "gold" in text:
            return ScriptedReply("The digger found gold.")
        case text:
            return ScriptedReply(f"You said: {text}")
