"""The files of images, beside the database: named by their digest, private, written whole or not at all, kept once.

Rows of the store say which sessions hold an image. A file is written before the commit that names it, and is held
against the sweep until then (`holding`); a process that dies in between leaves a file that no row names, which the next
sweep removes. The sweep runs when a folder is opened and after a session that held images was deleted. A file that is
missing or damaged is no error here: its bytes are not there.
"""

import asyncio
import hashlib
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from fledge.core.images import Image, ImageEntry, read_images
from fledge.plain_file import read_plain
from fledge.store.base import Store
from fledge.store.files import sync_folder

FOLDER = "images"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DRAFT = ".new"


class ImageFiles:
    """The images of one state folder. The process that owns the folder has one of these."""

    def __init__(self, state: Path) -> None:
        self._folder = state / FOLDER
        self._held: Counter[str] = Counter()
        """Digests of files that a commit under way may name, each with how many hold it."""
        self._released: set[str] = set()
        """Digests that were let go since the sweep under way began: their commits may be newer than what it read."""
        self._files = threading.Lock()
        """Held while a file is written or removed."""
        self._sweeping = asyncio.Lock()

    @contextmanager
    def holding(self) -> "Iterator[Hold]":
        """Keep images for a commit: no sweep removes them before the block has ended."""
        hold = Hold(self)
        try:
            yield hold
        finally:
            self._held.subtract(hold.digests)
            self._held = +self._held
            self._released.update(hold.digests)

    async def load(self, images: Iterable[ImageEntry]) -> dict[str, bytes]:
        """The bytes by digest, of those that are there."""
        digests = {image.sha256 for image in images}
        return await asyncio.to_thread(self._load, digests) if digests else {}

    async def write(self, contents: Sequence[bytes]) -> None:
        """Write the files of images that rows name already. OSError: the disk does not take them."""
        await asyncio.to_thread(self._write, contents)

    async def sweep(self, store: Store) -> None:
        """Remove the files that no row names and no commit under way will name. OSError: one cannot be removed."""
        async with self._sweeping:
            self._released.clear()
            found = await asyncio.to_thread(self._found)
            if found:
                named = await store.read(lambda tx: tx.transcripts.images())
                await asyncio.to_thread(self._remove, found - named)

    def _hold(self, digest: str) -> None:
        self._held[digest] += 1

    def _path(self, digest: str) -> Path:
        return self._folder / digest

    def _found(self) -> set[str]:
        try:
            return {name for name in os.listdir(self._folder) if _DIGEST.fullmatch(name.removesuffix(_DRAFT))}
        except FileNotFoundError:
            return set()

    def _load(self, digests: Iterable[str]) -> dict[str, bytes]:
        loaded: dict[str, bytes] = {}
        for digest in digests:
            with suppress(OSError):
                data = read_plain(self._path(digest))
                if hashlib.sha256(data).hexdigest() == digest:
                    loaded[digest] = data
        return loaded

    def _write(self, contents: Iterable[bytes]) -> None:
        for data in contents:
            digest = hashlib.sha256(data).hexdigest()
            with self._files:
                if not self._load([digest]):
                    self._write_file(self._path(digest), data)

    def _write_file(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}{_DRAFT}")
        with suppress(FileNotFoundError):
            draft.unlink()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(draft, flags, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(path)
            sync_folder(self._folder)
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with self._files:
                digest = name.removesuffix(_DRAFT)
                # A draft is nobody's while no file is being written.
                if name != digest or not (self._held[digest] or digest in self._released):
                    self._path(name).unlink(missing_ok=True)


class Hold:
    """Images that are kept for one commit, or for the commits of one turn."""

    def __init__(self, files: ImageFiles) -> None:
        self._files = files
        self.digests: list[str] = []

    async def keep(self, images: Sequence[Image]) -> tuple[ImageEntry, ...]:
        """Write the images. Refused: one that is none. OSError: the disk does not take them."""
        entries = await asyncio.to_thread(read_images, images)
        for entry in entries:
            self._files._hold(entry.sha256)
            self.digests.append(entry.sha256)
        if entries:
            await self._files.write([image.data for image in images])
        return entries
