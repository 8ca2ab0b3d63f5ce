"""`fledge import openclaw DIR`: imports runs and transcripts of OpenClaw as history to look at, and reports what was
skipped."""

import asyncio
import time
from pathlib import Path

from fledge.cli.where import Where
from fledge.ids import RandomIds
from fledge.openclaw import PastLine, Transcript, conversation_key, read_past, read_transcript
from fledge.orchestrator import importing
from fledge.orchestrator.commit import Commit, Rules
from fledge.store.addresses import open_server
from fledge.store.base import Tx
from fledge.store.sqlite import SqliteStore


def import_openclaw(folder: str, where: Where) -> list[str]:
    """Read the folder and import what is not there yet; returns a report as lines."""
    return asyncio.run(_imported(Path(folder).expanduser(), where))


async def _imported(folder: Path, where: Where) -> list[str]:
    past = read_past(folder)
    store = open_server(where.store, where.state) if where.store else SqliteStore.open(where.state)
    runs = talks = orphans = 0
    unreadable: list[str] = []

    def lines_of(path: Path | None) -> tuple[PastLine, ...]:
        read = Transcript((), 0) if path is None else read_transcript(path)
        unreadable.extend([f"{path}: {read.unreadable} lines cannot be read as JSON"] if read.unreadable else [])
        unreadable.extend([f"{path}: cannot be read: {read.error}"] if read.error else [])
        return read.lines

    try:
        for run in past.runs:
            lines = lines_of(past.transcripts.get(run.key))
            runs += await store.transact(lambda tx: importing.import_run(_commit(tx), run, lines))  # noqa: B023
        children = {run.key for run in past.runs}
        for key, path in past.transcripts.items():
            if conversation_key(key) in children:
                continue
            if ":subagent:" in key:
                orphans += 1
                continue
            lines = lines_of(path)
            talks += await store.transact(lambda tx: importing.import_conversation(_commit(tx), key, lines))  # noqa: B023
    finally:
        await store.close()
    told = {
        f"imported {runs} runs and {talks} conversations into {where.words}; nothing of them is resumed": 1,
        f"{len(past.runs) - runs} runs were there already": len(past.runs) - runs,
        f"skipped: {past.left_out} rows made no sense": past.left_out,
        f"skipped: {past.superseded} rows are older than another row of the same child or run": past.superseded,
        f"skipped: {orphans} transcripts of subagents that are not in the registry": orphans,
    }
    lines_told = [words for words, count in told.items() if count]
    return [*lines_told, *(f"skipped: {words}" for words in (*past.skipped, *unreadable))]


def _commit(tx: Tx) -> Commit:
    return Commit(tx, time.time(), RandomIds(), Rules())
