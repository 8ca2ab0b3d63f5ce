"""Whole children with their rows on a PostgreSQL server, for comparison with the embedded store.

The server is the one that `FLEDGE_POSTGRES` names (`postgresql://user@host/database`); each life has a schema of its
own there, which is dropped afterwards. CPU is the client's: that of the server is not counted.
"""

import os
import time
from pathlib import Path

from bench import children
from bench.lives import Lives
from fledge.store.threads import ThreadedStore


def server() -> str:
    """The address to measure with; empty if none is set."""
    return os.environ.get("FLEDGE_POSTGRES", "")


def live(url: str, number: int, width: int) -> Lives:
    """Let so many children live and be read on this server."""
    import psycopg

    from fledge.store.postgres import PostgresStore

    schema = f"bench_{time.time_ns()}"

    def open_store(_: Path) -> ThreadedStore:
        return PostgresStore.open(f"{url}?schema={schema}")

    try:
        return children.live(number, width, open_store)
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
