"""pydantic-ai: the parent's `spawn` tool runs a child agent, N calls in one turn, which waits for them.

`plain`: nothing is kept. `dbos`: parent and children are durable DBOS workflows on SQLite.
Usage: `python -m bench.peers.programs.pydantic_ai plain|dbos CHILDREN`
"""

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import UsageLimits

from bench.measure import Meter
from bench.peers.programs import ANSWER, check, report

NO_LIMITS = UsageLimits(request_limit=None)


def results_in(messages: Any) -> int:
    return sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)


async def child_model(messages: Any, info: Any) -> Any:
    await asyncio.sleep(0)
    return ModelResponse([TextPart(ANSWER) if results_in(messages) else ToolCallPart("add", {"a": 2, "b": 3})])


def parent_model(children: int) -> Callable[[Any, Any], Awaitable[Any]]:
    async def reply(messages: Any, info: Any) -> Any:
        await asyncio.sleep(0)
        if results := results_in(messages):
            return ModelResponse([TextPart(f"all {results} results")])
        calls = range(children)
        return ModelResponse([ToolCallPart("spawn", {"input": f"task {i}"}, tool_call_id=f"call_{i}") for i in calls])

    return reply


def agents(children: int, capabilities: list[Any]) -> tuple[Any, Any, list[int]]:
    """Child, parent, and the sums that the children have asked for."""
    sums: list[int] = []
    child = Agent(FunctionModel(child_model), name="child", instructions="You are a child.", capabilities=capabilities)

    @child.tool_plain
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        sums.append(a + b)
        return a + b

    model = FunctionModel(parent_model(children))
    return child, Agent(model, name="parent", instructions="Fan out.", capabilities=capabilities), sums


async def plain(children: int) -> None:
    child, parent, sums = agents(children, [])

    @parent.tool_plain
    async def spawn(input: str) -> str:
        """Spawn a child."""
        return str((await child.run(input, usage_limits=NO_LIMITS)).output)

    async def run() -> str:
        return str((await parent.run("go", usage_limits=NO_LIMITS)).output)

    check("warm-up", (await child.run("warm")).output, ANSWER)
    await measure(run, sums, children, "")


async def dbos(children: int, folder: str) -> None:
    from dbos import DBOS
    from pydantic_ai.durable_exec.dbos import DBOSDurability

    database = f"sqlite:///{folder}/system.db"
    DBOS(config={"name": "bench", "system_database_url": database, "run_admin_server": False, "log_level": "ERROR"})
    child, parent, sums = agents(children, [DBOSDurability()])

    @DBOS.workflow()
    async def run_child(task: str) -> str:
        return str((await child.run(task, usage_limits=NO_LIMITS)).output)

    @parent.tool_plain
    async def spawn(input: str) -> str:
        """Spawn a child."""
        return str(await (await DBOS.start_workflow_async(run_child, input)).get_result())

    @DBOS.workflow()
    async def run_parent() -> str:
        return str((await parent.run("go", usage_limits=NO_LIMITS)).output)

    DBOS.launch()
    check("warm-up", await run_child("warm"), ANSWER)
    await measure(run_parent, sums, children, f" with DBOS {version('dbos')}")
    ended = [workflow.status for workflow in await DBOS.list_workflows_async()]
    check("every workflow has ended", ended.count("SUCCESS") >= children + 2, True)
    DBOS.destroy()


async def measure(run: Callable[[], Awaitable[str]], sums: list[int], children: int, durability: str) -> None:
    sums.clear()
    with Meter() as meter:
        text = await run()
    check("sums", sums, [5] * children)
    check("the parent's text", text, f"all {children} results")
    report(f"pydantic-ai {version('pydantic-ai-slim')}{durability}", children, meter)


def main(way: str, children: int) -> None:
    if way == "plain":
        asyncio.run(plain(children))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(dbos(children, folder))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
