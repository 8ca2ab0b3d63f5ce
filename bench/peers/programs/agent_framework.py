"""agent-framework: a parent with `BackgroundAgentsProvider` starts N background tasks in one turn.

Its next turn waits for each, and the one after reads each result, as its tools demand.
Usage: `python -m bench.peers.programs.agent_framework CHILDREN`
"""

import asyncio
import sys
import warnings
from importlib.metadata import version
from typing import Any

from agent_framework import Agent, BackgroundAgentsProvider, BaseChatClient, ChatResponse, Content, Message, tool
from agent_framework._tools import FunctionInvocationLayer

from bench.measure import Meter
from bench.peers.programs import ANSWER, check, report

SUMS: list[int] = []


class InProcess(FunctionInvocationLayer, BaseChatClient):
    """A child's model; with children the parent's."""

    def __init__(self, children: int = 0) -> None:
        super().__init__()
        self.children = children

    def _inner_get_response(self, *, messages: Any, stream: Any, options: Any, **more: Any) -> Any:
        async def reply() -> Any:
            await asyncio.sleep(0)
            results = [part for message in messages for part in message.contents if part.type == "function_result"]
            contents = self._parent(results) if self.children else self._child(results)
            return ChatResponse(messages=[Message(role="assistant", contents=contents)], response_id="r")

        return reply()

    def _child(self, results: list[Any]) -> list[Any]:
        if results:
            return [Content.from_text(ANSWER)]
        return [Content.from_function_call("call_0", "add", arguments='{"a": 2, "b": 3}')]

    def _parent(self, results: list[Any]) -> list[Any]:
        calls = range(self.children)
        given: list[dict[str, Any]]
        match len(results) // self.children:
            case 0:
                name = "start_task"
                given = [{"agent_name": "child", "input": f"task {i}", "description": "d"} for i in calls]
            case 1:
                name, given = "wait_for_first_completion", [{"task_ids": [i + 1]} for i in calls]
            case 2:
                name, given = "get_task_results", [{"task_id": i + 1} for i in calls]
            case _:
                answers = sum(ANSWER in str(result.result) for result in results[-self.children :])
                return [Content.from_text(f"all {answers} results")]
        tool_name = f"background_agents_{name}"
        return [Content.from_function_call(f"{name}{i}", tool_name, arguments=given[i]) for i in calls]


@tool(approval_mode="never_require")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    SUMS.append(a + b)
    return a + b


async def main(children: int) -> None:
    warnings.filterwarnings("ignore")
    child = Agent(client=InProcess(), name="child", instructions="You are a child.", tools=[add])
    check("warm-up", (await child.run("warm")).text, ANSWER)
    SUMS.clear()
    providers = [BackgroundAgentsProvider([child])]
    parent = Agent(client=InProcess(children), name="parent", instructions="Fan out.", context_providers=providers)
    session = parent.create_session()
    with Meter() as meter:
        result = await parent.run("go", session=session)
    check("sums", SUMS, [5] * children)
    check("the parent's text", result.text, f"all {children} results")
    report(f"agent-framework {version('agent-framework-core')}", children, meter)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
