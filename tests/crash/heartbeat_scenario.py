"""A conversation with a periodic heartbeat, one that somebody asks for, and a child that nobody waits for. Wherever a
process dies, and though the next one is started only after two beats were missed: a beat that was due fires once,
missed ones are one, and what the child says is told once.

Each process leaves a line in a file when it is started, so that beats can be compared with who was there to have them.
"""

import asyncio
from itertools import pairwise
from pathlib import Path

from fledge.clock import Clock
from fledge.core.freeze import HEARTBEAT_OK
from fledge.core.heartbeat import HeartbeatSettings
from fledge.core.transcript import Spoken, Told, from_body
from fledge.ids import RandomIds
from fledge.orchestrator import control, heartbeat, spawn
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.engine import Engine
from fledge.store.base import Store, Tx
from fledge.testing import START, ScriptedPerformer, Stage

MAIN = "agent:main:main"
EVERY_S, DOWN_S, SOON_S = 60.0, 130.0, 5.0
OVER_S = 2 * EVERY_S + 10.0
"""How long it takes at least; and each process lives for another beat."""
RULES = Rules(heartbeat=HeartbeatSettings(every_s=EVERY_S, zone="UTC"))


async def perform(store: Store, clock: Clock, folder: Path) -> None:
    """Start, or go on wherever the store stands, a while later; until the last beats have come and gone."""
    try:
        if began(folder):
            await clock.wait_until(clock.now() + DOWN_S, asyncio.Event())
        here_since = clock.now()
        with (folder / "began").open("a", encoding="utf-8") as file:
            file.write(f"{here_since}\n")
        over_at = max(START + OVER_S, here_since + EVERY_S + SOON_S)
        async with Engine(store, ScriptedPerformer(play), clock=clock, ids=RandomIds(), rules=RULES) as engine:
            await engine.commit(_begin)
            while clock.now() < over_at or not await engine.store.read(is_at_rest):
                await clock.wait_until(clock.now() + 0.5, asyncio.Event())
        (folder / "ended").write_text(str(clock.now()))
    finally:
        await store.close()


def _begin(c: Commit) -> None:
    if c.tx.sessions.get(MAIN) is None:
        spawn.open_conversation(c, MAIN)
        heartbeat.keep_beat(c, MAIN)
        control.send(c, MAIN, "go", row_key="go")


async def play(stage: Stage) -> None:
    """Main delegates once, and finds everything well; the child says something nobody waits for."""
    if stage.session != MAIN:
        await stage.sleep(1)
        await stage.say("42")
        return
    if stage.drive.heartbeat:
        await stage.sleep(1)
        await stage.say(HEARTBEAT_OK)
        return
    if not await stage.engine.store.read(lambda tx: tx.runs.children(MAIN)):
        await stage.spawn("child", expects=False)
    await stage.engine.commit(lambda c: heartbeat.request(c, MAIN, "somebody asks"))
    await stage.say("under way")


def is_at_rest(tx: Tx) -> bool:
    """Nothing goes on, and nothing is wanted before the next beat."""
    wanted = tx.heartbeats.get(MAIN)
    runs = [tx.runs.load(key) for key in tx.runs.children(MAIN)]
    settled = bool(runs) and all(run.phase.name == "completed" for run in runs)
    return (
        settled and tx.turns.get(MAIN) is None and not tx.inbox.unread(MAIN, 1) and (wanted is None or not wanted.cause)
    )


def began(folder: Path) -> list[float]:
    """When each process was started."""
    path = folder / "began"
    return [float(line) for line in path.read_text(encoding="utf-8").split()] if path.exists() else []


def verdict(tx: Tx, folder: Path) -> list[str]:
    """What is wrong with the end."""
    wrong: list[str] = []
    entries = tx.transcripts.entries(MAIN, limit=1000)
    bodies = [from_body(entry.body) for entry in entries]
    told = [body for body in bodies if isinstance(body, Told)]
    if len(tx.runs.children(MAIN)) != 1 or len(told) != 1:
        wrong.append(f"{len(tx.runs.children(MAIN))} children, told {len(told)} times")
    quiet = {seq for seq, following in pairwise(range(len(bodies))) if isinstance(bodies[following], Told)}
    beats = [
        entries[at].at
        for at, body in enumerate(bodies)
        if isinstance(body, Spoken) and body.kind == "heartbeat" and at not in quiet
    ]
    if tx.drivers.all():
        wrong.append(f"drivers left: {tx.drivers.all()}")
    written = [entry.at for entry in entries]
    return wrong + _beats(tx, beats, written, began(folder), float((folder / "ended").read_text()))


def _beats(tx: Tx, beats: list[float], written: list[float], lives: list[float], ended: float) -> list[str]:
    """Compare the beats with who was there to have them. The first may be the one that somebody asked for; one that was
    missed may be a turn that goes on or comes anyway."""
    wanted = tx.heartbeats.get(MAIN)
    assert wanted is not None
    assert wanted.beat_at is not None
    first = wanted.beat_at % EVERY_S
    nth = [int((at - first) // EVERY_S) for at in beats if at >= lives[0] + EVERY_S - 1.0]
    wrong = [f"{count - 1} beats too many at {at}" for at in set(nth) if (count := nth.count(at)) > 1]
    there = [*((since, until - DOWN_S) for since, until in pairwise(lives)), (lives[-1], ended)]
    for since, until in there:
        missed = int((since - first) // EVERY_S)
        due = set(range(missed + 1, int((until - SOON_S - first) // EVERY_S) + 1))
        prompt = any(since <= at <= since + SOON_S for at in written)
        if since > lives[0] + EVERY_S and until > since + SOON_S and not prompt:
            wrong.append(f"the beat that was missed at {since} never came")
        wrong += [f"beat {number} never came" for number in due - set(nth)]
    return wrong
