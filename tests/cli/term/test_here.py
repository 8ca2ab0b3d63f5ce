"""Files that `@` completes and commands that `!` runs."""

import asyncio
from pathlib import Path

import pytest

from fledge.cli.term.here import CommandRan, best_matches, file_word, files_below, run_here, shortened, with_output
from fledge.cli.term.shown import PlanQuestion, QuestionAnswered, WordsSent
from tests.cli.term.scene import play, scene


def make_files(folder: Path) -> None:
    for name in ("src/fledge/cli/chat.py", "src/fledge/chat_test.py", "docs/chat.md", ".git/config", "node_modules/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_files_and_folders_are_found_without_hidden_ones_and_what_programs_make(tmp_path: Path) -> None:
    make_files(tmp_path)
    assert sorted(files_below(tmp_path)) == [
        *("docs/", "docs/chat.md", "src/", "src/fledge/", "src/fledge/chat_test.py", "src/fledge/cli/"),
        "src/fledge/cli/chat.py",
    ]
    assert len(files_below(tmp_path, most=2)) == 2


def test_a_walk_that_takes_too_long_ends_with_what_was_found(tmp_path: Path) -> None:
    make_files(tmp_path)
    hours = iter(range(0, 100 * 3600, 3600))
    assert files_below(tmp_path, now=lambda: next(hours)) == ["docs/", "src/"]


def test_the_nearest_match_comes_first() -> None:
    paths = ["docs/chat.md", "src/cli/chat.py", "src/chat_test.py", "src/unchat.py", "other.py"]
    assert best_matches("chat", paths) == ["docs/chat.md", "src/chat_test.py", "src/cli/chat.py", "src/unchat.py"]
    assert best_matches("src/c", paths) == ["src/chat_test.py", "src/cli/chat.py"]
    assert best_matches("", paths, most=1) == ["other.py"]


@pytest.mark.parametrize(
    ("typed", "word"), [("see @src/a", "src/a"), ("@", ""), ("a@b", None), ("a\n@b", "b"), ("@a b", None), ("", None)]
)
def test_a_file_is_completed_where_a_word_begins_with_its_sign(typed: str, word: str | None) -> None:
    assert file_word(typed) == word


def test_the_input_completes_files_and_commands(tmp_path: Path) -> None:
    make_files(tmp_path)

    async def story() -> None:
        commands = [("/status", "how things stand"), ("/stop", "stop everything")]
        async with scene(60, complete=lambda text: commands if text.startswith("/st") else (), folder=tmp_path) as s:
            await s.type("see @chat", pause=0.5)
            assert s.glass.rows() == [
                "› see @chat",
                "  @docs/chat.md",
                "  @src/fledge/chat_test.py",
                "  @src/fledge/cli/chat.py",
            ]
            await s.type("\t\t")
            assert s.glass.rows()[0] == "› see @src/fledge/chat_test.py"
            assert s.glass.rows()[2].startswith("› @src")
            await s.type("\r")  # takes the choice
            await s.type("\r")
            assert s.wishes() == [WordsSent("see @src/fledge/chat_test.py", "see @src/fledge/chat_test.py")]
            await s.type("/st", pause=0.5)
            assert s.glass.rows() == ["› /st", "  /status how things stand", "  /stop stop everything"]
            await s.type("\x1b", pause=0.3)
            assert s.glass.rows() == ["› /st"]

    play(story)


def test_a_command_runs_here_its_output_is_shown_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")
    shown = bytearray()
    ran = asyncio.run(run_here("echo one; echo two >&2; exit 3", shown.extend))
    assert (ran.code, ran.output, bytes(shown)) == (3, "one\ntwo", b"one\ntwo\n")
    assert ran.note == "+ output of `echo one; echo two >&2; exit 3` (2 lines, exit code 3) joins the next message"
    assert asyncio.run(run_here("kill -9 $$", shown.extend)).failure == "ended by signal 9"
    long = asyncio.run(run_here("seq 1 200000", shown.extend))
    assert long.output.startswith("1\n2\n")
    assert long.output.endswith("\n199999\n200000")
    assert "characters left out" in long.output


def test_a_commands_output_stands_before_the_words_in_a_fence_that_it_cannot_close() -> None:
    whole = with_output([CommandRan("cat x", 0, "```\na\n```")], "what is this?")
    assert whole == "I ran `cat x` (exit code 0):\n````\n```\na\n```\n````\n\nwhat is this?"
    assert with_output([], "words") == "words"
    assert shortened("abcdefghij", 4) == "ab\n… 6 characters left out …\nij"


def test_an_exclamation_mark_runs_a_command_and_its_output_joins_the_next_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHELL", "/bin/sh")

    async def story() -> None:
        async with scene(70) as s:
            await s.type("!echo hello\r", pause=1)
            assert s.glass.rows() == [
                "! echo hello",
                "hello",
                "+ output of `echo hello` (1 line) joins the next message",
                "›",
            ]
            assert s.wishes() == []
            await s.type("/status\r")
            assert s.wishes() == [WordsSent("/status", "/status")], "the output is no part of a command"
            await s.type("look\r")
            assert s.wishes() == [WordsSent("I ran `echo hello` (exit code 0):\n```\nhello\n```\n\nlook", "look")]
            assert s.glass.rows()[-1] == "›"
            await s.type("!false\r", pause=1)
            note = "+ output of `false` (0 lines, exit code 1) joins the next message"
            assert s.glass.rows()[-4:] == ["! false", "exit code 1", note, "›"]

    play(story)


def editor(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An editor of the person's that does this to its file."""
    program = folder / "editor"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", str(program))


def test_ctrl_g_edits_the_input_in_the_persons_editor_with_pastes_unfolded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor(tmp_path, monkeypatch, 'tail -n 2 "$1" > "$1.new" && printf "\\\\nedited" >> "$1.new" && mv "$1.new" "$1"')

    async def story() -> None:
        async with scene(60) as s:
            pasted = "\n".join(f"line {number}" for number in range(20))
            await s.type(f"\x1b[200~{pasted}\x1b[201~")
            assert s.glass.rows() == ["› [paste 1: 20 lines]"]
            await s.type("\x07", pause=2)
            assert s.glass.rows() == ["› line 18", "  line 19", "  edited"]

    play(story)


def test_a_plan_is_edited_in_the_persons_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor(tmp_path, monkeypatch, 'echo "2. test" >> "$1"')

    async def story() -> None:
        async with scene(60) as s:
            s.screen.ask((PlanQuestion("p", "checker", "1. read\n"),))
            await s.pause()
            await s.type("\x19e", pause=2)
            assert s.wishes() == [QuestionAnswered("p", "edited", "1. read\n2. test")]

    play(story)


def test_a_plan_that_was_not_changed_in_the_editor_still_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    editor(tmp_path, monkeypatch, "true")

    async def story() -> None:
        async with scene(60) as s:
            s.screen.ask((PlanQuestion("p", "checker", "1. read"),))
            await s.pause()
            await s.type("\x19e", pause=2)
            assert s.wishes() == []
            assert "◇ checker's plan, in full in the scrollback" in s.glass.rows()

    play(story)
