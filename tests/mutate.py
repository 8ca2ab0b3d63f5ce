"""Mutation testing of the rules: `make mutate`. Prints a score per module, and fails below its least.

mutmut changes one thing at a time in a copy of the package (`mutants/`) and runs the core's tests against it. A mutant
that no test notices is a rule that nobody checks.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "mutants"
CORE = FOLDER / "src" / "fledge" / "core"
LEAST = {"lifecycle": 0.95, "closing": 0.95, "reconcile": 0.85, "policy": 0.95, "turn": 0.95}
"""The share of mutants that the tests of each module must notice."""
SURVIVED = (0, 33)
"""Exit codes of a test run that noticed nothing: all passed, or no test reaches the mutant."""


def main() -> int:
    """Mutate, test, and judge."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "mutmut", "run", "--max-children", "2"], cwd=ROOT, check=True)
    is_enough = True
    for module, least in LEAST.items():
        codes: dict[str, int | None] = json.loads((CORE / f"{module}.py.meta").read_text())["exit_code_by_key"]
        survivors = sorted(name for name, code in codes.items() if code is None or code in SURVIVED)
        score = 1 - len(survivors) / len(codes)
        is_enough = is_enough and score >= least
        killed = len(codes) - len(survivors)
        print(f"{module:<10} {killed:>5} of {len(codes):>5} killed  {score:.1%}, needs {least:.0%}")
        for name in survivors:
            print(f"           survived: {name}")
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
