"""Two processes on one folder, as the workers of a web server are: the one that holds it is ended with -9 half-way, the
other one takes over, and every task is done and answered exactly once.

    python tests/programs/shared_folder.py

A scripted model plays the model's part; everything else is real. Each worker opens the folder in the same way and does
not care which of them holds it.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import IO

import fledge
from fledge.models.base import Request
from fledge.models.scripted import last_text
from fledge.testing import ScriptedModel

TASKS = [f"task {number}" for number in range(1, 13)]


async def answer(request: Request) -> str:
    """The model's part: it takes a moment."""
    await asyncio.sleep(0.2)
    return f"{last_text(request).rpartition(chr(10))[2]} is done"


async def work(state: str) -> None:
    """A worker: does the tasks that come on standard input, side by side, and prints what came of each."""
    async with fledge.open(state, model=ScriptedModel(answer), config={}, workspace=Path(state).parent) as fl:
        print(json.dumps({"holds": fl.is_holder}), flush=True)

        async def do(task: str) -> None:
            # The key makes a task one run, however often and by whichever worker it is asked for.
            run = await fl.spawn(task, label=task, idempotency_key=task)
            print(json.dumps({"task": task, "text": (await run).text}), flush=True)

        async with asyncio.TaskGroup() as group:
            while line := await asyncio.to_thread(sys.stdin.readline):
                group.create_task(do(line.strip()))


def worker(state: str) -> "subprocess.Popen[str]":
    """Another process of the same program."""
    command = [sys.executable, __file__, state]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told(output: IO[str] | None) -> dict[str, str]:
    """The next line of a worker."""
    assert output is not None
    line: dict[str, str] = json.loads(output.readline())
    return line


def ask(one: "subprocess.Popen[str]", tasks: list[str]) -> None:
    """Give tasks to a worker."""
    assert one.stdin is not None
    one.stdin.write("".join(f"{task}\n" for task in tasks))
    one.stdin.flush()


def show(state: str) -> int:
    """Start two workers, end the holder half-way, and tell what came of it."""
    first, second = worker(state), None
    try:
        print(f"worker {first.pid} opens the folder and {'holds' if told(first.stdout)['holds'] else 'asks'} it")
        second = worker(state)
        print(f"worker {second.pid} opens the folder and {'holds' if told(second.stdout)['holds'] else 'asks'} it")
        ask(first, TASKS[:6])
        ask(second, TASKS[6:])
        answers = [told(first.stdout), told(second.stdout)]
        first.send_signal(signal.SIGKILL)
        print(f"*** kill -9 {first.pid} ***   it held the folder, and had tasks of both under way")
        # What the first one was asked for is asked for again, as whoever waited for it would.
        ask(second, [task for task in TASKS[:6] if task not in [one["task"] for one in answers]])
        answers += [told(second.stdout) for _ in TASKS[2:]]
        for one in sorted(answers, key=lambda one: TASKS.index(one["task"])):
            print(f"  {one['text']}")
    finally:
        for process in filter(None, (first, second)):
            process.kill()
            process.communicate()
    runs = Counter(asyncio.run(labels(state)))
    is_once = runs == Counter(TASKS) == Counter(one["task"] for one in answers)
    print(f"{len(TASKS)} tasks, {sum(runs.values())} runs: " + ("each exactly once" if is_once else f"not so: {runs}"))
    return 0 if is_once else 1


async def labels(state: str) -> list[str]:
    """What the runs in the folder are called."""
    async with fledge.open(state, config={}, drives=False) as fl:
        return [run.label for run in await fl.runs()]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(work(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            sys.exit(show(f"{folder}/state"))
