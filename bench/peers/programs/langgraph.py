"""langgraph: the parent's `spawn` tool runs a `create_agent` child, N calls in one turn, which waits for them.

`plain`: nothing is kept. `sqlite`: parent and children write checkpoints, one thread each.
Usage: `python -m bench.peers.programs.langgraph plain|sqlite CHILDREN`
"""

import asyncio
import os
import sys
import tempfile
from importlib.metadata import version
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.measure import Meter
from bench.peers.programs import ANSWER, check, report
from bench.peers.programs.langchain_parts import SUMS, InProcess, add


async def fan_out(children: int, saver: Any) -> None:
    child = create_agent(InProcess(), tools=[add], system_prompt="You are a child.", checkpointer=saver)

    @tool
    async def spawn(input: str) -> str:
        """Spawn a child."""
        thread = {"configurable": {"thread_id": input}} if saver else None
        result = await child.ainvoke({"messages": [("user", input)]}, thread)
        return str(result["messages"][-1].content)

    model = InProcess(children=children)
    parent = create_agent(model, tools=[spawn], system_prompt="Fan out.", checkpointer=saver)
    first = create_agent(InProcess(), tools=[add], system_prompt="You are a child.")
    warm = await first.ainvoke({"messages": [("user", "warm")]})
    check("warm-up", warm["messages"][-1].content, ANSWER)
    SUMS.clear()
    config = {"configurable": {"thread_id": "parent"}, "recursion_limit": 50}
    with Meter() as meter:
        result = await parent.ainvoke({"messages": [("user", "go")]}, config)
    answers = [message.content for message in result["messages"] if isinstance(message, ToolMessage)]
    check("sums", SUMS, [5] * children)
    check("answers", answers, [ANSWER] * children)
    report(f"langgraph {version('langgraph')}", children, meter)


async def main(way: str, children: int) -> None:
    os.environ["LANGSMITH_TRACING"] = "false"
    if way == "plain":
        await fan_out(children, None)
        return
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncSqliteSaver.from_conn_string(f"{folder}/checkpoints.db") as saver:
            await fan_out(children, saver)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
