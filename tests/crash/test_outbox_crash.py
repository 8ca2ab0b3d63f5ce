"""kill -9 anywhere between writing a post, sending it and knowing that it arrived."""

import json
import subprocess
import sys

from tests.statements import proves


@proves("0.twice.5")
@proves("0.twice.6", "What leaves for channels and webhooks goes out at least once, under a stable id")
def test_a_crash_before_or_after_any_transaction_loses_nothing_that_leaves_and_keeps_ids_bodies_and_order() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.outbox_every_commit"], capture_output=True, text=True, timeout=600
    )
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == {}
    assert found["points"] == 2 * found["transactions"]
    assert found["transactions"] >= 15
    assert found["repeated"] > 0  # some died between the arrival and knowing of it
