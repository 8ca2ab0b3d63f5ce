"""kill -9 between an image's file and the commit that names it, or anywhere else: no image is lost, and none stays."""

import json
import subprocess
import sys

from tests.statements import proves


@proves("3.images.11")
@proves("3.images.24", "After a crash at any transaction every image that a row names is there, and no other file is")
def test_a_crash_before_or_after_any_transaction_loses_no_image_and_leaves_no_file() -> None:
    command = [sys.executable, "-m", "tests.crash.image_every_commit"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert found["wrong"] == {}
    assert found["points"] >= 32
    assert found["left"] >= 12
