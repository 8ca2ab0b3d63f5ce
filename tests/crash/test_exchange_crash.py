"""kill -9 anywhere in a talk between two agents: every word is said once, and the one who waited has its answer."""

import json
import math
import subprocess
import sys

import pytest

from tests.statements import proves


@proves("4.a2a.2")
@pytest.mark.parametrize("arguments", [[], ["--again", "--step", "3"]], ids=["once", "and again in the recovery"])
def test_a_crash_before_or_after_any_transaction_of_a_talk_says_every_word_once(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "tests.crash.every_commit", "--scenario", "exchange_scenario", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == {}
    assert found["transactions"] >= 12
    assert found["points"] == math.ceil(2 * found["transactions"] / (3 if arguments else 1))
