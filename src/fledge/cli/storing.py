"""`fledge store copy SOURCE TARGET`: copies a store to another database, and says how to go on with it. `fledge store
files ADDRESS DIR`: sets another folder for the files of a store on a server.
"""

import asyncio
from pathlib import Path

from fledge.errors import BadInput
from fledge.store.addresses import is_address, server_store
from fledge.store.copying import copy


def change(action: str, source: str, target: str) -> list[str]:
    """Copy the store, or set another folder for the files of one (`files`); returns lines that say what was done and
    what to do next."""
    if action == "files":
        return _move_files(source, target)
    done = asyncio.run(copy(_place(source), _place(target)))
    earlier = f" ({done.found} were there from an earlier copy)" if done.found else ""
    lines = [f"copied {done.rows} rows of {done.tables} tables{earlier}; every table has the same count and digest"]
    if is_address(target) and not is_address(source):
        lines.append(f"files stay in {source}: move its fledge.db away, and open the folder with store=<the address>")
    elif is_address(source) and not is_address(target):
        lines.append(f"open {target} as a state folder; remove the file `store` in it, if it was the server's folder")
    return lines


def _move_files(url: str, folder: str) -> list[str]:
    """Make this folder the one with the files of a store; returns a line that says so."""
    if not is_address(url):
        raise BadInput("source", "must be the address of a store: postgresql://…")
    path = Path(folder).expanduser()
    return [f"the files of {server_store().move_files(url, path)} are in {path.resolve()} from now on"]


def _place(where: str) -> str | Path:
    return where if is_address(where) else Path(where).expanduser()
