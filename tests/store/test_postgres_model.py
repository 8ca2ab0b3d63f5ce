"""Whole lives on PostgreSQL: any order of moves and crashes, and a process that dies before or after any
transaction."""

from functools import partial
from typing import Any, ClassVar

from hypothesis.stateful import run_state_machine_as_test

from tests.crash.test_crash import judge, sample
from tests.effort import effort
from tests.model.test_tree import TreeOfRuns
from tests.model.world import World
from tests.statements import proves
from tests.store.postgres import InlinePostgres, Server


class TreeOnPostgres(TreeOfRuns):
    """The machine of moves, with the rows of its world on a server."""

    server: ClassVar[Server]
    schema: ClassVar[str]

    def new_world(self, **rules: Any) -> World:
        self.server.empty(self.schema)
        return World(open_store=partial(InlinePostgres, self.server.url(self.schema)), **rules)


@proves("7.server.1", "A store on PostgreSQL keeps every promise of the embedded one")
def test_in_any_order_of_moves_and_crashes_everything_comes_to_rest(server: Server) -> None:
    class Here(TreeOnPostgres):
        pass

    Here.server, Here.schema = server, server.new_schema()
    InlinePostgres(server.url(Here.schema)).close_now()
    run_state_machine_as_test(Here, settings=effort(examples=5, steps=30))


@proves("7.server.1")
def test_a_crash_before_or_after_any_transaction_loses_nothing_and_doubles_nothing(server: Server) -> None:
    found = judge("every_commit", "--store", server.url(), *sample(15))
    assert int(str(found["points"])) >= 2 * int(str(found["transactions"])) // 15
