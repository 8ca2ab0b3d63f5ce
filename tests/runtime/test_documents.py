"""The workspace's documents in the prompts of real turns: read as they are, and never from elsewhere."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.models.base import Request
from fledge.models.scripted import ScriptedModel
from tests.statements import proves

PATIENCE_S = 60.0
TURNS = 40
CONFIG: dict[str, Any] = {"agents": {"defaults": {"sandbox": {"mode": "off"}}}}


@contextmanager
def swapping(*steps: Callable[[], None]) -> Iterator[None]:
    """While the block runs, a thread does the steps over and over."""
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for step in steps:
                step()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@proves("8.files.8")
@pytest.mark.parametrize("trap", ["link", "pipe"])
def test_a_document_that_is_swapped_for_a_link_or_a_pipe_never_shows_another_file_nor_stops_a_turn(
    tmp_path: Path, trap: str
) -> None:
    work, secret, document = tmp_path / "work", tmp_path / "id_rsa", tmp_path / "work" / "AGENTS.md"
    work.mkdir()
    secret.write_text("the secret")

    def put_trap() -> None:
        if trap == "link":
            os.symlink(secret, work / "next")
        else:
            os.mkfifo(work / "next")
        os.replace(work / "next", document)

    def put_own() -> None:
        (work / "next").write_text("own words")
        os.replace(work / "next", document)

    systems: list[str] = []

    def script(request: Request) -> str:
        systems.append(request.system)
        return "heard"

    async def main() -> None:
        async with (
            asyncio.timeout(PATIENCE_S),
            fledge.open(tmp_path / "state", model=ScriptedModel(script), workspace=work, config=CONFIG) as fl,
        ):
            for number in range(TURNS):
                await fl.session("main").send(f"{number}")

    put_own()
    with swapping(put_trap, put_own):
        asyncio.run(main())
    assert len(systems) == TURNS
    assert not [system for system in systems if "the secret" in system]
