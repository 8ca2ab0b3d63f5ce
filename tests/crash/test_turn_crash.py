"""kill -9 anywhere in a turn that thinks and works, and a thousand turns at once that leave nothing behind."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fledge.core import policy
from fledge.core.run import Terms
from fledge.models.scripted import ScriptedModel, ScriptedReply, use
from fledge.orchestrator import spawn
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.engine import Engine
from fledge.runtime.agent import AgentLoop
from fledge.store.base import Spec, Tx
from fledge.store.sqlite import SqliteStore
from tests.orchestrator.stage import PROGRAM
from tests.runtime.desk import Kit, OneProfile, cast, in_turn

SESSIONS = 1000


@pytest.mark.parametrize("arguments", [[], ["--again"]], ids=["once", "and again in the recovery"])
def test_a_crash_before_or_after_any_transaction_of_a_turn_repeats_and_loses_nothing(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "tests.crash.turn_every_commit", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == {}
    assert found["points"] == 2 * found["transactions"] * (4 if arguments else 1)
    assert found["transactions"] >= 8


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_thousand_sessions_at_once_all_finish_and_leave_nothing_behind(tmp_path: Path) -> None:
    kit = Kit()
    calls = ScriptedReply("looking", (use("look", word="a"), use("look", word="b")))
    model = ScriptedModel(cast(worker=in_turn(calls, "done")), latency_s=0.01)

    def admit(c: Commit) -> None:
        terms = Terms(parent=PROGRAM)
        limits = policy.Limits(max_depth=2, max_children=2 * SESSIONS)
        for _ in range(SESSIONS):
            spawn.spawn(c, spawn.SpawnRequest(spec=Spec(task="worker", label="worker"), terms=terms, limits=limits))

    def statuses(tx: Tx) -> list[str]:
        ends = [tx.runs.load(key).ended for key in tx.runs.children(PROGRAM)]
        return [ended.outcome.status for ended in ends if ended is not None]

    async def main() -> None:
        tasks, files, processes = asyncio.all_tasks(), open_files(), children()
        store = SqliteStore.open(tmp_path)
        ended = 0
        all_ended = asyncio.Event()

        def count(key: str) -> None:
            nonlocal ended
            ended += 1
            if ended >= SESSIONS:
                all_ended.set()

        rules = Rules(widths={"main": 4, "subagent": SESSIONS})
        agent = AgentLoop(OneProfile(model, [kit.tool("look", 0.01)], {}))
        async with Engine(store, agent, rules=rules) as engine:
            await engine.commit(lambda c: spawn.open_program(c, PROGRAM))
            engine.on_change(count)
            await engine.commit(admit)
            async with asyncio.timeout(120):
                await all_ended.wait()
            assert await store.read(statuses) == ["ok"] * SESSIONS
            assert await store.read(lambda tx: tx.drivers.all()) == []
        await store.close()
        assert asyncio.all_tasks() == tasks
        # The loop's own pool of threads opens nothing; the store's files are closed.
        assert open_files() == files
        assert children() == processes

    asyncio.run(main())
    assert len(kit.done) == 2 * SESSIONS
    assert len(model.requests) == 2 * SESSIONS
