"""Pages, error messages and log lines name who does what: none of them has a word of `plain_words.VAGUE`.

The contract's own pages are left out: they are the specification, and the titles of its tests.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.docs.clone import ROOT
from tests.docs.plain_words import VAGUE, prose

SPECIFICATION = {ROOT / "docs" / "contract.md", ROOT / "docs" / "contract-tests.md"}
PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - SPECIFICATION)
SOURCES = sorted((ROOT / "src" / "fledge").rglob("*.py"))
LEVELS = {"debug", "info", "warning", "error", "exception"}


def is_logging(call: ast.Call) -> bool:
    called = call.func
    return isinstance(called, ast.Attribute) and called.attr in LEVELS and ast.unparse(called.value) == "log"


def messages(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Texts that are raised or logged, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and is_logging(node)):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def test_no_page_has_a_vague_word() -> None:
    found = {str(page.relative_to(ROOT)): VAGUE.findall(prose(page.read_text("utf-8"))) for page in PAGES}
    assert "docs/security.md" in found
    assert {page: words for page, words in found.items() if words} == {}


def test_no_error_message_or_log_line_has_a_vague_word() -> None:
    assert ROOT / "src" / "fledge" / "errors.py" in SOURCES
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in SOURCES
        for line, text in messages(ast.parse(path.read_text("utf-8")))
        if VAGUE.search(text)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Whoever asks is refused.", ["Whoever"]),
        ("A webhook that is told of runs.", ["told of"]),
        ("See `test_where_nobody_is_asked` and [the test](nobody.md).", []),
        ("Run:\n```console\n$ echo nobody\n```\nThe end.", []),
    ],
)
def test_words_of_code_and_addresses_do_not_count(text: str, found: list[str]) -> None:
    assert VAGUE.findall(prose(text)) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('raise Refused("error", f"nobody drives {state}")', ["error", "nobody drives "]),
        ('log.warning("nobody: %s", error)', ["nobody: %s"]),
        ('words = "nobody"', []),
    ],
)
def test_texts_that_are_raised_or_logged_are_found(source: str, found: list[str]) -> None:
    assert [text for _, text in messages(ast.parse(source))] == found
