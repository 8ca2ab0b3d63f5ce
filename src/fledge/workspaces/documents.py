"""Reads the documents of a workspace that enter prompts: the text of each, and which version it is."""

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from msgspec import Struct

from fledge.confine import Confined
from fledge.core.documents import Version
from fledge.core.prompts import document_names
from fledge.errors import BadInput

DOCUMENT_BYTES: Final = 64 * 1024
"""How much of a document is read; less of it enters a prompt."""
SETTLED_NS: Final = 2_000_000_000
"""How old the last change of a folder must be before it is remembered, so that a later change has another time."""
FOLDERS: Final = 256
"""The most folders that are remembered to hold no document."""
JUDGED: Final = document_names("main")
"""The documents of which only accepted versions enter prompts."""


class DocumentText(Struct, frozen=True):
    """The text of a document, and its version."""

    text: str
    version: Version


class BareFolders:
    """A cache of folders that hold no document: one is looked at again only after a file in it was made, renamed or
    removed."""

    def __init__(self) -> None:
        self._changed_ns: dict[str, int] = {}

    def has_none(self, folder: str) -> bool:
        """True if nothing in the folder has the name of a document."""
        try:
            changed_ns = os.stat(folder).st_mtime_ns
        except OSError:
            return False
        if self._changed_ns.get(folder) == changed_ns:
            return True
        if any(os.path.lexists(f"{folder}/{name}") for name in JUDGED):
            return False
        # A change in the same tick of the clock as the last one would not show.
        if time.time_ns() - changed_ns > SETTLED_NS:
            if len(self._changed_ns) >= FOLDERS:
                self._changed_ns.clear()
            self._changed_ns[folder] = changed_ns
        return True


def read_documents(workspace: Path, names: Iterable[str] = JUDGED) -> dict[str, DocumentText]:
    """The documents in a workspace, by name. A link, or anything else that is no regular file, does not count."""
    try:
        with Confined(workspace) as folder:
            found = {name: folder.read_own(name, DOCUMENT_BYTES) for name in names}
    except BadInput:
        return {}
    return {name: _words(*file) for name, file in found.items() if file is not None}


def versions_in(workspace: Path) -> tuple[str, dict[str, str]]:
    """The workspace by its real path, and the digests of the documents that are there now."""
    place = os.path.realpath(workspace)
    return place, {name: words.version.digest for name, words in read_documents(Path(place)).items()}


def digest(data: bytes) -> str:
    """The digest that identifies a version."""
    return hashlib.sha256(data[:DOCUMENT_BYTES]).hexdigest()


def _words(data: bytes, about: os.stat_result) -> DocumentText:
    # The time of the last change of any kind: unlike that of the content, no program can set it.
    return DocumentText(data.decode("utf-8", "replace"), Version(digest(data), about.st_ctime))
