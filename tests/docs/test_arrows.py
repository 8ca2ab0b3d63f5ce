"""Which package imports which: only downwards. Imports inside functions count, so that none hides an arrow."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.docs.clone import ROOT

PACKAGE = ROOT / "src" / "fledge"
LAYERS = (
    "errors ids signals",
    "plain_file",
    "core",
    "cancellation clock confine egress openclaw own_code",
    "context_engine models store",
    "config",
    "orchestrator",
    "channels tools",
    "hooks workspaces",
    "runtime",
    "api",
    "commands web",
    "client",
    "testing",
    "gateway",
    "cli",
    "__main__",
)
"""From the bottom up. A package imports from its own and from lower layers; what stands on one line does not import
each other. `fledge` itself names the public things, so whatever imports `fledge` uses what a program would."""
LAYER = {name: depth for depth, names in enumerate(LAYERS) for name in names.split()}


def arrows() -> Iterator[tuple[str, str, str]]:
    """From each module: the package it is in, and each other package it imports."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = path.relative_to(PACKAGE)
        if module == Path("__init__.py"):
            continue
        own = module.parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for name in imported(node):
                if name != own:
                    yield str(module), own, name


def imported(node: ast.AST) -> list[str]:
    """The packages of fledge that a statement imports."""
    match node:
        case ast.ImportFrom(module="fledge", names=names):
            return [one.name for one in names if one.name in LAYER]
        case ast.ImportFrom(module=str(module)) if module.startswith("fledge."):
            return [module.split(".")[1]]
        case ast.Import(names=names):
            return [one.name.split(".")[1] for one in names if one.name.startswith("fledge.")]
        case _:
            return []


ROWS_OF_A_CLOSED_FOLDER = {"cli/demo.py", "cli/doctor.py", "cli/importing.py", "cli/storing.py"}
"""Modules of the command that open a store themselves: they examine, fill or kill a folder that nobody drives."""
FILES_OF_A_FOLDER = {"fledge.store.addresses", "fledge.store.files", "fledge.store.ways"}
"""How the files in a state folder, and stores on a server, are called."""


def test_the_command_speaks_verbs_and_knows_no_rows() -> None:
    found = []
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = node.module if isinstance(node, ast.ImportFrom) else None
            inner = name is not None and name.startswith(("fledge.orchestrator", "fledge.store"))
            if inner and name not in FILES_OF_A_FOLDER:
                found.append(f"cli/{path.name}")
    assert set(found) == ROWS_OF_A_CLOSED_FOLDER


def test_every_package_stands_in_a_layer() -> None:
    found = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert found - {"__init__", "__pycache__", "py.typed"} == set(LAYER)


def test_arrows_lead_down() -> None:
    assert [f"{module} imports {other}" for module, own, other in arrows() if LAYER[own] <= LAYER[other]] == []
