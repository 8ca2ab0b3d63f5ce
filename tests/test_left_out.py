"""What cannot be tested on a machine is said at the end of the suite, and is a failure in CI."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = """
import pytest
from tests.left_out import REQUIREMENTS, Requirement, requires

REQUIREMENTS["warp drive"] = Requirement(lambda: False, "apt-get install warp-drive")

@pytest.fixture
def ship():
    requires("warp drive")

@pytest.mark.parametrize("n", [1, 2])
def test_that_travels(ship, n): ...

@pytest.mark.skip(reason="it rains")
def test_outside(): ...

def test_that_stays(): ...
"""


def suite(tmp_path: Path, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run these tests in two processes, with the hooks that our conftest.py has and no plugin that they do not need."""
    (tmp_path / "test_it.py").write_text(TESTS, "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n2", "-p", "tests.left_out", "--rootdir", "."]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    env |= {"PATH": os.environ["PATH"], "PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run([*command, "test_it.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)


def test_the_end_of_the_suite_says_what_was_left_out_and_how_to_install_it(tmp_path: Path) -> None:
    done = suite(tmp_path)
    assert done.returncode == 0, done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("left out: ")] == [
        "left out: 1 test, because it rains",
        "left out: 2 tests, because warp drive does not work here: apt-get install warp-drive",
    ]


def test_in_ci_what_is_left_out_fails(tmp_path: Path) -> None:
    done = suite(tmp_path, CI="true")
    assert done.returncode == 1
    assert "1 passed" in done.stdout
    assert "skipped" not in done.stdout
    assert "CI leaves nothing out: warp drive does not work here: apt-get install warp-drive" in done.stdout
    assert "left out: " not in done.stdout
