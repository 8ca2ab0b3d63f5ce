"""The files of transcript entries beside the database: images, attached files, and the earlier contents of files that
calls have replaced. Private, written whole or not at all.

An image or an earlier content is named by its digest and stored once for all sessions (`images/<sha256>`). A file
attached to a message is in the folder of its session (`attached/<folder>/<name>`), where file tools can read it; it
never replaces another file. Rows of the store list the files of each session (`<sha256>`, `<folder>/<name>`).

A file is written before the commit that refers to it, and is protected from the sweep until then (`holding`). A process
that dies in between leaves a file without a row, which the next sweep removes. The sweep runs when a folder is opened
and after a session with files was deleted. A missing or damaged file is no error here: it is left out.

Where several processes share the folder, none knows what the others hold: a sweep then leaves alone what was written or
used within the last hour, by the clock of the folder.
"""

import asyncio
import hashlib
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from fledge.core.attachments import File, FileEntry, file_type, numbered
from fledge.core.images import Image, ImageEntry, read_images
from fledge.core.keys import attached_folder
from fledge.plain_file import CREATE_FLAGS, read_plain, write_synced
from fledge.store.base import Store
from fledge.store.files import sync_folder

FOLDER = "images"
ATTACHED = "attached"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_DRAFT = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{16})?\.new")
"""The name of a draft; no two processes have the same. Drafts of attached files are made among the images, so that the
sweep finds them."""
SHARED_S = 3600.0
"""How old a file is that a sweep removes where several processes share the folder: a commit of another one may be about
to name a newer one."""


def file_name(session: str, file: FileEntry) -> str:
    """The name of an attached file in rows of the store."""
    return f"{attached_folder(session)}/{file.name}"


class EntryFiles:
    """The images and attached files of one state folder. The process that owns the folder has one of these."""

    def __init__(self, state: Path) -> None:
        self._folder = state / FOLDER
        self._attached = Path(os.path.realpath(state)) / ATTACHED
        self._held: Counter[str] = Counter()
        """Digests of images and folders of attached files that a coming commit may refer to, with the number of their
        holders."""
        self._released: set[str] = set()
        """Those that were released since the current sweep began: their commits may be newer than the rows it read."""
        self._files = threading.Lock()
        """Held while a file is written or removed."""
        self._sweeping = asyncio.Lock()

    def holding(self) -> "FileHold":
        """Protect the files of a commit from the sweep until the block ends."""
        return FileHold(self)

    def let_go(self, held: Sequence[str]) -> None:
        """End the protection of these files, unless another hold has them too."""
        self._held.subtract(held)
        self._held = +self._held
        self._released.update(held)

    def attached_to(self, session: str) -> Path:
        """The folder of files attached to messages of this session; it is made with the first file."""
        return self._attached / attached_folder(session)

    async def read_attached(self, session: str, files: Iterable[FileEntry]) -> dict[str, bytes]:
        """The bytes of attached files by name, without missing and damaged ones."""
        folder = self.attached_to(session)
        return await _read_all([(file.name, folder / file.name, file.sha256, file.bytes + 1) for file in files])

    async def load(self, images: Iterable[ImageEntry]) -> dict[str, bytes]:
        """The bytes of images by digest, without missing and damaged ones."""
        digests = {image.sha256 for image in images}
        return await _read_all([(digest, self._path(digest), digest, -1) for digest in digests])

    async def write(self, contents: Sequence[bytes]) -> None:
        """Write the files of images that rows already refer to. Raises `OSError` if that fails."""
        await asyncio.to_thread(self._write, contents)

    async def sweep(self, store: Store) -> None:
        """Remove the files to which no row refers, except protected ones. Raises `OSError` if one cannot be removed."""
        async with self._sweeping:
            self._released.clear()
            found = await asyncio.to_thread(self._found)
            if found:
                named = await store.read(lambda tx: tx.transcripts.files())
                await asyncio.to_thread(self._remove, found - named, store.cluster is not None)

    def _path(self, name: str) -> Path:
        return (self._attached if "/" in name else self._folder) / name

    def _found(self) -> set[str]:
        images = {name for name in _names_in(self._folder) if _DIGEST.fullmatch(name) or _DRAFT.fullmatch(name)}
        attached = {
            f"{folder}/{name}" for folder in _names_in(self._attached) for name in _names_in(self._attached / folder)
        }
        return images | attached

    def _write(self, contents: Iterable[bytes]) -> None:
        for data in contents:
            digest = hashlib.sha256(data).hexdigest()
            with self._files:
                if self._use(digest) and _read_sound(self._path(digest), digest) is not None:
                    continue
                with self._draft(data) as draft:
                    draft.rename(self._path(digest))
                    sync_folder(self._folder)

    def _use(self, digest: str) -> bool:
        """Let an image count as new, for sweeps of other processes; False if it is not there."""
        try:
            os.utime(self._path(digest))
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def _draft(self, data: bytes) -> Iterator[Path]:
        """A private file with these bytes, synced, to be renamed. It is removed if the block fails."""
        _make_folder(self._folder)
        draft = self._folder / _draft_name(hashlib.sha256(data).hexdigest())
        try:
            write_synced(os.open(draft, CREATE_FLAGS, 0o600), data)
            yield draft
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def _attach(self, session: str, file: File) -> FileEntry:
        """Write a file into the folder of a session, under the first free name."""
        folder = self.attached_to(session)
        with self._files, self._draft(file.data) as draft:
            _make_folder(self._attached)
            names = (numbered(file.name, number) for number in count(1))
            name = next(name for name in names if _reserve(folder, name))
            draft.rename(folder / name)
            sync_folder(folder)
        digest, given = hashlib.sha256(file.data).hexdigest(), "" if name == file.name else file.name
        return FileEntry(name, len(file.data), digest, file_type(name, file.data), given)

    def _remove(self, names: Iterable[str], is_shared: bool) -> None:
        before = self._time_there() - SHARED_S if is_shared and names else None
        for name in names:
            folder, is_attached, _ = name.partition("/")
            is_draft = not is_attached and _DRAFT.fullmatch(name)
            with self._files:
                # No file is being written here, so a draft is a leftover.
                if is_draft or not (self._held[folder] or folder in self._released):
                    self._remove_file(self._path(name), before)
                    if is_attached:
                        with suppress(OSError):  # it holds other files
                            self._path(name).parent.rmdir()

    def _remove_file(self, path: Path, before: float | None) -> None:
        """Remove a file, if it was last used before this time. Another process may use it at this very moment, so it is
        put aside first, and looked at again."""
        if before is None:
            path.unlink(missing_ok=True)
            return
        aside = self._folder / _draft_name(hashlib.sha256(path.name.encode()).hexdigest())
        with suppress(FileNotFoundError):  # another process has removed it
            if path.stat().st_mtime < before:
                path.rename(aside)
                if aside.stat().st_mtime < before:
                    aside.unlink()
                else:
                    aside.rename(path)

    def _time_there(self) -> float:
        """The time by the clock that files of this folder get theirs from."""
        with self._draft(b"") as draft:
            at = draft.stat().st_mtime
            draft.unlink()
        return at


class FileHold:
    """Writes files for one commit, or for the commits of one turn, and protects them until the `with` block ends."""

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
        """Write the images. Raises `BadInput` for a file that is no image, and `OSError` if writing fails."""
        entries = await asyncio.to_thread(read_images, images)
        for entry in entries:
            self._hold(entry.sha256)
        if entries:
            await self._files.write([image.data for image in images])
        return entries

    async def keep_content(self, content: bytes) -> str:
        """Write the earlier content of a file. Answers its digest. Raises `OSError` if writing fails."""
        digest = hashlib.sha256(content).hexdigest()
        self._hold(digest)
        await self._files.write([content])
        return digest

    async def attach(self, session: str, files: Sequence[File]) -> tuple[FileEntry, ...]:
        """Write files attached to a message of this session. Raises `OSError` if that fails."""
        # The folder is protected, not each file: the names are known only after the files are written.
        self._hold(attached_folder(session))
        return await asyncio.to_thread(lambda: tuple(self._files._attach(session, file) for file in files))

    def _hold(self, name: str) -> None:
        self._files._held[name] += 1
        self.held.append(name)


def _read_sound(path: Path, sha256: str, most: int = -1) -> bytes | None:
    """The content of a file; None if it is missing or damaged."""
    with suppress(OSError):
        data = read_plain(path, most)
        if hashlib.sha256(data).hexdigest() == sha256:
            return data
    return None


async def _read_all(wanted: Sequence[tuple[str, Path, str, int]]) -> dict[str, bytes]:
    """The contents of files by name, without missing and damaged ones. Of each: its name, path, digest and length."""

    def read() -> dict[str, bytes]:
        found = {name: _read_sound(path, sha256, most) for name, path, sha256, most in wanted}
        return {name: data for name, data in found.items() if data is not None}

    return await asyncio.to_thread(read) if wanted else {}


def _draft_name(digest: str) -> str:
    return f"{digest}.{secrets.token_hex(8)}.new"


def _reserve(folder: Path, name: str) -> bool:
    """Take a name in a folder, with an empty file that no row names; False if there is something. Another process may
    take names there too, or remove the folder when it is empty."""
    while True:
        _make_folder(folder)
        try:
            os.close(os.open(folder / name, CREATE_FLAGS, 0o600))
        except FileExistsError:
            return False
        except FileNotFoundError:
            continue
        return True


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(folder.parent)


def _names_in(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
