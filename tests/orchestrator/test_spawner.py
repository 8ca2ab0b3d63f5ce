"""Spawning from the outside in, over a real engine: reserved, prepared, accepted, or nothing left behind."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fledge.config import with_settings
from fledge.core.run import Run
from fledge.errors import Refused
from fledge.orchestrator import spawn
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawn_params import Caller, SpawnParams
from fledge.orchestrator.spawner import Spawner
from fledge.store.sqlite import SqliteStore
from fledge.testing import InlineStore, ScriptedPerformer, SeededIds, Stage, VirtualClock, run_virtual
from tests.model.world import MAIN
from tests.orchestrator.host import MODEL, FakeHost
from tests.statements import proves

CALLER = Caller(session=MAIN)


def wanted(**params: Any) -> SpawnParams:
    return msgspec.convert({"task": "look", **params}, SpawnParams)


async def sleeps(stage: Stage) -> None:
    await stage.sleep(1000)


def play(tmp_path: Path, host: FakeHost, body: Callable[[Engine, Spawner], Awaitable[None]], *settings: str) -> None:
    async def main() -> None:
        config = with_settings({}, settings).config
        store = InlineStore(tmp_path)
        async with Engine(store, ScriptedPerformer(sleeps), clock=VirtualClock(), ids=SeededIds(1)) as engine:
            await engine.commit(lambda c: spawn.open_conversation(c, MAIN))
            await body(engine, Spawner(engine, config, host))
        await store.close()

    run_virtual(main())


async def rows(engine: Engine) -> tuple[int, int]:
    """How many children main was ever given, and how many it has."""
    return await engine.store.read(lambda tx: (tx.sessions.counts(MAIN).spawned, len(tx.runs.children(MAIN))))


def test_twenty_concurrent_calls_against_a_cap_of_five_admit_exactly_five(tmp_path: Path) -> None:
    async def main() -> tuple[list[dict[str, object]], tuple[int, int]]:
        store = SqliteStore.open(tmp_path)
        try:
            async with Engine(store, ScriptedPerformer(sleeps)) as engine:
                await engine.commit(lambda c: spawn.open_conversation(c, MAIN))
                spawner = Spawner(engine, with_settings({}, ()).config, FakeHost(channel=True))
                # Every other one needs something prepared, so places are taken by reservations too.
                calls = [spawner.answer(wanted(thread=n % 2 == 1, label=f"{n}"), CALLER) for n in range(20)]
                return await asyncio.gather(*calls), await rows(engine)
        finally:
            await store.close()

    answers, found = asyncio.run(main())
    accepted = [answer for answer in answers if answer["status"] == "accepted"]
    assert (len(accepted), found) == (5, (5, 5))
    cap = "active children 5 of 5: agents.defaults.subagents.maxChildrenPerAgent"
    assert [answer for answer in answers if answer["status"] != "accepted"] == [
        {"status": "forbidden", "error": cap}
    ] * 15


@proves("8.exec.7")
def test_a_person_who_spawns_in_a_sandboxed_session_starts_sandboxed_children_and_no_runtime(tmp_path: Path) -> None:
    async def body(engine: Engine, spawner: Spawner) -> None:
        boxed = (await spawner.spawn(wanted(sandbox="require"), await spawner.caller_for(MAIN))).run.key
        assert await spawner.caller_for(MAIN) == Caller(session=MAIN)
        assert await spawner.caller_for(boxed) == Caller(session=boxed, boxed=True)
        with pytest.raises(Refused, match=f"{boxed} is sandboxed .*, but runtime claude runs outside any sandbox"):
            await spawner.spawn(wanted(runtime="claude"), await spawner.caller_for(boxed))

    depth = "agents.defaults.subagents.maxSpawnDepth=2"
    play(tmp_path, FakeHost(has_sandbox=True, runtimes=("claude",)), body, depth)


@proves("8.exec.7")
def test_a_conversation_that_has_not_begun_is_sandboxed_as_it_will_be_and_a_program_never_is(tmp_path: Path) -> None:
    async def body(engine: Engine, spawner: Spawner) -> None:
        await engine.commit(lambda c: spawn.open_program(c, "agent:main:script"))
        assert await spawner.caller_for("agent:main:later") == Caller(session="agent:main:later", boxed=True)
        assert await spawner.caller_for("agent:main:script") == Caller(session="agent:main:script", is_program=True)

    play(tmp_path, FakeHost(has_sandbox=True, boxes_all=True), body)


def test_a_program_may_have_as_many_children_as_it_likes(tmp_path: Path) -> None:
    async def body(engine: Engine, spawner: Spawner) -> None:
        program = Caller(session="agent:main:script", is_program=True)
        await engine.commit(lambda c: spawn.open_program(c, program.session))
        answers = [await spawner.answer(wanted(label=f"{n}"), program) for n in range(8)]
        assert [answer["status"] for answer in answers] == ["accepted"] * 8

    play(tmp_path, FakeHost(), body)


def test_an_accepted_spawn_says_what_it_was_given(tmp_path: Path) -> None:
    async def body(engine: Engine, spawner: Spawner) -> None:
        answer = await spawner.answer(wanted(), CALLER)
        run = await engine.store.read(lambda tx: tx.runs.load(str(answer["childSessionKey"])))
        assert answer.pop("note")
        assert answer == {
            "status": "accepted",
            "childSessionKey": run.key,
            "runId": run.run_id,
            "mode": "run",
            "modelApplied": True,
            "resolvedModel": MODEL,
        }

    play(tmp_path, FakeHost(), body, f"agents.defaults.model={MODEL}")


@proves("3.params.9")
def test_a_thread_is_bound_before_the_spawn_is_accepted(tmp_path: Path) -> None:
    host = FakeHost(channel=True)

    async def body(engine: Engine, spawner: Spawner) -> None:
        answer = await spawner.answer(wanted(thread=True), CALLER)
        assert (answer["status"], answer["mode"]) == ("accepted", "session")
        assert host.bound == [answer["childSessionKey"]]

    play(tmp_path, host, body)


def test_a_spawn_that_cannot_be_prepared_leaves_nothing(tmp_path: Path) -> None:
    async def body(engine: Engine, spawner: Spawner) -> None:
        answer = await spawner.answer(wanted(thread=True, idempotencyKey="k"), CALLER)
        assert answer == {"status": "error", "error": "thread: no channel here can bind a thread"}
        assert await engine.store.read(lambda tx: tx.runs.children(MAIN)) == []
        assert await engine.store.read(lambda tx: tx.sessions.counts(MAIN).unsettled) == 0
        assert (await spawner.answer(wanted(idempotencyKey="k"), CALLER))["status"] == "accepted"

    play(tmp_path, FakeHost(), body)


def test_a_stop_while_it_is_being_prepared_withdraws_it(tmp_path: Path) -> None:
    class Slow(FakeHost):
        async def bind_thread(self, engine: Engine, run: Run) -> None:
            await engine_of[0].store.transact(lambda tx: tx.sessions.raise_generation(MAIN))

    engine_of: list[Engine] = []

    async def body(engine: Engine, spawner: Spawner) -> None:
        engine_of.append(engine)
        caller = Caller(session=MAIN, generations={MAIN: 0})
        with pytest.raises(Refused, match="was stopped after this turn began"):
            await spawner.spawn(wanted(thread=True), caller)
        assert await engine.store.read(lambda tx: tx.runs.children(MAIN)) == []

    play(tmp_path, Slow(), body)


def test_a_caller_that_gives_up_while_it_is_being_prepared_leaves_nothing(tmp_path: Path) -> None:
    class Never(FakeHost):
        async def bind_thread(self, engine: Engine, run: Run) -> None:
            await asyncio.sleep(1000)

    async def body(engine: Engine, spawner: Spawner) -> None:
        calling = asyncio.create_task(spawner.spawn(wanted(thread=True), CALLER))
        await asyncio.sleep(1)
        assert [run.phase.name for run in await _runs(engine)] == ["spawning"]
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        assert await _runs(engine) == []

    play(tmp_path, Never(), body)


async def _runs(engine: Engine) -> list[Run]:
    return await engine.store.read(lambda tx: [tx.runs.load(key) for key in tx.runs.children(MAIN)])


def test_a_call_that_is_repeated_finds_what_was_prepared_before(tmp_path: Path) -> None:
    host = FakeHost(channel=True)

    async def body(engine: Engine, spawner: Spawner) -> None:
        caller = Caller(session=MAIN, key="call")
        first = await spawner.answer(wanted(thread=True), caller)
        assert await spawner.answer(wanted(thread=True), caller) == first
        assert len(host.bound) == 1

    play(tmp_path, host, body)


# ---- what is made outside the database -------------------------------------------------------------------------------


def test_a_child_is_accepted_once_what_it_needs_is_made(tmp_path: Path) -> None:
    host = FakeHost()

    async def body(engine: Engine, spawner: Spawner) -> None:
        answer = await spawner.answer(wanted(workspace="dir"), CALLER)
        assert answer["status"] == "accepted"
        (made,) = host.made
        assert made.terms.leaves == (f"work/{str(answer['childSessionKey']).rpartition(':')[2]}",)
        assert (await spawner.answer(wanted(cwd="src"), CALLER))["status"] == "accepted"
        assert host.made[-1].facts.cwd == "src"

    play(tmp_path, host, body)


def test_what_cannot_be_made_leaves_nothing_and_what_was_made_by_then_is_removed(tmp_path: Path) -> None:
    host = FakeHost()
    host.cannot_make = "the disk is full"

    async def body(engine: Engine, spawner: Spawner) -> None:
        answer = await spawner.answer(wanted(workspace="dir"), CALLER)
        assert answer == {"status": "error", "error": "its files could not be made: the disk is full"}
        assert await _runs(engine) == []
        await asyncio.sleep(1)
        assert isinstance(engine.performer, ScriptedPerformer)
        assert [post.kind for post in engine.performer.posted] == ["remove"]
        assert engine.performer.posted[0].body.startswith('["work/')

    play(tmp_path, host, body)
