"""What the README says is true in a clone alone: its examples and its commands run there, its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.docs.clone import ROOT, Clone, tracked_files
from tests.docs.pages import write_programs

README = (ROOT / "README.md").read_text("utf-8")
PAGES = [path for path in tracked_files() if path.suffix == ".md"]


def blocks(*languages: str) -> list[str]:
    return re.findall(rf"```(?:{'|'.join(languages)})\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    """Every command of the README: the lines of its shell blocks, and what its text names as a command."""
    lines = "".join(blocks("sh", "console")).splitlines()
    in_blocks = [line.removeprefix("$ ").partition("  #")[0].strip() for line in lines]
    text = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
    return in_blocks + re.findall(r"`((?:\.venv/bin/)?(?:fledge|git|make|pip|python3?|source|uv) [^`]+)`", text)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    made = Clone(tmp_path_factory.mktemp("clone"))
    assert made.run("python", "-c", "import fledge; print(fledge.__file__)").stdout.startswith(f"{made.root}/src/")
    return made


class Ends(NamedTuple):
    """How a command ends in a clone without a key."""

    code: int
    words: str


RUN = {
    "python -m bench --only peers": Ends(0, "not installed: python -m bench.peers install nanobot"),
}
NEEDS_A_MODEL = "needs a model; tests/cli runs it with a provider on this machine"
NOT_RUN = {
    "make demo": "has its own test here",
    "make site": "tests/docs/test_site.py builds it",
    "make test": "runs this test",
    "pip install '.[gateway,chat]'": "fetches libraries; tests/wheel.py installs the package, in CI",
    "python -m bench.peers install": "fetches other libraries",
    "export OPENAI_API_KEY=…": "needs a key",
    "fledge": NEEDS_A_MODEL,
    'fledge run "Survey this folder. Use subagents."': NEEDS_A_MODEL,
    "fledge serve": NEEDS_A_MODEL,
}
"""Why a command of the README is not run here."""


def test_every_command_of_the_readme_is_run_or_has_a_reason_not_to_be() -> None:
    assert set(commands()) == RUN.keys() | NOT_RUN.keys()
    assert RUN.keys() & NOT_RUN.keys() == set()


@pytest.mark.parametrize("command", RUN)
def test_the_command_ends_in_a_clone_alone_as_it_should(command: str, clone: Clone) -> None:
    done = clone.run("sh", "-c", command)
    assert RUN[command].words in done.stdout + done.stderr
    assert done.returncode == RUN[command].code, done.stderr


def test_the_demo_is_killed_half_way_and_every_answer_arrives_once(clone: Clone) -> None:
    done = clone.run("make", "demo")
    assert done.returncode == 0, done.stderr
    assert "A scripted model plays the model's part" in done.stdout
    before, after = re.split(r"\*\*\* kill -9 \d+ \*\*\*", done.stdout)
    assert 'steer "open questions"' in before
    assert 'approve the plan of "tidy-up"' in after
    assert "interrupted        → queued  (crash in a step)" in after
    assert "open questions · completed (ok), attempt 2" in after
    for label in ("open questions", "tidy-up"):
        assert len(re.findall(rf"^✔ {label} · done · \d+s · [\d.k]+ tok\n  SUMMARY: ", after, re.MULTILINE)) == 1
    assert "3 subagents, 3 answers in the conversation: each exactly once.\n" in after


def test_every_make_target_in_the_readme_exists() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    named = {command.split()[1] for command in commands() if command.startswith("make ")}
    assert {"demo", "test"} <= named <= set(targets)


@pytest.mark.parametrize("code", blocks("python"))
def test_the_python_example_runs_and_prints_the_answer(code: str, clone: Clone) -> None:
    done = clone.run("python", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "SUMMARY: the answer is 42\n"


@pytest.mark.parametrize(("page", "printed"), [("agents", "fine"), ("guarantees", "6 crashes survived")])
def test_the_program_in_a_page_runs_and_prints_what_the_page_says(page: str, printed: str, clone: Clone) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    done = clone.run("python", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{printed}\n"
    assert f"It prints `{printed}`" in text


EXAMPLES = {
    "three_agents.py": "rust: Here is what matters about rust: less than you think.",
    "service.py": "one run",
    "typed_agent.py": "3 lines: short enough",
    "approval.py": "Result: deploy was refused by the person who was asked; it was not run",
    "crash.py": "3 runs for 3 tasks: ok, ok, ok",
}
"""What each example ends with, without a key and without a terminal."""
MOST_LINES = 80


def test_every_example_is_run_by_a_test_and_linked_in_the_readme() -> None:
    examples = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert examples == set(EXAMPLES)
    assert set(re.findall(r"\]\(examples/([^)]+)\)", README)) == examples


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short(name: str) -> None:
    assert len((ROOT / "examples" / name).read_text("utf-8").splitlines()) <= MOST_LINES


def test_pyright_accepts_the_examples_and_the_programs_of_the_pages_as_mypy_does(tmp_path: Path) -> None:
    write_programs(tmp_path)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(ROOT / "examples"), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout


def test_mypy_accepts_the_programs_of_the_pages(tmp_path: Path) -> None:
    write_programs(tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout


def test_ruff_accepts_the_programs_of_the_pages(tmp_path: Path) -> None:
    write_programs(tmp_path)
    settings = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", str(tmp_path)]
    # The order of imports depends on what lies beside a program; a recipe may look again and again.
    for command in (["check", "--ignore", "I,ASYNC110", *settings], ["format", "--check", *settings]):
        ruff = [sys.executable, "-m", "ruff", *command]
        done = subprocess.run(ruff, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs_and_ends_as_it_says(name: str, clone: Clone) -> None:
    done = clone.run("python", f"examples/{name}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == EXAMPLES[name]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_to_a_file_leads_somewhere_in_the_clone(page: Path, clone: Clone) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", (clone.root / page).read_text("utf-8"))
    missing = [link for link in links if "://" not in link and not (clone.root / page.parent / link).exists()]
    assert missing == []
