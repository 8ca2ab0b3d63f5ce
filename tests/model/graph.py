"""A search through every reachable state, breadth first, so that the trace of a violation is a shortest one.

Safety is what the steps find broken; such a path ends there. Liveness is judged on the whole graph: by system steps
alone every state must lead to rest, and system and forced steps must have no cycle, so every fair path gets there.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
Step = tuple[str, str, K]
"""Who takes it, its name, and the state after it. `system` steps are fair; `forced` ones may happen without end."""


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


class Graph(Generic[K]):
    """The states that were reached, and the steps between them."""

    def __init__(self, first: K, following: Callable[[K], Iterable[Step[K]]]) -> None:
        self.reached_by: dict[K, tuple[K, str] | None] = {first: None}
        self.order = [first]
        self.before: defaultdict[K, list[K]] = defaultdict(list)
        """States from which a system step leads to the state, once for every such step."""
        self.forced_before: defaultdict[K, list[K]] = defaultdict(list)
        """The same for forced steps."""
        self.system_steps: dict[K, int] = {}
        """How many system steps a state has."""
        self.forced_steps: dict[K, int] = {}
        for state in self.order:
            self._open(state, following(state))

    def _open(self, state: K, steps: Iterable[Step[K]]) -> None:
        system = forced = 0
        for by, label, after in steps:
            if after not in self.reached_by:
                self.reached_by[after] = (state, label)
                self.order.append(after)
            if by == "system":
                self.before[after].append(state)
                system += 1
            elif by == "forced":
                self.forced_before[after].append(state)
                forced += 1
        self.system_steps[state], self.forced_steps[state] = system, forced

    def trace(self, state: K) -> tuple[str, ...]:
        labels = []
        while step := self.reached_by[state]:
            state, label = step
            labels.append(label)
        return tuple(reversed(labels))

    def leads_to(self, goals: list[K]) -> set[K]:
        """The states from which system steps can reach a goal."""
        found = set(goals)
        todo = list(goals)
        while todo:
            for state in self.before.get(todo.pop(), ()):
                if state not in found:
                    found.add(state)
                    todo.append(state)
        return found

    def in_cycle(self) -> K | None:
        """A state from which system and forced steps need not come to an end, the first one reached."""
        left = {state: steps + self.forced_steps[state] for state, steps in self.system_steps.items()}
        todo = [state for state, steps in left.items() if not steps]
        while todo:
            after = todo.pop()
            for state in (*self.before.get(after, ()), *self.forced_before.get(after, ())):
                left[state] -= 1
                if not left[state]:
                    todo.append(state)
        return next((state for state, steps in left.items() if steps), None)


def judge(graph: Graph[K], violation: Callable[[K], str], unfinished: Callable[[K], str]) -> Found:
    """What is wrong in the graph. `violation`: what a step has broken; `unfinished`: why a state is not at rest."""
    found = Found(len(graph.order))

    def note(kind: str, why: str, state: K) -> None:
        if kind not in found.violations:
            found.violations[kind] = Violation(why, graph.trace(state))

    open_ones: dict[K, str] = {}
    for state in graph.order:
        if broken := violation(state):
            note(_kind(broken), broken, state)
        elif why := unfinished(state):
            open_ones[state] = why
    comes_to_rest = graph.leads_to([state for state in graph.order if state not in open_ones])
    for state, why in open_ones.items():
        if state not in comes_to_rest and not graph.system_steps[state]:
            note(f"P3 {_kind(why)}", f"P3: stuck: {why}", state)
    turning = graph.in_cycle()
    if turning is not None:
        note("P3 cycle", "P3: system steps can go round for ever", turning)
    return found


def _kind(why: str) -> str:
    """The sentence without its numbers."""
    return re.sub("[0-9]+", "#", why)
