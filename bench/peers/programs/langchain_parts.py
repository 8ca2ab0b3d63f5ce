"""What the programs of langgraph and deepagents share: a model in the same process, and the tool of a child."""

import asyncio
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from bench.peers.programs import ANSWER

SUMS: list[int] = []


class InProcess(BaseChatModel):
    """A child's model; with children the parent's, which spawns them: by a tool of its own, or as this subagent."""

    children: int = 0
    subagent: str = ""

    @property
    def _llm_type(self) -> str:
        return "in-process"

    def bind_tools(self, tools: Any, **options: Any) -> "InProcess":
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
        if any(isinstance(message, ToolMessage) for message in messages):
            reply = AIMessage("all results" if self.children else ANSWER)
        elif self.children:
            reply = AIMessage("", tool_calls=[self._spawn(number) for number in range(self.children)])
        else:
            reply = AIMessage("", tool_calls=[{"name": "add", "args": {"a": 2, "b": 3}, "id": "call_0"}])
        reply.usage_metadata = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _spawn(self, number: int) -> Any:
        task, name = f"task {number}", "task" if self.subagent else "spawn"
        given = {"description": task, "subagent_type": self.subagent} if self.subagent else {"input": task}
        return {"name": name, "args": given, "id": f"call_{number}"}

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> Any:
        await asyncio.sleep(0)
        return self._generate(messages)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    SUMS.append(a + b)
    return a + b
