"""A call that ends its process whenever it is made, of every kind, in runs and in conversations."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.crash.fatal import PLAYS
from tests.statements import proves


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What became of all plays; they are played in one process, because starting Python takes longer than a play."""
    done = subprocess.run([sys.executable, "-m", "tests.crash.fatal"], capture_output=True, text=True, timeout=600)
    assert done.stdout, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


@proves("0.crash.12", "A call of any kind that crashes every process is given up after three, and all beside it finish")
@pytest.mark.parametrize("name", PLAYS)
def test_a_fatal_call_is_given_up_after_three_crashes_and_everybody_else_finishes(
    name: str, found: dict[str, Any]
) -> None:
    assert found["wrong"].get(name, []) == [], f"python -m tests.crash.fatal {name!r} plays it again"
    assert found["deaths"][name] == PLAYS[name][0].deaths
