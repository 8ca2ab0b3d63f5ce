"""Commits of an engine that shares its store with others: joining, taking its share of the queue, taking over from the
dead, leaving.

All of them hold the one lock of writers, and their time is the database's: what an engine finds out about the others in
its commit is true until it is committed.
"""

import os
import socket
from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from fledge import __version__
from fledge.core import events as ev
from fledge.core.cluster import Member, clashes, count_drivers, differences, is_alive, is_proved_dead, share
from fledge.core.run import Instant, Spawning
from fledge.errors import Refused
from fledge.orchestrator import effects, turns
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.turns import Drive
from fledge.store import processes
from fledge.store.base import QueuePlace

TAKEN_A_COMMIT = 100


def this_process(engine: str, lease_s: float, drives: bool) -> Member:
    """This process as an engine that has not joined yet."""
    pid, machine = os.getpid(), processes.this_machine()
    return Member(
        *(engine, socket.gethostname(), pid, 0.0, 0.0, lease_s, drives),
        name=processes.this_command(),
        version=__version__,
        machine=machine,
        born=(processes.born(pid) or "") if machine else "",
    )


def proved_dead(members: Iterable[Member], own: Member) -> frozenset[str]:
    """The engines of this machine whose process is gone."""
    here = [one for one in members if one.id != own.id and one.machine == own.machine]
    return frozenset(one.id for one in here if is_proved_dead(one, own, processes.born(one.pid)))


def join(c: Commit, own: Member, dead: Collection[str] = ()) -> list[str]:
    """Become one of the engines; answers in which settings others differ, in words, where both drive. Refused: one that
    is alive works with other limits, which would be none if each engine had its own. `dead`: those whose death is
    proved, whatever their lease says."""
    others = [one for one in c.tx.engines.all() if one.id not in (own.id, *dead) and is_alive(one, c.at)]
    found = clashes(own, others)
    if found:
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        raise Refused("error", f"{'; '.join(found[:3])}{more}: give all processes on this store the same limits")
    c.tx.engines.join(replace(own, started_at=own.started_at or c.at, seen_at=c.at))
    c.hints.look = True
    return [
        f"{one.shown} works with other settings: {', '.join(names)}"
        for one in others
        if own.drives and one.drives and (names := differences(own, one))
    ]


def rejoin(c: Commit, own: Member) -> list[Member]:
    """Be one of the engines, also after the others took this one for dead; answers all of them."""
    members = c.tx.engines.all()
    if all(one.id != own.id for one in members):
        join(c, own)
        c.hints.was_missed = True
        members = c.tx.engines.all()
    return members


class Claims(Struct, frozen=True):
    """The sessions that an engine has claimed."""

    drives: list[Drive]
    left: bool = False
    """There was more, which is the share of others for now."""


def claim(c: Commit, own: Member, limit: int, greedy: bool, among: Collection[str] | None = None) -> Claims:
    """Claim sessions: at most so many, and of each lane no more than this engine's share, unless it is `greedy`; only
    some of these, if any are named. Lanes are looked at in this commit, so that two engines never fill one twice."""
    c.tx.ask_for_claims(own.id, c.at)
    engines = count_drivers(rejoin(c, own), c.at)
    places = c.tx.queue.claimable(c.rules.widths, c.at, limit)
    if among is not None:
        places = [place for place in places if place.session in among]
    taken = places if greedy or engines < 2 else _share(c, own, places, engines)
    return Claims(turns.claim_all(c, taken, own.id), left=len(taken) < len(places))


def _share(c: Commit, own: Member, places: Sequence[QueuePlace], engines: int) -> list[QueuePlace]:
    mine = c.tx.drivers.count_of(own.id, c.at)
    taken: list[QueuePlace] = []
    for place in places:
        if mine.get(place.lane, 0) < share(c.rules.width(place.lane), engines):
            mine[place.lane] = mine.get(place.lane, 0) + 1
            taken.append(place)
    return taken


def take(c: Commit, own: Member, errand: str) -> bool:
    """Let this engine do something outside the database; False if another one does."""
    rejoin(c, own)
    return c.tx.errands.take(errand, own.id)


class TakenOver(Struct, frozen=True):
    """The result of one commit that takes over from dead engines."""

    more: bool
    """There may be more to take up."""
    gone: tuple[Member, ...] = ()
    """The engines of which nothing is left."""


def take_over(c: Commit, own: str, shared: bool = False, dead: Collection[str] = (), up_at: Instant = 0.0) -> TakenOver:
    """Take up what engines that are dead were driving, preparing or doing. Where an engine has the store alone, all
    others are dead; else those whose lease is over, and those in `dead`. `up_at`: since when the store can be
    reached."""
    members = c.tx.engines.all() if shared else []
    alive = [own, *(one.id for one in members if one.id not in (own, *dead) and is_alive(one, c.at, up_at))]
    drivers = c.tx.drivers.of_others(alive, TAKEN_A_COMMIT)
    for driver in drivers:
        turns.lost(c, driver, crashed=True)
    reservations = [key for key in c.tx.runs.reservations() if _prepared_by(c, key) not in alive]
    _withdraw(c, reservations[: TAKEN_A_COMMIT - len(drivers)])
    if drivers or reservations:
        return TakenOver(more=True)
    gone = tuple(one for one in members if one.id not in alive)
    if shared:
        c.hints.look |= c.tx.errands.drop_all_but(alive) > 0
        for one in gone:
            c.tx.engines.leave(one.id)
    return TakenOver(more=False, gone=gone)


def _withdraw(c: Commit, reservations: Iterable[str]) -> None:
    for key in reservations:
        effects.apply(c, key, ev.Withdrawn(at=c.at, reason="its caller is gone"))


def _prepared_by(c: Commit, reservation: str) -> str:
    phase = c.run(reservation).phase
    assert isinstance(phase, Spawning)
    return phase.owner


def leave(c: Commit, own: str) -> None:
    """The engine is gone, and what it still did or held may be done by others at once."""
    for driver in c.tx.drivers.of(own):
        turns.lost(c, driver, crashed=False)
    _withdraw(c, [key for key in c.tx.runs.reservations() if _prepared_by(c, key) == own])
    for errand in c.tx.errands.of(own):
        c.tx.errands.end(errand, own)
    c.tx.engines.leave(own)
    c.hints.look = True
