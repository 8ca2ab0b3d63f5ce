"""A reader can look up whatever a file refers to: no folder beside the repository, no number of another document."""

import re
from pathlib import Path

import pytest

from tests.docs.clone import ROOT, tracked_files

HERE = Path(__file__).relative_to(ROOT)
OUTSIDE = re.compile(r"(?<![\w-])shared/|(?<!\w)/work/(?:main|wt|shared)\b")
"""Folders that lay beside the repository where it was written."""
NUMBER = re.compile(r"(?<![\w%#;.\\/-])[A-Z]{1,2}\d{1,3}(?![\w%-])")
LINT_RULES = re.compile(r"# noqa:.*|^select = .*", re.MULTILINE)
DRAWINGS = re.compile(r'"M[\d.]+ [-\d. a-zA-Z]*"')
"""Paths of icons, whose commands are letters and numbers."""
GUARANTEES = {f"G{number}" for number in range(1, 9)}
"""In docs/contract.md."""
FORMATS = {"VP8"}
"""Names in file formats: of a frame in WebP, whose description is RFC 9649."""
OF_THE_MODEL = {f"F{number}" for number in range(1, 22)} | {f"P{number}" for number in range(1, 12)}
"""In tests/model/spec: findings.md and README.md. A file that uses them names that folder."""


def unknown_references(path: Path, text: str) -> list[str]:
    """What a file refers to that cannot be looked up."""
    names_the_model = path.is_relative_to("tests/model") or "tests/model/spec" in text
    known = GUARANTEES | FORMATS | (OF_THE_MODEL if names_the_model else set())
    return [*OUTSIDE.findall(text), *sorted(set(NUMBER.findall(DRAWINGS.sub("", LINT_RULES.sub("", text)))) - known)]


def test_files_refer_to_nothing_that_cannot_be_looked_up() -> None:
    texts = {path: (ROOT / path).read_text("utf-8") for path in tracked_files() if path.suffix not in {".svg", ".png"}}
    unknown = {str(path): unknown_references(path, text) for path, text in texts.items() if path != HERE}
    assert {path: found for path, found in unknown.items() if found} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see ../shared/contract.md", ["shared/"]),
        ("FLOOR = 'shared/bench/floor.py'", ["shared/"]),
        ("in /work/main", ["/work/main"]),
        ("ruled in B28, A1 and D11", ["A1", "B28", "D11"]),
        ("finding F3", ["F3"]),
        ("F3 of tests/model/spec/findings.md", []),
        ("G8, not G9", ["G9"]),
        ("x = 1  # noqa: B023", []),
        ('back: "M13 8H3M7 4 3 8l4 4",', []),
        ('ruled in "M13", and M7', ["M13", "M7"]),
        ("memory that is shared, a-shared/x", []),
        ("/state/work/7", []),
    ],
)
def test_an_unknown_reference_is_found(text: str, found: list[str]) -> None:
    assert unknown_references(Path("docs/page.md"), text) == found


def test_what_may_be_referred_to_is_there() -> None:
    contract = (ROOT / "docs" / "contract.md").read_text("utf-8")
    spec = ROOT / "tests" / "model" / "spec"
    findings, properties = ((spec / name).read_text("utf-8") for name in ("findings.md", "README.md"))
    assert {name for name in GUARANTEES if f"\n- {name} **" not in contract} == set()
    assert {
        name for name in OF_THE_MODEL if f"\n**{name} " not in findings and f"\n| {name} |" not in properties
    } == set()
