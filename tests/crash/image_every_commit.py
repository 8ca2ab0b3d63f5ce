"""Send an image, let a tool show another, replace a file, give a third image to a child, delete it all, in real
processes; end one before or after each transaction, start another on what it left, and judge the files of entries.
Prints one JSON line.

    python -m tests.crash.image_every_commit

Whatever a process leaves, the next start must find the bytes of every image and replaced content that a row names, and
remove every file that none does.
"""

import asyncio
import base64
import json
import tempfile
from functools import partial
from itertools import count
from pathlib import Path

import fledge
from fledge.core.attachments import Attachment
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, ScriptedModel, echo, last_text, use
from fledge.store.base import Store
from fledge.testing import START, CrashPoint, InlineStore, VirtualClock, run_virtual
from tests import images
from tests.crash.every_commit import CRASHED, When, in_a_process

SENT, SHOWN, GIVEN = images.png(1, 1), images.png(2, 2), images.png(3, 3)
CONFIG = {"tools": {"sessions_spawn": {"attachments": {"enabled": True}}}}


@fledge.tool(read_only=True)
def show() -> fledge.Image:
    """Show an image."""
    return fledge.Image(SHOWN)


def script(request: Request) -> Answer:
    """Calls a tool once for each message that asks for it."""
    if isinstance(request.messages[-1], ToolMessage):
        return echo(request)
    if "replace" in last_text(request):
        return use("write", path="notes.md", content="new\n")
    return use("show") if "show" in last_text(request) else echo(request)


def opened(folder: Path, store: Store, at: float) -> fledge.Fledge:
    """The folder, at this time."""
    return fledge.open(
        folder,
        model=ScriptedModel(script),
        workspace=folder / "work",
        store=store,
        config=CONFIG,
        tools=[show],
        clock=VirtualClock(at),
    )


async def perform(store: Store, folder: Path) -> None:
    """The whole story, from wherever an earlier process left it."""
    async with opened(folder, store, START) as fl:
        await fl.session("main").send("show it", images=[fledge.Image(SENT)])
        await fl.session("main").send("replace it")
        given = Attachment("given.png", base64.b64encode(GIVEN).decode(), "base64")
        await (await fl.spawn("Look.", attachments=[given], cleanup="delete"))
        await fl.session("main").delete()
        await asyncio.sleep(600)


async def judge(folder: Path) -> list[str]:
    """What is wrong with the files once the folder was opened again."""
    wrong: list[str] = []
    store = InlineStore(folder)
    async with opened(folder, store, START + 3600) as fl:
        named = await fl.engine.store.read(lambda tx: tx.transcripts.files())
        place = folder / "images"
        found = {path.name for path in place.iterdir()} if place.exists() else set()
        # A child that the engine takes up may go in the meantime: then its row goes before its file.
        wrong += [f"{digest} is named, and is not there" for digest in named - found]
        await asyncio.sleep(600)
        named = await fl.engine.store.read(lambda tx: tx.transcripts.files())
        found = {path.name for path in place.iterdir()} if place.exists() else set()
        wrong += [f"{name} is named {name in named}, is there {name in found}" for name in named ^ found]
    return wrong


def play(folder: Path, nth: int, when: When) -> None:
    """One process's part, with a crash at the chosen transaction."""
    run_virtual(perform(CrashPoint(InlineStore(folder), nth, when, CRASHED), folder))


def crash_at(nth: int, when: When) -> tuple[bool, bool, list[str]]:
    """Whether the process got as far as this, whether it left image files, and what is wrong after the next start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "work").mkdir()
        (folder / "work" / "notes.md").write_text("old\n")
        code = in_a_process(partial(play, folder, nth, when))
        left = any((folder / "images").glob("*"))
        wrong = [] if code in (0, CRASHED) else [f"ended with {code}"]
        return code == CRASHED, left, wrong + run_virtual(judge(folder))


def main() -> None:
    """Crash at each transaction until the story is over before the crash. Threads write files beside the commits, so
    how many there are is not the same each time."""
    wrong: dict[str, list[str]] = {}
    points = left = 0
    for nth in count(1):
        moments: tuple[When, When] = ("before", "after")
        reached = False
        for when in moments:
            crashed, leaves, found = crash_at(nth, when)
            reached |= crashed
            points += crashed
            left += leaves
            if found:
                wrong[f"{when} {nth}"] = found
        if not reached:
            break
    print(json.dumps({"points": points, "left": left, "wrong": wrong}))


if __name__ == "__main__":
    main()
