"""A store whose commits fail for a while, as on a full disk: every loop of the engine waits longer and longer, the log
says it once and once that it is over, and everything goes on."""

import logging
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from fledge.core.route import Address
from fledge.core.run import Terms
from fledge.errors import StoreError
from fledge.orchestrator import bindings, heartbeat, messages, spawn
from fledge.orchestrator.commit import Commit, Rules
from fledge.store.base import Spec, Tx, Wishes
from fledge.testing import Stage
from tests.orchestrator.stage import LIMITS, MAIN, WIDE, Theatre, World, works
from tests.statements import proves

BROKEN_S: Final = 600.0
MOST_TRIES: Final = 60
"""With pauses of 0.1, 0.2 … 30 s, and of 1, 2 … 30 s, there are about 30 tries in ten minutes."""


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    return Theatre(tmp_path)


async def claims(world: World) -> None:
    """Several sessions are queued."""
    for label in "abc":
        await world.spawn(label)


async def steps(world: World) -> None:
    """A driver commits steps."""
    await world.spawn("steps")


async def ends(world: World) -> None:
    """A driver has ended its turn, and leaves."""
    await world.spawn("leaves")


async def deadlines(world: World) -> None:
    """A run times out."""
    await world.spawn("timed", timeout_s=2)


async def reservations(world: World) -> None:
    """A reservation is never prepared."""
    request = spawn.SpawnRequest(spec=Spec(task="half made"), terms=Terms(parent=MAIN), limits=LIMITS)
    await world.engine.commit(lambda c: spawn.reserve(c, request))


async def posts(world: World) -> None:
    """Two posts are sent while the store is broken."""

    def post(c: Commit) -> None:
        for name in ("one", "two"):
            c.tx.outbox.post(f"note:{name}", "note", None, "{}", c.at + 2)
        c.hints.look = True

    await world.engine.commit(post)


async def heartbeats(world: World) -> None:
    """A heartbeat is wanted soon."""
    await world.engine.commit(lambda c: heartbeat.request(c, MAIN, "look", "action"))


async def requests(world: World) -> None:
    """A request runs out of time."""
    await world.spawn("long")
    await world.engine.commit(lambda c: messages.accept_request(c, "agent:main:slow", "go", Wishes(timeout_s=2.0)))


async def bound(world: World) -> None:
    """A binding ends by its age."""
    await world.engine.commit(lambda c: bindings.bind(c, MAIN, Address("ops", "ann")) and None)


async def removals(world: World) -> None:
    """The files of a child that has ended are removed."""
    await world.spawn("leaves", cleanup="delete")


LOOPS: Final[dict[str, Callable[[World], Awaitable[None]]]] = {
    one.__name__: one
    for one in (claims, steps, ends, deadlines, reservations, posts, heartbeats, requests, bound, removals)
}


async def commits_steps(stage: Stage) -> None:
    await stage.sleep(2)
    await stage.step("a step")


SCRIPTS: Final = {"steps": commits_steps, "leaves": works(2), "timed": works(100), "long": works(2)}
RULES: Final = Rules(widths=WIDE, binding_max_age_s=2.0)


@proves("7.input.50", "While commits fail, every loop waits up to 30 s before it tries again, and says so once")
@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS)
def test_a_loop_that_meets_failed_commits_waits_longer_and_longer_and_says_so_once(
    theatre: Theatre, caplog: pytest.LogCaptureFixture, loop: Callable[[World], Awaitable[None]]
) -> None:
    tries = 0

    async def body(world: World) -> None:
        def refuse(tx: Tx) -> None:
            nonlocal tries
            tries += 1
            raise StoreError("database or disk is full")

        await loop(world)
        if loop not in (claims, heartbeats):
            await world.clock.sleep(1)
        world.store.check = refuse
        await world.clock.sleep(BROKEN_S)
        world.store.check = lambda tx: None
        await world.clock.sleep(61)
        assert await world.look(lambda tx: tx.drivers.all()) == []
        assert await world.look(lambda tx: tx.queue.claimable(WIDE, world.clock.now(), 100)) == []
        assert await world.look(lambda tx: tx.outbox.due(world.clock.now(), 100)) == []

    with caplog.at_level(logging.INFO, "fledge.engine"):
        theatre.act(body, SCRIPTS, rules=RULES)
    assert 5 < tries <= MOST_TRIES * 3
    told = [record.getMessage() for record in caplog.records if record.name == "fledge.engine"]
    assert told == [
        "store error, tried again at least every 30 s: database or disk is full",
        "the store works again",
    ]


@proves("7.input.50")
def test_a_full_disk_is_said_once_and_everything_goes_on_when_there_is_room(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.programs.full_disk", str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    first, *then = done.stdout.splitlines()
    assert first.startswith("store error, tried again at least every 30 s: ")
    assert "free some space or check the disk" in first
    assert then == [
        *["StoreError"] * 3,
        "1 line",
        "the store works again",
        "one hello",
        "two hello",
        "three hello",
        "hello",
    ]
