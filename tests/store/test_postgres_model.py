"""Whole lives on PostgreSQL: any order of moves and crashes, also by several writers, without the pipeline, and with a
connection that is cut around every COMMIT; and a process that dies before or after any transaction."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from fledge.store.base import Tx
from fledge.store.postgres import PostgresStore
from tests.crash.test_crash import judge, sample
from tests.effort import SOAK, effort
from tests.model.test_tree import TreeOfRuns
from tests.model.world import MAIN, World
from tests.statements import proves
from tests.store.postgres import InlinePostgres, Server
from tests.store.postgres_proxy import Cut, Proxy
from tests.store.side_by_side import InlineSideBySide
from tests.store.unpipelined import UnpipelinedStore

T = TypeVar("T")


class TreeOnPostgres(TreeOfRuns):
    """The machine of moves, with the rows of its world on a server."""

    server: ClassVar[Server]
    schema: ClassVar[str]
    kind: ClassVar[type[PostgresStore]] = PostgresStore

    def new_world(self, **rules: Any) -> World:
        self.server.empty(self.schema)
        return World(open_store=partial(InlinePostgres, self.server.url(self.schema), self.kind), **rules)


class CutStore(InlinePostgres):
    """A store that loses its connection at a COMMIT: before the server gets it, or after the server has done it."""

    def __init__(self, proxy: Proxy, schema: str, cuts: Iterator[Cut]) -> None:
        self._proxy, self._cuts = proxy, cuts
        super().__init__(proxy.url(schema))

    def run(self, job: Callable[[Tx], T]) -> T:
        """Run a job now."""
        cut = self._proxy.cut = next(self._cuts)
        try:
            answer = super().run(job)
            assert not self._proxy.cut, "the connection was cut"
        finally:
            self._proxy.cut = ""  # a job that failed has sent no COMMIT
        if cut:
            super().run(lambda tx: None)  # it connects again: the machine's checks read by the writer's connection
        return answer


class TreeWithCuts(TreeOnPostgres):
    """The same machine, whose commits lose their connection."""

    proxy: ClassVar[Proxy]
    cuts: ClassVar[Sequence[Cut]]

    def new_world(self, **rules: Any) -> World:
        self.server.empty(self.schema)
        cuts = itertools.cycle(self.cuts)
        return World(open_store=partial(CutStore, self.proxy, self.schema, cuts), **rules)


class TreeOfThreeWriters(TreeOnPostgres):
    """The same machine, each commit by one of three stores on the schema; and what may happen to them in between."""

    def new_world(self, **rules: Any) -> World:
        self.server.empty(self.schema)
        lot = random.Random(0)
        return World(open_store=lambda: InlineSideBySide(self.server.url(self.schema), lot), **rules)

    @property
    def stores(self) -> InlineSideBySide:
        store = self.world.store
        assert isinstance(store, InlineSideBySide)
        return store

    @rule()
    def a_job_of_a_batch_is_undone(self) -> None:
        self.stores.undo([lambda tx: tx.sessions.raise_generation(MAIN)])

    @rule()
    def a_connection_is_lost(self) -> None:
        self.stores.cut()

    @rule(keep=st.integers(0, 2))
    def old_commits_are_deleted(self, keep: int) -> None:
        self.stores.trim(keep)


@proves("7.server.1", "A store on PostgreSQL keeps every promise of the embedded one")
@pytest.mark.parametrize(("kind_of_store", "examples"), [(PostgresStore, 5), (UnpipelinedStore, 2)])
def test_in_any_order_of_moves_and_crashes_everything_comes_to_rest(
    server: Server, kind_of_store: type[PostgresStore], examples: int
) -> None:
    class Here(TreeOnPostgres):
        kind = kind_of_store

    Here.server, Here.schema = server, server.new_schema()
    InlinePostgres(server.url(Here.schema)).close_now()
    run_state_machine_as_test(Here, settings=effort(examples, steps=30))


@proves("7.server.8")
@proves("7.server.9")
def test_in_any_order_of_moves_connections_that_are_lost_at_commits_change_nothing(server: Server) -> None:
    """Every fifth commit here, each in a soak, before and after it in turns: a cut takes a quarter of a second."""
    whole: list[Cut] = [""] * (0 if SOAK else 4)

    class Here(TreeWithCuts):
        cuts = (*whole, "before", *whole, "after")

    Here.server, Here.schema = server, server.new_schema()
    InlinePostgres(server.url(Here.schema)).close_now()
    with Proxy(server.port) as Here.proxy:
        run_state_machine_as_test(Here, settings=effort(examples=2, steps=20))
        assert Here.proxy.cuts > 10


@proves("7.server.24", "A writer remembers no row as it was before another process changed it")
def test_three_writers_in_any_order_remember_nothing_that_another_has_changed(server: Server) -> None:
    class Here(TreeOfThreeWriters):
        pass

    Here.server, Here.schema = server, server.new_schema()
    InlinePostgres(server.url(Here.schema)).close_now()
    run_state_machine_as_test(Here, settings=effort(examples=3, steps=30))


@proves("7.server.1")
@pytest.mark.parametrize(("options", "step"), [((), 15), (("--unpipelined",), 75)], ids=["pipelined", "unpipelined"])
def test_a_crash_before_or_after_any_transaction_loses_nothing_and_doubles_nothing(
    server: Server, options: tuple[str, ...], step: int
) -> None:
    found = judge("every_commit", "--store", server.url(), *options, *sample(step))
    assert int(str(found["points"])) >= 2 * int(str(found["transactions"])) // step
