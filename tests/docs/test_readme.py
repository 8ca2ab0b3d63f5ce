"""What the README says is true: its example and its commands run, its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("bench/*.md")])


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_the_python_example_runs_and_prints_the_answer(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "SUMMARY: the answer is 42\n"


def test_every_make_target_in_the_readme_exists() -> None:
    named = re.findall(r"make (\w+)", "\n".join(blocks("sh")))
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named == ["demo", "test"]
    assert set(named) <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


EXAMPLES = {
    "two_levels.py": "told once: 1 entry, 1 completion",
    "orchestrated.py": "four answers in place, each exactly once; the killed worker is silent",
}
"""What each example ends with. `conversation.py` needs a model server: tests/cli/test_run.py runs and kills it."""


def test_every_example_is_run_by_a_test() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {*EXAMPLES, "conversation.py"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs_and_ends_as_it_says(name: str) -> None:
    done = subprocess.run([sys.executable, str(ROOT / "examples" / name)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == EXAMPLES[name]
