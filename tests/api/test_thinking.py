"""A model that thinks: what its provider wants back survives the process that heard it."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

from fledge.models.base import Call
from fledge.models.scripted import ScriptedReply
from tests.models.asking import run
from tests.models.responses_server import ResponsesServer
from tests.models.serving import Answer, Hang
from tests.statements import proves

ROOT = Path(__file__).parents[2]
LOOK = Call("", "read", '{"path":"notes.txt"}')


@proves("0.crash.18", "A turn goes on after a crash with the reasoning that its provider wants back")
def test_a_child_that_is_killed_in_the_middle_of_its_tools_goes_on_with_its_reasoning(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    replies = [
        ScriptedReply("I look. ", (LOOK,), "first thoughts\n\nin two parts"),
        ScriptedReply("", (LOOK,), "second thoughts"),
    ]

    async def main() -> list[Any]:
        asked_again = asyncio.Event()

        def script(body: dict[str, Any]) -> Answer:
            results = sum(item["type"] == "function_call_output" for item in body["input"])
            if results == 1 and not asked_again.is_set():
                asked_again.set()
                return [Hang()]
            return replies[results] if results < len(replies) else ScriptedReply("done")

        async def program(*arguments: str) -> asyncio.subprocess.Process:
            command = [sys.executable, "-m", "tests.api.thinking", str(tmp_path), server.base_url, *arguments]
            return await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=PIPE)

        async with ResponsesServer(script) as server:
            first = await program()
            assert first.stdout is not None
            run_id = (await first.stdout.readline()).decode().strip()
            await asked_again.wait()
            first.kill()
            assert await first.wait() == -9
            second = await program(run_id)
            printed, _ = await second.communicate()
            assert (printed.decode().strip(), server.complaints) == ("done", [])
            return server.bodies

    bodies = run(main())
    assert len(bodies) == 4
    # A committed reply is not asked for again; the open step is asked for again with the same words.
    assert bodies[1] == bodies[2]
    reasoning = [[item for item in body["input"] if item["type"] == "reasoning"] for body in bodies]
    assert [len(items) for items in reasoning] == [0, 1, 1, 2]
    assert [part["text"] for part in reasoning[1][0]["summary"]] == ["first thoughts", "in two parts"]
    step = ["function_call", "function_call_output"]
    assert [item["type"] for item in bodies[3]["input"]][1:] == ["reasoning", "message", *step, "reasoning", *step]
