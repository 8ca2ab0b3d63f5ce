"""openai-agents: the parent calls N child agents as tools in one turn, which waits for them.

Usage: `python -m bench.peers.programs.openai_agents CHILDREN`
"""

import asyncio
import sys
from typing import Any

import agents
from agents import Agent, Model, ModelResponse, ModelSettings, Runner, Usage, function_tool, set_tracing_disabled
from agents.testing import assistant_message, function_call

from bench.measure import Meter
from bench.peers.programs import ANSWER, check, report


@function_tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class InProcess(Model):
    """A child's model; with children the parent's."""

    def __init__(self, children: int = 0) -> None:
        self.children = children

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(0)
        has_results = not isinstance(input, str) and any(item.get("type") == "function_call_output" for item in input)
        if has_results:
            output = [assistant_message("all results" if self.children else ANSWER)]
        elif self.children:
            calls = range(self.children)
            output = [function_call("spawn", {"input": f"task {i}"}, call_id=f"call_{i}") for i in calls]
        else:
            output = [function_call("add", {"a": 2, "b": 3}, call_id="call_0")]
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


async def main(children: int) -> None:
    set_tracing_disabled(True)
    answers: list[str] = []

    async def keep(result: Any) -> str:
        answers.append(result.final_output)
        return answers[-1]

    child = Agent(name="child", instructions="You are a child.", model=InProcess(), tools=[add])
    check("warm-up", (await Runner.run(child, "warm up")).final_output, ANSWER)
    parent = Agent(
        name="parent",
        instructions="Fan out.",
        model=InProcess(children),
        model_settings=ModelSettings(parallel_tool_calls=True),
        tools=[child.as_tool("spawn", "spawn a child", custom_output_extractor=keep)],
    )
    with Meter() as meter:
        result = await Runner.run(parent, "go", max_turns=5)
    check("answers", answers, [ANSWER] * children)
    check("the parent's text", result.final_output, "all results")
    report(f"openai-agents {agents.__version__}", children, meter)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
