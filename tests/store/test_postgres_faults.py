"""The store on PostgreSQL when something breaks: the connection, the server, the process that writes."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import psycopg
import pytest

from fledge.errors import StoreError, StoreLost
from fledge.store.base import Tx
from fledge.store.postgres import RUNS, PostgresStore
from tests.effort import SOAK
from tests.statements import proves
from tests.store.bench import GUARD_S, submitted, writer_held
from tests.store.postgres import Server
from tests.store.postgres_proxy import Cut, Proxy
from tests.store.racer import NOTES, note, open_notes

ROUNDS = 300 if SOAK else 15


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with Proxy(server.port) as found:
        yield found


def using(
    url: str, test: Callable[[PostgresStore], Coroutine[Any, Any, None]], guard_s: float = GUARD_S, **options: Any
) -> None:
    """Run a test with a store that has an empty list of notes."""

    async def main() -> None:
        store = PostgresStore.open(url, **options)
        try:
            async with asyncio.timeout(guard_s):
                await store.transact(open_notes)
                await test(store)
        finally:
            await store.close()

    asyncio.run(main())


def notes(tx: Tx) -> list[str]:
    return [entry.body for entry in tx.transcripts.entries(NOTES)]


class Counted:
    """A job that writes a note, and counts how often it was run. The first run of one with a proxy, or the first few,
    let the commit of its batch lose the connection."""

    def __init__(self, text: str, proxy: Proxy | None = None, cut: Cut = "", times: int = 1) -> None:
        self._job, self._proxy, self._cut, self._times = note(text), proxy, cut, times
        self.runs = 0

    def __call__(self, tx: Tx) -> int:
        self.runs += 1
        if self._proxy is not None and self.runs <= self._times:
            self._proxy.cut = self._cut
        return self._job(tx)


async def cut_commit(store: PostgresStore, proxy: Proxy, cut: Cut) -> tuple[list[int], list[int]]:
    """What three jobs of a batch answered whose commit lost its connection, and how often each was run."""
    jobs = [Counted("0", proxy, cut), Counted("1"), Counted("2")]
    async with writer_held(store):
        tasks = await submitted(store, jobs)
    answers = await asyncio.gather(*tasks)
    assert proxy.cuts == 1
    return answers, [job.runs for job in jobs]


@proves("7.server.9", "What was committed is neither run again nor said to have failed")
@pytest.mark.parametrize("away_s", [0.0, 0.3], ids=["at once", "later"])
def test_a_commit_whose_answer_was_lost_is_neither_run_again_nor_said_to_have_failed(
    server: Server, proxy: Proxy, away_s: float
) -> None:
    proxy.away_s = away_s

    async def test(store: PostgresStore) -> None:
        assert await cut_commit(store, proxy, "after") == ([1, 2, 3], [1, 1, 1])
        assert await store.transact(note("next")) == 4
        assert await store.read(notes) == ["0", "1", "2", "next"]

    using(proxy.url(server.new_schema()), test, patience_s=0.1)


@proves("7.server.8", "A batch whose connection is lost before its COMMIT is run again")
def test_a_batch_whose_connection_was_lost_before_its_commit_is_run_again(server: Server, proxy: Proxy) -> None:
    async def test(store: PostgresStore) -> None:
        assert await cut_commit(store, proxy, "before") == ([1, 2, 3], [2, 2, 2])
        assert await store.read(notes) == ["0", "1", "2"]

    using(proxy.url(server.new_schema()), test)


class ReusedNumbers(PostgresStore):
    """A store on a server that crashed and has given the number of each lost transaction to another, committed one."""

    def _status(self, connection: "psycopg.Connection[Any]") -> str | None:
        return "committed"


@proves("7.server.28", "After a crash of the server, another transaction's number does not stand for a commit")
@pytest.mark.parametrize("alone", [True, False])
def test_a_number_that_a_crashed_server_gave_again_proves_no_commit(server: Server, proxy: Proxy, alone: bool) -> None:
    async def main() -> None:
        store = ReusedNumbers.open(proxy.url(server.new_schema()), alone=alone)
        try:
            async with asyncio.timeout(GUARD_S):
                await store.transact(open_notes)
                assert await cut_commit(store, proxy, "before") == ([1, 2, 3], [2, 2, 2])
                assert await store.read(notes) == ["0", "1", "2"]
                proxy.cuts = 0
                assert await cut_commit(store, proxy, "after") == ([4, 5, 6], [1, 1, 1])
                assert await store.read(notes) == ["0", "1", "2"] * 2
        finally:
            await store.close()

    asyncio.run(main())


@proves("7.server.27", "A batch whose COMMIT is lost again and again has failed, and says so")
def test_a_batch_whose_commit_is_lost_again_and_again_has_failed(server: Server, proxy: Proxy) -> None:
    async def test(store: PostgresStore) -> None:
        jobs = [Counted("lost", proxy, "before", times=RUNS), Counted("lost too")]
        async with writer_held(store):
            tasks = await submitted(store, jobs)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [job.runs for job in jobs] == [RUNS, RUNS]
        assert [str(answer).partition(": ")[2] for answer in answers] == [
            "nothing was written (the connection was lost in the commit)"
        ] * 2
        assert await store.transact(note("next")) == 1
        assert await store.read(notes) == ["next"]

    using(proxy.url(server.new_schema()), test)


@proves("7.server.9")
def test_a_connection_that_is_cut_around_every_commit_loses_and_doubles_nothing(server: Server, proxy: Proxy) -> None:
    cuts: list[Cut] = ["before", "after", ""]

    async def test(store: PostgresStore) -> None:
        for n in range(ROUNDS):
            jobs = [Counted(f"{n}.0", proxy, cuts[n % 3]), Counted(f"{n}.1")]
            answers = await asyncio.gather(*(store.transact(job) for job in jobs))
            assert answers == [2 * n + 1, 2 * n + 2]
        assert proxy.cuts == 2 * ROUNDS // 3
        assert await store.read(notes) == [f"{n}.{i}" for n in range(ROUNDS) for i in range(2)]

    using(proxy.url(server.new_schema()), test, guard_s=max(GUARD_S, 2.0 * ROUNDS))


def test_a_view_whose_connection_was_lost_is_shown_on_another(server: Server, proxy: Proxy) -> None:
    async def test(store: PostgresStore) -> None:
        await store.transact(note("kept"))
        assert await store.read(notes) == ["kept"]
        proxy.drop()
        assert await store.read(notes) == ["kept"]
        assert await store.transact(note("next")) == 2

    using(proxy.url(server.new_schema()), test)


@proves("7.server.10", "A server that is away is waited for; then what waits fails, and the store lives on")
def test_jobs_and_views_wait_for_a_server_that_is_restarted(server: Server) -> None:
    async def test(store: PostgresStore) -> None:
        await store.transact(note("before"))
        await asyncio.to_thread(server.stop)
        jobs = await submitted(store, [note("during"), note("too")])
        view = asyncio.create_task(store.read(lambda tx: tx.transcripts.last(NOTES)))
        await asyncio.to_thread(server.start)
        assert await asyncio.gather(*jobs) == [2, 3]
        assert await view in (1, 3)
        assert await store.read(notes) == ["before", "during", "too"]

    using(server.url(server.new_schema()), test, patience_s=GUARD_S)  # a crashed server first recovers its data


@proves("7.server.10")
def test_a_server_that_stays_away_fails_what_waits_and_the_store_lives_on(server: Server, proxy: Proxy) -> None:
    async def test(store: PostgresStore) -> None:
        proxy.is_away = True
        proxy.drop()
        for job in (store.transact(note("lost")), store.read(notes)):
            with pytest.raises(StoreError, match=r"postgresql://fledge@127\.0\.0\.1:\d+/postgres\?schema="):
                await job
        began = time.monotonic()
        with pytest.raises(StoreError, match="nothing was written"):
            await store.transact(note("lost"))
        assert time.monotonic() - began < 2  # it waits for the server once, not for each job
        proxy.is_away = False
        while True:
            try:
                assert await store.transact(note("found")) == 1
                break
            except StoreError:
                await asyncio.sleep(0.05)
        assert await store.read(notes) == ["found"]

    using(proxy.url(server.new_schema()), test, patience_s=0.3)


@proves("7.server.11")
def test_a_holder_whose_place_was_taken_while_it_was_cut_off_writes_nothing_more(server: Server, proxy: Proxy) -> None:
    schema = server.new_schema()

    async def test(store: PostgresStore) -> None:
        await store.transact(note("mine"))
        proxy.is_away = True
        proxy.drop()
        other = PostgresStore.open(server.url(schema))
        assert await other.transact(note("theirs")) == 2
        proxy.is_away = False
        for _ in range(2):
            with pytest.raises(StoreLost, match="another process has taken the store"):
                await store.transact(note("late"))
        assert await other.read(notes) == ["mine", "theirs"]
        await other.close()
        with pytest.raises(StoreLost):  # for good, even once the other one has gone
            await store.transact(note("late"))

    using(proxy.url(schema), test)


STOPPED = """
import asyncio, sys
from fledge.errors import StoreError
from fledge.store.postgres import PostgresStore
from tests.store.racer import note

def held(tx):
    answer = note("of the stopped one")(tx)
    print("held", flush=True)
    sys.stdin.readline()
    return answer

async def main():
    store = PostgresStore.open(sys.argv[1], alone=False)
    try:
        print(await store.transact(held), flush=True)
    except StoreError as error:
        print(error, flush=True)
    print(await store.transact(note("again")), flush=True)
    await store.close()

asyncio.run(main())
"""


def stopped_writer(url: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", STOPPED, url]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@proves("7.server.7", "A writer that is stopped holds up others for 3 s at most")
def test_a_writer_that_is_stopped_holds_up_others_for_three_seconds_at_most(server: Server) -> None:
    url = server.url(server.new_schema())

    async def test(store: PostgresStore) -> None:
        with stopped_writer(url) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            assert await asyncio.to_thread(other.stdout.readline) == "held\n"
            os.kill(other.pid, signal.SIGSTOP)
            began = time.monotonic()
            assert await store.transact(note("of the other one")) == 1
            assert time.monotonic() - began <= 3
            os.kill(other.pid, signal.SIGCONT)
            other.stdin.write("\n")
            other.stdin.flush()
            told = await asyncio.to_thread(other.stdout.readline)
            assert "nothing was written (this process was stopped for more than 2 s in its transaction)" in told
            assert await asyncio.to_thread(other.stdout.readline) == "2\n"
        assert await store.read(notes) == ["of the other one", "again"]

    using(url, test, alone=False)


def test_a_batch_of_many_slow_jobs_does_not_count_as_stopped(server: Server) -> None:
    def slow(text: str) -> Callable[[Tx], int]:
        def job(tx: Tx) -> int:
            time.sleep(0.6)  # the server ends a transaction that is idle for 2 s
            return note(text)(tx)

        return job

    async def test(store: PostgresStore) -> None:
        async with writer_held(store):
            tasks = await submitted(store, [slow(f"{n}") for n in range(5)])
        commits = store.commits
        assert await asyncio.gather(*tasks) == [1, 2, 3, 4, 5]
        assert store.commits - commits <= 2

    using(server.url(server.new_schema()), test)


def test_a_forked_child_does_not_keep_the_store_of_its_parent(server: Server) -> None:
    url = server.url(server.new_schema())
    with subprocess.Popen(
        [sys.executable, "-c", FORKED, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == "forked\n"
        parent.kill()
        parent.wait()
        asyncio.run(PostgresStore.open(url).close())  # while the child lives on
        parent.stdin.close()
        assert parent.stdout.read() == "the child ends\n"


FORKED = """
import os, sys
from fledge.store.postgres import PostgresStore

store = PostgresStore.open(sys.argv[1])
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.readline()
    print("the child ends", flush=True)
    os._exit(0)
sys.stdin.close()
os.waitpid(-1, 0)
"""


def test_a_store_is_closed_without_waiting_for_a_server_that_is_away(server: Server, proxy: Proxy) -> None:
    async def main() -> None:
        store = PostgresStore.open(proxy.url(server.new_schema()))
        proxy.is_away = True
        proxy.drop()
        jobs = await submitted(store, [open_notes])
        began = time.monotonic()
        await store.close()
        assert time.monotonic() - began < 2
        with pytest.raises(StoreError, match="nothing was written"):
            await jobs[0]

    asyncio.run(main())


def test_no_thread_and_no_connection_is_left_after_a_close(server: Server) -> None:
    threads, schema = set(threading.enumerate()), server.new_schema()

    async def test(store: PostgresStore) -> None:
        await store.read(notes)

    using(server.url(schema), test)
    assert set(threading.enumerate()) == threads
    sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'fledge %'"
    until = time.monotonic() + GUARD_S
    while server.sql(sql) != [(0,)]:  # the server notices a moment later
        assert time.monotonic() < until
