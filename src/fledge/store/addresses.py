"""Addresses of stores on a server, for those who open one: known without the library that connects to it."""

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from fledge.errors import StoreError

if TYPE_CHECKING:
    from fledge.store.base import Store
    from fledge.store.postgres import PostgresStore

SCHEMES: Final = ("postgresql://", "postgres://")
STORES: Final = "stores"


def is_address(text: str) -> bool:
    """True of the address of a PostgreSQL server."""
    return text.startswith(SCHEMES)


def folder_of(url: str) -> Path:
    """The state folder of a store for which none was named: the same for the same server, database and schema."""
    base, _, query = url.partition("://")[2].rpartition("@")[2].partition("?")  # without user and password
    place = f"{base}?schema={dict(parse_qsl(query)).get('schema', '')}"
    state = Path(os.environ.get("FLEDGE_STATE") or "~/.fledge").expanduser()
    return state / STORES / hashlib.sha256(place.encode()).hexdigest()[:16]


def server_store() -> "type[PostgresStore]":
    """The class of stores on a server. StoreError: the library that it needs is not installed."""
    try:
        from fledge.store.postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("psycopg"):
            raise
        raise StoreError("a store on PostgreSQL needs its library: pip install 'fledge[postgres]'") from None
    return PostgresStore


def shown(url: str) -> str:
    """The address for people: without a password. BadInput, which does not repeat it: it is none."""
    server_store()
    from fledge.store.postgres_server import parse

    return parse(url).shown


def open_server(url: str, folder: Path | None, address: str = "", *, drives: bool = True) -> "Store":
    """Open the store at this address, with its files in this folder; None: they are not touched. Only an engine that
    drives makes a store, or brings it up to date."""
    return server_store().open(url, folder=folder, address=address, alone=False, makes=drives)
