"""A model server and a folder to work in, for tests of the command: a strict server that speaks the real protocol."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.models.openai_server import OpenAIServer
from tests.models.serving import KEY, Script, in_thread

MODEL = ("--model", "openai/gpt-test")


class Model:
    """A strict model server; while `hold` exists, its replies wait."""

    def __init__(self, folder: Path) -> None:
        self.port, self.hold = folder / "port", folder / "hold"
        self.log = folder / "port.log"

    @property
    def requests(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0

    @property
    def env(self) -> dict[str, str]:
        home = str(self.port.parent)
        return os.environ | {
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.port.read_text()}/v1",
            "OPENAI_API_KEY": KEY,
            "HOME": home,
        }


@contextmanager
def serving(tmp_path: Path, script: Script) -> Iterator[Model]:
    """A server of OpenAI's protocol that answers by this script, as long as the block lasts."""
    folder = tmp_path / "model"
    folder.mkdir()
    model = Model(folder)
    with in_thread(OpenAIServer, script, model.port, model.hold):
        yield model


def workspace(tmp_path: Path) -> Path:
    """A folder with one file in it."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text("hello")
    return folder


def until(process: "subprocess.Popen[str] | subprocess.Popen[bytes]", happened: object) -> None:
    """Wait for something while the process lives; it must happen before the process ends."""
    assert callable(happened)
    for _ in range(3000):
        if happened():
            return
        try:
            process.wait(timeout=0.01)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"the process ended with {process.returncode} before it happened")
    raise AssertionError("it did not happen")
