"""`make` on a machine whose Python is too old, lacks a part, or is missing; which target measures what."""

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


@pytest.fixture
def python_without_venv(tmp_path: Path) -> Path:
    """A Python as Debian installs it without python3-venv: no module ensurepip."""
    script = f"""#!/bin/sh
case "$2" in *ensurepip*) echo "No module named 'ensurepip'" >&2; exit 1 ;; esac
[ "$1" = -c ] || echo "$@" >> {tmp_path}/asked
exec {sys.executable} "$@"
"""
    (tmp_path / "python").write_text(script, "utf-8")
    (tmp_path / "python").chmod(0o755)
    return tmp_path / "python"


@pytest.mark.parametrize("target", ["demo", "test", "check"])
def test_without_venv_make_names_the_package_to_install_and_begins_nothing(
    target: str, python_without_venv: Path, tmp_path: Path
) -> None:
    done = make(tmp_path, target, python_without_venv)
    assert done.returncode != 0
    assert "apt-get install python3-venv" in done.stderr
    assert "Setting up" not in done.stdout
    assert not (tmp_path / ".venv").exists()
    assert not (tmp_path / "asked").exists()


def commands_of(target: str) -> str:
    """The commands of a target, without running them."""
    make = ["make", "--no-print-directory", "--dry-run", target, "STAMP="]
    return subprocess.run(make, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout


def test_the_coverage_of_core_is_a_gate_of_make_check_and_never_fails_make_test() -> None:
    assert "--fail-under=100" in commands_of("check")
    assert "coverage" not in commands_of("test")


def test_make_test_runs_every_folder_of_tests_in_one_run() -> None:
    (run,) = [line for line in commands_of("test").splitlines() if "pytest" in line]
    assert "ignore" not in run
    assert "tests/" not in run


def test_the_makefile_asks_for_the_python_that_the_package_needs() -> None:
    needed: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["requires-python"]
    version = needed.removeprefix(">=")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"sys.version_info >= ({version.replace('.', ', ')})" in makefile
    assert f"Python {version} or newer" in makefile
