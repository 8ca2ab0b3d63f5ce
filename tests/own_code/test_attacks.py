"""A project holds the fledge that works on it, and the model tries to have its own files executed by it: real commands
in the real sandbox, real file tools, real imports. A mark is left wherever such a file ran outside the sandbox."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.left_out import requires
from tests.own_code.layout import Project, Report
from tests.statements import proves

pytestmark = pytest.mark.root

Call = tuple[str, dict[str, Any]]
NAMES = ("aiohttp", "brotli", "difflib", "json5", "lxml", "pydantic_core", "uvloop", "winreg", "zoneinfo")
"""Modules that fledge imports late: installed, part of Python, and of packages that it does without."""
PROGRAMS = ("bash", "bwrap", "git", "node", "python3", "rg", "sh")
LATE = "grep", {"pattern": "nothing to see"}
"""A tool that starts a process outside the sandbox."""
NOBODY = 65534


def plants(project: Project) -> dict[str, str]:
    """The files that an attack leaves, each with what leaves a mark when it runs."""
    site, bin_ = (os.path.relpath(path, project.ws) for path in (project.site, project.python.parent))
    modules = [f"{folder}/{name}.py" for folder in ("src", "vendor", ".") for name in NAMES]
    modules += [f"{site}/{name}/__init__.py" for name in ("aiohttp", "json5", "lxml")]
    modules += [
        f"{site}/sitecustomize.py",
        f"{site}/difflib.py",
        "src/sitecustomize.py",
        "src/usercustomize/__init__.py",
    ]
    modules += [f"src/fledge/{name}.py" for name in ("tools/page", "cli/doctor", "commands/runs", "tools/files")]
    programs = [f"{bin_}/{name}" for name in ("python", "python3", "bwrap", "git")]
    programs += [f"tools/{name}" for name in PROGRAMS]
    made = {path: project.payload(path.replace("/", "+")) for path in modules}
    made |= {path: project.script(path.replace("/", "+")) for path in programs}
    made[f"{site}/planted.pth"] = "import " + project.payload("pth").replace("\n", ";")
    made[f"{os.path.dirname(bin_) or '.'}/pyvenv.cfg"] = f"home = {project.ws}/tools\n"
    return made


def by_commands(project: Project) -> list[Call]:
    """Calls of `exec` that replace each file, move the folder above it away first, and delete what is there."""
    lines = []
    for path, content in plants(project).items():
        words = shlex.quote(content)
        write = f"mkdir -p $(dirname {path}); printf %s {words} > {path}; chmod +x {path}"
        lines += [f"rm -rf {path}; {write}"]
    site, bin_ = (os.path.relpath(path, project.ws) for path in (project.site, project.python.parent))
    moved = [
        f"mv {folder} moved-{number}; mkdir -p {folder}" for number, folder in enumerate((bin_, site, "src/fledge"))
    ]
    moved += ["rm .venv; mkdir -p .venv; mv .venv gone", "mv src gone-src; ln -s gone-src src", "mv tools gone-tools"]
    return [("exec", {"command": " \n".join(part)}) for part in (lines, moved, lines, ["echo all; true"])]


def by_files(project: Project) -> list[Call]:
    """Calls of `write` and `edit` that put each file there."""
    calls: list[Call] = [("write", {"path": path, "content": content}) for path, content in plants(project).items()]
    return [*calls, ("edit", {"path": "src/fledge/errors.py", "old": '"""', "new": f'{project.payload("edit")}"""'})]


def interpreters() -> list[Any]:
    """The users that a test can be, each with a Python that it may start: this one, and for root one without rights."""
    system = Path("/usr/bin/python3").resolve()
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    other = [(NOBODY, str(system))] if os.getuid() == 0 and system.name == version else []
    return [pytest.param(*one, id="nobody" if one[0] else "this user") for one in [(None, sys.executable), *other]]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    requires("bubblewrap")
    with TemporaryDirectory(dir="/tmp") as made:
        os.chmod(made, 0o755)
        yield Path(made)


def holds_the_rule(project: Project, report: Report) -> None:
    """No planted file ran, and nothing that was started or imported late lies where a tool could have written."""
    guarded = [str(project.ws / "src" / "fledge"), str(project.site), str(project.python.parent.parent / "lib")]
    guarded += [os.path.realpath(path) for path in guarded]
    inside = (f"{project.ws}/", f"{os.path.realpath(project.ws)}/")
    assert project.marks == []
    assert [path for path in report.started if path.startswith(inside)] == []
    loose = {path for path in (*report.read, *report.imported.values()) if path.startswith(inside)}
    assert [path for path in sorted(loose) if not path.startswith(tuple(guarded))] == []
    assert set(report.failed) <= {"brotli", "uvloop", "winreg", "uvicorn", "psycopg", "starlette", "websockets"}


@proves(
    "8.exec.12", "After the first tool could have run, fledge executes and imports nothing that lies in a workspace"
)
@pytest.mark.parametrize(
    ("venv", "attack", "kind"),
    [
        (".venv", by_commands, "command"),
        (".venv", by_files, "program"),
        (".", by_commands, "program"),
        ("environments/one", by_commands, "program"),
        ("environments/one", by_files, "command"),
    ],
)
def test_no_file_that_a_tool_wrote_runs_in_fledge_or_as_its_helper(
    folder: Path, venv: str, attack: Callable[[Project], list[Call]], kind: str
) -> None:
    project = Project(folder, venv)
    report = project.run(*attack(project), LATE, ("exec", {"command": "echo still here"}), ("list", {}), kind=kind)
    assert "notes.md:1: nothing to see" in report.results[-3]
    assert "still here" in report.results[-2]
    holds_the_rule(project, report)
    loose = [path for path in report.path if Path(path).is_relative_to(project.ws) and "site-packages" not in path]
    assert loose == ([] if kind == "command" else [f"{project.ws}/vendor", f"{project.ws}/src"])
    # And at the next start, at which Python runs some modules by itself.
    holds_the_rule(project, project.run(LATE, kind=kind, paths=False))


@proves("8.exec.12")
@pytest.mark.parametrize(("user", "interpreter"), interpreters())
def test_the_same_holds_for_every_user(folder: Path, user: int | None, interpreter: str) -> None:
    project = Project(folder, interpreter=interpreter)
    if user is not None:
        subprocess.run(["chown", "-R", str(user), folder], check=True)
    report = project.run(*by_commands(project), LATE, user=user)
    assert "notes.md:1: nothing to see" in report.results[-1]
    assert "[.venv, src/fledge, tools: fledge itself runs from there, or" in report.results[1]
    holds_the_rule(project, report)


def test_a_startup_module_is_set_aside_and_said_whatever_the_command_does_to_its_folder(folder: Path) -> None:
    project = Project(folder)
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "sitecustomize.py").write_text("not in the workspace\n")
    plant = f"printf %s {shlex.quote(project.payload('startup'))} > src/sitecustomize.py; chmod 500 src"
    leave = f"mv src away; ln -s {folder}/elsewhere src; false"
    report = project.run(("exec", {"command": plant}), ("exec", {"command": leave}), paths=False)
    assert (
        f"[{project.ws}/src/sitecustomize.py appeared while a sandboxed command ran, and was set aside: "
        in (report.results[0])
    )
    assert [path.name for path in (folder / "elsewhere").iterdir()] == ["sitecustomize.py"]
    assert "src" in report.results[1]
    assert project.marks == []


def test_a_link_to_what_fledge_runs_from_keeps_its_place_and_the_reason_is_said(folder: Path) -> None:
    project = Project(folder, "environments/one")
    swap = "rm .venv; mkdir environments/two; touch new src/new; ls -d .venv src/new; false"
    report = project.run(("exec", {"command": swap}), paths=False)
    assert "cannot remove '.venv': Read-only file system" in report.results[0]
    assert "cannot touch 'new': Read-only file system" in report.results[0]
    assert ".venv\nsrc/new" in report.results[0]
    assert "in . no entry can be made or renamed by a command: a link there leads to what fledge" in report.results[0]


def test_what_fledge_runs_from_is_no_workspace_itself(folder: Path) -> None:
    project = Project(folder)
    script = "import sys, fledge; fledge.open('s', model='openai/x', workspace=sys.argv[1]).profiles.check()"
    command = [str(project.python), "-c", script, str(project.ws / "src" / "fledge" / "core")]
    env = {"OPENAI_API_KEY": "none", "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert "holds packages that fledge itself runs from, so it cannot be a workspace" in done.stderr


def test_the_command_drops_the_import_folders_of_a_workspace(folder: Path) -> None:
    script = (
        "import sys, fledge; from fledge.cli.main import main; sys.argv[1:] = ['completion', 'bash']; main()\n"
        "fledge.open('s', workspace='.'); print('|'.join(sys.path), 'difflib' in sys.modules)\n"
    )
    env = {"PYTHONPATH": f"{folder}/vendor"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    path = done.stdout.splitlines()[-1].split("|")
    assert "" not in path
    assert f"{folder}/vendor" not in path


def test_programs_in_a_workspace_are_passed_over_even_if_they_were_there_before(folder: Path) -> None:
    project = Project(folder)
    for name in PROGRAMS:
        path = project.ws / "tools" / name
        path.write_text(project.script(name))
        path.chmod(0o755)
    report = project.run(LATE, ("exec", {"command": "echo through the sandbox"}))
    assert report.results[1].startswith("through the sandbox")
    holds_the_rule(project, report)


def test_a_program_that_lives_in_a_workspace_goes_on_importing_its_own_modules(folder: Path) -> None:
    project = Project(folder)
    (project.ws / "plugin.py").write_text("word = 'imported late'\n")
    (project.ws / "mailbox.py").write_text("word = 'of its own'\n")
    (project.ws / "brotli.py").write_text("raise SystemExit('brotli of the workspace')\n")
    (project.ws / "app.py").write_text(
        "import sys, fledge\n"
        "fledge.open('../s', workspace='.')\n"
        "import plugin, aiohttp, mailbox\n"
        "print(plugin.word, mailbox.word, 'aiohttp' in sys.modules, 'brotli' in sys.modules)\n"
    )
    done = subprocess.run([project.python, "app.py"], cwd=project.ws, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("imported late of its own True False\n", "")
