"""Longer programs than the examples: each plays a whole story in real processes and says how it ended.

`conversation.py` needs a model server; tests/cli/test_run.py runs and kills it.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ENDS = {
    "two_levels": "told once: 1 entry, 1 completion",
    "shared_folder": "12 tasks, 12 runs: each exactly once",
    "orchestrated": "four answers in place, each exactly once; the killed worker is silent",
}


@pytest.mark.parametrize("name", ENDS)
def test_the_program_ends_as_it_says(name: str) -> None:
    path = Path(__file__).with_name(f"{name}.py")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == ENDS[name]
