"""Files of transcript entries in a folder that several processes share: none removes or replaces what another one
writes."""

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fledge
from fledge.commands.looking import rest
from fledge.core.attachments import File
from fledge.core.images import Image
from fledge.models.scripted import ScriptedModel
from fledge.orchestrator import transcripts
from fledge.store.base import SessionFacts, Tx
from fledge.store.entry_files import SHARED_S, EntryFiles
from tests import images
from tests.api.scene import obedient
from tests.cli import command
from tests.core.samples import AT
from tests.scale.test_store_option import Desk
from tests.statements import proves
from tests.store.postgres import Server

MAIN = "agent:main:main"
CAT, DOG = images.png(), images.png(width=3)


@pytest.fixture
def desk(server: Server, tmp_path: Path) -> Desk:
    return Desk(server, tmp_path)


def opened(desk: Desk) -> fledge.Fledge:
    return fledge.open(
        desk.folder / "files", store=desk.url, model=ScriptedModel(obedient), config={}, workspace=desk.folder / "work"
    )


def sweeping_process(desk: Desk) -> None:
    """Let a process of its own open the store, which sweeps, and send a message with a file, after which it sweeps."""
    (desk.folder / "work" / "note.txt").write_text("a note")
    done = command.process(
        *("run", "hello", "--quiet", "--attach", "note.txt", "--store", desk.url),
        *("--state", str(desk.folder / "files")),
        cwd=desk.folder / "work",
        env=desk.env,
    )
    assert done.returncode == 0, done.stderr
    assert "hello" in done.stdout, "whichever process drove it"


def make_old(path: Path) -> None:
    at = time.time() - SHARED_S - 60
    os.utime(path, (at, at))


@proves("7.server.22", "Processes that share a folder remove no file that a commit of another one is about to name")
def test_another_process_sweeps_no_file_whose_commit_is_under_way(desk: Desk) -> None:
    async def test() -> None:
        async with opened(desk) as fl:
            files = EntryFiles(fl.state)
            await files.write([DOG])  # a process that died has left it, an hour ago
            left = next((fl.state / "images").iterdir())
            make_old(left)
            with files.holding() as hold:
                (image,) = await hold.keep([Image(CAT)])
                (file,) = await hold.attach(MAIN, [File("plan.txt", b"a plan")])
                await asyncio.to_thread(sweeping_process, desk)

                def commit(tx: Tx) -> None:
                    tx.sessions.open(MAIN, "main", None, 0, SessionFacts(), AT)
                    tx.transcripts.hold_files(MAIN, [image.sha256])

                await fl.engine.store.transact(commit)
            assert await files.load([image]) == {image.sha256: CAT}
            assert await files.read_attached(MAIN, [file]) == {"plan.txt": b"a plan"}
            assert not left.exists()

    asyncio.run(test())


@proves("7.server.22")
def test_an_image_that_is_used_again_is_not_swept_as_an_old_one(desk: Desk) -> None:
    async def test() -> None:
        async with opened(desk) as fl:
            files = EntryFiles(fl.state)
            await files.write([CAT])
            make_old(next((fl.state / "images").iterdir()))
            with files.holding() as hold:
                (image,) = await hold.keep([Image(CAT)])
                await EntryFiles(fl.state).sweep(fl.engine.store)  # as another process does
                assert await files.load([image]) == {image.sha256: CAT}

    asyncio.run(test())


def test_files_of_the_same_name_from_several_processes_are_all_kept(tmp_path: Path) -> None:
    sessions = 4

    def attach(writer: int) -> list[tuple[str, bytes]]:
        files = EntryFiles(tmp_path)  # what it knows of others is nothing, as in a process of its own
        found = []
        for number in range(25):
            data = f"{writer} {number}".encode()
            found.append((files._attach(MAIN, File("a.txt", data)).name, data))
        return found

    with ThreadPoolExecutor(sessions) as pool:
        written = [one for some in pool.map(attach, range(sessions)) for one in some]
    folder = EntryFiles(tmp_path).attached_to(MAIN)
    assert len({name for name, _ in written}) == 25 * sessions
    assert {name: (folder / name).read_bytes() for name, _ in written} == dict(written)


def test_files_of_a_deleted_session_are_swept_once_they_are_old_enough(desk: Desk) -> None:
    async def test() -> None:
        async with opened(desk) as fl:
            await fl.session("talk").send("Say hello", images=[Image(CAT)])
            now = fl.engine.clock.now()
            await fl.engine.commit(lambda c: transcripts.delete_session(c, "agent:main:talk"))

            def sweeps(tx: Tx, at: float) -> list[str]:
                return [post.kind for post in tx.outbox.due(at, 10)]

            assert await fl.engine.store.read(lambda tx: sweeps(tx, now + SHARED_S)) == []
            later = now + SHARED_S + 2 * transcripts.MARGIN_S
            assert await fl.engine.store.read(lambda tx: sweeps(tx, later)) == [transcripts.SWEEP_IMAGES]
            resting = await fl.engine.store.read(lambda tx: rest(tx, MAIN, True, fl.engine.rules, 60.0, now))
            assert resting.settled, "a command does not wait an hour for it"

    asyncio.run(test())
