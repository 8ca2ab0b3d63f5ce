"""A model server whose main agent spawns as many subagents as it is told, each of which uses a tool and answers."""

import json
import re

from fledge.models.base import Call
from fledge.models.scripted import ScriptedReply
from tests.models.serving import Body

FILLER = "x" * 3000


def fan_out(body: Body) -> ScriptedReply:
    """What is said follows from what was said before, so being asked again gives the same answer."""
    system, last = body["messages"][0]["content"], body["messages"][-1]
    task = re.search(r"task number (\d+)", system)
    if "# Subagent Context" in system and task:
        if last["role"] == "tool":
            return ScriptedReply(f"answer {task[1]} {FILLER} last-word-{task[1]}")
        return ScriptedReply("", (Call("", "list", "{}"),))
    if last["role"] == "tool":
        return ScriptedReply("They are under way.")
    wanted = re.fullmatch(r"spawn (\d+)", last["content"])
    if wanted:
        arguments = [json.dumps({"task": f"task number {n}", "label": f"n{n}"}) for n in range(int(wanted[1]))]
        return ScriptedReply("", tuple(Call("", "sessions_spawn", each) for each in arguments))
    return ScriptedReply("NO_REPLY")
