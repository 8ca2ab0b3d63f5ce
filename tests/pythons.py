"""`make pythons`: the tests of `core/` with every Python on this machine that fledge supports, other than the one that
runs this and the versions given as arguments. Each has an environment in `build/pythons` with the base install, pytest
and hypothesis.

Pythons are looked for in PATH and where pyenv keeps them.
"""

import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "pythons"
OLDEST = (3, 11)


def interpreters() -> Iterator[Path]:
    """Every program that is named like a Python 3 of a version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    folders = [Path(folder) for folder in os.get_exec_path()] + sorted(pyenv.glob("*/bin"))
    for folder in folders:
        if folder.is_dir():
            yield from sorted(file for file in folder.iterdir() if re.fullmatch(r"python3\.\d+", file.name))


def version_of(python: Path) -> str | None:
    """Its version, as in 3.12.1; None if it does not run."""
    ask = "import platform; print(platform.python_version())"
    done = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=60)
    return done.stdout.strip() if done.returncode == 0 else None


def others() -> dict[str, Path]:
    """Versions that fledge supports, each with one interpreter, without the version of this process."""
    found: dict[str, Path] = {}
    for python in interpreters():
        version = version_of(python)
        if version and tuple(int(part) for part in version.split(".")[:2]) >= OLDEST:
            found.setdefault(version, python)
    found.pop(".".join(str(part) for part in sys.version_info[:3]), None)
    return found


def passes(version: str, python: Path) -> bool:
    """Run the tests of `core/` with this interpreter."""
    environment = ENVIRONMENTS / version
    print(f"Python {version} ({python})", flush=True)
    if not (environment / "bin" / "pytest").exists():
        subprocess.run([python, "-m", "venv", environment], check=True)
        pip = [str(environment / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "--editable", "."]
        subprocess.run([*pip, "pytest>=8,<9", "hypothesis>=6.100"], cwd=ROOT, check=True)
    return subprocess.run([environment / "bin" / "pytest", "tests/core"], cwd=ROOT).returncode == 0


def main(left_out: Collection[str]) -> int:
    """0 if the tests pass with each of them."""
    tried = {version: python for version, python in others().items() if version not in left_out}
    failed = [version for version, python in tried.items() if not passes(version, python)]
    if failed:
        print(f"tests/core failed with Python {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
