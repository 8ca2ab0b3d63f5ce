"""Reading the documents of a workspace that speak in prompts: their words, and which version of them this is."""

import hashlib
import os
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
JUDGED: Final = document_names("main")
"""The documents of which only accepted versions enter prompts."""


class Words(Struct, frozen=True):
    """What a document says."""

    text: str
    version: Version


def read_documents(workspace: Path, names: Iterable[str] = JUDGED) -> dict[str, Words]:
    """The documents that are there, by name. One that is a link, or no file, is not."""
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
    """What a version is known by."""
    return hashlib.sha256(data[:DOCUMENT_BYTES]).hexdigest()


def _words(data: bytes, about: os.stat_result) -> Words:
    # The time of the last change of any kind: unlike that of the content, no program can set it.
    return Words(data.decode("utf-8", "replace"), Version(digest(data), about.st_ctime))
