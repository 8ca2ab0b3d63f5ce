"""Every `fledge …` command that a page shows is one that the real command line reads."""

import re
import shlex
from pathlib import Path

import pytest

from fledge.cli.main import parse
from tests.docs.clone import ROOT, tracked_files

PAGES = [path for path in tracked_files() if path.suffix == ".md" and path.parts[0] in ("README.md", "docs")]
HISTORY = {Path("docs/contract-tests.md")}
"""Pages whose sentences speak of commands, and quote what is refused."""
BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"^(?:[$#] )?(?:sudo -u \w+ )?(?:[A-Z_]+=\S+ )*(?:\S*/)?fledge(?: (.*))?$")


def commands(text: str) -> tuple[list[str], list[str]]:
    """What follows `fledge` in the commands of a page: those of blocks for the shell, and those in its sentences."""
    lines = []
    for language, block in BLOCK.findall(text):
        joined = re.sub(r" \\\n\s*", " ", block).splitlines()
        lines += [line for line in joined if language == "sh" or line.startswith(("$ ", "# "))]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return _of_fledge(lines), _of_fledge(INLINE.findall(prose))


def _of_fledge(lines: list[str]) -> list[str]:
    found = [COMMAND.match(line.strip()) for line in lines]
    return [one[1] or "" for one in found if one is not None]


def refusal(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Why the command line does not read this; empty if it does."""
    try:
        parse(shlex.split(command.removesuffix(" …").partition(" > ")[0], comments=True))
    except SystemExit as error:
        return capsys.readouterr().err.splitlines()[-1] if error.code else ""
    return ""


@pytest.mark.parametrize("page", [page for page in PAGES if page not in HISTORY], ids=str)
def test_the_command_line_reads_every_command_of_the_page(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown, named = commands((ROOT / page).read_text("utf-8"))
    refused = {command: refusal(command, capsys) for command in shown}
    refused |= {command: refusal(command, capsys) for command in named}
    # A sentence may name a command without all it needs, such as `fledge kill`.
    unfinished = re.compile(r"arguments are required|expected one argument")
    wrong = {one: why for one, why in refused.items() if why and (one in shown or not unfinished.search(why))}
    assert wrong == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("```console\n$ fledge ps --watch   # follow\n$ make\n```\n", ["ps --watch   # follow"]),
        ("```console\n# sudo -u me FLEDGE_STATE=/s /opt/bin/fledge ps\n```\n", ["ps"]),
        ("```sh\nfledge --state a \\\n    ps\n```\n", ["--state a ps"]),
        ("run `fledge kill RUN`, not `fledged` or `fledge.open`", ["kill RUN"]),
        ("```python\nfledge run\n```\n", []),
    ],
)
def test_commands_are_found(text: str, found: list[str]) -> None:
    shown, named = commands(text)
    assert shown + named == found
