"""The PostgreSQL server of the tests of stores, for the tests of this folder."""

from tests.store.conftest import server as server
