"""docs/architecture.md names every file of the package, once, in its layer."""

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "fledge"
BESIDE = "beside"
"""What the page calls the files that lie in the package itself."""
UNNAMED = {"__init__.py", "py.typed"}


def named() -> list[str]:
    """The files of the page's table, each with its layer."""
    found = []
    layer = ""
    for row in re.findall(r"^\| *([a-z]*) *\| ([^|]*`[^|]*) \|", (ROOT / "docs" / "architecture.md").read_text(), re.M):
        layer = row[0] or layer
        found += [f"{layer}/{file}" for file in re.findall(r"`([^`]+)`", row[1])]
    return found


def there() -> set[str]:
    """The files of the package; migrations count as one."""
    found = set()
    for path in PACKAGE.rglob("*"):
        parts = path.relative_to(PACKAGE).parts
        if not path.is_file() or path.suffix == ".pyc" or path.name in UNNAMED:
            continue
        layer = parts[0] if len(parts) > 1 else BESIDE
        found.add(f"{layer}/{parts[1]}/" if len(parts) > 2 else f"{layer}/{path.name}")
    return found


def test_the_architecture_page_names_every_file_once() -> None:
    assert [file for file, times in Counter(named()).items() if times > 1] == []
    assert there() - set(named()) == set()


def test_the_architecture_page_names_no_file_that_is_not_there() -> None:
    assert set(named()) - there() == set()
