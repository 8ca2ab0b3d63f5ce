"""Each recipe of the cookbook is short, has the same parts, and prints what its page says."""

import re
from pathlib import Path

import pytest

from tests.docs.clone import ROOT
from tests.docs.pages import Command, Reader, programs, steps

FOLDER = ROOT / "docs" / "cookbook"
INDEX = FOLDER / "index.md"
RECIPES = sorted(path for path in FOLDER.glob("*.md") if path != INDEX)
MOST_LINES = 60


def test_the_index_names_every_recipe_once_by_its_title() -> None:
    titles = {path.name: path.read_text("utf-8").partition("\n")[0].removeprefix("# ") for path in RECIPES}
    named = re.findall(r"^- \[(.+)\]\((.+)\)$", INDEX.read_text("utf-8"), re.MULTILINE)
    assert sorted((name, title) for title, name in named) == sorted(titles.items())
    assert len(titles) >= 20


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_has_a_short_program_what_it_prints_and_what_to_change(page: Path) -> None:
    text = page.read_text("utf-8")
    assert programs(page)
    assert [file.name for file in programs(page) if len(file.text.splitlines()) > MOST_LINES] == []
    assert [step.line for step in steps(page) if isinstance(step, Command) and step.prints]
    assert re.search(r"^\*\*For real use\.\*\* ", text, re.MULTILINE)
    assert re.search(r"^\*\*Read more\.\*\* .*\]\(", text, re.MULTILINE)


@pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)
def test_a_recipe_prints_what_its_page_says(page: Path, tmp_path: Path) -> None:
    Reader(tmp_path).plays(page)
