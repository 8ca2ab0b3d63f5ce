"""Mutation testing of the rules: `make mutate`. Prints a score per module, and fails below 85 %.

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
MODULES = ("lifecycle", "closing", "reconcile", "policy")
LEAST = 0.85
SURVIVED = (0, 33)
"""Exit codes of a test run that noticed nothing: all passed, or no test reaches the mutant."""


def main() -> int:
    """Mutate, test, and judge."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "mutmut", "run", "--max-children", "2"], cwd=ROOT, check=True)
    worst = 1.0
    for module in MODULES:
        codes: dict[str, int | None] = json.loads((CORE / f"{module}.py.meta").read_text())["exit_code_by_key"]
        survivors = sorted(name for name, code in codes.items() if code is None or code in SURVIVED)
        score = 1 - len(survivors) / len(codes)
        worst = min(worst, score)
        print(f"{module:<10} {len(codes) - len(survivors):>5} of {len(codes):>5} killed  {score:.1%}")
        for name in survivors:
            print(f"           survived: {name}")
    print(f"every module needs {LEAST:.0%}")
    return 0 if worst >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main())
