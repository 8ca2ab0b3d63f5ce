"""A pipe in the place of a file: whatever reads settings, agents, keys or tokens refuses it, and waits for nobody."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import fledge
from fledge.cli.main import main
from fledge.config.places import FILE, TRUSTED, discover, is_trusted, read_written, trust
from fledge.errors import BadInput, StoreError
from fledge.plain_file import open_plain, read_plain
from fledge.store.ways import TOKEN_FILE, make_token, read_token
from tests.statements import proves


def test_a_plain_file_is_read_as_far_as_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abcdef")
    assert [read_plain(tmp_path / "file", most) for most in (0, 3, 9)] == [b"", b"abc", b"abcdef"]
    assert read_plain(str(tmp_path / "file")) == b"abcdef"


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (os.mkfifo, "it is not a plain file"),
        (os.mkdir, "Is a directory"),
        (lambda path: os.symlink("/dev/null", path), "it is not a plain file"),
        (lambda path: None, "No such file or directory"),
    ],
    ids=["a pipe", "a folder", "a device", "nothing"],
)
def test_anything_else_is_an_error_and_no_descriptor_stays_open(
    tmp_path: Path, made: Callable[[Path], None], why: str
) -> None:
    made(tmp_path / "x")
    before = len(os.listdir("/dev/fd"))
    for act in (open_plain, read_plain):
        with pytest.raises(OSError, match=why):
            act(tmp_path / "x")
    assert len(os.listdir("/dev/fd")) == before


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / "agents").mkdir(parents=True)
    (tmp_path / "user").mkdir()
    return tmp_path / "project"


@proves("7.input.17")
@pytest.mark.parametrize("place", [f"project/{FILE}", f"user/{FILE}", f"user/{TRUSTED}"])
def test_a_pipe_in_the_place_of_settings_is_refused_by_name(project: Path, place: str) -> None:
    pipe = project.parent / place
    os.mkfifo(pipe)
    if place.endswith(TRUSTED):
        (project / FILE).write_text('{"tools": {"deny": ["exec"]}}')
    with pytest.raises(BadInput) as refused:
        discover(project, user=project.parent / "user")
    assert str(refused.value).startswith(f"{pipe}: must be a readable ")
    assert re.search("not a plain file|regular file", str(refused.value))


def test_a_pipe_in_the_place_of_an_agent_is_passed_over_like_a_link(project: Path) -> None:
    os.mkfifo(project / "agents" / "helper.md")
    user = project.parent / "user"
    assert discover(project, user=user).sources == ()
    assert not is_trusted(read_written(project), user)
    with pytest.raises(BadInput, match="there is nothing to trust"):
        trust(read_written(project), user)


@proves("7.input.17")
def test_the_command_says_so_and_ends(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(project / FILE)
    monkeypatch.chdir(project)
    monkeypatch.setenv("FLEDGE_CONFIG", str(project.parent / "user"))
    assert main(["config"]) == 1
    told = "fledge.json5: must be a readable file of its folder (must be a regular file, not a link, device, pipe or"
    assert told in capsys.readouterr().err
    with pytest.raises(BadInput, match="must be a file that exists"):
        fledge.open(project.parent / "state", config=project / FILE)


def test_a_pipe_in_the_place_of_a_token_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / TOKEN_FILE)
    for take in (make_token, read_token):
        with pytest.raises(StoreError, match="it is not a plain file"):
            take(tmp_path)
