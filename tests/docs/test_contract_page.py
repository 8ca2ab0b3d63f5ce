"""The page of the contract is fresh, and every proof it names is a test of the suite. Tests are found in the syntax
trees of their files, so nothing is collected or run here."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from docs.contract_page import Statement

from docs import contract_page, generate

ROOT = Path(__file__).parents[2]


@cache
def tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text("utf-8"))


@cache
def run_classes() -> frozenset[str]:
    """Names of classes whose tests are run: those that pytest collects, and what they inherit from."""
    bases: dict[str, set[str]] = {}
    for file in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(tree(str(file.relative_to(ROOT)))):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(b.id for b in node.bases if isinstance(b, ast.Name))
    found: set[str] = set()
    todo = [name for name in bases if name.startswith("Test")]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += bases.get(name, ())
    return frozenset(found)


@cache
def runs(path: str) -> frozenset[str]:
    """What a file defines that is run as a test: `test_name`, `Class::test_name`, or a name like `TestMachine`."""
    found: set[str] = set()
    collected = Path(path).name.startswith("test_")
    for node in tree(path).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if collected and name.startswith("test"):
                found.add(name)
            case ast.ClassDef(name=owner) if owner in run_classes():
                methods = (ast.FunctionDef, ast.AsyncFunctionDef)
                named = (each.name for each in node.body if isinstance(each, methods))
                found.update(f"{owner}::{name}" for name in named if name.startswith("test"))
            case ast.Assign(targets=[ast.Name(id=name)]) if collected and name.startswith("Test"):
                found.add(name)
            case _:
                pass
    return frozenset(found)


def exists(test: str) -> bool:
    """True if the test is run by the suite; a row of a table must stand in its file, word for word."""
    path, _, named = test.partition("::")
    name, _, row = named.partition("[")
    if not (ROOT / path).is_file() or name not in runs(path):
        return False
    words = {node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant)}
    return not row or row.removesuffix("]") in words


def test_the_page_is_what_the_statements_say_now() -> None:
    assert contract_page.TARGET.read_text("utf-8") == contract_page.page(), "stale: run python -m docs.generate"
    assert generate.main(["--check"]) == 0


def test_every_part_has_statements_and_every_statement_is_proved_by_tests_that_are_run() -> None:
    """One test for all of them: reading every test file takes seconds, and each process of the suite would do it."""
    statements = contract_page.statements()
    parts = {statement.id.rpartition(".")[0] for statement in statements}
    assert parts == {f"{number}.{part}" for number, (_, parts) in contract_page.SECTIONS.items() for part in parts}
    proofs = [(statement.id, proof) for statement in statements for proof in statement.proofs]
    named = [(id, f"{one.path}::{one.test}" + (f"[{one.row}]" if one.row else "")) for id, one in proofs]
    assert [(id, test) for id, test in named if not exists(test)] == []
    assert [statement.id for statement in statements if statement.text.strip() != statement.text] == []


def statements_of(source: str) -> list[Statement]:
    return contract_page.statements(contract_page.proofs("tests/test_it.py", ast.parse(source)))


def test_a_statement_is_read_from_decorators_of_functions_methods_and_machines() -> None:
    found = statements_of(
        """
@proves("2.kill.9", row="a row")
@proves("0.lost.1", "Nothing is lost")
def test_one(): ...

class TestTwo:
    @proves("2.kill.9", "A kill is silent")
    async def test_two(self): ...

proves("0.lost.1")(TestMachine)
"""
    )
    assert [(one.id, one.text) for one in found] == [("0.lost.1", "Nothing is lost"), ("2.kill.9", "A kill is silent")]
    assert [(proof.test, proof.row) for one in found for proof in one.proofs] == [
        ("test_one", ""),
        ("TestMachine", ""),
        ("TestTwo::test_two", ""),
        ("test_one", "a row"),
    ]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ('@proves("0.lost.1")\ndef test_a(): ...', "0 wordings"),
        ('@proves("0.lost.1", "A")\n@proves("0.lost.1", "B")\ndef test_a(): ...', "2 wordings"),
        ('@proves("9.lost.1", "A")\ndef test_a(): ...', "no place"),
        ('@proves("0.found.1", "A")\ndef test_a(): ...', "no place"),
        ('@proves("0.lost.one", "A")\ndef test_a(): ...', "no place"),
    ],
)
def test_decorators_that_do_not_fit_together_are_refused(source: str, words: str) -> None:
    with pytest.raises(contract_page.ContractError, match=words):
        statements_of(source)


PAGE = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
GUARANTEES = re.findall(r"^\| (G\d)? ?\| (.+) \| (.+) \|$", PAGE, re.MULTILINE)[1:]


def test_the_page_of_guarantees_lists_every_guarantee() -> None:
    assert [name for name, _, _ in GUARANTEES if name] == [f"G{number}" for number in range(1, 9)]


@pytest.mark.parametrize(("name", "promise", "proofs"), GUARANTEES)
def test_a_guarantee_is_linked_to_tests_that_exist(name: str, promise: str, proofs: str) -> None:
    """The words of a link are the test's own sentence, but for commas."""
    links = re.findall(r"\[([^]]+)\]\(\.\./(tests/[^)]+)\)", proofs)
    assert links, promise
    for words, path in links:
        named = {test.rpartition("::")[2] for test in runs(path)}
        assert f"test_{words.replace(',', '').replace(' ', '_')}" in named | MACHINES, words


MACHINES = {"test_any_order_of_moves_over_a_tree_of_runs"}
"""Links to a machine of moves, which has no sentence for a name."""


@pytest.mark.parametrize(
    "test",
    [
        "tests/docs/test_nothing.py::test_it",
        "tests/docs/test_contract_page.py::test_it",
        "tests/docs/test_contract_page.py::exists",
        "tests/orchestrator/scene.py::Scene::spawn",
        "tests/model/test_tree.py::TreeOfRuns::crash",
        "tests/core/test_closing.py::test_the_event_moves_the_run_exactly_so[no such row]",
    ],
)
def test_what_is_no_test_is_not_taken_for_one(test: str) -> None:
    assert not exists(test)


@pytest.mark.parametrize(
    "test",
    [
        "tests/docs/test_contract_page.py::test_what_is_a_test_is_found",
        "tests/store/conformance_inbox.py::InboxConformance::test_a_row_is_as_it_was_put",
        "tests/model/test_tree.py::TestTreeOfRuns",
        "tests/core/test_closing.py::test_the_event_moves_the_run_exactly_so[words win over a fallback]",
    ],
)
def test_what_is_a_test_is_found(test: str) -> None:
    assert exists(test)
