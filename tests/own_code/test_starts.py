"""Every way in which the package starts a process or imports code is on this list, with the reason why it runs nothing
that a tool may have written.

A workspace may hold the interpreter that runs fledge, and folders of `PATH`: so a program is started by a path that
`fledge.own_code` found, and code is imported by statements alone, of packages that `own_code` keeps in their place. A
new call below `src/` fails this test until somebody has looked at it.
"""

import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

from packaging.requirements import Requirement

import fledge
from fledge import own_code
from fledge.own_code import PACKAGES, SYSTEM_PATH
from tests.statements import proves

PACKAGE = Path(fledge.__file__).parent
LOOKED_AT = re.compile(
    r"subprocess\.(?!TimeoutExpired|CompletedProcess)\w+|\w*Popen|run|(\w+\.)?create_subprocess_\w+|(\w+\.)*subprocess_(exec|shell)"
    r"|os\.(system|popen|fork|forkpty|exec\w+|spawn\w+|posix_spawn\w*)|(\w+\.)*(Process|ProcessPoolExecutor|Pool)|pty\.\w+"
    r"|webbrowser\.\w+|(\w+\.)?which|find_program|program"
    r"|(\w+\.)*(import_module|__import__|run_path|run_module|load_module|exec_module|CDLL|LoadLibrary|dlopen|entry_points)"
    r"|(\w+\.)*(spec_from_file_location|module_from_spec|find_spec|load_extension)|exec|eval|compile"
)
"""Calls that start a program, find one, or load code other than by a statement."""

FOUND = "a path that own_code found outside workspaces"
BOXED = "it runs inside the sandbox, or with a person's approval"
OWNER = "a program that the owner's settings name; its caller decides"
PERSON = "a person's own command"
OWN = "a module of this package, which is guarded"
NONE = "starts nothing"

REVIEWED: dict[str, dict[str, tuple[int, str]]] = {
    "__init__.py": {"import_module": (1, OWN)},
    "cli/demo.py": {
        "subprocess.Popen": (1, PERSON + ": this interpreter, without the current folder among its import folders"),
        "shutil.which": (1, NONE + ": for the words of a hint"),
    },
    "cli/main.py": {"import_module": (1, OWN), "subprocess.run": (1, PERSON + ": the benchmark of a checkout")},
    "cli/page.py": {"webbrowser.open": (1, "with the folders of PATH that lie outside the current one")},
    "cli/term/here.py": {"asyncio.create_subprocess_exec": (1, PERSON + ": what they type after !")},
    "commands/dispatch.py": {"import_module": (1, OWN)},
    "context_engine.py": {"import_module": (1, "named by the owner's settings; workspaces have left the path")},
    "own_code.py": {
        "import_module": (1, "what was found before the first tool call"),
        "program": (2, FOUND),
        "PathFinder.find_spec": (3, "this is the way"),
    },
    "runtime/command.py": {"run": (1, OWNER)},
    "store/threads.py": {"run": (1, NONE + ": a job of the store")},
    "testing/__init__.py": {"import_module": (1, OWN)},
    "testing/crashes.py": {"os.fork": (1, "this process, without another program")},
    "tools/files.py": {"asyncio.create_subprocess_exec": (1, "own_code.PYTHON with -I -S: Python's own library alone")},
    "tools/process.py": {"subprocess.Popen": (1, "for its callers, which are on this list: exec and runtimes")},
    "tools/sandbox.py": {"find_program": (1, FOUND), "subprocess.run": (1, FOUND)},
    "tools/shell.py": {"program": (1, FOUND), "run": (2, BOXED)},
    "workspaces/git.py": {"program": (1, FOUND), "subprocess.Popen": (1, FOUND)},
}
TREES = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def calls(tree: ast.AST) -> Iterator[str]:
    """The calls in a file that may start or load something, as they are written, without their arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and LOOKED_AT.fullmatch(name := ast.unparse(node.func)):
            yield name


def imports(tree: ast.AST) -> Iterator[str]:
    """The first names of all that a file imports, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module).partition(".")[0]


@proves("8.exec.12")
def test_every_start_of_a_process_and_every_dynamic_import_was_looked_at() -> None:
    reviewed = {file: {call: times for call, (times, _) in listed.items()} for file, listed in REVIEWED.items()}
    found = {file: dict(Counter(calls(tree))) for file, tree in TREES.items()}
    assert {file: names for file, names in found.items() if names} == reviewed


def test_fledge_imports_pythons_library_and_packages_that_are_kept_in_their_place() -> None:
    allowed = {*PACKAGES, *sys.stdlib_module_names}
    assert {(file, name) for file, tree in TREES.items() for name in imports(tree) if name not in allowed} == set()


def test_the_packages_that_are_kept_in_their_place_are_all_that_fledge_needs() -> None:
    needed, todo = dict[str, set[str]](), [("fledge", {"gateway", "chat", "postgres"})]
    while todo:
        name, extras = todo.pop()
        if {"", *extras} <= needed.setdefault(name, set()):
            continue
        needed[name] |= {"", *extras}
        for text in distribution(name).requires or ():
            wanted = Requirement(text)
            if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in needed[name]):
                todo.append((plain(wanted.name), set(wanted.extras)))
    modules = {name for name, owners in packages_distributions().items() if {plain(one) for one in owners} & {*needed}}
    assert modules <= set(PACKAGES)


def plain(name: str) -> str:
    """The name of a distribution, spelled in the one way."""
    return re.sub(r"[-_.]+", "-", name).lower()


# ---- the places ------------------------------------------------------------------------------------------------------


def test_the_places_of_this_process_are_guarded_by_real_path() -> None:
    places, _ = own_code.code_places()
    assert {os.path.realpath(one) for one in (sys.prefix, sys.base_prefix, sys.executable, PACKAGE)} <= {*places}
    assert {os.path.realpath(one) for one in SYSTEM_PATH.split(":")} <= {*places}
    assert all(os.path.realpath(os.path.dirname(one)) == os.path.dirname(one) for one in places)
    assert own_code.holds_code(os.path.realpath(PACKAGE / "core"))
    assert own_code.holds_code(os.path.realpath(sys.base_prefix))
    assert not own_code.holds_code(os.path.realpath(PACKAGE.parent.parent / "docs"))


def test_each_folder_with_a_link_on_the_way_is_found(tmp_path: Path) -> None:
    (tmp_path / "real" / "bin").mkdir(parents=True)
    (tmp_path / "real" / "bin" / "python").symlink_to("../../other/python")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "venv").symlink_to(tmp_path / "real")
    (tmp_path / "round").symlink_to("round")
    assert own_code.links_to(f"{tmp_path}/deep/venv/bin/python") == [f"{tmp_path}/deep", f"{tmp_path}/real/bin"]
    assert own_code.links_to(f"{tmp_path}/real/./bin/../bin") == []
    assert set(own_code.links_to(f"{tmp_path}/round/x")) == {str(tmp_path)}


def test_a_program_is_found_in_no_workspace_and_by_no_relative_path(tmp_path: Path) -> None:
    work, apart = tmp_path / "work", tmp_path / "apart"
    for folder in (work, apart, apart / "links"):
        folder.mkdir()
    (work / "tool").touch(0o755)
    (apart / "tool").touch(0o755)
    (apart / "links" / "tool").symlink_to(work / "tool")
    (apart / "plain").touch(0o644)
    # In a process of its own: here, other tests had workspaces too.
    script = (
        "import sys; from fledge.own_code import SYSTEM_PATH, keep_out, program; keep_out(sys.argv[1:2])\n"
        "print(program('tool', sys.argv[2]), program('plain', sys.argv[2]), program('sh', SYSTEM_PATH))"
    )
    command = [sys.executable, "-c", script, str(work), f"{work}:.::{apart}/links:{apart}"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=True)
    assert done.stdout == f"{apart}/tool None {os.path.realpath('/bin/sh')}\n"
