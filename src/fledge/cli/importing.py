"""`fledge import openclaw DIR`: the runs and transcripts of OpenClaw, as history to look at."""

import asyncio
import time
from pathlib import Path

from fledge.ids import RandomIds
from fledge.openclaw import conversation_key, read_past, read_transcript
from fledge.orchestrator import history
from fledge.orchestrator.carry_out import carry_out
from fledge.orchestrator.commit import Commit, Rules
from fledge.store.base import Tx
from fledge.store.sqlite import SqliteStore


def import_openclaw(folder: Path, state: Path) -> list[str]:
    """Read the folder and write what is not there yet; answers what was done, in lines."""
    return asyncio.run(_import(folder, state))


async def _import(folder: Path, state: Path) -> list[str]:
    past = read_past(folder)
    store = SqliteStore.open(state)
    runs = talks = 0
    try:
        for run in past.runs:
            path = past.transcripts.get(run.key)
            lines = [] if path is None else list(read_transcript(path))
            runs += await store.transact(lambda tx: history.import_run(_commit(tx), run, lines))  # noqa: B023
        children = {run.key for run in past.runs}
        for key, path in past.transcripts.items():
            if conversation_key(key) not in children and ":subagent:" not in key:
                lines = list(read_transcript(path))
                talks += await store.transact(lambda tx: history.import_conversation(_commit(tx), key, lines))  # noqa: B023
    finally:
        await store.close()
    known = len(past.runs) - runs
    found = [f"imported {runs} runs and {talks} conversations into {state}; nothing of them is resumed"]
    found += [f"{known} runs were there already"] if known else []
    found += [f"{past.left_out} rows made no sense and were left out"] if past.left_out else []
    return found


def _commit(tx: Tx) -> Commit:
    return Commit(tx, time.time(), RandomIds(), Rules(), carry_out)
