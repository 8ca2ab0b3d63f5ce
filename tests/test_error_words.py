"""Exceptions of libraries quote what they were given. Every place of the source that puts an exception into words goes
through `core.redact`, or handles errors of our own alone."""

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from fledge.cancellation import describe, error_message, trace
from fledge.core.redact import REDACTED, error_words
from fledge.errors import FledgeError
from tests.docs.clone import ROOT
from tests.statements import proves

SOURCE: Final = ROOT / "src" / "fledge"
ITSELF: Final = "core/redact.py"
TESTING: Final = "testing/crashes.py"
"""Prints the traceback of a test's own program."""
LOGS: Final = ("debug", "info", "warning", "error", "critical", "log")


def own_errors() -> frozenset[str]:
    """The names of our own exceptions, whose words are our own."""
    found = {FledgeError.__name__}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
                if bases & (found | {"FledgeError", "Refused", "StoreError", "BadInput"}):
                    found.add(node.name)
    return frozenset(found)


OWN: Final = own_errors()


def _is_foreign(kinds: list[str]) -> bool:
    names = [kind.strip(" '\"").rpartition(".")[2] for kind in kinds]
    errors = [name for name in names if name.endswith(("Error", "Exception")) or name in OWN]
    return bool(errors) and not set(errors) <= OWN


def exceptions(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """The name of each exception that may be a library's, and the code that has it by this name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and node.name and node.type is not None:
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            if not {ast.unparse(kind).rpartition(".")[2] for kind in kinds} <= OWN:
                yield node.name, node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for argument in (*node.args.args, *node.args.kwonlyargs):
                if argument.annotation is not None and _is_foreign(ast.unparse(argument.annotation).split("|")):
                    yield argument.arg, node


def puts_into_words(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """True if this name is formatted here: in an f-string, by `str` or `repr`, or by a log."""
    above = parents[node]
    while isinstance(above, ast.BoolOp | ast.IfExp):
        above = parents[above]
    match above:
        case ast.FormattedValue():
            return True
        case ast.Call(func=ast.Name(id="str" | "repr" | "format" | "print")):
            return True
        case ast.Call(func=ast.Attribute(attr=attribute)):
            return attribute in LOGS or attribute in ("format", "join")
        case ast.BinOp(op=ast.Mod()) | ast.Attribute(attr="args"):
            return True
        case _:
            return False


def wordings(source: str) -> list[int]:
    """The lines on which an exception that may be a library's is put into words, or its traceback is."""
    tree = ast.parse(source)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = {
        name.lineno
        for known, code in exceptions(tree)
        for name in ast.walk(code)
        if isinstance(name, ast.Name) and name.id == known and puts_into_words(name, parents)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            tells = called.startswith(("traceback.format", "traceback.print")) or called.endswith("log.exception")
            if tells or any(given.arg == "exc_info" for given in node.keywords):
                found.add(node.lineno)
    return sorted(found)


@proves("8.egress.40", "No words of a library's exception reach a model, a log or a transcript without redaction")
def test_every_place_that_puts_an_exception_into_words_redacts_them() -> None:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        name = str(path.relative_to(SOURCE))
        lines = path.read_text("utf-8").splitlines()
        if name not in (ITSELF, TESTING):
            found += [f"{name}: {lines[at - 1].strip()}" for at in wordings("\n".join(lines))]
    assert found == ['cancellation.py: return redacted("".join(traceback.format_exception(error)).rstrip())']


@pytest.mark.parametrize(
    "source",
    [
        "try: pass\nexcept OSError as error: raise BadInput(f'no ({error})')",
        "try: pass\nexcept (BadInput, OSError) as error: words = str(error)",
        "try: pass\nexcept Exception as error: log.warning('no: %s', error)",
        "try: pass\nexcept ValueError as e: x = f'{e.strerror or e}'",
        "try: pass\nexcept Exception: log.exception('no')",
        "try: pass\nexcept Exception: log.error('no', exc_info=True)",
        "def told(error: aiohttp.ClientError) -> str: return repr(error)",
        "def told(error: 'BaseException | None') -> str: return 'no: %s' % error",
        "try: pass\nexcept Exception as error: print(error.args)",
    ],
)
def test_the_search_finds_each_way_to_put_an_exception_into_words(source: str) -> None:
    assert wordings(source) != []


def test_words_of_errors_of_our_own_are_no_librarys() -> None:
    assert wordings("try: pass\nexcept (BadInput, StoreError) as error: words = f'{error}'") == []


@pytest.mark.parametrize(
    "address",
    [
        "http://wren:secret@proxy.example:3128",
        "http://wren:se%40cret%2Fsecret@proxy.example",
        "http://wren:secret@secret@proxy.example/",
        "http://:secret@proxy.example",
        "socks5://wren:secret@[::1]:1080",
        "postgresql://wren:secret@db.example/runs?sslmode=require",
        "https://secretsecretsecret0@git.example/x.git",
        f"http://wren:{'secret' * 100}@proxy.example",
    ],
)
@pytest.mark.parametrize("told", [error_words, error_message, describe, trace])
def test_an_address_in_an_exception_loses_its_credentials(address: str, told: object) -> None:
    assert callable(told)
    words = told(OSError(f"407, message='no', url='{address}'"))
    assert "secret" not in words
    assert REDACTED in words
    assert "407" in words
