"""A program of its own process: it spawns, is killed, and finds its runs again. See `test_reattach`.

`python -m tests.api.reattaching spawn DIR` prints the run ids, one a line, then `ready` once the quick ones are done,
and stays. `… read DIR ID…` prints the text of each.
"""

import asyncio
import sys

import fledge
from fledge.models.base import Request
from fledge.models.scripted import Answer, last_text
from fledge.testing import ScriptedModel


async def _stays(request: Request) -> Answer:
    if "slow" in last_text(request):
        await asyncio.Event().wait()
    return f"done: {last_text(request)}"


async def _spawn(folder: str) -> None:
    async with fledge.open(folder, model=ScriptedModel(_stays), config={}, program="killed") as fl:
        runs = [await fl.spawn(f"{word} {n}") for n in range(3) for word in ("quick", "slow")]
        said = await fl.session("main").post("slow question")
        for name in (*(run.run_id for run in runs), said):
            print(name, flush=True)
        quick = [run for run in runs if not (await run.info()).task.startswith("slow")]
        for run in quick:
            async for _ in run.events():
                pass
        await quick[0]
        print("ready", flush=True)
        await asyncio.Event().wait()


async def _read(folder: str, names: list[str]) -> None:
    model = ScriptedModel(lambda request: f"done: {last_text(request)}")
    async with fledge.open(folder, model=model, config={}, program="killed") as fl:
        *run_ids, said = names
        for result in await fl.gather(run_ids):
            print(result.text)
        print((await fl.session("main").reply(said)).text)
        print(f"asked {len(model.requests)} times, undelivered {len(await fl.undelivered())}")
        print("deliveries", *sorted({str(run.delivery) for run in await fl.runs()}))


if __name__ == "__main__":
    asyncio.run(_spawn(sys.argv[2]) if sys.argv[1] == "spawn" else _read(sys.argv[2], sys.argv[3:]))
