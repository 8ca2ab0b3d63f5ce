import pytest, itertools, asyncio
from tests.store.bench import OpenStore
from tests.store.conformance import StoreConformance
from fledge.store.postgres import PostgresStore
N = itertools.count()
class TestPg(StoreConformance):
    @pytest.fixture
    def open_store(self):
        n = next(N)
        async def open_store():
            return PostgresStore.open(f"postgresql://fledge@127.0.0.1:56999/postgres?schema=c{n}")
        return open_store
