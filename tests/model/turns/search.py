"""`python -m tests.model.turns.search [NAME …]`: search configurations, and print what is found, with its traces."""

import sys
from collections.abc import Sequence

from fledge.core.turn import transition_turn
from tests.model.graph import Found, Graph, judge
from tests.model.turns.configurations import CONFIGURATIONS, WIDE
from tests.model.turns.world import Configuration, Model, State, Transition


def search(configuration: Configuration, transition: Transition = transition_turn) -> Found:
    """Search the whole configuration with this function."""
    model = Model(configuration, transition)
    graph: Graph[State] = Graph(model.first(), model.steps)
    return judge(graph, lambda state: state.violation, model.unfinished)


def main(names: Sequence[str]) -> None:
    total = 0
    for name in names or CONFIGURATIONS:
        found = search((CONFIGURATIONS | WIDE)[name])
        total += found.states
        print(f"{name:18} {found.states:8} states", flush=True)
        for violation in found.violations.values():
            print(f"    {violation.why}: {'; '.join(violation.trace)}")
    print(f"{total} states")


if __name__ == "__main__":
    main(sys.argv[1:])
