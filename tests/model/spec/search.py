"""The search of a configuration: every state that its model can reach, judged by `tests.model.graph`."""

from collections.abc import Collection

from tests.model.graph import Found, Graph, judge
from tests.model.spec.configurations import Configuration
from tests.model.spec.state import Key, State
from tests.model.spec.steps import Model


def search(configuration: Configuration, fixes: Collection[str]) -> Found:
    """Search the whole configuration with these fixes."""
    model = Model(configuration, fixes)
    graph: Graph[Key] = Graph(model.initial().key(), model.next)
    return judge(graph, lambda key: State.of(key).violation, lambda key: model.unfinished(State.of(key)))
