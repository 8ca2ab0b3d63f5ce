"""Whoever waits holds no slot: with every lane one wide, a parent that waits for its children always finishes.

Trees of orchestrators to the greatest depth there is, with yields at every level, driven by the real agent; and every
kind of schedule of the simulation, with its lanes narrowed.
"""

import asyncio
import json
from itertools import product
from pathlib import Path

import pytest
from msgspec.structs import replace

from fledge.config import parse
from fledge.models.scripted import use
from fledge.orchestrator.commit import Rules
from fledge.testing import InlineStore, VirtualClock, run_virtual
from tests.crash.judgement import judge
from tests.crash.players import Mind, Story, perform
from tests.crash.stories import calls, child, host, said, speak, works
from tests.effort import seeds
from tests.sim.play import Play
from tests.sim.schedule import Schedule, schedule
from tests.statements import proves

NARROW = {"main": 1, "subagent": 1, "nested": 1}
DEEPEST = 5
SOON_S = 1500.0
"""Of virtual time: before any yield's deadline could help."""


# ---- trees -----------------------------------------------------------------------------------------------------------


def chain(label: str, depth: int) -> dict[str, list[str]]:
    """One below the other."""
    return {label: [f"{label}1"], **chain(f"{label}1", depth - 1)} if depth > 1 else {}


def spine(label: str, depth: int) -> dict[str, list[str]]:
    """One below the other, with a worker on either side of each."""
    below = [f"{label}1", f"{label}2", f"{label}3"]
    return {label: below, **spine(below[1], depth - 1)} if depth > 1 else {}


def bush(label: str, depth: int) -> dict[str, list[str]]:
    """Three below each."""
    below = [f"{label}{n}" for n in (1, 2, 3)] if depth > 1 else []
    deeper = [bush(one, depth - 1) for one in below]
    return {label: below, **{key: value for tree in deeper for key, value in tree.items()}} if below else {}


def story(tree: dict[str, list[str]], asked: object, apart: bool) -> Story:
    """Everybody with children spawns them and waits, in the same step or in the next; leaves use a tool."""
    wait = use("sessions_yield", **{"for": asked})
    told = {"o": "main"} | {below: above for above, children in tree.items() for below in children}
    minds: dict[str, Mind] = {"main": host(child("o"))}
    for label in told:
        spawns = [child(below) for below in tree.get(label, ())]
        done = f"SUMMARY: {label} is done"
        if not spawns:
            minds[label] = works(label)
        elif apart:
            minds[label] = said(calls(*spawns), calls(wait), done)
        else:
            minds[label] = said(calls(*spawns, wait), done)
    limits = {"maxSpawnDepth": DEEPEST, "maxChildrenPerAgent": 3, "maxConcurrent": 1}
    return Story(
        minds=minds,
        begin=speak(),
        ends=dict.fromkeys(told, "ok"),
        told=told,
        rules=Rules(widths=NARROW),
        config=parse(json.dumps({"agents": {"defaults": {"subagents": limits}}})).config,
    )


TREES = {"chain": chain("o", DEEPEST), "spine": spine("o", DEEPEST), "bush": bush("o", 3)}


@proves("0.limits.2")
@pytest.mark.parametrize("apart", [False, True], ids=["at once", "a step later"])
@pytest.mark.parametrize("asked", ["all", "any", 2], ids=str)
@pytest.mark.parametrize("shape", TREES)
def test_every_parent_that_waits_finishes_and_every_answer_is_told_where_it_belongs(
    tmp_path: Path, shape: str, asked: object, apart: bool
) -> None:
    played = story(TREES[shape], asked, apart)

    async def in_time() -> None:
        async with asyncio.timeout(SOON_S):
            await perform(played, InlineStore(tmp_path), VirtualClock(), tmp_path)

    run_virtual(in_time())
    store = InlineStore(tmp_path)
    try:
        assert store.run(lambda tx: judge(tx, played, tmp_path, [])).wrong == []
    finally:
        store.close_now()


# ---- schedules -------------------------------------------------------------------------------------------------------


def narrowed(plan: Schedule) -> Schedule:
    """The same schedule with every lane one wide, as deep as may be, and nobody turned away for waiting too long."""
    agents = plan.config.agents
    deeper = replace(agents.defaults.subagents, max_concurrent=1, max_spawn_depth=DEEPEST, queue_timeout_seconds=0)
    config = replace(plan.config, agents=replace(agents, defaults=replace(agents.defaults, subagents=deeper)))
    return replace(plan, config=config, rules=replace(plan.rules, widths=NARROW))


def undisturbed(plan: Schedule) -> Schedule:
    """The same schedule without anybody who ends, deletes or breaks anything: what remains must come out by itself."""
    acts = tuple(act for act in plan.acts if act.deed not in ("kill", "stop", "delete", "steer"))
    return replace(plan, acts=acts, deaths=plan.deaths[-1:], trouble=0.0)


@proves("0.limits.2")
@pytest.mark.parametrize(("seed", "calmly"), product(seeds(10, soaking=100), [True, False]))
def test_any_schedule_ends_with_every_answer_told_when_every_lane_is_one_wide(seed: int, calmly: bool) -> None:
    plan = narrowed(schedule(seed))
    report = Play(undisturbed(plan) if calmly else plan).run()
    assert report.wrong == []
