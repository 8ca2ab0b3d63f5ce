"""The store on PostgreSQL beside others on the same schema: one writes at a time, nobody acts on what is old, and what
nobody reads costs no round trip."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core.lifecycle import born
from fledge.errors import StoreError
from fledge.store.base import Spec, Tx
from fledge.store.postgres import COMMITS, MISSED, TRIM, PostgresStore
from tests.core.samples import AT, TERMS
from tests.statements import proves
from tests.store.bench import GUARD_S, MAIN, admit, conversation, submitted, writer_held
from tests.store.postgres import Server
from tests.store.racer import NOTES, note, open_notes
from tests.store.side_by_side import CheckedStore


def with_two(server: Server, test: Callable[[PostgresStore, PostgresStore], Coroutine[Any, Any, None]]) -> None:
    """Run a test with two stores on one schema that has an empty list of notes."""

    async def main() -> None:
        url = server.url(server.new_schema())
        one, other = (PostgresStore.open(url, alone=False) for _ in range(2))
        try:
            async with asyncio.timeout(GUARD_S):
                await one.transact(open_notes)
                await test(one, other)
        finally:
            await one.close()
            await other.close()

    asyncio.run(main())


@proves("7.server.5", "One process writes at a time, and drops what it remembers of rows that another has changed")
def test_a_writer_drops_the_rows_it_remembers_once_another_has_changed_them(server: Server) -> None:
    def look(tx: Tx) -> tuple[int, int, list[str]]:
        session = tx.sessions.get(NOTES)
        assert session is not None
        return session.generation, tx.transcripts.last(NOTES), [row.body for row in tx.inbox.unread(NOTES)]

    def change(tx: Tx) -> None:
        tx.sessions.raise_generation(NOTES)
        tx.inbox.put("row", NOTES, "send", None, "hello", AT)

    async def test(one: PostgresStore, other: PostgresStore) -> None:
        assert await other.transact(look) == (0, 0, [])
        await one.transact(change)
        assert await other.transact(note("mine")) == 1
        assert await other.transact(look) == (1, 1, ["hello"])
        assert await one.transact(note("theirs")) == 2
        assert await one.transact(look) == await other.read(look) == (1, 2, ["hello"])

    with_two(server, test)


def test_a_writer_that_wrote_last_remembers_its_rows(server: Server) -> None:
    async def test(one: PostgresStore, other: PostgresStore) -> None:
        await one.transact(note("mine"))
        trips = one._db.trips
        await one.transact(lambda tx: tx.sessions.get(NOTES))
        assert one._db.trips - trips == 2  # to begin, and to commit
        await other.transact(note("theirs"))
        trips = one._db.trips
        await one.transact(lambda tx: tx.sessions.get(NOTES))
        assert one._db.trips - trips == 3

    with_two(server, test)


@proves("4.tools.64")
def test_two_processes_that_spawn_at_once_give_no_number_twice(server: Server) -> None:
    def spawn(name: str) -> Callable[[Tx], int]:
        def job(tx: Tx) -> int:
            number = tx.sessions.child_admitted(NOTES).spawned
            event = ev.Admitted(at=AT, key=name, terms=replace(TERMS, parent=NOTES), run_id=f"{name}/1")
            tx.runs.create(born(event), Spec(task="t"), event, number)
            return number

        return job

    async def test(one: PostgresStore, other: PostgresStore) -> None:
        stores = [(store, name) for name, store in (("a", one), ("b", other))]
        jobs = [store.transact(spawn(f"{name}{n}")) for n in range(20) for store, name in stores]
        assert sorted(await asyncio.gather(*jobs)) == list(range(1, 41))
        numbers = await other.read(lambda tx: [tx.runs.number(key) for key in tx.runs.children(NOTES)])
        assert numbers == list(range(1, 41))

    with_two(server, test)


def sessions_of(*keys: str) -> Callable[[Tx], list[int]]:
    """A job that looks at sessions; their generations."""
    return lambda tx: [tx.sessions.row(key).session.generation for key in keys]


@proves("7.server.24")
def test_a_writer_reads_again_only_the_rows_that_another_has_changed(server: Server) -> None:
    async def test(one: PostgresStore, other: PostgresStore) -> None:
        keys = [f"agent:main:{n}" for n in range(5)]

        def open_all(tx: Tx) -> None:
            for key in keys:
                conversation(tx, key)

        await one.transact(open_all)
        for changed in range(3):
            await other.transact(lambda tx: [tx.sessions.raise_generation(key) for key in keys[:changed]])  # noqa: B023
            trips = one._db.trips
            await one.transact(sessions_of(*keys))
            assert one._db.trips - trips == 2 + changed  # to begin, to commit, and for each row

    with_two(server, test)


@proves("7.server.24")
@pytest.mark.parametrize("missed", [MISSED - 1, MISSED, MISSED + 1, COMMITS + 2 * TRIM])
def test_a_writer_that_missed_many_commits_remembers_nothing_wrong(server: Server, missed: int) -> None:
    async def test(one: PostgresStore, other: PostgresStore) -> None:
        await one.transact(sessions_of(NOTES))
        for _ in range(missed):
            await other.transact(lambda tx: tx.sessions.raise_generation(NOTES))
        assert len(await other.read(lambda tx: tx.unit.all("SELECT * FROM fledge_commits"))) < COMMITS + TRIM
        assert await one.transact(sessions_of(NOTES)) == [missed]

    with_two(server, test)


@proves("7.server.24")
def test_a_store_whose_commits_were_deleted_and_numbered_again_is_not_taken_for_the_old_one(server: Server) -> None:
    async def test(one: PostgresStore, other: PostgresStore) -> None:
        await one.transact(lambda tx: tx.sessions.raise_generation(NOTES))
        number = one._seen.number
        server.sql(f"DELETE FROM {one.server.schema}.fledge_commits")
        for _ in range(number):
            await other.transact(lambda tx: tx.sessions.raise_generation(NOTES))
        assert other._seen.number == number
        assert await one.transact(sessions_of(NOTES)) == [1 + number]

    with_two(server, test)


@proves("7.server.24")
def test_a_job_that_is_undone_hides_none_of_the_changes_of_its_batch(server: Server) -> None:
    def fail(tx: Tx) -> None:
        tx.sessions.raise_generation(MAIN)
        raise ValueError

    async def test(one: PostgresStore, other: PostgresStore) -> None:
        await one.transact(lambda tx: conversation(tx, "agent:main:second"))
        await other.transact(sessions_of(NOTES, "agent:main:second"))
        async with writer_held(one):
            raised = [lambda tx, key=key: tx.sessions.raise_generation(key) for key in (NOTES, "agent:main:second")]
            tasks = await submitted(one, [raised[0], fail, raised[1]])
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in found] == [int, ValueError, int]
        assert await other.transact(sessions_of(NOTES, "agent:main:second")) == [1, 1]

    with_two(server, test)


def test_a_table_is_empty_until_another_process_has_put_a_row_into_it(server: Server) -> None:
    async def test(one: PostgresStore, other: PostgresStore) -> None:
        assert await one.transact(lambda tx: (tx.unit.is_empty("runs"), tx.unit.is_empty("entries"))) == (True, True)
        await other.transact(lambda tx: (admit(tx, "child"), note("word")(tx)))
        assert await one.transact(lambda tx: (tx.unit.is_empty("runs"), tx.unit.is_empty("entries"))) == (False, False)

    with_two(server, test)


def test_a_commit_that_does_not_name_a_table_it_changed_fails_the_check_of_these_tests(server: Server) -> None:
    async def main() -> None:
        store = CheckedStore.open(server.url(server.new_schema()), alone=False)
        try:
            await store.transact(open_notes)
            with pytest.raises(StoreError, match="changed, but not named by the commit: entries, sessions"):
                await store.transact(behind_the_unit)
            assert await store.transact(sessions_of(NOTES)) == [0]
        finally:
            await store.close()

    def behind_the_unit(tx: Tx) -> None:
        tx.unit.db.execute("UPDATE sessions SET generation = 7")
        tx.unit.db.execute("INSERT INTO entries (session, seq, at, kind, body) VALUES ('x', 1, 1.0, 'note', '')")

    asyncio.run(main())


@proves("7.server.25", "A writer that waits for its turn commits all that came meanwhile")
def test_jobs_that_come_while_another_process_writes_are_one_commit(server: Server) -> None:
    async def test(one: PostgresStore, other: PostgresStore) -> None:
        commits = other.commits
        async with writer_held(one):
            first = await submitted(other, [note("first")])
            waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory'"
            while not server.sql(waits):  # noqa: ASYNC110 (the server has no event for it)
                await asyncio.sleep(0.001)
            rest = await submitted(other, [note(f"{n}") for n in range(20)])
        assert await asyncio.gather(*first, *rest) == list(range(1, 22))
        assert other.commits - commits == 1

    with_two(server, test)


def test_statements_whose_results_nobody_reads_cost_no_round_trip(server: Server) -> None:
    async def test(one: PostgresStore, other: PostgresStore) -> None:
        def write(tx: Tx) -> None:
            for n in range(200):
                tx.asks.remember("asker", f"{n}", "digest", "answer", MAIN)
                note(f"{n}")(tx)

        await one.transact(note("first"))
        trips = one._db.trips
        await one.transact(write)
        assert one._db.trips - trips == 3  # to begin, to hear that all was taken, to commit

    with_two(server, test)


@proves("7.server.5")
def test_one_of_two_writers_waits_while_the_other_is_in_its_transaction(server: Server) -> None:
    async def test(one: PostgresStore, other: PostgresStore) -> None:
        async with writer_held(one):
            task = asyncio.create_task(other.transact(note("second")))
            assert await other.read(lambda tx: tx.transcripts.last(NOTES)) == 0
            sql = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while await asyncio.to_thread(server.sql, sql) != [(1,)]:
                assert not task.done()
        assert await task == 1

    with_two(server, test)


@proves("7.server.6", "Numbers of events are in the order of commits, whoever writes")
def test_a_feed_misses_no_event_of_two_writers_and_reads_none_twice(server: Server) -> None:
    count = 60

    async def test(one: PostgresStore, other: PostgresStore) -> None:
        async def write(store: PostgresStore, name: str) -> None:
            for n in range(0, count, 3):
                jobs = [_admits(f"{name} {n + i}") for i in range(3)]
                await asyncio.gather(*(store.transact(job) for job in jobs))

        seen: list[tuple[int, str]] = []
        writers = asyncio.gather(write(one, "one"), write(other, "other"))
        is_last = False
        while not is_last:
            is_last = writers.done()
            after = seen[-1][0] if seen else 0
            seen += [(event.seq, event.run) for event in await one.read(lambda tx: tx.events.after(after, 7))]  # noqa: B023
            is_last = is_last and len(seen) >= 2 * count
        assert [seq for seq, _ in seen] == sorted({seq for seq, _ in seen})
        assert sorted(key for _, key in seen) == sorted(
            f"{name} {n}" for name in ("one", "other") for n in range(count)
        )

    with_two(server, test)


def _admits(key: str) -> Callable[[Tx], None]:
    def job(tx: Tx) -> None:
        conversation(tx, MAIN)
        admit(tx, key)

    return job


def test_a_view_sees_one_moment_however_long_it_looks(server: Server) -> None:
    async def test(one: PostgresStore, other: PostgresStore) -> None:
        loop = asyncio.get_running_loop()

        def view(tx: Tx) -> tuple[int, int]:
            before = tx.transcripts.entries(NOTES)
            asyncio.run_coroutine_threadsafe(other.transact(note("new")), loop).result(GUARD_S)
            tx.unit.forget()
            return len(before), len(tx.transcripts.entries(NOTES))

        assert await one.read(view) == (0, 0)
        assert await one.read(lambda tx: len(tx.transcripts.entries(NOTES))) == 1

    with_two(server, test)


def test_a_long_text_and_many_rows_pass_in_one_job(server: Server) -> None:
    """More than the buffers of both ends hold: neither waits for the other."""
    body = "é" * 2_000_000

    async def test(one: PostgresStore, other: PostgresStore) -> None:
        def write(tx: Tx) -> str:
            kept = tx.texts.keep("owner", body)
            for n in range(3000):
                tx.transcripts.append(NOTES, AT, [("note", f"{n} " + "x" * 1000)])
            return kept

        kept = await one.transact(write)
        assert await other.read(lambda tx: tx.texts.get(kept)) == body
        assert len(await other.read(lambda tx: tx.transcripts.entries(NOTES, limit=5000))) == 3000

    with_two(server, test)


def test_a_value_that_no_column_takes_fails_its_own_job_alone(server: Server) -> None:
    def wrong(tx: Tx) -> int:
        tx.unit.execute("UPDATE sessions SET depth = ? WHERE key = ?", "not a number", NOTES)
        return 0

    async def test(one: PostgresStore, other: PostgresStore) -> None:
        async with writer_held(one):
            tasks = [asyncio.create_task(one.transact(job)) for job in (note("a"), wrong, note("b"))]
            await asyncio.sleep(0)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert answers[::2] == [1, 2]
        assert isinstance(answers[1], StoreError)
        with pytest.raises(StoreError, match="the store refused this"):
            await one.transact(wrong)
        assert await one.transact(note("c")) == 3

    with_two(server, test)
