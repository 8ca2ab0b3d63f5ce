"""A program that is ended with kill -9 in the middle, and started again: nothing is lost, nothing is done twice.

    python examples/crash.py

A script stands in for the model. The work is done in a process of its own, so that it can really be killed.
"""

import asyncio
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import fledge
from fledge.testing import Request, ScriptedModel, last_text

TASKS = ("read the sources", "run the tests", "write the summary")


async def script(request: Request) -> str:
    """The model's part: it takes a moment."""
    await asyncio.sleep(0.5)
    return f"done: {last_text(request)}"


async def work(fl: fledge.Fledge) -> None:
    """Do the tasks one after the other. Started again, it finds by their keys the runs that are already there."""
    for number, task in enumerate(TASKS):
        run = await fl.spawn(task, label=task, idempotency_key=f"task-{number}")
        print((await run).text, flush=True)


async def look(fl: fledge.Fledge) -> None:
    """Print what is in the folder at the end."""
    runs = await fl.runs()
    print(f"{len(runs)} runs for {len(TASKS)} tasks: {', '.join(run.status for run in runs)}")


def main() -> None:
    """Start the work, kill it after its first answer, start it again, and look."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, f"{folder}/state"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
            assert first.stdout is not None
            print(first.stdout.readline().strip())
            first.send_signal(signal.SIGKILL)
        print(f"*** kill -9 {first.pid}, and started again ***")
        again = subprocess.run(command, capture_output=True, text=True, check=True)
        print(again.stdout.strip())
        fledge.run_sync(look, f"{folder}/state", drives=False, config={}, workspace=Path(folder))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        place = Path(sys.argv[1]).parent
        fledge.run_sync(work, sys.argv[1], model=ScriptedModel(script), config={}, workspace=place)
    else:
        main()
