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
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.measure import Meter
from bench.peers.programs import ANSWER, check, report

SUMS: list[int] = []


class InProcess(BaseChatModel):
    """A child's model; with children the parent's."""

    children: int = 0

    @property
    def _llm_type(self) -> str:
        return "in-process"

    def bind_tools(self, tools: Any, **options: Any) -> "InProcess":
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
        if any(isinstance(message, ToolMessage) for message in messages):
            reply = AIMessage("all results" if self.children else ANSWER)
        elif self.children:
            calls = range(self.children)
            spawns = [{"name": "spawn", "args": {"input": f"task {i}"}, "id": f"call_{i}"} for i in calls]
            reply = AIMessage("", tool_calls=spawns)
        else:
            reply = AIMessage("", tool_calls=[{"name": "add", "args": {"a": 2, "b": 3}, "id": "call_0"}])
        reply.usage_metadata = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return ChatResult(generations=[ChatGeneration(message=reply)])

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
        await asyncio.sleep(0)
        return self._generate(messages)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    SUMS.append(a + b)
    return a + b


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
