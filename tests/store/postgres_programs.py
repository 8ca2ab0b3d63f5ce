"""Where the programs of a PostgreSQL server are on this machine. Needs no library."""

import shutil
from pathlib import Path


def binaries() -> Path | None:
    """The folder of the newest server's programs; None if there is no server."""
    installed = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if (path / "initdb").exists()]
    if installed:
        return max(installed, key=lambda path: int(path.parent.name))
    found = shutil.which("initdb")
    return None if found is None else Path(found).parent
