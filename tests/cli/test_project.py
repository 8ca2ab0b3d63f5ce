"""One conversation for each project folder: which one is meant where none is named, and that they are kept apart."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fledge import Fledge, run_sync
from fledge.cli.where import where
from fledge.core.keys import project_key, short_id
from fledge.models.base import Request
from fledge.models.scripted import Answer, echo, last_text
from fledge.testing import ScriptedModel, SeededIds
from tests.cli import command, holding
from tests.cli.chat_server import talk
from tests.cli.command import Done, name_in, session_of
from tests.cli.model_server import MODEL, Model, serving
from tests.statements import proves

In = Callable[..., Done]
EARLIER = "this folder has a conversation of its own now"


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with serving(tmp_path, talk) as model:
        yield model


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two project folders of the same name."""
    found = (tmp_path / "a" / "docs", tmp_path / "b" / "docs")
    for folder in found:
        folder.mkdir(parents=True)
    return found


@pytest.fixture
def fledge(model: Model, tmp_path: Path) -> In:
    """A command given in a folder, on one state folder for all."""

    def run(folder: Path, *line: str, given: str = "", **env: str) -> Done:
        return command.fledge(
            *line, cwd=folder, env=model.env | {"FLEDGE_STATE": str(tmp_path / "state")} | env, given=given
        )

    return run


def value(done: Done) -> Any:
    assert done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


def said(done: Done) -> list[str]:
    """What was said in a conversation, as `log --json` has it."""
    return [entry["text"] for entry in value(done) if entry["role"] == "user" and entry["kind"] == "send"]


# ---- which conversation ----------------------------------------------------------------------------------------------


@proves("1.roles.4", "Commands given in a project folder mean its own conversation; at home and above, `main`")
def test_the_home_folder_and_what_holds_it_are_no_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, project = tmp_path / "home" / "ann", tmp_path / "home" / "ann" / "docs"
    project.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(project)
    for folder, found in [
        (project, session_of(project)),
        (link, session_of(project)),
        (home, "agent:main:main"),
        (home.parent, "agent:main:main"),
        (Path("/"), "agent:main:main"),
    ]:
        monkeypatch.chdir(folder)
        assert where(None, None, None, (), {"HOME": str(home)}).session == found


@proves(
    "1.roles.5", "With `--gateway` the conversation is `main` unless one is named: the folder here is not the gateway's"
)
def test_a_gateway_elsewhere_knows_nothing_of_the_folder_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = where(None, "http://127.0.0.1:9", None, (), {"FLEDGE_GATEWAY_TOKEN": "secret"})
    assert (asked.session, asked.project) == ("agent:main:main", "")


def test_a_folder_that_was_removed_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert where(None, None, None, (), {}).session == "agent:main:main"


# ---- kept apart ------------------------------------------------------------------------------------------------------


@proves(
    "1.roles.6", "Two folders of the same name have two conversations, each a main one with the folder as its label"
)
def test_two_folders_of_the_same_name_have_two_conversations(
    fledge: In, model: Model, folders: tuple[Path, Path]
) -> None:
    one, other = folders
    assert fledge(one, "run", "apples", *MODEL).stdout == "You said: apples\n"
    assert fledge(other, "run", "pears", *MODEL).stdout == "You said: pears\n"
    assert "apples" not in model.log.read_text().splitlines()[-1]
    assert said(fledge(one, "log", "--json")) == ["apples"]
    assert said(fledge(other, "log", "--json")) == ["pears"]
    rows = {row["key"]: row for row in value(fledge(one, "sessions", "--json")) if row["kind"] != "program"}
    assert set(rows) == {session_of(one), session_of(other)}
    assert {(row["kind"], row["label"]) for row in rows.values()} == {("main", "docs")}
    assert {key: row["project"] for key, row in rows.items()} == {
        session_of(path): os.path.realpath(path) for path in folders
    }


def test_each_reads_the_documents_of_its_own_folder(fledge: In, model: Model, folders: tuple[Path, Path]) -> None:
    for folder, words in zip(folders, ("Answer in rhyme.", "Answer in prose."), strict=True):
        (folder / "SOUL.md").write_text(words)
        fledge(folder, "run", "hello", *MODEL)
        last = model.log.read_text().splitlines()[-1]
        assert ["Answer in rhyme." in last, "Answer in prose." in last] == [folder == folders[0], folder == folders[1]]


@proves("1.roles.7", "A subagent's result returns to the conversation of the project that asked for it")
def test_a_result_arrives_in_the_conversation_of_its_own_project(fledge: In, folders: tuple[Path, Path]) -> None:
    one, other = folders
    fledge(one, "run", "hello", *MODEL)
    assert "The digger found gold." in fledge(other, "run", "spawn", *MODEL).stdout
    assert said(fledge(one, "log", "--json")) == ["hello"]
    assert "The digger found gold." in [entry["text"] for entry in value(fledge(other, "log", "--json"))]


@proves("1.roles.8", "A question that waits in another project neither holds `fledge run` up nor makes it end with 3")
def test_what_waits_for_a_person_in_another_project_holds_nothing_up(fledge: In, folders: tuple[Path, Path]) -> None:
    one, other = folders
    asks = ("--set", "tools.write.approval=ask")
    assert fledge(one, "run", "write", *MODEL, *asks).returncode == 3
    fledge(one, "run", "plan", "--session", "plans", *MODEL)
    done = fledge(other, "run", "hello", *MODEL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello there.\nHow can I help?\n", "")
    assert fledge(one, "run", "--continue", *MODEL, *asks).returncode == 3


def test_what_another_conversation_says_meanwhile_is_told_apart(
    fledge: In, model: Model, folders: tuple[Path, Path]
) -> None:
    one, other = folders
    fledge(one, "run", "hello", *MODEL)
    fledge(one, "event", "the build is red")
    done = fledge(other, "run", "pears", *MODEL)
    assert done.stdout == "You said: pears\n"
    assert done.stderr == f"fledge: in {name_in(one)}: You said: [System event] the build is red\n"


def test_a_process_that_holds_the_state_folder_works_in_the_folder_of_each_project(
    tmp_path: Path, folders: tuple[Path, Path]
) -> None:
    one, other = folders
    (one / "AGENTS.md").write_text("the rules of one")
    (other / "AGENTS.md").write_text("the rules of the other")
    systems: list[str] = []

    def think(request: Request) -> Answer:
        systems.append(request.system)
        return last_text(request)

    over = threading.Event()
    env = os.environ | {"FLEDGE_STATE": str(tmp_path / "state"), "HOME": str(tmp_path)}
    with holding.Holder(tmp_path / "state", ScriptedModel(think), workspace=one).at_work(holding.stays(over)):
        assert command.fledge("run", "hello", cwd=other, env=env).stdout == "hello\n"
        assert command.fledge("send", "again", cwd=other, env=env).stdout == "again\n"
        assert command.fledge("spawn", "dig", cwd=other, env=env).returncode == 0
        over.set()
    assert all(os.path.realpath(other) in system for system in systems[:2])
    assert ["the rules of the other" in system for system in systems] == [True] * 3
    assert not any("the rules of one" in system for system in systems)


# ---- what commands show ----------------------------------------------------------------------------------------------


@proves("1.roles.9", "`ps` shows the conversation of its folder and counts what works elsewhere; `tree` shows all")
def test_ps_shows_this_folder_and_tree_shows_all(fledge: In, folders: tuple[Path, Path]) -> None:
    one, other = folders
    fledge(one, "run", "spawn", *MODEL)
    fledge(other, "run", "hello", *MODEL)
    assert fledge(one, "ps").stdout.splitlines()[0] == f"{name_in(one)} · idle"
    assert "digger" in fledge(one, "ps").stdout
    assert fledge(other, "ps").stdout == f"{name_in(other)} · idle\n"
    fledge(one, "again", "digger")
    assert "and 1 at work in other conversations: fledge tree" in fledge(other, "ps").stdout.splitlines()
    assert "in other conversations" not in fledge(one, "ps").stdout
    assert "digger" in fledge(one, "tree").stdout.splitlines()[0]
    assert name_in(one) in fledge(other, "tree").stdout.splitlines()[0]


def test_until_a_folders_conversation_has_begun_the_main_one_is_shown(fledge: In, folders: tuple[Path, Path]) -> None:
    one, other = folders
    fledge(one, "run", "spawn", "--session", "main", *MODEL)
    assert fledge(other, "ps").stdout.splitlines()[0] == "main · idle"
    assert "status    completed (ok)" in fledge(other, "info", "1").stdout
    assert said(fledge(other, "log", "--json")) == ["spawn"]
    assert fledge(other, "kill", "all").stdout == "killed 0\n"
    assert [row["key"] for row in value(fledge(other, "sessions", "--json")) if row["kind"] == "main"] == [
        "agent:main:main"
    ]


def test_a_label_means_the_run_of_this_project_first(fledge: In, folders: tuple[Path, Path]) -> None:
    one, other = folders
    for folder in folders:
        fledge(folder, "run", "spawn", *MODEL)
    found = [value(fledge(folder, "info", "digger", "--json"))["requester"] for folder in folders]
    assert found == [session_of(one), session_of(other)]
    again = value(fledge(other, "again", "digger", "--json"))
    assert value(fledge(other, "info", again["runId"], "--json"))["requester"] == session_of(other)


@pytest.mark.parametrize("word", ["last", " LAST ", "2", "#2"])
def test_last_and_numbers_mean_runs_of_this_project_alone(fledge: In, folders: tuple[Path, Path], word: str) -> None:
    one, other = folders
    fledge(one, "run", "spawn", *MODEL)
    fledge(other, "run", "hello", *MODEL)
    fledge(one, "again", "digger")
    for verb in ("kill", "info", "log"):
        done = fledge(other, verb, word)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "fledge: there are no subagents here\n")
    assert fledge(one, "kill", word).stdout == "killed 1\n"


class Digits(SeededIds):
    """Ids that begin with digits alone, as one of 43 does."""

    def unique(self) -> str:
        return f"{int(super().unique()[:8], 16):010d}"[-8:] + super().unique()[8:]


def test_a_run_is_found_by_an_id_of_digits_wherever_it_was_started(
    fledge: In, folders: tuple[Path, Path], tmp_path: Path
) -> None:
    async def spawn(fl: Fledge) -> str:
        run = await fl.spawn("dig")
        await run
        return short_id(run.run_id)

    short = run_sync(spawn, tmp_path / "state", model=ScriptedModel(echo), config={}, ids=Digits())
    assert short.isdecimal()
    for folder in folders:
        for verb in ("info", "log"):
            assert "dig" in fledge(folder, verb, short).stdout


def test_events_and_words_go_to_the_conversation_of_this_folder(fledge: In, folders: tuple[Path, Path]) -> None:
    one, other = folders
    fledge(one, "run", "hello", *MODEL)
    assert f"posted to {session_of(other)};" in fledge(other, "event", "the build is red").stdout
    assert value(fledge(other, "heartbeat", "--json"))["sessionKey"] == session_of(other)
    assert fledge(other, "send", "pears", *MODEL).stdout == "You said: pears\n"
    assert fledge(one, "send", name_in(other), "plums", *MODEL).stdout == "You said: plums\n"
    assert said(fledge(other, "log", "--json")) == ["pears", "plums"]


# ---- the earlier conversation ----------------------------------------------------------------------------------------


@proves(
    "1.roles.10", "Where a `main` conversation exists, the first start in a project says so once, and how to open it"
)
def test_the_first_start_in_a_project_names_the_earlier_conversation_once(
    fledge: In, folders: tuple[Path, Path]
) -> None:
    one, other = folders
    fledge(one, "run", "hello", "--session", "main", *MODEL)
    assert (
        fledge(one, "run", "apples", *MODEL).stderr
        == f"fledge: {EARLIER}; --session main goes on with the earlier one\n"
    )
    assert EARLIER not in fledge(one, "run", "apples", *MODEL).stderr
    first = fledge(other, "chat", *MODEL, given="/resume main\nwhat did I say?\n").stdout
    assert f"{EARLIER}; /resume main opens the earlier one" in first
    assert "what did I say?" in said(fledge(other, "log", "main", "--json"))
    assert EARLIER not in fledge(other, "chat", *MODEL, given="hello\n").stdout
    assert said(fledge(other, "log", "--json")) == ["hello"]


def test_nothing_is_said_where_there_was_no_conversation_before(fledge: In, folders: tuple[Path, Path]) -> None:
    assert EARLIER not in "".join(fledge(folder, "run", "hello", *MODEL).stderr for folder in folders)


# ---- the chat --------------------------------------------------------------------------------------------------------


@proves(
    "1.roles.11", "`/resume` lists conversations with their project, and `/new` begins another one in the same project"
)
def test_a_chat_lists_conversations_with_their_project_and_begins_another_in_it(
    fledge: In, folders: tuple[Path, Path]
) -> None:
    one, other = folders
    fledge(one, "chat", *MODEL, given="apples\n")
    shown = fledge(other, "chat", *MODEL, given="pears\n/new\nplums\n/resume\n").stdout
    assert f"· {name_in(other)} ·" in shown.splitlines()[0]
    assert f"{name_in(one)} · {os.path.realpath(one)} · just now · apples" in shown
    assert f"{name_in(other)}-2 · {os.path.realpath(other)} · just now · plums" in shown
    assert said(fledge(other, "log", "--json")) == ["pears"]
    assert said(fledge(other, "log", f"{name_in(other)}-2", "--json")) == ["plums"]


def test_a_conversation_of_another_project_is_resumed_by_its_name(fledge: In, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "notes").mkdir()
    fledge(tmp_path / "site", "chat", *MODEL, given="apples\n")
    fledge(tmp_path / "notes", "chat", *MODEL, given="/resume site\npears\n")
    assert said(fledge(tmp_path / "site", "log", "--json")) == ["apples", "pears"]


# ---- refused ---------------------------------------------------------------------------------------------------------


def test_a_name_that_belongs_to_another_folder_is_refused(fledge: In, tmp_path: Path) -> None:
    names: dict[str, Path] = {}
    for number in range(100_000):
        folder = tmp_path / str(number) / "docs"
        if (twin := names.setdefault(project_key(str(folder)), folder)) is not folder:
            break
    for one in (twin, folder):
        one.mkdir(parents=True)
    assert session_of(twin) == session_of(folder)
    fledge(twin, "run", "hello", *MODEL)
    refused = fledge(folder, "run", "hello", *MODEL)
    assert refused.returncode == 1
    assert f"is the conversation of {os.path.realpath(twin)}: name another one with --session" in refused.stderr
    assert fledge(folder, "run", "hello", "--session", "mine", *MODEL).returncode == 0
