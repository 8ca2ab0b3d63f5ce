"""The demo: a tree of runs on a real store, killed with -9 half-way and started again before the reader's eyes.

At this stage of the project a script plays the agents' part; store, lifecycle, engine, crash and recovery are real. The
play runs in a process of its own (`python -m fledge.cli.demo DIR`), so that it can really be killed.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from fledge.cli.render import timeline_lines, tree_lines
from fledge.core.keys import main_key
from fledge.core.policy import Limits
from fledge.orchestrator import control, spawn
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.store.base import Tx
from fledge.store.sqlite import SqliteStore
from fledge.testing import ScriptedPerformer, Stage

MAIN = main_key()
WORKERS = ("count the files", "read the tests", "check the links")
CURTAIN = "half-way"
"""What the play prints at the moment to kill it."""
LIMITS = Limits(max_depth=3, max_children=5)


# ---- the play: what the agents do ------------------------------------------------------------------------------------


async def _play(stage: Stage) -> None:
    """A script in place of a model. It looks at what is there before it acts, so being driven again repeats nothing."""
    task = await stage.task()
    children = await stage.engine.store.read(lambda tx: tx.children(stage.session))
    if stage.session == MAIN:
        if not children:
            await stage.spawn("survey the project", limits=LIMITS)
            await stage.spawn("draft a summary", limits=LIMITS)
            _tell("main       spawned two agents and keeps talking")
            await stage.say("I have started two agents; ask me anything meanwhile.")
        else:
            _tell("main       read what has arrived")
            await stage.say("Noted.")
    elif stage.run is not None and "survey" in task and not children:
        for worker in WORKERS:
            await stage.spawn(worker, limits=LIMITS)
        _tell("survey     spawned three workers and waits, holding no slot")
        await stage.wait("all")
    elif children:
        await stage.say("SUMMARY: all three workers have reported to me.")
    else:
        await _work(stage, task)


async def _work(stage: Stage, task: str) -> None:
    words = msgspec.json.decode(task)["text"]
    _tell(f"worker     works on: {words}")
    await stage.sleep(0.3 if words == WORKERS[0] else 0.7)
    if words == WORKERS[1]:
        _tell(CURTAIN)
    await stage.sleep(0.3)
    await stage.say(f"SUMMARY: {words}: done.")


def _tell(line: str) -> None:
    print(f"   {line}", flush=True)


async def play(folder: str) -> None:
    """Open the store, go on wherever it stands, and return when everything has settled."""
    store = SqliteStore.open(folder)
    try:
        async with Engine(store, ScriptedPerformer(_play)) as engine:
            settled = asyncio.Event()
            engine.on_change(lambda _: settled.set())
            await engine.commit(_begin)
            while not await store.read(_at_rest):
                settled.clear()
                await engine.clock.wait_until(engine.clock.now() + 0.2, settled)
    finally:
        await store.close()


def _begin(c: Commit) -> None:
    spawn.open_conversation(c, MAIN)
    control.send(c, MAIN, "Please survey this project and draft a summary.", row_key="demo")


def _at_rest(tx: Tx) -> bool:
    keys = tx.children(MAIN)
    return bool(keys) and tx.turn(MAIN) is None and all(tx.load_run(key).phase.name == "completed" for key in keys)


# ---- the show: what the reader sees ----------------------------------------------------------------------------------


def show(state: str | None = None) -> int:
    """Run the play, kill it, run it again, and tell what came of it. 0 if every answer arrived exactly once."""
    if state is not None:
        return _show(Path(state))
    with tempfile.TemporaryDirectory(prefix="fledge-demo-") as folder:
        return _show(Path(folder))


def _show(folder: Path) -> int:
    print(
        "A main agent spawns two agents; one of them spawns three workers. A script plays the agents; all else is real."
    )
    print(f"\n1. Start (state in {folder})")
    pid = _run(folder, kill=True)
    print(f"   *** kill -9 {pid} ***")
    print("\n2. What is on disk")
    asyncio.run(_print(folder, timelines=False))
    print("\n3. Start again: nothing to repair, the same loop finds what is due")
    _run(folder, kill=False)
    print("\n4. What came of it")
    return asyncio.run(_print(folder, timelines=True))


def _run(folder: Path, kill: bool) -> int:
    command = [sys.executable, "-m", "fledge.cli.demo", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == CURTAIN:
                if kill:
                    os.kill(process.pid, signal.SIGKILL)
                    break
                continue
            print(line, end="", flush=True)
        return process.pid


async def _print(folder: Path, timelines: bool) -> int:
    store = SqliteStore.open(folder)
    try:
        return await store.read(lambda tx: _report(tx, timelines))
    finally:
        await store.close()


def _report(tx: Tx, timelines: bool) -> int:
    print("\n".join(f"   {line}" for line in ["main", *tree_lines(tx, MAIN)]))
    if not timelines:
        return 0
    survey = tx.children(MAIN)[0]
    print("\n   Timeline of the worker that was killed half-way:")
    for key in tx.children(survey):
        events = tx.events(key)
        if any(type(event).__name__ == "LeaseLost" for event in events):
            print("\n".join(f"   {line}" for line in timeline_lines(events)))
            break
    told = _told(tx, MAIN) + _told(tx, survey)
    runs = [*tx.children(MAIN), *tx.children(survey)]
    once = sorted(told) == sorted(runs)
    verdict = "each exactly once" if once else f"not each once: {told}"
    print(f"\n   {len(runs)} runs, {len(told)} answers in their requesters' transcripts: {verdict}.")
    return 0 if once else 1


def _told(tx: Tx, session: str) -> list[str]:
    entries = [entry for entry in tx.entries(session) if entry.kind == "event"]
    return [item["run"] for entry in entries for item in msgspec.json.decode(entry.body)["completions"]]


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1]))
