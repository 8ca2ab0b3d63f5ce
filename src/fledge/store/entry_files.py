"""The files that entries of transcripts hold, beside the database: images and attached files. Private, written whole or
not at all.

An image is named by its digest and kept once for all sessions (`images/<sha256>`). A file that came with a message has
a name in the folder of its session (`attached/<folder>/<name>`), where file tools can read it; no file takes the place
of another. Rows of the store say which sessions hold which file, by a name of its own (`<sha256>`, `<folder>/<name>`).

A file is written before the commit that names it, and is held against the sweep until then (`holding`); a process that
dies in between leaves a file that no row names, which the next sweep removes. The sweep runs when a folder is opened
and after a session that held files was deleted. A file that is missing or damaged is no error here: its bytes are not
there.
"""

import asyncio
import hashlib
import os
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from fledge.core.attachments import File, FileEntry, file_type, numbered
from fledge.core.images import Image, ImageEntry, read_images
from fledge.core.keys import attached_folder
from fledge.plain_file import read_plain
from fledge.store.base import Store
from fledge.store.files import sync_folder

FOLDER = "images"
ATTACHED = "attached"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DRAFT = ".new"
"""The ending of a draft. Those of attached files are made among the images, so that each is swept like them."""


def file_name(session: str, file: FileEntry) -> str:
    """The name by which rows say that a session holds this file."""
    return f"{attached_folder(session)}/{file.name}"


class EntryFiles:
    """The images and attached files of one state folder. The process that owns the folder has one of these."""

    def __init__(self, state: Path) -> None:
        self._folder = state / FOLDER
        self._attached = Path(os.path.realpath(state)) / ATTACHED
        self._held: Counter[str] = Counter()
        """Digests of images, and folders of attached files, that a commit under way may name; each with how many hold
        it."""
        self._released: set[str] = set()
        """Those that were let go since the sweep under way began: their commits may be newer than what it read."""
        self._files = threading.Lock()
        """Held while a file is written or removed."""
        self._sweeping = asyncio.Lock()

    def holding(self) -> "FileHold":
        """Keep files for a commit: no sweep removes them before the block has ended."""
        return FileHold(self)

    def let_go(self, held: Sequence[str]) -> None:
        """What a hold held may be swept, unless another holds it too."""
        self._held.subtract(held)
        self._held = +self._held
        self._released.update(held)

    def attached_to(self, session: str) -> Path:
        """The folder with the files that came with messages of this session; there is none before the first."""
        return self._attached / attached_folder(session)

    async def read_attached(self, session: str, files: Iterable[FileEntry]) -> dict[str, bytes]:
        """The bytes of attached files by name, of those that are there and are as they came."""
        wanted = {file.name: file for file in files}
        return await asyncio.to_thread(self._attached_bytes, session, wanted) if wanted else {}

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
                named = await store.read(lambda tx: tx.transcripts.files())
                await asyncio.to_thread(self._remove, found - named)

    def _path(self, name: str) -> Path:
        return (self._attached if "/" in name else self._folder) / name

    def _found(self) -> set[str]:
        images = {name for name in _names_in(self._folder) if _DIGEST.fullmatch(name.removesuffix(_DRAFT))}
        attached = {
            f"{folder}/{name}" for folder in _names_in(self._attached) for name in _names_in(self._attached / folder)
        }
        return images | attached

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
        with self._draft(data) as draft:
            draft.rename(path)
            sync_folder(self._folder)

    @contextmanager
    def _draft(self, data: bytes) -> Iterator[Path]:
        """A private file with these bytes on disk, to be renamed. It is gone if that fails."""
        _make_folder(self._folder)
        draft = self._folder / f"{hashlib.sha256(data).hexdigest()}{_DRAFT}"
        draft.unlink(missing_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(draft, flags, 0o600), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            yield draft
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def _attach(self, session: str, file: File) -> FileEntry:
        """Write a file into the folder of a session, under the first name that is free there."""
        folder = self.attached_to(session)
        with self._files, self._draft(file.data) as draft:
            _make_folder(self._attached)
            _make_folder(folder)
            names = (numbered(file.name, number) for number in count(1))
            name = next(name for name in names if not os.path.lexists(folder / name))
            draft.rename(folder / name)
            sync_folder(folder)
        digest, given = hashlib.sha256(file.data).hexdigest(), "" if name == file.name else file.name
        return FileEntry(name, len(file.data), digest, file_type(name, file.data), given)

    def _attached_bytes(self, session: str, wanted: Mapping[str, FileEntry]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for name, file in wanted.items():
            with suppress(OSError):
                data = read_plain(self.attached_to(session) / name, file.bytes + 1)
                if hashlib.sha256(data).hexdigest() == file.sha256:
                    found[name] = data
        return found

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            folder, is_attached, _ = name.partition("/")
            is_draft = not is_attached and name.endswith(_DRAFT)
            with self._files:
                # A draft is nobody's while no file is being written.
                if is_draft or not (self._held[folder] or folder in self._released):
                    self._path(name).unlink(missing_ok=True)
                    if is_attached:
                        with suppress(OSError):  # it holds other files
                            self._path(name).parent.rmdir()


class FileHold:
    """Files that are kept for one commit, or for the commits of one turn: while it is open, by `with`."""

    def __init__(self, files: EntryFiles) -> None:
        self._files = files
        self.held: list[str] = []
        """Digests of images, folders of sessions."""

    def __enter__(self) -> "FileHold":
        return self

    def __exit__(self, *error: object) -> None:
        if self.held:
            self._files.let_go(self.held)

    async def keep(self, images: Sequence[Image]) -> tuple[ImageEntry, ...]:
        """Write the images. Refused: one that is none. OSError: the disk does not take them."""
        entries = await asyncio.to_thread(read_images, images)
        for entry in entries:
            self._hold(entry.sha256)
        if entries:
            await self._files.write([image.data for image in images])
        return entries

    async def attach(self, session: str, files: Sequence[File]) -> tuple[FileEntry, ...]:
        """Write files that come with a message of this session. OSError: the disk does not take them."""
        # The folder is held, not each file: their names are known only once they are written.
        self._hold(attached_folder(session))
        return await asyncio.to_thread(lambda: tuple(self._files._attach(session, file) for file in files))

    def _hold(self, name: str) -> None:
        self._files._held[name] += 1
        self.held.append(name)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(folder.parent)


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
