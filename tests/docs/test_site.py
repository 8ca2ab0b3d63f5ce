"""The site builds, loads nothing from elsewhere, and does not build with a broken link."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs import site
from tests.docs.clone import ROOT

LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?([^\"' >]+)")
"""Addresses that a browser loads when it shows a page; links that a reader follows are not among them."""


def build(root: Path, target: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(target)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = build(ROOT, target)
    assert done.returncode == 0, done.stderr
    return target


def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(built: Path) -> None:
    pages = sorted(built.rglob("*.html"))
    names = {str(page.relative_to(built)) for page in pages}
    written = {str(path.relative_to(ROOT / "docs").with_suffix(".html")) for path in (ROOT / "docs").rglob("*.md")}
    assert written | {"index.html", "examples/crash.html"} <= names
    loaded = {address for page in pages for address in LOADED.findall(page.read_text("utf-8"))}
    assert any(address.endswith(".js") for address in loaded)
    assert {address for address in loaded if re.match(r"(?:https?:)?//", address)} == set()


def test_a_diagram_is_a_table_because_drawing_it_would_load_a_script(built: Path) -> None:
    text = (built / "lifecycle.html").read_text("utf-8")
    assert "mermaid" not in text
    assert re.search(r"<td>queued</td>\s*<td>running</td>", text)


def test_a_pattern_in_the_navigation_stands_for_the_pages_that_fit_it(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    for name in ("recipes/b.md", "recipes/index.md", "recipes/a.md", "start.md"):
        (tmp_path / name).touch()
    given = ["start.md", {"Recipes": "recipes/*.md"}, {"First": "st*.md"}, {"None": "none*.md"}, {"Deep": ["a.md"]}]
    recipes = ["recipes/index.md", "recipes/a.md", "recipes/b.md"]
    assert list(site.expanded(given, tmp_path)) == [
        "start.md",
        {"Recipes": recipes},
        {"First": "start.md"},
        {"Deep": ["a.md"]},
    ]


@pytest.mark.parametrize("link", ["nothing.md", "config.md#no-such-part", "../src/nothing.py"])
def test_a_broken_link_fails_the_build(link: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "examples").mkdir()
    for name in ("README.md", "site.py", "config.md"):
        shutil.copy(
            ROOT / ("docs" if name != "README.md" else "") / name, tmp_path / ("" if name == "README.md" else "docs")
        )
    (tmp_path / "README.md").write_text(f"# Start\n\n[broken](docs/{link})\n")
    settings = re.sub(
        r"^nav:.*", "nav: [index.md, config.md]\n", (ROOT / "mkdocs.yml").read_text(), flags=re.DOTALL | re.M
    )
    (tmp_path / "mkdocs.yml").write_text(settings)
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert link.rpartition("/")[2].partition("#")[0] in done.stderr


@pytest.mark.parametrize(
    ("source", "text", "shown"),
    [
        ("README.md", "[a](docs/cli.md#talk)", "[a](cli.md#talk)"),
        ("README.md", "![p](docs/pictures/chat.svg)", "![p](pictures/chat.svg)"),
        ("README.md", "[a](examples/crash.py)", "[a](examples/crash.md)"),
        ("README.md", "[a](tests/wheel.py), [b](https://example.org/x)", "a, [b](https://example.org/x)"),
        ("docs/cli.md", "[a](config.md), [b](#talk), [c](../README.md)", "[a](config.md), [b](#talk), c"),
        ("docs/deep/page.md", "[a](../cli.md)", "[a](../cli.md)"),
    ],
)
def test_links_are_rewritten_for_the_site(source: str, text: str, shown: str) -> None:
    assert site.with_links(text, source) == shown
