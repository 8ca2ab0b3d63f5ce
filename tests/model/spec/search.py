"""The search: every reachable state, breadth first, so that the trace of a violation is a shortest one.

Safety is what the steps find broken (`State.violation`); such a path ends there. Liveness is judged on the whole graph:
by system steps alone every state must lead to rest, and system steps must have no cycle, so every fair path gets there.
"""

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from tests.model.spec.configurations import Configuration
from tests.model.spec.state import Key, State
from tests.model.spec.steps import Model


@dataclass(frozen=True)
class Violation:
    """A broken property, and the steps that lead to it."""

    why: str
    trace: tuple[str, ...]


@dataclass
class Found:
    """The result of a search: how many states there are, and the first violation of each kind."""

    states: int
    violations: dict[str, Violation] = field(default_factory=dict)


class Graph:
    """The states that were reached, and the system steps between them."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.reached_by: dict[Key, tuple[Key, str] | None] = {model.initial().key(): None}
        self.order = list(self.reached_by)
        self.before: defaultdict[Key, list[Key]] = defaultdict(list)
        """States from which a system step leads to the state, once for every such step."""
        self.system_steps: dict[Key, int] = {}
        """How many system steps a state has."""
        for key in self.order:
            self._open(key)

    def _open(self, key: Key) -> None:
        self.system_steps[key] = 0
        for by, label, after in self.model.next(key):
            if after not in self.reached_by:
                self.reached_by[after] = (key, label)
                self.order.append(after)
            if by == "system":
                self.before[after].append(key)
                self.system_steps[key] += 1

    def trace(self, key: Key) -> tuple[str, ...]:
        labels = []
        while step := self.reached_by[key]:
            key, label = step
            labels.append(label)
        return tuple(reversed(labels))

    def leads_to(self, goals: list[Key]) -> set[Key]:
        """The states from which system steps can reach a goal."""
        found = set(goals)
        todo = list(goals)
        while todo:
            for key in self.before.get(todo.pop(), ()):
                if key not in found:
                    found.add(key)
                    todo.append(key)
        return found

    def in_cycle(self) -> Key | None:
        """A state from which system steps need not come to an end, the first one reached."""
        left = dict(self.system_steps)
        todo = [key for key, steps in left.items() if not steps]
        while todo:
            for key in self.before.get(todo.pop(), ()):
                left[key] -= 1
                if not left[key]:
                    todo.append(key)
        return next((key for key, steps in left.items() if steps), None)


def search(configuration: Configuration, fixes: Collection[str]) -> Found:
    """Search the whole configuration with these fixes."""
    model = Model(configuration, fixes)
    graph = Graph(model)
    found = Found(len(graph.order))

    def note(kind: str, why: str, key: Key) -> None:
        if kind not in found.violations:
            found.violations[kind] = Violation(why, graph.trace(key))

    unfinished: dict[Key, str] = {}
    for key in graph.order:
        state = State.of(key)
        if state.violation:
            note(_kind(state.violation), state.violation, key)
        elif why := model.unfinished(state):
            unfinished[key] = why
    at_rest = [key for key in graph.order if key not in unfinished]
    comes_to_rest = graph.leads_to(at_rest)
    for key, why in unfinished.items():
        if key not in comes_to_rest and not graph.system_steps[key]:
            note(f"P3 {_kind(why)}", f"P3: stuck: {why}", key)
    turning = graph.in_cycle()
    if turning is not None:
        note("P3 cycle", "P3: system steps can go round for ever", turning)
    return found


def _kind(why: str) -> str:
    """The sentence without its numbers."""
    return re.sub("[0-9]+", "#", why)
