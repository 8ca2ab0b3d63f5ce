"""Every way in which the package starts a process or imports code is on this list, with the reason why it runs nothing
that a tool may have written.

A workspace may hold the interpreter that runs fledge, and folders of `PATH`: so a program is started by a path that
`fledge.own_code` found, and code is imported by statements alone, of packages that `own_code` keeps in their place. A
new call below `src/` fails this test until somebody has looked at it.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
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

FOUND = "by a path that own_code found"
BOXED = "runs inside the sandbox, or with a person's approval"
OWNER = "a program that the owner's settings name; its caller decides"
PERSON = "a person's own command, from their own terminal"
OWN = "a module of this package, which is guarded"
NONE = "starts and loads nothing"

REVIEWED: dict[str, dict[str, tuple[int, str]]] = {
    "__init__.py": {"import_module": (1, OWN)},
    "cli/demo.py": {
        "subprocess.Popen": (1, PERSON + ": this interpreter, without the current folder among its import folders"),
        "shutil.which": (1, NONE + ": for the words of a hint"),
        "asyncio.run": (3, NONE),
    },
    "cli/main.py": {
        "import_module": (1, OWN),
        "subprocess.run": (1, PERSON + ": the checkout's own benchmark"),
        "asyncio.run": (2, NONE),
    },
    "cli/page.py": {"webbrowser.open": (1, PERSON + "; folders of PATH are guarded")},
    "cli/term/here.py": {"asyncio.create_subprocess_exec": (1, PERSON + ", after !")},
    "commands/dispatch.py": {"import_module": (1, OWN)},
    "own_code.py": {
        "import_module": (1, "what was found before the first tool call"),
        "program": (2, FOUND),
        "PathFinder.find_spec": (3, "this is the way"),
        "one.find_spec": (2, "this is the way"),
    },
    "runtime/command.py": {"run": (1, OWNER)},
    "testing/__init__.py": {"import_module": (1, OWN)},
    "testing/crashes.py": {"os.fork": (1, "this process, without another program")},
    "testing/time.py": {},
    "tools/files.py": {"asyncio.create_subprocess_exec": (1, FOUND + ": own_code.PYTHON, which imports as -I -S")},
    "tools/process.py": {"subprocess.Popen": (1, "for its callers, exec and runtimes, which are on this list")},
    "tools/sandbox.py": {"find_program": (1, FOUND), "subprocess.run": (1, FOUND)},
    "tools/shell.py": {"program": (1, FOUND), "run": (1, BOXED)},
    "workspaces/git.py": {"program": (1, FOUND), "_run": (1, FOUND), "subprocess.Popen": (1, FOUND)},
}


def calls(tree: ast.AST) -> Iterator[str]:
    """The calls in a file that may start or load something, as they are written, without their arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if LOOKED_AT.fullmatch(name):
                yield name


def found() -> dict[str, dict[str, int]]:
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    listed = {str(path.relative_to(PACKAGE)): Counter(calls(tree)) for path, tree in trees.items()}
    return {file: dict(names) for file, names in listed.items() if names}


def test_print() -> None:
    for file, names in found().items():
        print(file, names)
    assert 0
