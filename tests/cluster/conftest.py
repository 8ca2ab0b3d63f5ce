"""A PostgreSQL server for the tests of this folder."""

from tests.store.conftest import server

__all__ = ["server"]
