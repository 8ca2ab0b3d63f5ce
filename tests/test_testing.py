"""The public fakes keep their word: time that moves when told, names that repeat, a store that is real, crashes at the
chosen moment, and a performer that plays and remembers."""

import asyncio
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Literal

import pytest

from fledge.core.run import Instant, Terms
from fledge.errors import StoreError
from fledge.ids import RandomIds
from fledge.orchestrator import spawn
from fledge.orchestrator.engine import Engine
from fledge.store.base import OutboxPost, SessionFacts, Spec, Tx
from fledge.testing import (
    START,
    CrashPoint,
    InlineStore,
    ManualClock,
    ScriptedPerformer,
    SeededIds,
    Stage,
    VirtualClock,
    run_virtual,
)

MAIN = "agent:main:main"

# ---- ManualClock -----------------------------------------------------------------------------------------------------


def test_a_manual_clock_stands_still_until_it_is_told_to_move() -> None:
    clock = ManualClock()
    assert (clock.now(), clock.now()) == (START, START)
    assert clock.advance(2.5) == START + 2.5
    assert clock.now() == START + 2.5
    assert ManualClock(7.0).now() == 7.0


async def begin(waiting: "asyncio.Task[None]") -> bool:
    """Let others run; True if the wait is over by then."""
    for _ in range(10):
        await asyncio.sleep(0)
    return waiting.done()


@pytest.mark.parametrize(("moves", "over"), [([4.75], False), ([5.0], True), ([2.0, 2.75], False), ([2.0, 3.0], True)])
def test_a_manual_clock_wakes_whoever_waits_for_a_time_that_has_come(moves: list[float], over: bool) -> None:
    async def main() -> bool:
        clock = ManualClock()
        waiting = asyncio.create_task(clock.wait_until(START + 5, asyncio.Event()))
        assert not await begin(waiting)
        for seconds in moves:
            clock.advance(seconds)
            await begin(waiting)
        done = waiting.done()
        waiting.cancel()
        return done

    assert asyncio.run(main()) is over


@pytest.mark.parametrize("at", [None, START + 5])
def test_a_poke_ends_a_wait_on_a_manual_clock(at: Instant | None) -> None:
    async def main() -> None:
        clock, poked = ManualClock(), asyncio.Event()
        waiting = asyncio.create_task(clock.wait_until(at, poked))
        assert not await begin(waiting)
        poked.set()
        assert await begin(waiting)
        assert clock.now() == START

    asyncio.run(main())


def test_a_manual_clock_without_a_time_to_wait_for_is_not_ended_by_moving() -> None:
    async def main() -> None:
        clock, poked = ManualClock(), asyncio.Event()
        waiting = asyncio.create_task(clock.wait_until(None, poked))
        await begin(waiting)
        clock.advance(1e9)
        assert not await begin(waiting)
        poked.set()
        assert await begin(waiting)

    asyncio.run(main())


def test_a_manual_clock_wakes_everybody_whose_time_has_come() -> None:
    async def main() -> None:
        clock = ManualClock()
        waits = [asyncio.create_task(clock.wait_until(START + at, asyncio.Event())) for at in (1, 2, 3)]
        await begin(waits[0])
        clock.advance(2)
        await begin(waits[0])
        assert [wait.done() for wait in waits] == [True, True, False]
        clock.advance(1)
        assert await begin(waits[2])

    asyncio.run(main())


@pytest.mark.parametrize("at", [START - 1, START])
def test_a_manual_clock_does_not_wait_for_the_past(at: Instant) -> None:
    asyncio.run(ManualClock().wait_until(at, asyncio.Event()))


# ---- virtual time ----------------------------------------------------------------------------------------------------


def test_virtual_time_passes_without_waiting_and_in_the_right_order() -> None:
    seen: list[tuple[float, str]] = []

    async def one(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        seen.append((asyncio.get_running_loop().time(), name))

    async def main() -> str:
        await asyncio.gather(one("last", 1_000_000.0), one("first", 0.5), one("second", 60.0))
        return "answer"

    assert run_virtual(main()) == "answer"
    assert seen == [(0.5, "first"), (60.0, "second"), (1_000_000.0, "last")]


def test_virtual_time_passes_however_late_it_is() -> None:
    async def main() -> list[float]:
        times = []
        for seconds in (1e7, 0.1, 1e8, 0.3):
            await asyncio.sleep(seconds)
            times.append(asyncio.get_running_loop().time())
        return times

    assert run_virtual(main()) == pytest.approx([1e7, 1e7 + 0.1, 1.1e8 + 0.1, 1.1e8 + 0.4])


def test_virtual_time_stands_still_while_anybody_works() -> None:
    async def main() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 0.0


def test_when_everybody_waits_for_nothing_that_time_could_bring_that_is_an_error() -> None:
    async def main() -> None:
        await asyncio.sleep(5)
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="everybody waits, and no time that could pass would wake anyone"):
        run_virtual(main())


def test_what_the_coroutine_raises_arrives() -> None:
    async def main() -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run_virtual(main())


def test_a_virtual_clock_tells_and_waits_in_the_loops_time() -> None:
    async def main() -> list[Instant]:
        clock, poked = VirtualClock(), asyncio.Event()
        times = [clock.now()]
        await clock.sleep(2)
        times.append(clock.now())
        await clock.wait_until(START + 10, poked)
        times.append(clock.now())
        await clock.wait_until(START + 3, poked)
        times.append(clock.now())
        asyncio.get_running_loop().call_later(5, poked.set)
        await clock.wait_until(None, poked)
        times.append(clock.now())
        await clock.wait_until(START + 100, poked)
        times.append(clock.now())
        return times

    assert run_virtual(main()) == [START + at for at in (0, 2, 10, 10, 15, 15)]


def test_a_virtual_clock_starts_where_it_is_told() -> None:
    async def main() -> Instant:
        await asyncio.sleep(3)
        return VirtualClock(100.0).now()

    assert run_virtual(main()) == 103.0


# ---- SeededIds -------------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_names_in_the_same_order() -> None:
    def names(ids: SeededIds) -> list[str]:
        return [ids.unique(), ids.nonce(), ids.unique(), ids.nonce()]

    assert names(SeededIds(3)) == names(SeededIds(3))
    assert names(SeededIds()) == names(SeededIds(0))
    assert not set(names(SeededIds(3))) & set(names(SeededIds(4)))


def test_real_names_are_unique_and_newer_ones_sort_behind_older_ones() -> None:
    ids = RandomIds()
    many = [ids.unique() for _ in range(10_000)]
    assert len(set(many)) == 10_000
    assert all(uuid.UUID(name).version == 7 and str(uuid.UUID(name)) == name for name in many[:200])
    assert all(uuid.UUID(name).variant == uuid.RFC_4122 for name in many[:200])
    assert many == sorted(many)
    assert abs(int(many[0].replace("-", "")[:12], 16) / 1000 - time.time()) < 3600


def test_seeded_names_are_as_real_ones_look() -> None:
    ids = SeededIds()
    many = [ids.unique() for _ in range(100)]
    assert len(set(many)) == 100
    assert all(uuid.UUID(name).version == 4 and str(uuid.UUID(name)) == name for name in many)
    nonces = [ids.nonce() for _ in range(100)]
    assert len(set(nonces)) == 100
    assert all(len(nonce) == 16 and int(nonce, 16) >= 0 for nonce in nonces)


# ---- InlineStore -----------------------------------------------------------------------------------------------------


def open_main(tx: Tx) -> str:
    tx.sessions.open(MAIN, "main", None, 0, SessionFacts(), START)
    return "opened"


def is_open(tx: Tx) -> bool:
    return tx.sessions.get(MAIN) is not None


def open_and_fail(tx: Tx) -> None:
    open_main(tx)
    raise ValueError("after writing")


def test_an_inline_store_keeps_what_a_job_wrote_and_answers_what_it_returned(tmp_path: Path) -> None:
    store = InlineStore(tmp_path / "made" / "for it")
    assert store.run(open_main) == "opened"
    assert asyncio.run(store.read(is_open))
    store.close_now()
    again = InlineStore(tmp_path / "made" / "for it")
    assert again.run(is_open)
    again.close_now()


def test_a_job_that_raises_has_changed_nothing_in_an_inline_store(tmp_path: Path) -> None:
    store = InlineStore(tmp_path)
    with pytest.raises(ValueError, match="after writing"):
        store.run(open_and_fail)
    assert not store.run(is_open)
    assert asyncio.run(store.transact(open_main)) == "opened"
    assert store.run(is_open)
    asyncio.run(store.close())


def test_an_inline_store_refuses_a_write_in_a_read_and_takes_the_next_write(tmp_path: Path) -> None:
    store = InlineStore(tmp_path)
    with pytest.raises(StoreError, match="readonly"):
        asyncio.run(store.read(open_main))
    assert not store.run(is_open)
    assert store.run(open_main) == "opened"
    assert asyncio.run(store.read(is_open))
    store.close_now()


def test_others_run_before_the_answer_of_an_inline_transaction_arrives(tmp_path: Path) -> None:
    order: list[str] = []

    async def main() -> None:
        store = InlineStore(tmp_path)

        async def other() -> None:
            order.append("other")

        task = asyncio.create_task(other())
        await store.transact(open_main)
        order.append("answer")
        await task
        await store.close()

    asyncio.run(main())
    assert order == ["other", "answer"]


# ---- CrashPoint ------------------------------------------------------------------------------------------------------

CRASHING = """
import asyncio, sys
from fledge.testing import CrashPoint, InlineStore
from tests.test_testing import append

async def main(folder, nth, when, code):
    store = CrashPoint(InlineStore(folder), int(nth), when, int(code))
    for n in range(1, 5):
        await store.transact(append(n))
        await store.read(append.count)
    await store.close()
    print(store.begun)

asyncio.run(main(*sys.argv[1:]))
"""


class append:
    """A job that leaves one more trace."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, tx: Tx) -> None:
        tx.inbox.put(f"send:{self.n}", MAIN, "send", None, "x", START)

    @staticmethod
    def count(tx: Tx) -> int:
        return len(tx.inbox.unread(MAIN))


@pytest.mark.parametrize(
    ("nth", "when", "left"),
    [(1, "before", 0), (1, "after", 1), (3, "before", 2), (3, "after", 3), (4, "before", 3)],
)
def test_a_crash_point_ends_the_process_before_or_after_the_chosen_transaction(
    tmp_path: Path, nth: int, when: Literal["before", "after"], left: int
) -> None:
    command = [sys.executable, "-c", CRASHING, str(tmp_path), str(nth), when, "86"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=Path(__file__).parent.parent)
    assert (done.returncode, done.stdout, done.stderr) == (86, "", "")
    store = InlineStore(tmp_path)
    assert store.run(append.count) == left
    store.close_now()


def test_a_crash_point_that_is_never_reached_changes_nothing(tmp_path: Path) -> None:
    async def main() -> int:
        store = CrashPoint(InlineStore(tmp_path), 3, "before")
        assert await store.transact(open_main) == "opened"
        assert await store.read(is_open)
        await store.transact(append(1))
        await store.close()
        return store.begun

    assert asyncio.run(main()) == 2


# ---- the performer and its stage -------------------------------------------------------------------------------------


def test_a_scripted_performer_remembers_what_it_drove_removed_and_sent() -> None:
    async def main() -> None:
        performer = ScriptedPerformer(nothing)
        await performer.remove(("/one", "/two"))
        await performer.remove(("/three",))
        post = OutboxPost("hook:subagent_ended:a", "hook", "a", "{}", 0, START)
        await performer.call(post)
        assert performer.removed == ["/one", "/two", "/three"]
        assert performer.posted == [post]
        assert performer.driven == []

    run_virtual(main())


async def nothing(stage: Stage) -> None:
    pass


def test_a_stage_tells_its_script_who_it_is_and_what_it_was_asked(tmp_path: Path) -> None:
    seen: list[object] = []

    async def script(stage: Stage) -> None:
        if stage.run is None:
            assert await stage.task() == ""
            await stage.say("noted")
            return
        seen.append((stage.session == stage.run.key, "find it" in await stage.task(), await stage.inbox()))
        seen.append(await stage.step())
        await stage.sleep(2)
        seen.append(stage.engine.clock.now())

    async def main() -> None:
        store, performer = InlineStore(tmp_path), ScriptedPerformer(script)
        async with Engine(store, performer, clock=VirtualClock(), ids=SeededIds()) as engine:
            await engine.commit(lambda c: spawn.open_conversation(c, MAIN))
            request = spawn.SpawnRequest(spec=Spec(task="find it"), terms=Terms(parent=MAIN))
            run = await engine.commit(lambda c: spawn.spawn(c, request))
            await asyncio.sleep(10)
            ended = (await store.read(lambda tx: tx.runs.load(run.key))).ended
            assert ended is not None
            assert ended.result is not None
            text = ended.result
            assert await store.read(lambda tx: tx.texts.get(text)) == "done"
            assert performer.driven == [(run.key, 1), (MAIN, 1)]
        await store.close()

    run_virtual(main())
    assert seen == [(True, True, []), 0, START + 2]
