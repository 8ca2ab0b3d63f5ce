"""deepagents: the parent's own `task` tool runs a subagent, N calls in one turn, which waits for them. Nothing is kept.

Usage: `python -m bench.peers.programs.deepagents CHILDREN`
"""

import asyncio
import os
import sys
from importlib.metadata import version

from deepagents import create_deep_agent
from langchain_core.messages import ToolMessage

from bench.measure import Meter
from bench.peers.programs import ANSWER, check, report
from bench.peers.programs.langchain_parts import SUMS, InProcess, add

CHILD = "adder"


async def fan_out(children: int) -> list[str]:
    """The answers of so many children, as the parent reads them."""
    child = {"name": CHILD, "description": "adds", "system_prompt": "Add.", "tools": [add], "model": InProcess()}
    model = InProcess(children=children, subagent=CHILD)
    parent = create_deep_agent(model=model, system_prompt="Fan out.", subagents=[child])
    result = await parent.ainvoke({"messages": [("user", "go")]}, {"recursion_limit": 50})
    return [message.content for message in result["messages"] if isinstance(message, ToolMessage)]


async def main(children: int) -> None:
    os.environ["LANGSMITH_TRACING"] = "false"
    check("warm-up", await fan_out(1), [ANSWER])
    SUMS.clear()
    with Meter() as meter:
        answers = await fan_out(children)
    check("sums", SUMS, [5] * children)
    check("answers", answers, [ANSWER] * children)
    report(f"deepagents {version('deepagents')}", children, meter)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
