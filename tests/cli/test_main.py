"""The command line through the real process: what it prints, and how it refuses."""

import re
import subprocess
import sys
from pathlib import Path


def fledge(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fledge.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_demo_is_killed_half_way_and_every_answer_arrives_once(tmp_path: Path) -> None:
    done = fledge("demo", "--state", str(tmp_path / "state"))
    assert done.returncode == 0, done.stderr
    assert re.search(r"\*\*\* kill -9 \d+ \*\*\*", done.stdout)
    assert "LeaseLost        → queued  (crash: driven again)" in done.stdout
    assert done.stdout.endswith("5 runs, 5 answers in their requesters' transcripts: each exactly once.\n")


def test_tree_shows_what_the_demo_left(tmp_path: Path) -> None:
    fledge("demo", "--state", str(tmp_path))
    done = fledge("tree", "--state", str(tmp_path))
    assert done.stdout.splitlines() == [
        "├─ survey the project · completed (ok), attempt 2",
        "│  ├─ count the files · completed (ok)",
        "│  ├─ read the tests · completed (ok)",
        "│  └─ check the links · completed (ok)",
        "└─ draft a summary · completed (ok)",
    ]


def test_a_folder_without_a_store_is_refused_in_one_line_and_nothing_is_made(tmp_path: Path) -> None:
    done = fledge("tree", "--state", str(tmp_path / "nothing"))
    assert done.returncode == 1
    assert (
        done.stderr == f"fledge: {tmp_path}/nothing: no fledge.db there; name the folder that holds it with --state\n"
    )
    assert not (tmp_path / "nothing").exists()


def test_a_damaged_store_is_refused_in_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "fledge.db").write_bytes(b"not a database" * 100)
    done = fledge("tree", "--state", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "restore a copy" in done.stderr
    assert (tmp_path / "fledge.db").read_bytes() == b"not a database" * 100


def test_help_and_version_are_readable() -> None:
    assert fledge("--version").stdout == "fledge 0.1.0\n"
    assert "COMMAND" in fledge("--help").stdout
    assert fledge("fly").returncode == 2
