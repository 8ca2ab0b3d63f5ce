"""Each public type of the package has a name of its own: a reader who meets it knows which one is meant."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.docs.clone import ROOT

PACKAGE = ROOT / "src" / "fledge"


def types_of(tree: ast.Module) -> Iterator[str]:
    """The public classes and type aliases that a module defines at its top. Type variables are local to their
    module."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_type_name(name):
                if not is_type_variable(value):
                    yield name
            case ast.AnnAssign(target=ast.Name(id=name)) if is_type_name(name):
                yield name


def is_type_name(name: str) -> bool:
    """CamelCase: constants are written in capitals."""
    return name[0].isupper() and not name.isupper()


def is_type_variable(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in ("TypeVar", "ParamSpec")
    )


def defined_in() -> dict[str, list[str]]:
    """The modules that define each public type."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in types_of(ast.parse(path.read_text("utf-8"))):
            if not name.startswith("_"):
                found[name].append(path.relative_to(PACKAGE).as_posix())
    return found


def test_each_public_type_name_is_defined_once() -> None:
    assert {name: modules for name, modules in defined_in().items() if len(modules) > 1} == {}


def test_a_name_that_two_modules_define_would_be_found() -> None:
    tree = ast.parse("class Place: ...\nKind = Literal['a']\nMOST = 3\nT = TypeVar('T')\nData = TypeVar('Data')\n")
    assert list(types_of(tree)) == ["Place", "Kind"]
