"""The package as users get it: `make wheel` builds it, installs the wheel in an empty environment, and uses it there.

It takes about half a minute and fetches the dependencies, so it is no test of the suite; `.ci/run` runs it. Nothing of
the checkout is on the path of the installed program.
"""

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from tests.docs.clone import ROOT
from tests.docs.wheel_pages import packaged_pages

PROGRAM = """
import fledge
from fledge.testing import ScriptedModel, echo

async def main(fl):
    return (await (await fl.spawn("Say hello"))).text

assert "site-packages" in fledge.__file__, fledge.__file__
assert fledge.run_sync(main, "state", model=ScriptedModel(echo), config={}) == "Say hello"
"""


def built(folder: Path) -> Path:
    """Build source archive and wheel; answers the wheel, which is made from the archive."""
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)], check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """The wheel has the page of the gateway, the pages of documentation and nothing of the tests."""
    names = set(zipfile.ZipFile(wheel).namelist())
    pages = {name.removeprefix("fledge/docs/") for name in names if name.startswith("fledge/docs/")}
    assert pages == packaged_pages(), pages ^ packaged_pages()
    assert {"fledge/web/index.html", "fledge/py.typed", "fledge/models/catalog.json"} <= names
    strange = {name for name in names if not name.startswith(("fledge/", "fledge-"))}
    assert not strange, strange


def check_installed(wheel: Path, folder: Path) -> None:
    """Installed alone, the command and the library work."""
    venv.create(folder / "venv", with_pip=True)
    programs, home, work = folder / "venv" / "bin", folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()

    def run(*command: str) -> str:
        env = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(home)}
        done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pip = [str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", f"{wheel}[gateway,chat]"]
    subprocess.run(pip, check=True)
    assert run("fledge", "--version").startswith("fledge 0.")
    assert run("fledge", "docs", "config").startswith("# Settings")
    assert "each exactly once" in run("fledge", "demo")
    run("python", "-c", PROGRAM)


def main() -> int:
    """Do all of it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = built(folder / "dist")
        check_contents(wheel)
        check_installed(wheel, folder)
        print(f"{wheel.name}: builds, installs and works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
