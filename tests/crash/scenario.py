"""One scripted scenario with a bit of everything: nesting, yield, steer, kill, plan, provisional error, deletion of the
requester, fire-and-forget, cleanup by deletion. Agents and the person look at what is there before they act, so being
started again after a crash repeats nothing of their own.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from fledge.clock import Clock
from fledge.core.lifecycle import replay
from fledge.core.run import Run
from fledge.errors import Refused
from fledge.ids import RandomIds
from fledge.orchestrator import control, spawn
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.store.base import Store, Tx
from fledge.testing import ScriptedPerformer, Stage

MAIN, OTHER = "agent:main:main", "agent:main:other"
FINAL = ("completed", "completed_giveup", "archived")
EXPECTED = {
    "orchestrate": ("completed", "ok"),
    "w1": ("completed", "ok"),
    "w2": ("completed", "error"),
    "w3": ("completed", "ok or error"),  # a crash in its grace takes away the executor that would have recovered
    "steer me": ("completed", "ok"),
    "kill me": ("completed", "killed"),
    "below the kill": ("completed", "killed"),
    "plan": ("completed", "ok"),
    "delete me": ("completed", "ok"),
    "quietly": ("completed", "ok"),
    "orphan": ("completed_giveup", "ok"),
}
"""How each run must come out, wherever the process was killed."""


# ---- the agents ------------------------------------------------------------------------------------------------------


async def play(stage: Stage) -> None:
    label = await stage.engine.store.read(lambda tx: _label(tx, stage.session))
    children = await stage.engine.store.read(lambda tx: {_label(tx, key) for key in tx.runs.children(stage.session)})
    match label:
        case "main":
            wanted: dict[str, dict[str, Any]] = {
                "orchestrate": {},
                "steer me": {},
                "kill me": {},
                "plan": {"plan": True},
            }
            wanted |= {"delete me": {"cleanup": "delete"}, "quietly": {"expects": False}}
            await _spawn(stage, wanted, children)
            await stage.say("under way")
        case "other":
            await _spawn(stage, {"orphan": {}}, children)
            await stage.say("under way")
        case "orchestrate":
            await _spawn(stage, {"w1": {}, "w2": {}, "w3": {}}, children)
            if stage.run is not None and stage.run.wakes == 0:
                await stage.wait("all")
            else:
                await stage.say("all read")
        case "kill me":
            await _spawn(stage, {"below the kill": {}}, children)
            await stage.sleep(100)
        case "w2":
            await stage.fail("it broke")
        case "w3":
            await stage.sleep(1)
            if stage.run is not None and stage.run.phase.name == "running":
                await stage.falter("overloaded")
                await stage.sleep(2)
                await stage.recover()
            await stage.say("recovered")
        case "steer me" if stage.run is not None and stage.run.attempt == 1:
            await stage.sleep(50)
            await stage.say("unsteered")
        case "below the kill":
            await stage.sleep(100)
        case "orphan":
            await stage.sleep(6)
            await stage.say("too late")
        case _:
            await stage.sleep(1)
            await stage.step("a tool's output")
            await stage.sleep(1)
            await stage.say(f"answer of {label}")


async def _spawn(stage: Stage, wanted: dict[str, dict[str, Any]], there: set[str]) -> None:
    for task, terms in wanted.items():
        if task not in there:
            await stage.spawn(task, **terms)


def _label(tx: Tx, key: str) -> str:
    return {MAIN: "main", OTHER: "other"}.get(key) or tx.runs.spec(key).label


# ---- the person ------------------------------------------------------------------------------------------------------


async def direct(engine: Engine) -> None:
    """Look every half second, and do what is still to be done."""
    while not await engine.store.read(is_over):
        at = engine.clock.now()
        for decide in await engine.store.read(partial(_wishes, at=at)):
            try:
                await engine.commit(decide)
            except Refused:
                continue  # it came out otherwise between looking and acting
        await engine.clock.wait_until(at + 0.5, asyncio.Event())


def _wishes(tx: Tx, at: float) -> list[Callable[[Commit], object]]:
    """What the person wants done, seeing what there is."""
    wishes: list[Callable[[Commit], object]] = []
    runs = {tx.runs.spec(key).label: tx.runs.load(key) for key in walk(tx)}
    steered, killed, plan = runs.get("steer me"), runs.get("kill me"), runs.get("plan")
    if steered is not None and steered.attempt == 1 and steered.phase.name == "running" and _age(steered, at) > 1:
        wishes.append(partial(control.steer, key=steered.key, message="rather do this"))
    if killed is not None and killed.ended is None and _age(killed, at) > 2 and "below the kill" in runs:
        wishes.append(partial(control.kill, key=killed.key))
    if plan is not None and plan.phase.name == "awaiting_approval":
        wishes.append(partial(control.answer_plan, key=plan.key, approve=True, words="APPROVED: proceed"))
    other = tx.sessions.get(OTHER)
    if other is not None and not other.deleted and "orphan" in runs:
        wishes.append(partial(control.delete_session, key=OTHER))
    return wishes


def _age(run: Run, at: float) -> float:
    return 0.0 if run.started_at is None else at - run.started_at


def _begin(c: Commit) -> None:
    for key in (MAIN, OTHER):
        if c.tx.sessions.get(key) is None:
            spawn.open_conversation(c, key)
            control.send(c, key, "go", row_key=f"go:{key}")


# ---- the performance -------------------------------------------------------------------------------------------------


async def perform(store: Store, clock: Clock) -> None:
    """Start, or go on wherever the store stands, until everything has come to rest."""
    try:
        async with Engine(store, ScriptedPerformer(play), clock=clock, ids=RandomIds()) as engine:
            await engine.commit(_begin)
            await direct(engine)
    finally:
        await store.close()


def walk(tx: Tx) -> list[str]:
    """All runs, parents first."""
    found = [*tx.runs.children(MAIN), *tx.runs.children(OTHER)]
    for key in found:
        found.extend(tx.runs.children(key))
    return found


def is_over(tx: Tx) -> bool:
    """Every run that must exist has settled, and nothing that can be read is unread."""
    runs = [tx.runs.load(key) for key in walk(tx)]
    if len(runs) < len(EXPECTED) or any(run.phase.name not in FINAL for run in runs):
        return False
    return tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN, 1)


def verdict(tx: Tx) -> list[str]:
    """What is wrong with the end, in sentences; empty if nothing is."""
    wrong: list[str] = []
    runs = {tx.runs.spec(key).label: tx.runs.load(key) for key in walk(tx)}
    if len(walk(tx)) != len(EXPECTED):
        wrong.append(f"{len(walk(tx))} runs instead of {len(EXPECTED)}: {sorted(runs)}")
    for label, (phase, status) in EXPECTED.items():
        run = runs.get(label)
        if run is None or run.ended is None:
            wrong.append(f"{label} is missing or never ended")
            continue
        if run.phase.name != phase or run.ended.outcome.status not in status:
            wrong.append(f"{label} is {run.phase.name} ({run.ended.outcome}) instead of {phase} ({status})")
        if replay(tx.events.of(run.key)) != run:
            wrong.append(f"{label} is not the fold of its events")
        if tx.sessions.counts(run.key).unsettled:
            wrong.append(f"{label} still counts {tx.sessions.counts(run.key).unsettled} unsettled children")
    told = [(session, item) for session in (MAIN, OTHER, *walk(tx)) for item in _told(tx, session)]
    expected = {"orchestrate", "steer me", "plan", "delete me", "quietly"}
    for label, run in runs.items():
        where = [session for session, (source, row) in told if source == run.key and not row.endswith(":plan")]
        right = [MAIN] if label in expected else [run.terms.parent] if label in ("w1", "w2", "w3") else []
        if where != right:
            wrong.append(f"{label} was told in {where} instead of {right}")
    rows = [row for _, (_, row) in told]
    if len(rows) != len(set(rows)):
        wrong.append(f"told twice: {sorted(row for row in set(rows) if rows.count(row) > 1)}")
    undelivered = [row.source for row in tx.inbox.undelivered()]
    if undelivered != [runs["orphan"].key]:
        wrong.append(f"undelivered: {undelivered}")
    if tx.drivers.all():
        wrong.append(f"drivers left: {tx.drivers.all()}")
    return wrong


def _told(tx: Tx, session: str) -> list[tuple[str, str]]:
    events = [entry for entry in tx.transcripts.entries(session, limit=100_000) if entry.kind == "event"]
    return [(item["run"], item["row"]) for entry in events for item in msgspec.json.decode(entry.body)["completions"]]
