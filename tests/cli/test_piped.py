"""Words on standard input beside the prompt of `fledge run`, in real processes: `cat log | fledge run "explain"`."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from fledge.cli.piped import MOST_BYTES
from fledge.commands.params import MOST_WORDS
from fledge.models.scripted import ScriptedModel, echo
from fledge.store.ways import TOKEN_FILE
from tests.cli.command import PROGRAM
from tests.gateway.serving import serving
from tests.statements import proves

RUN: Final = ("run", "--state", "../state", "--model", "scripted/echo", "explain")
LOG: Final = "error: no such file\nin line 7\n"
QUOTED: Final = f"explain\n\n[System] This is standard input:\n```\n{LOG}```\n"
ADDED: Final = "fledge: 30 B of standard input are added to the prompt\n"
SILENT: Final = (
    "fledge: standard input gave nothing for 2 s and is left alone; with - behind the prompt it is awaited\n"
)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    return work


def environment(work: Path) -> dict[str, str]:
    return {"HOME": str(work.parent / "home"), "PATH": os.environ["PATH"]}


def played(work: Path, *line: str, **streams: Any) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of the command."""
    env = environment(work)
    done = subprocess.run(
        [*PROGRAM, *line], cwd=work, env=env, capture_output=True, timeout=120, check=False, **streams
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@proves("4.tools.60", "`fledge run PROMPT` adds the text of a pipe or file on standard input, quoted, and says so")
def test_the_words_of_a_pipe_are_added_to_the_prompt(work: Path) -> None:
    assert played(work, *RUN, input=LOG.encode()) == (0, QUOTED, ADDED)


@proves("4.tools.60")
def test_the_words_of_a_file_are_added_to_the_prompt(work: Path) -> None:
    (work / "log").write_text(LOG)
    with open(work / "log") as log:
        assert played(work, *RUN, stdin=log) == (0, QUOTED, ADDED)


def test_words_with_fences_cannot_end_their_quotation(work: Path) -> None:
    _, out, _ = played(work, *RUN, input=b"```\nmine\n````\n")
    assert out == "explain\n\n[System] This is standard input:\n`````\n```\nmine\n````\n`````\n"


def test_quiet_leaves_out_the_note(work: Path) -> None:
    assert played(work, *RUN, "--quiet", input=LOG.encode()) == (0, QUOTED, "")


@proves("4.tools.61", "A pipe that gives nothing for 2 s is left alone, which is said; `-` waits for its end")
def test_a_pipe_that_is_held_open_without_words_is_left_alone(work: Path) -> None:
    inner, outer = os.pipe()
    try:
        assert played(work, *RUN, stdin=inner) == (0, "explain\n", SILENT)
    finally:
        os.close(inner)
        os.close(outer)


@proves("4.tools.61")
def test_with_a_dash_a_pipe_is_awaited_however_long_it_gives_nothing(work: Path) -> None:
    """The pipe gives its words only after a run without the dash has left it alone."""
    inner, outer = os.pipe()
    env, pipe = environment(work), subprocess.PIPE
    waits = [*PROGRAM, *RUN, "-", "--state", "../other"]
    with subprocess.Popen(waits, cwd=work, env=env, stdin=inner, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert played(work, *RUN, stdin=inner)[2] == SILENT
            os.write(outer, LOG.encode())
        finally:
            os.close(outer)
        assert process.communicate(timeout=120) == (QUOTED, ADDED)
    os.close(inner)


@proves("4.tools.62", "Nothing but a pipe or a file is read, and at most 1 MiB")
@pytest.mark.parametrize("kind", ["nothing", "null", "socket", "empty pipe", "blank pipe"])
def test_what_is_no_pipe_or_file_or_has_no_words_is_not_read(work: Path, kind: str) -> None:
    here, there = socket.socketpair()
    here.sendall(LOG.encode())
    streams: dict[str, dict[str, Any]] = {
        "nothing": {"preexec_fn": lambda: os.close(0)},
        "null": {"stdin": subprocess.DEVNULL},
        "socket": {"stdin": there},
        "empty pipe": {"input": b""},
        "blank pipe": {"input": b" \n\n"},
    }
    assert played(work, *RUN, **streams[kind]) == (0, "explain\n", "")
    here.close()
    there.close()


@proves("4.tools.62")
def test_five_mebibytes_are_cut_which_is_said(work: Path) -> None:
    line = "é" * 99 + "\n"
    code, out, err = played(work, *RUN, input=(line * (5 * MOST_BYTES // 199)).encode())
    assert (code, err) == (0, "fledge: only the first 1.0 MB of standard input are added to the prompt\n")
    assert out.startswith(f"explain\n\n[System] This is the beginning of standard input:\n```\n{line}{line}")
    assert out.endswith("\n```\n")
    assert MOST_BYTES - 200 < len(out.encode()) < MOST_BYTES + 200


@proves("4.tools.62")
def test_more_than_a_message_holds_is_cut_to_it(work: Path) -> None:
    code, out, err = played(work, *RUN, input=b"0123456789abcde\n" * (MOST_BYTES // 16))
    assert (code, err) == (0, "fledge: only the first 1.0 MB of standard input are added to the prompt\n")
    assert MOST_WORDS - 10 <= len(out.rstrip("\n")) <= MOST_WORDS


@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"a\0b", "grün".encode("latin-1"), LOG.encode() + b"\xc3"])
def test_what_is_no_text_is_refused_before_anything_is_sent(work: Path, data: bytes) -> None:
    words = "fledge: standard input: must be text in UTF-8; --attach FILE gives any file\n"
    assert played(work, *RUN, input=data) == (1, "", words)
    assert not (work.parent / "state").exists()


@pytest.mark.parametrize("prompt", [[], ["-"]])
def test_without_a_prompt_standard_input_is_the_prompt(work: Path, prompt: list[str]) -> None:
    assert played(work, *RUN[:-1], *prompt, input=LOG.encode()) == (0, LOG, "")


def test_continue_reads_nothing(work: Path) -> None:
    assert played(work, *RUN[:-1], "--continue", input=LOG.encode())[:2] == (0, "")


@pytest.mark.parametrize("door", ["a holder", "a gateway"])
def test_the_words_reach_the_process_that_answers(work: Path, door: str) -> None:
    state = work.parent / "state"
    with serving(state, ScriptedModel(echo)) as server:
        named = {
            "a holder": ("--state", str(state)),
            "a gateway": ("--gateway", server.address, "--token-file", str(state / TOKEN_FILE)),
        }[door]
        assert played(work, "run", *named, "explain", input=LOG.encode())[:2] == (0, QUOTED)
