"""What the pages name is there: files, tests, functions of the architecture page. Their tables are whole."""

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.docs.clone import ROOT, tracked_files

PAGES = [
    path
    for path in tracked_files()
    if path.suffix == ".md" and path.name != "CHANGELOG.md" and path != Path("docs/contract-tests.md")
]
"""Of the changelog, old entries name what was there then; `docs/contract-tests.md` is generated."""
PACKAGE = ROOT / "src" / "fledge"
TESTS = [path for path in tracked_files() if path.parts[0] == "tests" and path.suffix == ".py"]

_FILE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|js|sql|css))`(?: \(((?:`\w+`(?:, | and )?)+)\))?")
"""A file of the repository, and in brackets behind it names that are defined there."""
_TEST = re.compile(r"`(test_\w+(?:…\w*)?|…\w+)`")
"""A test or a file of tests; … stands for the rest of the name."""
_FUNCTION = re.compile(r"`([a-z_]+)\.([a-z_]+)`")
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_RULE = re.compile(r"\|(?: *:?-+:? *\|)+")


def defined_in(path: Path) -> set[str]:
    """Names of functions, classes, constants and methods of a module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(target.id for target in targets if isinstance(target, ast.Name))
    return found


def missing_files(page: str) -> list[str]:
    """Files that a page names and that are not there, and names that the file named before them does not define."""
    missing = []
    for file, names in _FILE.findall(page):
        path = next((place / file for place in (ROOT, PACKAGE) if (place / file).is_file()), None)
        if path is None:
            missing.append(file)
        elif names:
            missing += sorted(set(re.findall(r"\w+", names)) - defined_in(path))
    return missing


def missing_tests(page: str, known: Iterable[str]) -> list[str]:
    """Tests that a page names and that are not there."""
    patterns = {name: re.compile(name.replace("…", r"\w*")) for name in _TEST.findall(page)}
    return [name for name, pattern in patterns.items() if not any(pattern.fullmatch(test) for test in known)]


def broken_tables(page: str) -> list[str]:
    """First lines of tables without exactly one head, or with rows of another width."""
    broken = []
    for table in _TABLE.findall(re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL)):
        rows = [row.replace("\\|", "") for row in re.sub(r"`[^`\n]*`", "", table).splitlines()]
        rules = [at for at, row in enumerate(rows) if _RULE.fullmatch(row.strip())]
        if rules != [1] or len({row.count("|") for row in rows}) > 1:
            broken.append(rows[0])
    return broken


@pytest.fixture(scope="module")
def known_tests() -> set[str]:
    texts = [(ROOT / path).read_text("utf-8") for path in TESTS]
    return {path.stem for path in TESTS} | {name for text in texts for name in re.findall(r"def (test_\w+)", text)}


def test_every_file_that_a_page_names_is_there() -> None:
    missing = {str(page): missing_files((ROOT / page).read_text("utf-8")) for page in PAGES}
    assert {page: files for page, files in missing.items() if files} == {}


def test_every_test_that_a_page_names_is_there(known_tests: set[str]) -> None:
    missing = {str(page): missing_tests((ROOT / page).read_text("utf-8"), known_tests) for page in PAGES}
    assert {page: names for page, names in missing.items() if names} == {}


def test_every_function_that_the_architecture_page_names_is_in_its_module() -> None:
    """A name without a folder is in `orchestrator/`, the page says."""
    named = _FUNCTION.findall((ROOT / "docs" / "architecture.md").read_text("utf-8"))
    modules = {path.stem: path for path in (PACKAGE / "orchestrator").glob("*.py")}
    functions = [(module, name) for module, name in named if module in modules and name not in ("py", "md")]
    assert ("turns", "claim") in functions
    assert [pair for pair in functions if pair[1] not in defined_in(modules[pair[0]])] == []


def test_every_table_has_one_head_and_rows_of_one_width() -> None:
    broken = {str(page): broken_tables((ROOT / page).read_text("utf-8")) for page in PAGES}
    assert {page: tables for page, tables in broken.items() if tables} == {}


def test_the_glossary_explains_each_word_once() -> None:
    rows = re.findall(r"^\| (\*\*.*?) \|", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    words = [word for row in rows for word in re.findall(r"\*\*(.+?)\*\*", row)]
    assert len(words) > 80
    assert sorted({word for word in words if words.count(word) > 1}) == []


@pytest.mark.parametrize(
    ("page", "missing"),
    [
        ("see `core/turn.py` and `tests/docs/clone.py`", []),
        ("see `core/turns.py`", ["core/turns.py"]),
        ("`core/turn.py` (`transition_turn`) decides", []),
        ("`core/turn.py` (`Turn`, `turn_over`) decides", ["turn_over"]),
    ],
)
def test_a_file_or_name_that_is_not_there_is_found(page: str, missing: list[str]) -> None:
    assert missing_files(page) == missing


@pytest.mark.parametrize(
    ("page", "missing"),
    [("`test_a_b`", []), ("`test_a_…`, `…_b`", []), ("`test_a`, `test_b_…`", ["test_a", "test_b_…"])],
)
def test_a_test_that_is_not_there_is_found(page: str, missing: list[str]) -> None:
    assert missing_tests(page, ["test_a_b"]) == missing


@pytest.mark.parametrize(
    ("page", "broken"),
    [
        ("| a | b |\n|---|---|\n| `x|y` | 2 \\| 3 |\n", []),
        ("| a | b |\n|---|---|\n| c | d | e |\n|---|---|---|\n", ["| a | b |"]),
        ("| a | b |\n|---|---|\n| c |\n", ["| a | b |"]),
        ("| a | b |\n| c | d |\n", ["| a | b |"]),
    ],
)
def test_a_table_that_is_not_whole_is_found(page: str, broken: list[str]) -> None:
    assert broken_tables(page) == broken
