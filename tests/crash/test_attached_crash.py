"""kill -9 between an attached file and the commit that names it, or anywhere else: no file is lost, and none stays."""

import json
import subprocess
import sys

from tests.statements import proves


@proves("3.attached.11")
@proves("3.attached.18", "After a crash at any transaction every file that a message names is there, and no other is")
def test_a_crash_before_or_after_any_transaction_loses_no_attached_file_and_leaves_none() -> None:
    command = [sys.executable, "-m", "tests.crash.attached_every_commit"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == {}
    assert found["points"] >= 24
    assert found["orphans"] >= 4
