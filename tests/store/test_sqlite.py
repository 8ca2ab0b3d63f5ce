"""How the embedded store runs jobs: group commit, callers that go away, closing.

What its jobs can do is in `test_conformance`; its files, locks and damage in `test_sqlite_files`; the checks of its
schema in `test_sqlite_checks`.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fledge.core.policy import Budget
from fledge.errors import Refused, StoreError
from fledge.store.base import BudgetAccount, Counts, QueuePlace, Tx
from fledge.store.sqlite import SqliteStore
from fledge.store.threads import ANSWERED_TOGETHER, BATCH
from fledge.store.unit import MOST
from tests.core.samples import AT
from tests.store.bench import GUARD_S, MAIN, child, conversation, submitted, writer_held

HANGS_S = 5.0
"""Where a broken writer would never answer: long enough for any that works."""


def count(tx: Tx) -> Counts:
    """A job that counts one child more."""
    return child(tx)


def using(folder: Path, test: Callable[[SqliteStore], Coroutine[Any, Any, None]], batch: int = BATCH) -> None:
    """Run a test on a store in this folder, and close it."""

    async def run() -> None:
        store = SqliteStore.open(folder, batch=batch)
        try:
            async with asyncio.timeout(GUARD_S):
                await test(store)
        finally:
            await store.close()

    asyncio.run(run())


def test_what_was_undone_is_not_remembered(tmp_path: Path) -> None:
    """One job fails alone, and one in the middle of a batch; what the others did stands, and is what is known."""

    def change(tx: Tx, fails: bool = False) -> None:
        tx.queue.put("s", "main", "s", False)
        tx.queue.claim(QueuePlace("s", "main", 0, False), "me", AT)
        tx.turns.open("s", {}, AT)
        tx.inbox.put("row", "s", "send", None, "words", AT)
        child(tx, "s")
        tx.budgets.save(BudgetAccount("s", Budget(tokens=1)))
        if fails:
            raise Refused("error", "no")

    def known(tx: Tx) -> list[object]:
        return [
            *(tx.sessions.get("s"), tx.drivers.get("s"), tx.turns.get("s"), tx.queue.place("s")),
            *(tx.sessions.counts("s"), len(tx.inbox.unread("s")), tx.budgets.any()),
        ]

    async def test(store: SqliteStore) -> None:
        await store.transact(lambda tx: conversation(tx, "s"))
        before = await store.transact(known)
        with pytest.raises(Refused):
            await store.transact(lambda tx: change(tx, fails=True))
        assert await store.transact(known) == before
        jobs = [known, lambda tx: change(tx, fails=True), known]
        first, failed, second = await asyncio.gather(*map(store.transact, jobs), return_exceptions=True)
        assert isinstance(failed, Refused)
        assert first == second == before
        await store.transact(change)
        after = await store.transact(known)
        assert after == await store.read(known)
        assert after != before

    using(tmp_path, test)


def test_much_that_is_known_is_forgotten_and_read_again(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        keys = [f"s{number}" for number in range(MOST + 2)]
        await store.transact(lambda tx: conversation(tx, *keys))
        assert not store._tx.sessions.rows.kept
        found = await store.transact(lambda tx: [tx.sessions.get(key) for key in keys[:3]])
        assert [session and session.key for session in found] == keys[:3]
        assert len(store._tx.sessions.rows.kept) == 3

    using(tmp_path, test)


def stored(folder: Path) -> Counts:
    """How many children were counted, according to a store that is opened anew."""
    found: list[Counts] = []

    async def look(store: SqliteStore) -> None:
        found.append(await store.read(lambda tx: tx.sessions.counts(MAIN)))

    using(folder, look)
    return found[0]


# ---- group commit ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch", "jobs", "commits"),
    [(BATCH, 1000, 2), (BATCH, BATCH, 1), (BATCH, BATCH + 1, 2), (10, 1000, 100), (1, 50, 50)],
)
def test_jobs_that_wait_together_share_one_write_up_to_the_size_of_a_batch(
    tmp_path: Path, batch: int, jobs: int, commits: int
) -> None:
    async def test(store: SqliteStore) -> None:
        async with writer_held(store):
            tasks = await submitted(store, [count] * jobs)
            before = store.commits
        assert [counts.spawned for counts in await asyncio.gather(*tasks)] == list(range(1, jobs + 1))
        assert store.commits - before == commits + 1  # and that of the job which held the writer

    using(tmp_path, test, batch)
    assert stored(tmp_path) == Counts(jobs, jobs)


def test_reading_writes_nothing(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        await asyncio.gather(*(store.read(lambda tx: tx.sessions.counts(MAIN)) for _ in range(20)))
        assert store.commits == 0

    using(tmp_path, test)


class Abort(BaseException):
    """Not an `Exception`: what a test framework or an interpreter that shuts down may raise anywhere."""


@pytest.mark.parametrize("error", [RuntimeError, StopIteration, Abort])
@pytest.mark.parametrize("alone", [True, False])
def test_whatever_a_job_raises_only_its_caller_hears_of_it_and_all_others_are_answered(
    tmp_path: Path, error: type[BaseException], alone: bool
) -> None:
    def fail(tx: Tx) -> Counts:
        child(tx)
        raise error

    async def test(store: SqliteStore) -> None:
        async with writer_held(store):
            tasks = await submitted(store, [fail] if alone else [count, fail, count])
        async with asyncio.timeout(HANGS_S):
            # Batches are answered in order, so when this one is, all before it have been.
            after = await store.transact(count)
        await asyncio.sleep(0)
        assert [task.done() for task in tasks] == [True] * len(tasks)
        failed = tasks.pop(0 if alone else 1)
        assert failed.exception() is not None
        assert [task.result() for task in tasks] == ([] if alone else [Counts(1, 1), Counts(2, 2)])
        assert after == (Counts(1, 1) if alone else Counts(3, 3))

    using(tmp_path, test)


# ---- readers ---------------------------------------------------------------------------------------------------------


def test_a_read_goes_on_beside_an_unfinished_write_and_does_not_see_it(tmp_path: Path) -> None:
    wrote, go_on = threading.Event(), threading.Event()

    def write_slowly(tx: Tx) -> bool:
        child(tx)
        wrote.set()
        return go_on.wait(GUARD_S)

    async def test(store: SqliteStore) -> None:
        writing = asyncio.create_task(store.transact(write_slowly))
        await asyncio.to_thread(wrote.wait, GUARD_S)
        assert await store.read(lambda tx: tx.sessions.counts(MAIN)) == Counts(0, 0)
        go_on.set()
        assert await writing
        assert await store.read(lambda tx: tx.sessions.counts(MAIN)) == Counts(1, 1)

    using(tmp_path, test)


def test_a_read_job_sees_one_moment_however_much_is_written_meanwhile(tmp_path: Path) -> None:
    looked, written = threading.Event(), threading.Event()

    def look_twice(tx: Tx) -> tuple[Counts, Counts]:
        first = tx.sessions.counts(MAIN)
        looked.set()
        written.wait(GUARD_S)
        return first, tx.sessions.counts(MAIN)

    async def test(store: SqliteStore) -> None:
        looking = asyncio.create_task(store.read(look_twice))
        await asyncio.to_thread(looked.wait, GUARD_S)
        assert await store.transact(count) == Counts(1, 1)
        written.set()
        assert await looking == (Counts(0, 0), Counts(0, 0))

    using(tmp_path, test)


# ---- callers that go away --------------------------------------------------------------------------------------------


def test_a_caller_that_is_cancelled_while_it_waits_does_not_break_the_writer_nor_undo_its_job(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        async with writer_held(store):
            tasks = await submitted(store, [count] * 3)
            tasks[1].cancel()
            await asyncio.sleep(0)
            assert tasks[1].cancelled()
        assert [await tasks[0], await tasks[2]] == [Counts(1, 1), Counts(3, 3)]
        assert await store.transact(count) == Counts(4, 4)

    using(tmp_path, test)
    assert stored(tmp_path) == Counts(4, 4)


def test_a_cancelled_caller_whose_job_raises_is_not_told_either(tmp_path: Path) -> None:
    def fail(tx: Tx) -> Counts:
        raise RuntimeError("nobody hears this")

    async def test(store: SqliteStore) -> None:
        async with writer_held(store):
            tasks = await submitted(store, [fail, count])
            tasks[0].cancel()
        assert await tasks[1] == Counts(1, 1)
        assert tasks[0].cancelled()

    using(tmp_path, test)


def test_a_loop_that_closed_before_its_job_was_done_does_not_break_the_writer(tmp_path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def count_slowly(tx: Tx) -> Counts:
        entered.set()
        go_on.wait(GUARD_S)
        return child(tx)

    store = SqliteStore.open(tmp_path)

    async def begin() -> None:
        [task] = await submitted(store, [count_slowly])
        await asyncio.to_thread(entered.wait, GUARD_S)
        task.cancel()

    asyncio.run(begin())
    go_on.set()

    async def go_on_elsewhere() -> None:
        async with asyncio.timeout(GUARD_S):
            assert await store.transact(count) == Counts(2, 2)
        await store.close()

    asyncio.run(go_on_elsewhere())
    assert stored(tmp_path) == Counts(2, 2)


def test_loops_of_several_threads_share_one_store(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path)

    async def count_many() -> int:
        return len(await asyncio.gather(*(store.transact(count) for _ in range(50))))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: asyncio.run(count_many()), range(4))) == [50] * 4
    asyncio.run(store.close())
    assert stored(tmp_path) == Counts(200, 200)


def test_jobs_that_come_over_several_turns_of_the_loop_while_the_writer_works_share_one_write(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        before, tasks = store.commits, []
        async with writer_held(store):
            for _ in range(5):
                tasks += await submitted(store, [count] * 10)
        assert [(await task).spawned for task in tasks] == list(range(1, 51))
        assert store.commits == before + 2, "what held the writer, and all others"

    using(tmp_path, test)


# ---- closing ---------------------------------------------------------------------------------------------------------


def test_coroutines_that_are_answered_together_go_on_a_few_in_each_turn_of_the_loop(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        most = done = 0

        async def ask() -> None:
            nonlocal done
            await store.transact(count)
            done += 1

        asking = asyncio.gather(*(ask() for _ in range(10 * ANSWERED_TOGETHER + 1)))
        while not asking.done():
            before = done
            await asyncio.sleep(0)
            most = max(most, done - before)
        assert done == 10 * ANSWERED_TOGETHER + 1
        assert 0 < most <= ANSWERED_TOGETHER
        assert store.commits == 1

    using(tmp_path, test)


def test_close_waits_for_what_was_submitted(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        async with writer_held(store):
            tasks = await submitted(store, [count] * 100)
            closing = asyncio.create_task(store.close())
            await asyncio.sleep(0)
            assert not closing.done()
        await closing
        assert [task.result().spawned for task in tasks] == list(range(1, 101))

    using(tmp_path, test)
    assert stored(tmp_path) == Counts(100, 100)


def test_close_waits_for_a_read_that_is_under_way(tmp_path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def look_slowly(tx: Tx) -> Counts:
        entered.set()
        go_on.wait(GUARD_S)
        return tx.sessions.counts(MAIN)

    async def test(store: SqliteStore) -> None:
        await store.transact(count)
        looking = asyncio.create_task(store.read(look_slowly))
        await asyncio.to_thread(entered.wait, GUARD_S)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        assert not closing.done()
        go_on.set()
        await closing
        assert await looking == Counts(1, 1)

    using(tmp_path, test)


def test_a_closed_store_refuses_jobs_and_closing_it_again_is_fine(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        await store.transact(count)
        await store.close()
        with pytest.raises(StoreError, match=r"^the store is closed$"):
            await store.transact(count)
        with pytest.raises(StoreError, match=r"^the store is closed$"):
            await store.read(count)
        await store.close()

    using(tmp_path, test)
    assert stored(tmp_path) == Counts(1, 1)


def test_a_job_submitted_after_close_began_is_refused_though_the_writer_still_works(tmp_path: Path) -> None:
    async def test(store: SqliteStore) -> None:
        async with writer_held(store):
            closing = asyncio.create_task(store.close())
            await asyncio.sleep(0)
            with pytest.raises(StoreError, match=r"^the store is closed$"):
                await store.transact(count)
        await closing

    using(tmp_path, test)
    assert stored(tmp_path) == Counts(0, 0)


def test_reopening_shows_exactly_the_committed_jobs(tmp_path: Path) -> None:
    def write(n: int) -> Callable[[Tx], int]:
        def job(tx: Tx) -> int:
            last = tx.transcripts.append(MAIN, AT, [("note", f"{n}")])
            if n % 4 == 0:
                raise RuntimeError("undone")
            return last

        return job

    async def test(store: SqliteStore) -> None:
        await store.transact(lambda tx: conversation(tx, MAIN))
        for start in range(0, 40, 10):
            jobs = [write(n) for n in range(start, start + 10)]
            await asyncio.gather(*(store.transact(job) for job in jobs), return_exceptions=True)

    async def look(store: SqliteStore) -> None:
        entries = await store.read(lambda tx: tx.transcripts.entries(MAIN))
        assert [entry.body for entry in entries] == [f"{n}" for n in range(40) if n % 4]
        assert [entry.seq for entry in entries] == list(range(1, 31))

    using(tmp_path, test)
    using(tmp_path, look)
