"""A program of its own process: a child with a model that thinks, by the responses protocol. See `test_thinking`.

`python -m tests.api.thinking DIR URL` spawns the child, prints its run id and waits for its answer; with a run id at
the end it waits for the answer of that run and prints it.
"""

import asyncio
import sys
from pathlib import Path

import fledge
from fledge.models.catalog import shipped
from fledge.models.keys import SecretKey
from fledge.models.responses import ResponsesModel
from tests.models.asking import service
from tests.models.serving import KEY

MODEL = "openai/gpt-5.6-terra"


async def main(folder: Path, url: str, run_id: str | None) -> None:
    model = ResponsesModel(service(url), SecretKey(KEY), card=lambda name: shipped().find(f"openai/{name}"))
    async with fledge.open(
        folder / "state", model=MODEL, models={"openai": model}, config={}, program="thinking", workspace=folder
    ) as fl:
        if run_id is None:
            run = await fl.spawn("Look twice", thinking="low")
            print(run.run_id, flush=True)
            await run
        else:
            [result] = await fl.gather([run_id])
            print(result.text)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None))
