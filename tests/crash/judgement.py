"""What is wrong with the end of a story: the general promises (`tests.sim.verdict`), the story's own end, and whether
anything committed was asked for or begun again by a later process.
"""

import shutil
import tempfile
from pathlib import Path

from msgspec import Struct

from fledge.core.transcript import Line, Replied, Resulted, Spoken, Told, from_body
from fledge.runtime import context
from fledge.store.base import Tx
from fledge.store.files import DATABASE
from fledge.testing import InlineStore
from tests.crash.players import Story, label_of, notes, place
from tests.empty import MEMORY
from tests.sim import verdict
from tests.sim.people import ROOTS, walk
from tests.sim.watch import Noted


class Left(Struct, frozen=True):
    """What a dead process has left: how many notes there were, which replies and which results were committed."""

    notes: int
    replies: set[tuple[str, str]]
    """By session, and the place in it that was replied to."""
    results: set[str]
    """Calls, by their keys."""


class Found(Struct, frozen=True):
    """What is wrong, sorted: lost, told twice, asked for or begun again, and everything else."""

    lost: list[str]
    doubled: list[str]
    repeated: list[str]
    other: list[str]

    @property
    def wrong(self) -> list[str]:
        """All of it."""
        return [*self.lost, *self.doubled, *self.repeated, *self.other]


def left(folder: Path) -> Left:
    """What there is before the next process starts. A copy is looked at: the log must be taken in by that process."""
    if not (folder / DATABASE).exists():
        return Left(len(notes(folder)), set(), set())
    with tempfile.TemporaryDirectory(dir=MEMORY) as copy:
        for name in (DATABASE, f"{DATABASE}-wal"):
            if (folder / name).exists():
                shutil.copy(folder / name, copy)
        store = InlineStore(copy)
        try:
            replies, results = store.run(_committed)
        finally:
            store.close_now()
    return Left(len(notes(folder)), replies, results)


def _committed(tx: Tx) -> tuple[set[tuple[str, str]], set[str]]:
    replies: set[tuple[str, str]] = set()
    results: set[str] = set()
    for session in (*ROOTS, *walk(tx)):
        lines = [Line(entry.seq, from_body(entry.body)) for entry in tx.transcripts.entries(session, limit=100_000)]
        for at, line in enumerate(lines):
            if isinstance(line.body, Replied):
                replies.add((session, place(context.messages(lines[:at]))))
            elif isinstance(line.body, Resulted):
                results.add(f"{session}#{line.body.entry}.{line.body.index}")
    return replies, results


def judge(tx: Tx, story: Story, folder: Path, before: list[Left]) -> Found:
    """Everything that is wrong with the end."""
    ledger = _ledger(tx)
    doubled = [f"{row} is in {sessions}" for row, sessions in ledger.told.items() if len(sessions) > 1]
    other = _general(tx, story, ledger) + story.faults(tx, folder)
    return Found(_lost(tx, story, ledger), doubled, _repeated(folder, before), other)


def _ledger(tx: Tx) -> Noted:
    """What transcripts hold; no session of a story is deleted once it was told something that counts."""
    found = Noted()
    for key in walk(tx):
        found.admitted[key] = tx.runs.load(key)
        found.labels[key] = tx.runs.spec(key).label
    for session in (*ROOTS, *walk(tx)):
        for entry in tx.transcripts.entries(session, limit=100_000):
            match from_body(entry.body):
                case Told(completions=completions):
                    for item in completions:
                        found.told.setdefault(item.row, []).append(session)
                case Spoken(row=row) if row:
                    found.told.setdefault(row, []).append(session)
                case _:
                    continue
    return found


def _lost(tx: Tx, story: Story, ledger: Noted) -> list[str]:
    wrong: list[str] = []
    told = {row.rpartition(":")[0].removeprefix("announce:v1:"): where for row, where in ledger.told.items()}
    for key, label in ledger.labels.items():
        where = [label_of(tx, session) for session in told.get(key, ())]
        if where != ([story.told[label]] if label in story.told else []):
            wrong.append(f"{label} was told in {where} instead of {story.told.get(label, 'nowhere')}")
    missing = set(story.ends) - set(ledger.labels.values())
    return wrong + [f"{label} is nowhere" for label in sorted(missing)]


def _repeated(folder: Path, before: list[Left]) -> list[str]:
    wrong: list[str] = []
    lines = notes(folder)
    for known in before:
        for line in lines[known.notes :]:
            if line["what"] == "asked" and (line["session"], line["place"]) in known.replies:
                wrong.append(f"{line['session']} was asked again for a committed reply")
            if line["what"] == "begun" and line["call"] in known.results:
                wrong.append(f"{line['tool']} was begun again though its result was committed")
    once = [line["call"] for line in lines if line["what"] == "begun" and line["tool"] == "once"]
    return wrong + [f"once was begun twice: {call}" for call in set(once) if once.count(call) > 1]


def _general(tx: Tx, story: Story, ledger: Noted) -> list[str]:
    wrong = verdict.judge(tx, ledger)
    for key, label in ledger.labels.items():
        ended = tx.runs.load(key).ended
        status = "nothing" if ended is None else ended.outcome.status
        if status != story.ends.get(label):
            wrong.append(f"{label} came out {status} instead of {story.ends.get(label)}")
    return wrong + [f"undelivered in the end: {row.key}" for row in tx.inbox.undelivered()]
