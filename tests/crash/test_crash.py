"""kill -9 anywhere: before and after every transaction, twice in a row, and at random with everything real."""

import json
import os
import subprocess
import sys

import pytest

SOAK = "FLEDGE_SOAK" in os.environ


def judge(*arguments: str) -> dict[str, object]:
    command = [sys.executable, "-m", "tests.crash.every_commit", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.stdout, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_crash_before_or_after_any_transaction_loses_nothing_and_doubles_nothing() -> None:
    found = judge()
    assert found["wrong"] == {}
    assert found["points"] == 2 * int(str(found["transactions"]))


def test_a_second_crash_during_recovery_changes_nothing_either() -> None:
    assert judge("--again", "--step", "1" if SOAK else "5")["wrong"] == {}


@pytest.mark.parametrize("seed", range(200 if SOAK else 6))
def test_a_process_killed_at_a_random_moment_is_taken_over_by_the_next(seed: int) -> None:
    command = [sys.executable, "-m", "tests.crash.at_random", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["wrong"] == []
