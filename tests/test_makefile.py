"""`make` on a machine whose Python is too old, or missing."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def make(folder: Path, target: str, python: Path) -> "subprocess.CompletedProcess[str]":
    """Make a target in a folder that has nothing yet."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    command = ["make", "--no-print-directory", target, f"PYTHON={python}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.fixture
def old_python(tmp_path: Path) -> Path:
    """A Python 3.9.2 that notes every other use of it."""
    pretend = 'import sys; sys.version_info, sys.version = (3, 9, 2), "3.9.2 (main)"; exec(sys.argv[2])'
    script = f"""#!/bin/sh
[ "$1" = -c ] || echo "$@" >> {tmp_path}/asked
exec {sys.executable} -c '{pretend}' "$@"
"""
    (tmp_path / "python").write_text(script, "utf-8")
    (tmp_path / "python").chmod(0o755)
    return tmp_path / "python"


@pytest.mark.parametrize("target", ["demo", "test", "check"])
def test_with_an_old_python_make_names_both_versions_in_one_line_and_installs_nothing(
    target: str, old_python: Path, tmp_path: Path
) -> None:
    done = make(tmp_path, target, old_python)
    assert done.returncode != 0
    (line,) = (done.stdout + done.stderr).splitlines()
    assert f"fledge needs Python 3.11 or newer, but {old_python} is Python 3.9.2." in line
    assert not (tmp_path / ".venv").exists()
    assert not (tmp_path / "asked").exists()


def test_without_python_make_says_so_in_one_line(tmp_path: Path) -> None:
    done = make(tmp_path, "demo", tmp_path / "python3")
    assert done.returncode != 0
    (line,) = (done.stdout + done.stderr).splitlines()
    assert f"fledge needs Python 3.11 or newer, but {tmp_path}/python3 does not run." in line


def test_the_makefile_asks_for_the_python_that_the_package_needs() -> None:
    needed: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"]
    version = needed.removeprefix(">=")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"sys.version_info >= ({version.replace('.', ', ')})" in makefile
    assert f"Python {version} or newer" in makefile
