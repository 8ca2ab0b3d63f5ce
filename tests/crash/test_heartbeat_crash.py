"""kill -9 anywhere around a heartbeat: due, queued, begun or answered."""

import json
import subprocess
import sys

from tests.statements import proves


@proves("5.heartbeat.13")
def test_a_heartbeat_that_was_due_at_a_crash_fires_once_after_it_and_missed_ones_are_one() -> None:
    command = [sys.executable, "-m", "tests.crash.outbox_every_commit", "--scenario", "heartbeat_scenario"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == {}
    assert found["points"] == 2 * found["transactions"]
    assert found["transactions"] >= 15
