"""What docs/import-openclaw.md says of fledge is so: its settings, tools and slash commands exist here."""

import re

from fledge.commands.slash import USAGES, parted
from fledge.config.shape import describe
from tests.docs.clone import ROOT

PAGE = (ROOT / "docs" / "import-openclaw.md").read_text("utf-8")
NOT_HERE = {"channels.telegram"}


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_setting_that_the_page_maps_is_one_of_fledge() -> None:
    keys = {one.key for one in describe()}
    named = set(re.findall(r"`([a-z]\w*\.[\w.\[\]<>]+)`", section("Bring your settings"))) - NOT_HERE
    assert len(named) > 15
    assert {name for name in named if not any(key == name or key.startswith(f"{name}.") for key in keys)} == set()


def test_what_the_page_calls_ignored_is_ignored_by_name() -> None:
    ignored = (ROOT / "docs" / "config.md").read_text("utf-8").partition("## Keys of OpenClaw that are ignored")[2]
    rows = [row for row in section("Bring your settings").splitlines() if "| ignored" in row]
    names = re.findall(r"`([\w.]+)`", " ".join(row.split("|")[1] for row in rows))
    assert "cron" in names
    assert [name for name in names if re.search(rf"\b{name.rpartition('.')[2]}\b", ignored) is None] == []


def test_every_slash_command_of_the_page_is_one_of_fledge() -> None:
    known = {parted(use.form)[0] for use in USAGES}
    named = set(re.findall(r"`(/(?:subagents )?\w+)`", section("Slash commands"))) - {"/subagents"}
    assert len(named) > 12
    assert named - known == set()


def test_every_tool_of_the_page_is_one_of_fledge() -> None:
    names = re.findall(
        r"`(\w+)`", " ".join(row.split("|")[1] for row in section("Tools of the model").splitlines()[2:] if "|" in row)
    )
    source = "".join(path.read_text("utf-8") for path in (ROOT / "src" / "fledge" / "tools").glob("*.py"))
    assert len(names) > 10
    assert [name for name in names if f'"{name}"' not in source and f"def {name}(" not in source] == []
