"""A command whose options are wrong is refused before it makes anything, and names the option."""

import os
from pathlib import Path

import pytest

from tests.cli.command import fledge

NAME = "must be a name of letters, digits and . _ @ + -, or a key such as agent:main:main (got 'a b:c')"
ECHO = ("--model", "scripted/echo")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("chat", "--session", "a b:c", *ECHO), f"--session: {NAME}"),
        (("chat", "--session", "", *ECHO), "--session: must be a session's name or key (got '')"),
        (("run", "hi", "--session", "a b:c", *ECHO), f"--session: {NAME}"),
        (("spawn", "dig", "--timeout", "-1", *ECHO), "--timeout: must be a number from 0 to 31536000 (got -1.0)"),
        (("spawn", "dig", "--timeout", "nan", *ECHO), "--timeout: must be a number from 0 to 31536000 (got nan)"),
        (("spawn", "dig", "--timeout", "inf", *ECHO), "--timeout: must be a number from 0 to 31536000 (got inf)"),
        (("spawn", "dig", "--label", "x" * 201, *ECHO), "--label: must be text of at most 200 characters"),
        (("spawn", "dig", "--agent", "a b", *ECHO), "--agent: must be 1 to 64 letters"),
        (("spawn", "dig", "--agent", "nobody", *ECHO), 'there is no agent "nobody" (there are: main)'),
        (("spawn", "dig", "--runtime", "none", *ECHO), "--runtime: must be one that is configured: subagent"),
        (("spawn", "dig", "--model", "nowhere/x"), "model: no provider 'nowhere'"),
        (("send", "main", "hi", "--model", "nowhere/x"), "model: no provider 'nowhere'"),
        (("run", "hi", "--model", "nowhere/x"), "model: no provider 'nowhere'"),
        (("chat", "--model", "nowhere/x"), "model: no provider 'nowhere'"),
        (("serve", "--port", "0", "--model", "nowhere/x"), "model: no provider 'nowhere'"),
        (("serve", "--port", "99999", *ECHO), "--port: must be 0 to 65535 (got 99999)"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name_and_nothing_is_made(
    tmp_path: Path, line: tuple[str, ...], words: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    places = {"HOME": str(tmp_path), "FLEDGE_CONFIG": str(tmp_path / "user"), "FLEDGE_STATE": str(tmp_path / "state")}
    done = fledge(*line, cwd=work, env={"PATH": os.environ["PATH"], **places})
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["work"]
