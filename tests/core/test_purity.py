"""The core stays pure: what its files import is read from their syntax trees, without running them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fledge.core

CORE = Path(fledge.core.__file__).parent
FILES = sorted(CORE.rglob("*.py"))
WORLDLY = frozenset(
    [
        "asyncio",
        "concurrent",
        "sqlite3",
        "uuid",
        "time",
        "os",
        "sys",
        "random",
        "secrets",
        "threading",
        "multiprocessing",
        "socket",
        "ssl",
        "subprocess",
        "pathlib",
        "io",
        "tempfile",
        "shutil",
        "glob",
        "signal",
        "select",
        "selectors",
        "logging",
        "importlib",
        "http",
        "urllib",
        "platform",
        "getpass",
        "ctypes",
        "contextvars",
        "sched",
        "queue",
        "mmap",
        "fcntl",
    ]
)
CLOCKS = frozenset(["now", "utcnow", "today", "time", "monotonic", "perf_counter", "time_ns", "monotonic_ns"])
BUILTIN_WORLD = frozenset(["open", "input", "print", "exec", "eval", "__import__", "breakpoint"])
OWN = ("fledge.core", "fledge.errors")


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module a file names; a relative import counts as one inside its own package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = ("", "fledge.core", "fledge")[min(node.level, 2)]
            base = ".".join(part for part in (package, node.module) if part)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def impurities(source: str) -> list[str]:
    """What a file of the core must not contain."""
    tree = ast.parse(source)
    found = []
    for name in imports(tree):
        top = name.partition(".")[0]
        if top in WORLDLY or (top == "fledge" and not any(f"{name}.".startswith(f"{own}.") for own in OWN)):
            found.append(f"imports {name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Attribute(attr=attr) if attr in CLOCKS:
                    found.append(f"reads a clock: {attr}")
                case ast.Name(id=name) if name in BUILTIN_WORLD:
                    found.append(f"calls {name}")
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.Global):
            found.append(type(node).__name__)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_of_the_core_touches_no_clock_disk_thread_or_chance(path: Path) -> None:
    assert impurities(path.read_text("utf-8")) == []


def test_all_files_of_the_core_are_looked_at() -> None:
    names = {path.name for path in FILES}
    assert {"run.py", "events.py", "effects.py", "lifecycle.py", "closing.py", "reconcile.py"} <= names
    assert {"policy.py", "keys.py", "__init__.py"} <= names


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio",
        "import sqlite3 as db",
        "from os import path",
        "from os.path import join",
        "def f():\n    import time",
        "from uuid import uuid4",
        "import random, re",
        "import fledge.store",
        "from fledge.store import base",
        "from fledge import store",
        "from fledge.coreish import x",
        "from .. import store",
        "from datetime import datetime\ndatetime.now()",
        "import datetime\ndatetime.date.today()",
        "open('x')",
        "async def f(): ...",
    ],
)
def test_the_check_finds_what_it_is_there_to_find(source: str) -> None:
    assert impurities(source) != []


@pytest.mark.parametrize(
    "source",
    [
        "import re",
        "from msgspec import Struct",
        "from fledge.core import events as ev",
        "from fledge.errors import BadInput",
        "from . import events",
        "from .run import Run",
        "from datetime import datetime\ndatetime(2026, 1, 1)",
    ],
)
def test_the_check_lets_pure_things_pass(source: str) -> None:
    assert impurities(source) == []
