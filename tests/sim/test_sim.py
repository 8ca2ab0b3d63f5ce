"""Any schedule: nothing lost, nothing twice, every run ends, limits hold, wherever the process dies.

A seed that fails is played again, step by step, by `python -m tests.sim SEED --trace`.
"""

import os
import re
from collections.abc import Sequence
from typing import Any

import pytest

from fledge.core.run import Instant
from fledge.errors import StaleWrite
from fledge.store.base import Counts, Driver, EntryKind, Place, RowKind, RowState, Used
from tests.sim.play import Play, play
from tests.sim.schedule import schedule
from tests.sim.watch import Spy

SEEDS = 200 * int(os.environ.get("FLEDGE_SOAK", "0")) or 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_and_everything_ends_whatever_happens(seed: int) -> None:
    report = play(seed)
    assert report.wrong == [], f"python -m tests.sim {seed} --trace"


def test_a_seed_is_played_the_same_way_every_time() -> None:
    stories: list[list[str]] = [[], []]
    for story in stories:
        for seed in (2, 3):
            play(seed, story.append)
    assert len(stories[0]) > 300
    assert stories[0] == stories[1]


# ---- every check can fail --------------------------------------------------------------------------------------------


class LosesRows(Spy):
    def put_row(
        self, key: str, session: str | None, kind: RowKind, source: str | None, body: str, at: Instant, **more: Any
    ) -> bool:
        return kind == "outcome" or super().put_row(key, session, kind, source, body, at, **more)


class TellsTwice(Spy):
    def close_row(self, key: str, state: RowState, at: Instant) -> bool:
        return state == "consumed" or self._tx.close_row(key, state, at)


class ForgetsToCount(Spy):
    def child_settled(self, session: str) -> Counts:
        return self._tx.counts(session)


class KnowsNoWidths(Spy):
    def claimable(self, widths: dict[str, int], at: Instant, limit: int) -> list[Place]:
        return self._tx.claimable(dict.fromkeys(widths, 99), at, limit)


class FencesNothing(Spy):
    def fence(self, session: str, epoch: int) -> Driver:
        try:
            return self._tx.fence(session, epoch)
        except StaleWrite:
            return Driver(session, epoch, "", "subagent", False, 0.0, 0.0, 0, False, None)


class LosesResults(Spy):
    def append(
        self, session: str, at: Instant, entries: Sequence[tuple[EntryKind, str]], used: Used | None = None
    ) -> int:
        return super().append(session, at, [entry for entry in entries if entry[0] != "tool"] or entries[:0], used)


@pytest.mark.parametrize(
    ("spy", "words"),
    [
        (LosesRows, "."),
        (TellsTwice, "is told more than once"),
        (ForgetsToCount, r"counts \d unsettled, there are \d"),
        (KnowsNoWidths, r"lane \w+ has \d drivers"),
        (FencesNothing, "is written to by"),
        (LosesResults, r"was begun \d times"),
    ],
    ids=lambda case: case.__name__ if isinstance(case, type) else "",
)
def test_a_store_that_breaks_a_promise_is_found_out(spy: type[Spy], words: str) -> None:
    found = (Play(schedule(seed), spy=spy).run().wrong for seed in range(40))
    wrong = next((wrong for wrong in found if wrong), [])
    assert re.search(words, "\n".join(wrong)), "forty schedules, and nobody noticed"
