"""The files of entries: swept while commits are under way, and whole or not there."""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from fledge.core.attachments import File, FileEntry
from fledge.core.images import Image, ImageEntry, read_image
from fledge.store.base import SessionFacts, Tx
from fledge.store.entry_files import EntryFiles, file_name
from fledge.testing import InlineStore, run_virtual
from tests import images
from tests.core.samples import AT
from tests.statements import proves

T = TypeVar("T")
CAT = images.png()
ENTRY = read_image(Image(CAT, "cat.png"))


class Racing(InlineStore):
    """A store in which something happens right after each look."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def read(self, view: Callable[[Tx], T]) -> T:
        seen = await super().read(view)
        if self.meanwhile is not None:
            await self.meanwhile()
        return seen


async def name_in(store: InlineStore, entry: ImageEntry) -> None:
    """Commit that a session holds the image."""

    def job(tx: Tx) -> None:
        tx.sessions.open("s", "main", None, 0, SessionFacts(), AT)
        tx.transcripts.hold_files("s", [entry.sha256])

    await store.transact(job)


def acting(folder: Path, body: Callable[[Racing, EntryFiles], Awaitable[None]]) -> None:
    async def main() -> None:
        store = Racing(folder)
        try:
            await body(store, EntryFiles(folder))
        finally:
            await store.close()

    run_virtual(main())


def file(folder: Path) -> Path:
    return folder / "images" / ENTRY.sha256


@proves("3.images.22", "A sweep never removes the file of an image whose commit is under way")
def test_a_file_is_held_until_its_commit_and_swept_if_there_is_none(tmp_path: Path) -> None:
    async def body(store: Racing, files: EntryFiles) -> None:
        with files.holding() as hold:
            assert await hold.keep([Image(CAT, "cat.png")]) == (ENTRY,)
            await files.sweep(store)
            assert file(tmp_path).read_bytes() == CAT
        await files.sweep(store)
        assert not file(tmp_path).exists()

    acting(tmp_path, body)


@proves("3.images.22")
def test_a_commit_that_a_sweep_has_not_seen_keeps_its_file(tmp_path: Path) -> None:
    async def body(store: Racing, files: EntryFiles) -> None:
        with files.holding() as hold:
            await hold.keep([Image(CAT)])

        async def commit() -> None:
            store.meanwhile = None
            with files.holding() as hold:
                await hold.keep([Image(CAT)])
                await name_in(store, ENTRY)

        store.meanwhile = commit
        await files.sweep(store)
        assert file(tmp_path).read_bytes() == CAT
        await files.sweep(store)
        assert file(tmp_path).read_bytes() == CAT

    acting(tmp_path, body)


def test_two_that_hold_one_image_hold_it_until_both_are_done(tmp_path: Path) -> None:
    async def body(store: Racing, files: EntryFiles) -> None:
        with files.holding() as first:
            await first.keep([Image(CAT)])
            with files.holding() as second:
                await second.keep([Image(CAT), Image(CAT, "again.png")])
            await files.sweep(store)
            assert file(tmp_path).exists()

    acting(tmp_path, body)


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    file(tmp_path).mkdir(parents=True)

    async def body(store: Racing, files: EntryFiles) -> None:
        with files.holding() as hold, pytest.raises(OSError, match="directory"):
            await hold.keep([Image(CAT)])
        assert await files.load([ENTRY]) == {}

    acting(tmp_path, body)
    assert [path.name for path in (tmp_path / "images").iterdir()] == [ENTRY.sha256]


@pytest.mark.parametrize("ending", [".new", ".0123456789abcdef.new"])
def test_a_draft_of_a_process_that_died_is_in_nobodys_way_and_is_swept(tmp_path: Path, ending: str) -> None:
    draft = file(tmp_path).with_name(f"{ENTRY.sha256}{ending}")
    draft.parent.mkdir()
    draft.write_bytes(CAT[:10])

    async def body(store: Racing, files: EntryFiles) -> None:
        await files.write([CAT])
        assert await files.load([ENTRY]) == {hashlib.sha256(CAT).hexdigest(): CAT}
        await files.sweep(store)

    acting(tmp_path, body)
    assert not draft.exists()


# ---- attached files --------------------------------------------------------------------------------------------------

SESSION = "agent:main:main"
NOTES = File("notes.txt", b"words")


def attached(folder: Path) -> list[str]:
    """The attached files that are there, by their names in rows."""
    root = folder / "attached"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


async def name_file(store: InlineStore, name: str) -> None:
    """Commit that the session holds the file."""

    def job(tx: Tx) -> None:
        tx.sessions.open(SESSION, "main", None, 0, SessionFacts(), AT)
        tx.transcripts.hold_files(SESSION, [name])

    await store.transact(job)


@proves("3.attached.20", "A sweep never removes an attached file whose commit is under way")
def test_an_attached_file_is_held_until_its_commit_and_swept_if_there_is_none(tmp_path: Path) -> None:
    async def body(store: Racing, files: EntryFiles) -> None:
        with files.holding() as hold:
            [entry] = await hold.attach(SESSION, [NOTES])
            await files.sweep(store)
            assert attached(tmp_path) == [file_name(SESSION, entry)]
        await files.sweep(store)
        assert attached(tmp_path) == []
        assert not files.attached_to(SESSION).exists()

    acting(tmp_path, body)


@proves("3.attached.20")
def test_a_commit_that_a_sweep_has_not_seen_keeps_its_attached_file(tmp_path: Path) -> None:
    async def body(store: Racing, files: EntryFiles) -> None:
        with files.holding() as hold:
            await hold.attach(SESSION, [NOTES])

        async def commit() -> None:
            store.meanwhile = None
            with files.holding() as hold:
                [entry] = await hold.attach(SESSION, [NOTES])
                assert entry.name == "notes-2.txt"
                await name_file(store, file_name(SESSION, entry))

        store.meanwhile = commit
        await files.sweep(store)
        assert file_name(SESSION, FileEntry("notes-2.txt", 5, "", "")) in attached(tmp_path)
        await files.sweep(store)
        assert attached(tmp_path) == [file_name(SESSION, FileEntry("notes-2.txt", 5, "", ""))]

    acting(tmp_path, body)


def test_a_file_that_was_changed_is_not_there(tmp_path: Path) -> None:
    async def body(store: Racing, files: EntryFiles) -> None:
        with files.holding() as hold:
            entries = await hold.attach(SESSION, [NOTES, File("other.txt", b"more")])
        assert await files.read_attached(SESSION, entries) == {"notes.txt": b"words", "other.txt": b"more"}
        (files.attached_to(SESSION) / "notes.txt").write_bytes(b"wordz")
        (files.attached_to(SESSION) / "other.txt").unlink()
        assert await files.read_attached(SESSION, entries) == {}

    acting(tmp_path, body)
