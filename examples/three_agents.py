"""Three agents work in the background. The program shows what each is doing, and reads their answers.

    python examples/three_agents.py [MODEL]

Without the name of a model, such as openai/gpt-5, a script stands in for one.
"""

import asyncio
import sys
import tempfile
from typing import Any

import fledge
from fledge.testing import Request, ScriptedModel, last_text

TOPICS = ("tides", "bees", "rust")


async def script(request: Request) -> str:
    """What a model might say, a few letters at a time."""
    topic = next(topic for topic in TOPICS if topic in last_text(request))
    await asyncio.sleep(0.1)
    return f"Here is what matters about {topic}: less than you think."


async def show(run: fledge.Handle[Any]) -> None:
    """Print a line when this run enters another phase or uses a tool, and count the letters it has said."""
    said = 0
    async for event in run.events():
        match event.kind:
            case "phase":
                print(f"{run.label:>6}: {event.text} ({said} letters so far)")
            case "tool:start":
                print(f"{run.label:>6}: uses {event.text}")
            case "assistant:text" | "message":
                said += len(event.text)


async def main(fl: fledge.Fledge) -> None:
    """Spawn three runs, watch them side by side, and print their answers."""
    runs = [await fl.spawn(f"Explain {topic} in one sentence.", label=topic) for topic in TOPICS]
    await asyncio.gather(*(show(run) for run in runs))
    for result in await fl.gather(runs):
        print(f"{result.label}: {result.text}")


if __name__ == "__main__":
    model = sys.argv[1] if len(sys.argv) > 1 else ScriptedModel(script, piece_chars=8, piece_s=0.01)
    with tempfile.TemporaryDirectory() as folder:
        fledge.run_sync(main, folder, model=model)
