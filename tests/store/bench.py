"""What the store's tests share: a store with the loop it is used from, and runs to put into it.

It knows the `Store` and `Tx` of `store/base.py` and nothing of any store. It is imported before the conformance
modules, so that pytest explains their plain asserts as it does those of test modules.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import pytest
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core.lifecycle import born, transition
from fledge.core.run import Gone, Instant, Run
from fledge.store.base import Counts, QueuePlace, RowState, SessionFacts, Spec, Store, Tx
from tests.core.samples import AT, TERMS

pytest.register_assert_rewrite(
    "tests.store.conformance",
    "tests.store.conformance_requests",
    "tests.store.conformance_exchanges",
    "tests.store.conformance_inbox",
    "tests.store.conformance_lanes",
    "tests.store.conformance_leases",
    "tests.store.conformance_people",
    "tests.store.conformance_rows",
    "tests.store.conformance_runs",
    "tests.store.conformance_sessions",
)

T = TypeVar("T")

OpenStore = Callable[[], Awaitable[Store]]
"""Opens the test's own store; called again after a close, it opens the same one."""

MAIN: Final = "agent:main:main"
FACTS: Final = SessionFacts()
WIDE: Final = {"subagent": 100}
GUARD_S: Final = 30.0
"""How long an answer is waited for before a test that would hang fails instead."""


class Bench:
    """A store and the loop it is used from, for tests that go job by job."""

    def __init__(self, open_store: OpenStore) -> None:
        self._open_store = open_store
        self._runner = asyncio.Runner()
        self.store = self._runner.run(self._opened())

    async def _opened(self) -> Store:
        return await self._open_store()

    def do(self, job: Callable[[Tx], T]) -> T:
        """Run a job and answer what it returned."""
        return self._runner.run(self._transact(job))

    async def _transact(self, job: Callable[[Tx], T]) -> T:
        async with asyncio.timeout(GUARD_S):
            return await self.store.transact(job)

    def see(self, job: Callable[[Tx], T]) -> T:
        """Run a job that only reads."""
        return self._runner.run(self._read(job))

    async def _read(self, job: Callable[[Tx], T]) -> T:
        async with asyncio.timeout(GUARD_S):
            return await self.store.read(job)

    def do_at_once(self, jobs: Sequence[Callable[[Tx], T]]) -> list[T | BaseException]:
        """Submit all jobs before any is answered; what each returned or raised."""

        async def submit() -> list[T | BaseException]:
            async with asyncio.timeout(GUARD_S):
                return await asyncio.gather(*(self.store.transact(job) for job in jobs), return_exceptions=True)

        return self._runner.run(submit())

    def reopen(self) -> None:
        """Close the store and open it again."""
        self._runner.run(self.store.close())
        self.store = self._runner.run(self._opened())

    def close(self) -> None:
        """Close the store and its loop."""
        try:
            self._runner.run(self.store.close())
        finally:
            self._runner.close()


@asynccontextmanager
async def writer_held(store: Store) -> AsyncIterator[None]:
    """Keep a threaded store's writer inside a job, so that whatever is submitted meanwhile waits for it together."""
    entered, let_go = threading.Event(), threading.Event()

    def job(tx: Tx) -> bool:
        entered.set()
        return let_go.wait(GUARD_S)

    holding = asyncio.create_task(store.transact(job))
    await asyncio.to_thread(entered.wait, GUARD_S)
    try:
        yield
    finally:
        let_go.set()
        assert await holding


async def submitted(store: Store, jobs: Sequence[Callable[[Tx], T]]) -> list[asyncio.Task[T]]:
    """Tasks that have each submitted their job and wait for its answer."""
    tasks = [asyncio.create_task(_submit(store, job)) for job in jobs]
    await asyncio.sleep(0)
    return tasks


async def _submit(store: Store, job: Callable[[Tx], T]) -> T:
    return await store.transact(job)


# ---- things to store -------------------------------------------------------------------------------------------------


def admit(tx: Tx, key: str, parent: str = MAIN, at: Instant = AT, **terms: object) -> Run:
    """Create a run that was admitted at `at`; its first run id is `<key>/1`."""
    event = ev.Admitted(at=at, key=key, terms=replace(TERMS, parent=parent, **terms), run_id=f"{key}/1")
    run = born(event)
    tx.runs.create(run, Spec(task=f"task of {key}"), event, next_number(tx, parent))
    return run


def next_number(tx: Tx, parent: str) -> int:
    """A number that no run of this parent has."""
    return max((tx.runs.number(key) for key in tx.runs.children(parent)), default=0) + 1


def follow(tx: Tx, run: Run, *events: ev.Event) -> Run:
    """Save what each event makes of the run; none may be ignored."""
    for event in events:
        step = transition(run, event)
        assert step.ignored is None, (event, step.ignored)
        assert not isinstance(step.run.phase, Gone), event
        tx.runs.save(run, step.run, event)
        run = step.run
    return run


def conversation(tx: Tx, *keys: str) -> None:
    """Open sessions without a parent."""
    for key in keys:
        tx.sessions.open(key, "named", None, 0, FACTS, AT)


def child(tx: Tx, session: str = MAIN) -> Counts:
    """Count one more child of a session, which is opened if need be."""
    conversation(tx, session)
    return tx.sessions.child_admitted(session)


def queue(tx: Tx, *sessions: str, lane: str = "subagent", spawner: str = MAIN, suspect: bool = False) -> None:
    """Open sessions and let them be claimed."""
    conversation(tx, *sessions)
    for session in sessions:
        tx.queue.put(session, lane, spawner, suspect)


def change_turn(tx: Tx, session: str, **changes: object) -> None:
    """Change the open turn of a session."""
    turn = tx.turns.get(session)
    assert turn is not None
    tx.turns.save(replace(turn, **changes))


def close_row(tx: Tx, key: str, state: RowState, at: Instant) -> bool:
    """Move a row to a state, by the verb that leads there."""
    if state == "unread":
        return tx.inbox.reopen(key)
    verbs = {"consumed": "consume", "suppressed": "suppress", "void": "void", "undelivered": "give_up"}
    verb = getattr(tx.inbox, (verbs | {"dismissed": "dismiss"})[state])
    is_closed: bool = verb(key, at)
    return is_closed


def names(places: Sequence[QueuePlace]) -> list[str]:
    """The sessions at these places."""
    return [place.session for place in places]


def claim(tx: Tx, session: str, at: Instant = AT, owner: str = "owner") -> int:
    """Claim a session that may be claimed; answers the epoch."""
    place = next(place for place in tx.queue.claimable(WIDE, at, 1000) if place.session == session)
    return tx.queue.claim(place, owner, at)


def claim_next(tx: Tx, lane: str = "subagent", at: Instant = AT) -> str:
    """Claim whoever is next in a lane and let its driver exit at once; answers who that was."""
    place = next(place for place in tx.queue.claimable({lane: 1}, at, 1000) if place.lane == lane)
    tx.drivers.release(place.session, tx.queue.claim(place, "owner", at))
    return place.session
