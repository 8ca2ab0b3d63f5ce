"""The tutorial, played from its first line to its last, as somebody without a key would."""

import re
from pathlib import Path

from tests.docs.clone import ROOT
from tests.docs.pages import Reader, steps

PAGE = ROOT / "docs" / "tutorial.md"


def test_every_file_and_command_of_the_tutorial_does_what_the_page_shows(tmp_path: Path) -> None:
    Reader(tmp_path).plays(PAGE)


def test_no_block_of_the_tutorial_is_left_out() -> None:
    blocks = len(re.findall(r"^```\w+", PAGE.read_text("utf-8"), re.MULTILINE))
    consoles = len(re.findall(r"^```console", PAGE.read_text("utf-8"), re.MULTILINE))
    files = [step for step in steps(PAGE) if hasattr(step, "name")]
    assert len(files) + consoles == blocks
