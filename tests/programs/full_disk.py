"""A state folder on a disk that is full for a while: `python -m tests.programs.full_disk DIR`. Prints the log of the
engine, then how each conversation was answered."""

import asyncio
import logging
import sys
from pathlib import Path

import fledge
from fledge.errors import StoreError
from fledge.models.scripted import echo
from fledge.orchestrator import messages
from fledge.orchestrator.commit import Commit
from fledge.store.files import DATABASE
from fledge.testing import ScriptedModel
from tests.store.racer import lift_limit, limit_files_to

NAMES = ("one", "two", "three")
TRIES = 3


class Heard(logging.Handler):
    """Prints the lines of the engine's log, and knows when the first one came."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines = 0
        self.begun = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        self.lines += 1
        print(record.getMessage(), flush=True)
        self.begun.set()


async def main(state: Path) -> None:
    """Say something to three conversations, fill the disk before they are driven, make room once the log says so."""

    def ask(c: Commit) -> list[str]:
        return [messages.accept_request(c, f"agent:main:{name}", "hello").run_id for name in NAMES]

    heard = Heard()
    logging.getLogger("fledge.engine").addHandler(heard)
    async with fledge.open(state, model=ScriptedModel(echo), config={}, workspace=state) as fl:
        asked = await fl.engine.commit(ask)
        limit_files_to((state / f"{DATABASE}-wal").stat().st_size)
        await heard.begun.wait()
        for _ in range(TRIES):  # each of these fails, too, and lets the engine look again
            try:
                await fl.session("after").send("hello")
            except StoreError as error:
                print(type(error).__name__)
        print(heard.lines, "line")
        lift_limit()
        for name, one in zip(NAMES, asked, strict=True):
            print(name, (await fl.session(name).reply(one)).text)
        print((await fl.session("after").send("hello")).text)


if __name__ == "__main__":
    Path(sys.argv[1]).mkdir(exist_ok=True)
    asyncio.run(main(Path(sys.argv[1])))
