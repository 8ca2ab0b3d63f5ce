"""What the engine says often finds its rows by an index on PostgreSQL too."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from fledge.store.dialect import translate
from fledge.store.postgres import PostgresStore
from tests.orchestrator.scene import Scene
from tests.store.postgres import Server
from tests.store.test_sqlite_plans import GROWING, statements_of

WHOLE = re.compile(r"Seq Scan on (\w+)")


@pytest.fixture
def scene() -> Iterator[Scene]:
    with closing(Scene()) as found:
        yield found


def test_nothing_that_happens_often_goes_through_a_whole_table(server: Server, scene: Scene) -> None:
    schema = server.new_schema()
    asyncio.run(PostgresStore.open(server.url(schema)).close())
    looked_at = 0
    with server.connect() as connection:
        # An empty table is read whole, whatever indexes it has; so that is forbidden where there is another way.
        connection.execute(f"SET search_path = {schema}; SET enable_seqscan = off".encode())
        connection.execute("SET plan_cache_mode = force_generic_plan")

        def plan(sql: str, count: int) -> str:
            connection.execute(f"PREPARE found AS {translate(sql)}".encode())
            values = f"({', '.join(['NULL'] * count)})" if count else ""
            rows = connection.execute(f"EXPLAIN EXECUTE found{values}".encode()).fetchall()
            connection.execute("DEALLOCATE found")
            return "\n".join(str(row[0]) for row in rows)

        assert WHOLE.findall(plan("SELECT key FROM runs WHERE phase = ?", 1)) == ["runs"]  # a scan would be noticed
        for sql, count in statements_of(scene).items():
            if re.match(r"\s*(SELECT|UPDATE|DELETE|WITH)", sql):
                looked_at += 1
                found = plan(sql, count)
                assert not set(WHOLE.findall(found)) & set(GROWING), (sql, found)
    assert looked_at > 50
