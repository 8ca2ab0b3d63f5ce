"""Transitions per second: fledge's store beside a bare group-commit loop, a JSON file, and itself with older runs.

A transition of fledge is what `orchestrator.commit` does at its core: load the run, decide by `lifecycle.transition`,
save row and event, one transaction. Both sides have the same number of runs, the same length of JSON in a row and in an
event, and are driven by the same coroutines (`measure.rate_of`).
"""

import asyncio
import json
import tempfile
import uuid
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from bench import bare
from bench.measure import Meter, Rate, rate_of
from fledge.core import events as ev
from fledge.core.keys import child_key
from fledge.core.lifecycle import born, transition
from fledge.core.run import Terms
from fledge.store.base import Spec, Tx
from fledge.store.sqlite import SqliteStore

PARENT = "agent:main:main"
AT = 1_800_000_000.0
SPEC = Spec(task="read the three files and say which of them differs, and in what", label="differ", created_at=AT)
RUNS_A_JOB = 1000

CLAIMED = ev.Claimed(at=AT, epoch=1)
LOST = ev.LeaseLost(at=AT, attempt=1, next_run_id=str(uuid.UUID(int=1)), step_open=False)
"""A claim and a lost lease lead from queued to running and back, so a run can be moved any even number of times."""

LIFE: tuple[ev.Event, ...] = (
    ev.Prepared(at=AT),
    CLAIMED,
    ev.AttemptEnded(at=AT, attempt=1, next_run_id=str(uuid.UUID(int=2)), end=ev.Finished("text", uuid.UUID(int=3).hex)),
    ev.RowConsumed(at=AT, row="outcome", path="direct"),
    ev.CleanedUp(at=AT),
)
"""From admitted to completed."""


def new_keys(count: int) -> list[str]:
    """Keys of children nobody has had before."""
    return [child_key("main", str(uuid.uuid4())) for _ in range(count)]


def _admitted(key: str) -> ev.Admitted:
    return ev.Admitted(at=AT, key=key, terms=Terms(parent=PARENT), run_id=str(uuid.uuid4()))


def _apply(tx: Tx, key: str, event: ev.Event) -> None:
    before = tx.runs.load(key)
    tx.runs.save(before, transition(before, event).run, event)


Plan = list[tuple[str, tuple[ev.Event, ...]]]
"""Keys of runs to make, each with what is to happen to it."""


def _live(keys: list[str]) -> Plan:
    return [(key, LIFE[:1]) for key in keys]


async def populate(store: SqliteStore, plan: Plan) -> None:
    """Admit a run under each key and lead it through its events, by the store's own verbs, many to a transaction."""
    for first in range(0, len(plan), RUNS_A_JOB):
        await store.transact(partial(_live_through, plan[first : first + RUNS_A_JOB]))


def _live_through(plan: Plan, tx: Tx) -> None:
    last = tx.unit.number("SELECT coalesce(max(number), 0) FROM runs WHERE parent = ?", PARENT)
    for number, (key, life) in enumerate(plan, last + 1):
        admitted = _admitted(key)
        run = born(admitted)
        tx.runs.create(run, SPEC, admitted, number)
        for event in life:
            after = transition(run, event).run
            tx.runs.save(run, after, event)
            run = after


async def _fledge_rate(store: SqliteStore, keys: list[str], waiting: int, each: int) -> Rate:
    async def once(number: int, turn: int) -> None:
        event, key = LOST if turn % 2 else CLAIMED, keys[number]
        await store.transact(lambda tx: _apply(tx, key, event))

    return await rate_of(waiting, each, once)


def fledge(waiting: int, each: int, runs: int) -> Rate:
    """The rate of fledge's store with this many runs in it, `waiting` of them being moved."""

    async def main(folder: str) -> Rate:
        store = SqliteStore.open(folder)
        keys = new_keys(runs)
        await populate(store, _live(keys))
        rate = await _fledge_rate(store, keys, waiting, _even(each))
        await store.close()
        return rate

    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        return asyncio.run(main(folder))


def _even(count: int) -> int:
    return count + count % 2


def group_commit(waiting: int, each: int, runs: int, writes: Literal["blind", "loading"] = "blind") -> Rate:
    """The rate of the bare loop, with as many runs and as much JSON."""
    queued = transition(born(_admitted(new_keys(1)[0])), LIFE[0]).run
    states = [_json(transition(queued, CLAIMED).run), _json(queued)]
    events = [_json(event) for event in (CLAIMED, LOST)]
    parsed = [json.loads(event) for event in events]
    phases, due_at = ("running", "queued"), (AT, None)

    async def main(folder: str) -> Rate:
        loop = bare.GroupCommit(Path(folder) / "bare.db", asyncio.get_running_loop())
        keys = new_keys(runs)
        loop.populate(keys, PARENT, _json(SPEC), states[1])
        loop.start()

        async def blind(number: int, turn: int) -> None:
            odd = turn % 2
            await loop.change(bare.Blind(keys[number], turn + 1, phases[odd], due_at[odd], states[odd], events[odd]))

        async def loading(number: int, turn: int) -> None:
            odd = turn % 2
            await loop.change(bare.Loading(keys[number], phases[odd], due_at[odd], parsed[odd]))

        rate = await rate_of(waiting, _even(each), blind if writes == "blind" else loading)
        await asyncio.to_thread(loop.close)
        return rate

    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        return asyncio.run(main(folder))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Aged(msgspec.Struct, frozen=True):
    """Rates beside runs that were there before; the last moves runs from among them, the others newer ones."""

    empty: list[Rate]
    full: list[Rate]
    spread: list[Rate]
    populate_s: float
    file_mb: float


def growth(existing: int, waiting: int, each: int, rounds: int) -> Aged:
    """The rates with no older runs and with `existing` completed ones, in turns, `waiting` runs being moved in each.

    A run is moved in one store as often as in the other, so their timelines are equally long. `spread` moves live runs
    that were admitted evenly among the old ones, so that no two of them share a page.
    """

    async def main(young: str, old: str) -> Aged:
        small, large = SqliteStore.open(young), SqliteStore.open(old)
        small_keys, large_keys, spread_keys = (new_keys(waiting) for _ in range(3))
        await populate(small, _live(small_keys))
        plan: Plan = [(key, LIFE) for key in new_keys(existing)]
        for number, live in enumerate(_live(spread_keys)):
            plan.insert(number * len(plan) // waiting, live)
        with Meter() as m:
            await populate(large, plan)
        await populate(large, _live(large_keys))
        empty, full, spread = [], [], []
        for _ in range(rounds):
            empty.append(await _fledge_rate(small, small_keys, waiting, _even(each)))
            full.append(await _fledge_rate(large, large_keys, waiting, _even(each)))
            spread.append(await _fledge_rate(large, spread_keys, waiting, _even(each)))
        await small.close()
        await large.close()
        return Aged(empty, full, spread, m.wall_s, _size_mb(old))

    with (
        tempfile.TemporaryDirectory(prefix="fledge-bench-") as young,
        tempfile.TemporaryDirectory(prefix="fledge-bench-") as old,
    ):
        return asyncio.run(main(young, old))


def _size_mb(folder: str) -> float:
    return sum(file.stat().st_size for file in Path(folder).iterdir()) / 2**20


def json_registry(runs: int, changes: int) -> Rate:
    """The rate of a JSON file that holds this many runs and is rewritten whole at every change."""
    state = _json(born(_admitted(new_keys(1)[0])))
    keys = new_keys(runs)

    async def main(folder: str) -> Rate:
        registry = bare.JsonRegistry(
            Path(folder) / "runs.json", {key: {"phase": "queued", "version": 1, "state": state} for key in keys}
        )

        async def once(_: int, turn: int) -> None:
            registry.change(keys[turn * 7919 % runs], "running")

        return await rate_of(1, changes, once)

    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        return asyncio.run(main(folder))
