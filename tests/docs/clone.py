"""A clone of this repository with nothing beside it: its tracked files as they are now, uncommitted changes included.

Its commands run with the interpreter and the libraries of this suite, so nothing is installed; the package is the
clone's own, and no key or setting of the developer reaches them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOWHERE = "http://127.0.0.1:9/v1"
"""Nothing listens there."""


def tracked_files() -> list[Path]:
    """The files that a clone has, relative to the repository; of an unpacked archive, all that are not hidden."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
        return [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return [path for path in paths if not any(part.startswith(".") for part in path.parts)]


class Clone:
    """The clone, alone in its folder, with its environment set up."""

    def __init__(self, folder: Path) -> None:
        self.root, self._home = folder / "alone" / "fledge", folder / "home"
        self._home.mkdir()
        for file in tracked_files():
            (self.root / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, self.root / file)
        self._set_up()

    def _set_up(self) -> None:
        """What `make` would do: an environment in .venv, and the mark that it is complete."""
        environment = self.root / ".venv"
        environment.mkdir()
        for entry in Path(sys.prefix).iterdir():
            if not entry.name.startswith("."):
                (environment / entry.name).symlink_to(entry)
        (environment / ".installed").touch()

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in the clone's folder, as a newcomer without a key or a network."""
        env = {
            "PATH": os.pathsep.join([str(self.root / ".venv" / "bin"), os.environ["PATH"]]),
            "HOME": str(self._home),
            "PYTHONPATH": str(self.root / "src"),
            "OPENAI_BASE_URL": NOWHERE,
        }
        return subprocess.run(command, cwd=self.root, env=env, capture_output=True, text=True, timeout=120)
