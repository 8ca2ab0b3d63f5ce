"""Every store of this package, put through the same tests."""

import asyncio
import shutil
from pathlib import Path

import pytest

from fledge.store.base import Store
from fledge.store.files import DATABASE
from fledge.store.postgres import PostgresStore
from fledge.store.sqlite import SqliteStore
from fledge.testing import InlineStore
from tests.store.bench import OpenStore
from tests.store.conformance import StoreConformance
from tests.store.postgres import Server
from tests.store.side_by_side import SideBySide
from tests.store.unpipelined import UnpipelinedStore


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store's file with nothing in it: made once, so that each test need only copy it."""
    folder = tmp_path_factory.mktemp("empty")
    asyncio.run(SqliteStore.open(folder).close())
    return folder / DATABASE


class TestSqliteStore(StoreConformance):
    """The embedded store."""

    @pytest.fixture
    def open_store(self, empty: Path, tmp_path: Path) -> OpenStore:
        """In a folder of this test's own."""
        shutil.copy(empty, tmp_path)

        async def open_store() -> Store:
            return SqliteStore.open(tmp_path)

        return open_store


class TestInlineStore(StoreConformance):
    """The store that tests use in virtual time."""

    @pytest.fixture
    def open_store(self, empty: Path, tmp_path: Path) -> OpenStore:
        """In a folder of this test's own."""
        shutil.copy(empty, tmp_path)

        async def open_store() -> Store:
            return InlineStore(tmp_path)

        return open_store


class TestPostgresStore(StoreConformance):
    """The store on a server."""

    kind: type[PostgresStore] = PostgresStore

    @pytest.fixture(scope="class")
    def schema(self, server: Server) -> str:
        """Made once; each test empties it, which is cheaper."""
        name = server.new_schema()
        asyncio.run(PostgresStore.open(server.url(name)).close())
        return name

    @pytest.fixture
    def open_store(self, server: Server, schema: str) -> OpenStore:
        """In a schema with nothing in it."""
        server.empty(schema)

        async def open_store() -> Store:
            return self.kind.open(server.url(schema))

        return open_store


class TestUnpipelinedStore(TestPostgresStore):
    """The same store, statement by statement."""

    kind = UnpipelinedStore


class TestStoresSideBySide(StoreConformance):
    """Several stores on one schema of a server, each job in another one."""

    @pytest.fixture(scope="class")
    def schema(self, server: Server) -> str:
        """Made once; each test empties it, which is cheaper."""
        name = server.new_schema()
        asyncio.run(PostgresStore.open(server.url(name)).close())
        return name

    @pytest.fixture
    def open_store(self, server: Server, schema: str) -> OpenStore:
        """In a schema with nothing in it."""
        server.empty(schema)

        async def open_store() -> Store:
            return SideBySide(server.url(schema))

        return open_store
