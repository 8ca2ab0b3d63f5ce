"""`fledge run` with subagents: spawned by a model, killed with -9 anywhere, every answer in the conversation once."""

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fledge.store.base import Tx
from fledge.store.sqlite import SqliteStore
from tests.cli.command import name_in, session_of
from tests.cli.fan_out_server import fan_out
from tests.cli.model_server import Model, serving, until, workspace
from tests.cli.test_run import fledge
from tests.statements import proves

CHILDREN = 32
RUN = (
    "run",
    "--state",
    "../state",
    "--model",
    "openai/gpt-test",
    "--set",
    f"agents.defaults.subagents.maxChildrenPerAgent={CHILDREN}",
)


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with serving(tmp_path, fan_out) as model:
        yield model


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return workspace(tmp_path)


async def look(state: Path, session: str) -> tuple[list[str], list[str], str]:
    """Rows told in the conversation, phases of its runs, and all the text it was told."""

    def view(tx: Tx) -> tuple[list[str], list[str], str]:
        told = [
            msgspec.json.decode(e.body) for e in tx.transcripts.entries(session, limit=100_000) if e.kind == "event"
        ]
        rows = [item["row"] for entry in told for item in entry["completions"]]
        phases = [tx.runs.load(key).phase.name for key in tx.runs.children(session)]
        return rows, phases, "\n".join(entry["text"] for entry in told)

    store = SqliteStore.open(state)
    try:
        return await store.read(view)
    finally:
        await store.close()


def judge(work: Path) -> None:
    rows, phases, text = asyncio.run(look(work.parent / "state", session_of(work)))
    assert phases == ["completed"] * CHILDREN
    assert len(rows) == len(set(rows)) == CHILDREN
    whole = re.findall(r"last-word-(\d+)", text)
    lines = re.findall(r'"n(\d+)"', text)
    assert len(whole) == len(set(whole)), "no result is whole twice"
    assert {int(n) for n in [*whole, *lines]} == set(range(CHILDREN)), "every result is there, whole or as its line"


@proves("0.promise.3", "Thirty-two children of a model, the process killed anywhere, all answer once")
@proves("2.phases.8", "The caller's resumed tool call prepares again")
@pytest.mark.parametrize("after", [0, 1, 2, 9, 30, 50, 66])
def test_every_answer_arrives_once_wherever_the_process_was_killed(model: Model, work: Path, after: int) -> None:
    command = [sys.executable, "-m", "fledge.cli.main", *RUN, f"spawn {CHILDREN}"]
    if after:
        with subprocess.Popen(command, cwd=work, env=model.env, stdout=subprocess.DEVNULL) as process:
            until(process, lambda: model.requests >= after)
            process.send_signal(signal.SIGKILL)
        done = fledge(model, work, *RUN, "--continue")
    else:
        done = fledge(model, work, *RUN, f"spawn {CHILDREN}")
    assert done.returncode == 0, done.stderr
    judge(work)


def test_a_spawn_beyond_the_cap_is_refused_by_name_and_the_others_arrive(model: Model, work: Path) -> None:
    done = fledge(model, work, "run", "--state", "../state", "--model", "openai/gpt-test", "spawn 7")
    assert done.returncode == 0, done.stderr
    rows, phases, _ = asyncio.run(look(work.parent / "state", session_of(work)))
    assert (len(rows), phases) == (5, ["completed"] * 5)
    assert "active children 5 of 5: agents.defaults.subagents.maxChildrenPerAgent" in model.log.read_text()


def test_the_conversation_and_its_run_are_shown_afterwards(model: Model, work: Path) -> None:
    done = fledge(model, work, *RUN, "spawn 1")
    assert done.returncode == 0, done.stderr
    shown = fledge(model, work, "ps", "--state", "../state").stdout.splitlines()
    assert shown[0] == f"{name_in(work)} · idle"
    assert re.fullmatch(r"#1 n0  done  \d+s  .*  [0-9a-f]{8}", shown[1]), shown[1]
    assert len(shown) == 2
