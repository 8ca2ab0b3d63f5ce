"""A project that holds the fledge that works on it: a `.venv` with its packages, and fledge's source as an editable
install."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

import fledge
from fledge.own_code import PACKAGES

DRIVER = Path(__file__).parent / "driver.py"
EXTRAS = frozenset({"anyio", "click", "h11", "psycopg", "psycopg_binary", "starlette", "uvicorn", "websockets"})
"""Packages of the gateway and of PostgreSQL, which this project does without."""


class Report(msgspec.Struct):
    """What `driver.py` prints."""

    results: list[str]
    failed: list[str]
    started: list[str]
    read: list[str]
    imported: dict[str, str]
    path: list[str]


class Project:
    """The project, in `folder/ws`, and a folder beside it in which only the host can write. `venv` is the place of its
    environment in the project; `.venv` is a link to it, if it is another."""

    def __init__(self, folder: Path, venv: str = ".venv", interpreter: str = sys.executable) -> None:
        self.folder, self.ws, self.outside = folder, folder / "ws", folder / "outside"
        self.outside.mkdir(parents=True)
        made = self.ws / venv
        subprocess.run([interpreter, "-m", "venv", "--without-pip", made], check=True)
        if venv not in (".", ".venv"):
            (self.ws / ".venv").symlink_to(venv)
        environment = made if venv == "." else self.ws / ".venv"
        self.python = environment / "bin" / "python"
        self.site = next((environment / "lib").glob("python*/site-packages"))
        for name in PACKAGES:
            if name not in {"fledge", *EXTRAS}:
                _copy(name, self.site)
        shutil.copytree(Path(fledge.__file__).parent, self.ws / "src" / "fledge")
        (self.site / "_fledge.pth").write_text(f"{self.ws}/src\n")
        for name in ("tools", "vendor"):
            (self.ws / name).mkdir()
        (self.ws / "notes.md").write_text("nothing to see\n")

    def payload(self, name: str) -> str:
        """Python that leaves a mark where only the host can."""
        return f"try:\n    open({str(self.outside / name)!r}, 'w').close()\nexcept OSError:\n    pass\n"

    def script(self, name: str) -> str:
        """A shell script that leaves a mark where only the host can."""
        return f"#!/bin/sh\ntouch {self.outside / name}\n"

    @property
    def marks(self) -> list[str]:
        """The marks that were left."""
        return sorted(path.name for path in self.outside.iterdir())

    def run(
        self, *calls: tuple[str, dict[str, Any]], user: int | None = None, kind: str = "program", paths: bool = True
    ) -> Report:
        """Make these calls from a fledge of this project; with `paths`, its `PATH` and `PYTHONPATH` have folders of
        it."""
        state = self.folder / f"state-{len(list(self.folder.iterdir()))}"
        env = {"PATH": f"{self.ws}/tools:{os.environ['PATH']}", "HOME": str(self.outside), "LANG": "C.UTF-8"}
        env |= {"PYTHONPATH": f"{self.ws}/vendor"} if paths else {"PATH": os.environ["PATH"]}
        done = subprocess.run(
            [self.python, DRIVER, self.ws, state, kind],
            input=json.dumps(calls),
            env=env,
            cwd=self.ws,
            user=user,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return msgspec.json.decode(done.stdout, type=Report)


def _copy(name: str, into: Path) -> None:
    module = __import__(name)
    found = Path(str(module.__file__))
    if found.name == "__init__.py":
        shutil.copytree(found.parent, into / name, ignore=shutil.ignore_patterns("__pycache__", "includes"))
    else:
        shutil.copy(found, into)
