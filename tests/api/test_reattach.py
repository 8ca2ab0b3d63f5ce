"""A program that is killed with -9 finds everything it started again, by run id, in a new process on the real store."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "tests.api.reattaching"]


def test_results_and_answers_are_found_again_after_kill_minus_nine(tmp_path: Path) -> None:
    folder = str(tmp_path / "state")
    with subprocess.Popen([*COMMAND, "spawn", folder], cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        names: list[str] = []
        for line in process.stdout:
            if line == "ready\n":
                break
            names.append(line.strip())
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert len(names) == 7
    for times in (4, 0):
        command = [*COMMAND, "read", folder, *names]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.stdout.splitlines() == [
            "done: quick 0",
            "done: slow 0",
            "done: quick 1",
            "done: slow 1",
            "done: quick 2",
            "done: slow 2",
            "done: slow question",
            f"asked {times} times, undelivered 0",
            "deliveries delivered",
        ], done.stderr
