"""nanobot: N background subagents of its `SubagentManager`, until all answers are on the message bus.

The tool call lists an empty folder, because subagents have a set of tools of their own. The parent's turn that would
read the answers is not run, and the token counter, which would fetch a table from the network, is replaced by a cheap
one: both are in nanobot's favour.
Usage: `python -m bench.peers.programs.nanobot CHILDREN`
"""

import asyncio
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tiktoken
from loguru import logger
from nanobot.agent.subagent import SubagentManager
from nanobot.bus.queue import MessageBus
from nanobot.providers.base import LLMProvider, LLMResponse, ToolCallRequest
from nanobot.utils.llm_runtime import LLMRuntime

from bench.measure import Meter
from bench.peers.programs import ANSWER, check, report


class FourCharacters:
    """Counts a token for every four characters."""

    def encode(self, text: str, **options: Any) -> range:
        return range(len(text) // 4)


class InProcess(LLMProvider):
    """A child's model."""

    calls = 0

    def get_default_model(self) -> str:
        return "in-process"

    async def chat(self, messages: Any, tools: Any = None, **options: Any) -> Any:
        self.calls += 1
        await asyncio.sleep(0)
        if any(message.get("role") == "tool" for message in messages):
            return LLMResponse(content=ANSWER)
        call = ToolCallRequest(id="call_0", name="list_dir", arguments={"path": "."})
        return LLMResponse(content=None, finish_reason="tool_calls", tool_calls=[call])


async def main(children: int, workspace: Path) -> None:
    logger.remove()
    tiktoken.get_encoding = lambda name: FourCharacters()
    bus, model = MessageBus(), InProcess(provider_name="in-process")
    manager = SubagentManager(workspace=workspace, bus=bus, max_tool_result_chars=4000)
    runtime = LLMRuntime.capture(model, "in-process", context_window_tokens=100_000)

    async def answered() -> bool:
        return ANSWER in (await bus.consume_inbound()).content

    await manager.spawn("warm", session_key="cli:warm", runtime=runtime)
    check("warm-up", await answered(), True)
    model.calls = 0
    with Meter() as meter:
        for i in range(children):
            await manager.spawn(f"task {i}", session_key="cli:direct", runtime=runtime)
        answers = [await answered() for _ in range(children)]
    check("answers", answers, [True] * children)
    check("model calls", model.calls, 2 * children)
    await manager.close()
    report(f"nanobot {version('nanobot-ai')}", children, meter)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(int(sys.argv[1]), Path(folder)))
