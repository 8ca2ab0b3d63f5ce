"""`core.turn` in a small world, searched exhaustively: nothing breaks, and no rule of it can be left out.

`python -m tests.model.turns.search NAME` shows what a configuration finds. A violation names one of these properties:

P2 what was read is answered once, by a turn that may answer it, or its end is told. P3 by system steps alone everything
comes to rest, and nothing goes round for ever. P4 a wait is over when its condition holds or its time has passed, and
then a turn is due. P5 a wait survives messages, failures and crashes, no completion is read before it is over, and a
message always has a turn due for it. P6 no turn and no claim is for nothing. P7 a turn is driven by one driver exactly
while it is in that state. P9 no event comes in a state that cannot have it. P10 a stop leaves nothing going on.
"""

import pytest

from fledge.core.turn import transition_turn
from tests.core.turn_samples import TURNS, situation
from tests.effort import SOAK
from tests.model.graph import Graph
from tests.model.turns.broken import BROKEN
from tests.model.turns.configurations import CONFIGURATIONS, WIDE
from tests.model.turns.search import search
from tests.model.turns.world import Model, State, Transition


@pytest.mark.parametrize("name", CONFIGURATIONS | WIDE if SOAK else CONFIGURATIONS)
def test_nothing_breaks_and_everything_comes_to_rest(name: str) -> None:
    assert search((CONFIGURATIONS | WIDE)[name]).violations == {}


def test_the_search_reaches_every_situation() -> None:
    found = set()
    for name in ("ask", "fail"):
        model = Model(CONFIGURATIONS[name], transition_turn)
        graph: Graph[State] = Graph(model.first(), model.steps)
        found |= {situation(state.turn) for state in graph.order}
    assert found == {situation(turn) for turn in TURNS.values()}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_without_a_rule_a_property_breaks(broken: Transition) -> None:
    name, why = BROKEN[broken]
    found = [violation.why for violation in search(CONFIGURATIONS[name], broken).violations.values()]
    assert any(one.startswith(why) for one in found), found


def test_a_violation_is_told_with_the_shortest_way_to_it() -> None:
    broken = next(one for one in BROKEN if one.__name__ == "messages_before_the_wait")
    (violation,) = search(CONFIGURATIONS["wait for all"], broken).violations.values()
    assert violation.why == "P4: a wait that is over stands while no turn is open"
    assert violation.trace == ("child 0 settles", "claimed", "message", "yields for all", "child 1 settles")
