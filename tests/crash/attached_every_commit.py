"""Attach files to messages and delete the conversation, in real processes; end one before or after each transaction,
start another on what it left, and judge the attached files. Prints one JSON line.

    python -m tests.crash.attached_every_commit

Whatever a process leaves, the next start must find the bytes of every file that a message names, and remove every file
that none does.
"""

import asyncio
import hashlib
import json
import tempfile
from functools import partial
from itertools import count
from pathlib import Path

import fledge
from fledge.core.attachments import Attachment
from fledge.core.keys import attached_folder
from fledge.core.transcript import files_of, from_body, from_carried_body
from fledge.models.scripted import ScriptedModel, echo
from fledge.store.base import Store, Tx
from fledge.testing import START, CrashPoint, InlineStore, VirtualClock, run_virtual
from tests.crash.every_commit import CRASHED, When, in_a_process

SESSIONS = ("agent:main:main", "agent:main:other")
SENT = Attachment("sent.txt", "what was sent")
AGAIN = Attachment("sent.txt", "other words under the same name")


def opened(folder: Path, store: Store, at: float) -> fledge.Fledge:
    """The folder, at this time."""
    return fledge.open(folder, model=ScriptedModel(echo), workspace=folder, store=store, clock=VirtualClock(at))


async def perform(store: Store, folder: Path) -> None:
    """The whole story, from wherever an earlier process left it."""
    async with opened(folder, store, START) as fl:
        for session in SESSIONS:
            await fl.session(session).send("Read it.", attachments=[SENT, AGAIN])
        await fl.agent("And this.", idempotency_key="key", attachments=[SENT])
        await fl.agent("And this.", idempotency_key="key", attachments=[SENT])
        await fl.session(SESSIONS[0]).delete()
        await asyncio.sleep(600)


def named(tx: Tx) -> dict[str, str]:
    """The digests of all files that messages name, read or unread, by their names below the folder of files."""
    found: dict[str, str] = {}
    for session in SESSIONS:
        entries = [file for entry in tx.transcripts.entries(session) for file in files_of(from_body(entry.body))]
        waiting = [file for row in tx.inbox.unread(session) for file in from_carried_body(row.carried).files]
        found |= {f"{attached_folder(session)}/{file.name}": file.sha256 for file in (*entries, *waiting)}
    return found


def there(folder: Path) -> dict[str, str]:
    """The digests of all files that are there, by the same names."""
    root = folder / "attached"
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


async def judge(folder: Path) -> list[str]:
    """What is wrong with the files once the folder was opened again."""
    store = InlineStore(folder)
    async with opened(folder, store, START + 3600) as fl:
        await asyncio.sleep(600)
        wanted, found = await fl.engine.store.read(named), there(folder)
        drafts = [path.name for path in (folder / "images").glob("*.new")]
    wrong = [name for name in wanted | found if wanted.get(name) != found.get(name)]
    return [
        *(f"{name}: named {wanted.get(name)}, there {found.get(name)}" for name in wrong),
        *(f"the draft {name} is there" for name in drafts),
    ]


def play(folder: Path, nth: int, when: When) -> None:
    """One process's part, with a crash at the chosen transaction."""
    run_virtual(perform(CrashPoint(InlineStore(folder), nth, when, CRASHED), folder))


def crash_at(nth: int, when: When) -> tuple[bool, bool, list[str]]:
    """Whether the process got as far as this, whether it left files that no message names, and what is wrong after the
    next start."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        code = in_a_process(partial(play, folder, nth, when))
        wrong = [] if code in (0, CRASHED) else [f"ended with {code}"]
        before = there(folder)
        wrong += run_virtual(judge(folder))
        return code == CRASHED, bool(before.keys() - there(folder).keys()), wrong


def main() -> None:
    """Crash at each transaction until the story is over before the crash. Threads write files beside the commits, so
    how many there are is not the same each time."""
    wrong: dict[str, list[str]] = {}
    points = orphans = 0
    for nth in count(1):
        moments: tuple[When, When] = ("before", "after")
        reached = False
        for when in moments:
            crashed, left, found = crash_at(nth, when)
            reached |= crashed
            points += crashed
            orphans += left
            if found:
                wrong[f"{when} {nth}"] = found
        if not reached:
            break
    print(json.dumps({"points": points, "orphans": orphans, "wrong": wrong}))


if __name__ == "__main__":
    main()
