"""An empty store, made once and copied: what hundreds of small worlds begin with."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from fledge.testing import InlineStore

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A folder that is no disk, where there is one: what is played here never waits for a disk, nor depends on it."""


@cache
def _made() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fledge-empty-", dir=MEMORY))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    InlineStore(folder).close_now()
    return folder


def empty_store(prefix: str) -> Path:
    """A new folder with an empty store in it; whoever asked removes it."""
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=MEMORY))
    shutil.copytree(_made(), folder, dirs_exist_ok=True)
    return folder
