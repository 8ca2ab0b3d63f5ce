"""A model server for chats: what the main agent does follows from the last words it heard."""

from fledge.models.base import Call
from fledge.models.scripted import Reply
from tests.models.serving import Body

SPAWN = '{"task": "dig deep", "label": "digger"}'
PLAN = '{"task": "dig deep", "label": "planner", "planMode": true}'
WRITE = '{"path": "made.txt", "content": "made"}'


def talk(body: Body) -> Reply:
    """One reply of a main agent that does as it is told, or of a child that digs."""
    system, last = body["messages"][0]["content"], body["messages"][-1]
    if "# Subagent Context" in system:
        return Reply("gold, at the very bottom")
    if last["role"] == "tool":
        return Reply(f"The tool said: {last['content'][:60]}")
    match last["content"].strip():
        case "hello":
            return Reply("Hello there.\nHow can I help?")
        case "spawn":
            return Reply("", (Call("", "sessions_spawn", SPAWN),))
        case "plan":
            return Reply("", (Call("", "sessions_spawn", PLAN),))
        case "write":
            return Reply("", (Call("", "write", WRITE),))
        case "escape":
            return Reply("red \x1b[31malert\x07 over")
        case "flood":
            return Reply("x" * 200_000 + " and that was it")
        case "quiet":
            return Reply("NO_REPLY")
        case text if "gold" in text:
            return Reply("The digger found gold.")
        case text:
            return Reply(f"You said: {text}")
