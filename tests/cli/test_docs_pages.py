"""`fledge docs`: the pages that help and errors name can be read on the machine where fledge is installed."""

import re
from pathlib import Path

import pytest

import fledge
from fledge.cli import pages
from fledge.cli.main import main
from tests.docs.wheel_pages import packaged_pages

PACKAGE = Path(fledge.__file__).parent
NAMED = re.compile(r"\bdocs/([a-z/-]+\.md)|`?fledge docs ([a-z]+)")


def test_without_a_page_all_pages_are_listed_with_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines if line.startswith("config ")] == [["config", "Settings"]]
    assert {line.split()[0] for line in lines} == {str(Path(name).with_suffix("")) for name in packaged_pages()}


def test_a_page_is_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "troubleshooting"]) == 0
    assert capsys.readouterr().out == (pages.folder() / "troubleshooting.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["confg", "../README", "/etc/passwd", "config.md/"])
def test_what_is_no_page_is_refused_and_names_the_pages(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", name]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("fledge: page: must be one of ")
    assert "config" in told.err


def named_pages() -> dict[str, set[str]]:
    """The pages that files of the package name, each with those files."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*")):
        if path.suffix in (".py", ".js", ".html", ".sql"):
            for page, command in NAMED.findall(path.read_text("utf-8")):
                found.setdefault(page or f"{command}.md", set()).add(str(path.relative_to(PACKAGE)))
    return found


def test_every_page_that_the_package_names_is_in_the_package() -> None:
    found = named_pages()
    assert {"config.md", "security.md", "protocol.md"} <= set(found)
    assert {name: files for name, files in found.items() if name not in packaged_pages()} == {}
