"""A PostgreSQL server for the tests of this folder: one for each process of pytest, started when it is first needed."""

from collections.abc import Iterator

import pytest

from tests.left_out import requires
from tests.store.postgres import Server, running


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    requires("postgresql")
    with running() as found:
        yield found
