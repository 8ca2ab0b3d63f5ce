"""Main → orchestrator → three workers, and a planner: one worker is steered, one is killed, a plan is approved, and the
process is ended with -9 in the middle and started again. Every answer is in place exactly once.

    python tests/programs/orchestrated.py

A scripted model plays the model's part; everything else is real. The play runs in a process of its own, so that it can
really be killed.
"""

import asyncio
import signal
import subprocess
import sys
import tempfile
from collections import Counter

import fledge
from fledge.api.views import forest, timeline
from fledge.commands import lines
from fledge.core.transcript import Told, from_body
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import ScriptedReply, use
from fledge.store.base import Tx
from fledge.store.sqlite import SqliteStore
from fledge.testing import ScriptedModel

MAIN = "agent:main:main"
CONFIG = {"agents": {"defaults": {"subagents": {"maxSpawnDepth": 2}}}}
HALF_WAY = "half-way"


async def script(request: Request) -> ScriptedReply:
    """What each agent says; it follows from the request alone, so a restarted program hears the same."""
    last, system = request.messages[-1], request.system
    if "# Subagent Context" not in system:
        if last.text != "begin":
            return ScriptedReply("Three are under way." if isinstance(last, ToolMessage) else "Noted.")
        plan = use("sessions_spawn", task="plan the release", label="planner", planMode=True)
        return ScriptedReply(calls=(use("sessions_spawn", task="see to the work", label="orchestrator"), plan))
    if "see to the work" in system:
        if "What you waited for" in last.text or (isinstance(last, ToolMessage) is False and "worker" in last.text):
            return ScriptedReply("SUMMARY: the workers have reported.")
        if isinstance(last, ToolMessage):
            return ScriptedReply(calls=(use("sessions_yield"),))
        return ScriptedReply(
            calls=tuple(use("sessions_spawn", task=f"be worker {n}", label=f"worker {n}") for n in "123")
        )
    if "plan the release" in system:
        return ScriptedReply("SUMMARY: released." if "APPROVED" in last.text else "1. Test. 2. Release.")
    if "be worker 3" in system:
        await asyncio.sleep(600)
    elif "be worker 2" in system:
        await asyncio.sleep(1.5 if "shorter" in last.text else 600)
    return ScriptedReply("SUMMARY: done.")


async def play(state: str) -> None:
    """Go on wherever the state stands, do a person's part, and return when everything has settled."""
    async with fledge.open(state, model=ScriptedModel(script), config=CONFIG) as fl:
        chat, pause = fl.session("main"), asyncio.Event()
        if not await chat.history():
            await chat.post("begin")
        while not await chat.settled(timeout=0):
            above = await fl.runs(requester=MAIN)
            for run in [*above, *[one for top in above for one in await fl.runs(requester=top.session_key)]]:
                held = await fl.run(run.run_id)
                match run.label, run.phase, run.attempt:
                    case "worker 2", "running", 1:
                        await held.steer("shorter, please")
                    case "worker 2", "running", 2:
                        print(HALF_WAY, flush=True)
                    case "worker 3", "running", _:
                        await held.kill()
                    case "planner", "awaiting_approval", _:
                        await fl.approve_plan(held)
            await fl.engine.clock.wait_until(fl.engine.clock.now() + 0.1, pause)


def told(tx: Tx, session: str) -> list[str]:
    """The runs whose outcome is in this transcript, as often as it is."""
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(session)]
    rows = [item for body in bodies if isinstance(body, Told) for item in body.completions]
    return [tx.runs.spec(item.run or "").label for item in rows if not item.row.endswith(":plan")]


def story(tx: Tx) -> None:
    """What is in the store at the end."""
    orchestrator = tx.runs.children(MAIN)[0]
    print(
        "\n".join(
            [
                "main",
                *lines.tree(forest(tx, [MAIN], 100).runs, 0.0),
                "",
                "The orchestrator:",
                *lines.timeline(timeline(tx.events.of(orchestrator))),
            ]
        )
    )
    for key in tx.runs.children(orchestrator):
        print("\n".join(["", f"{tx.runs.spec(key).label}:", *lines.timeline(timeline(tx.events.of(key)))]))
    heard = Counter(told(tx, MAIN) + told(tx, orchestrator))
    assert heard == Counter(["orchestrator", "planner", "worker 1", "worker 2"]), heard
    print("\nfour answers in place, each exactly once; the killed worker is silent")


def main() -> None:
    """Run the play, end it with -9 half-way, run it again, and tell what came of it."""
    with tempfile.TemporaryDirectory() as state:
        command = [sys.executable, __file__, state]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == HALF_WAY
            process.send_signal(signal.SIGKILL)
        print(f"*** kill -9 {process.pid}, and started again ***")
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        store = SqliteStore.open(state)
        asyncio.run(_read(store))


async def _read(store: SqliteStore) -> None:
    try:
        await store.read(story)
    finally:
        await store.close()


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1])) if len(sys.argv) > 1 else main()
