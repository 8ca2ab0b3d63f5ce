"""What tools may not see, and what they write only with a person's yes: the model's calls on the real engine, with real
files, real git and, where it works, the real sandbox."""

import asyncio
import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fledge
from fledge.api.values import Question
from fledge.core.keys import main_key
from fledge.models.base import Call, Request
from fledge.models.scripted import Answer, ScriptedModel, use
from fledge.tools.set_aside import watch
from tests.left_out import requires
from tests.runtime.desk import said
from tests.statements import proves
from tests.workspaces.repository import make_repository, run_git

pytestmark = pytest.mark.root

PATIENCE_S = 60.0
PLAIN: dict[str, Any] = {"agents": {"defaults": {"sandbox": {"mode": "off"}}}}
real = pytest.mark.usefixtures("bubblewrap")


class Place:
    """One state folder, one home folder and one workspace, and a model that makes calls there."""

    def __init__(self, folder: Path) -> None:
        self.states, self.home, self.work = folder / "states", folder / "home", folder / "work"
        """Each conversation has a state folder of its own, in `states`."""
        self.home.mkdir()
        self.env = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        self.questions: list[Question] = []
        self.opened = 0

    def open(self, model: ScriptedModel, config: dict[str, Any], workspace: Path | None = None) -> fledge.Fledge:
        self.work.mkdir(exist_ok=True)
        self.states.mkdir(parents=True, exist_ok=True)
        state = self.states / f"state-{self.opened}"
        self.opened += 1
        return fledge.open(state, model=model, workspace=workspace or self.work, config=config, env=self.env)

    def results(
        self,
        *calls: Call,
        answers: bool | None = None,
        config: dict[str, Any] | None = None,
        workspace: Path | None = None,
    ) -> list[str]:
        """What the tools of a conversation say to these calls, one after the other; a person gives the answers."""

        def script(request: Request) -> Answer:
            return calls[said(request)] if said(request) < len(calls) else "done"

        def answer(question: Question) -> bool | None:
            self.questions.append(question)
            return answers

        async def main() -> list[str]:
            opened = self.open(ScriptedModel(script), config or PLAIN, workspace)
            async with asyncio.timeout(PATIENCE_S), opened as fl:
                fl.on_approval(answer)
                await fl.session("main").send("go")
                entries = await fl.engine.store.read(
                    lambda tx: [one.body for one in tx.transcripts.entries(main_key()) if one.kind == "tool"]
                )
                return [msgspec.json.decode(entry)["text"] for entry in entries]

        return asyncio.run(main())


@pytest.fixture
def bubblewrap() -> None:
    """Only where commands really run in a sandbox."""
    requires("bubblewrap")


@pytest.fixture
def here(tmp_path: Path) -> Place:
    return Place(tmp_path)


HOOK = use("write", path=".git/hooks/post-checkout", content="#!/bin/sh\nevil\n")


# ---- guarded ---------------------------------------------------------------------------------------------------------


@proves("8.files.11", "A guarded file is written by a file tool only after a person has said yes to that very call")
@pytest.mark.parametrize(
    "call",
    [
        HOOK,
        use("write", path="sub/../.git/config", content="[core]\nfsmonitor = ./evil\n"),
        use("edit", path=".git/config", old="[core]", new="[core]\nfsmonitor = ./evil\n"),
        use("write", path=".git", content="gitdir: elsewhere"),
        use("write", path="vendor/.git/hooks/pre-commit", content="evil"),
        use("write", path=".envrc", content="evil"),
        use("write", path="sub/.envrc", content="evil"),
        use("write", path=".mcp.json", content="evil"),
        use("write", path="fledge.json5", content="{}"),
        use("write", path="agents/reviewer.md", content="evil"),
    ],
)
def test_a_person_is_asked_before_what_runs_with_their_rights_is_written(here: Place, call: Call) -> None:
    make_repository(here.work)
    before = {path: path.read_bytes() for path in here.work.rglob("*") if path.is_file()}
    (told,) = here.results(call, answers=False)
    assert told == f"{call.name} was refused by the person who was asked; it was not run"
    assert [(one.tool, one.arguments) for one in here.questions] == [(call.name, call.arguments)]
    assert {path: path.read_bytes() for path in here.work.rglob("*") if path.is_file()} == before


def test_after_a_persons_yes_it_is_written(here: Place) -> None:
    make_repository(here.work)
    (told,) = here.results(HOOK, answers=True)
    assert told.startswith("created .git/hooks/post-checkout")
    assert (here.work / ".git" / "hooks" / "post-checkout").read_text() == "#!/bin/sh\nevil\n"


@proves("8.files.11")
def test_where_nobody_is_asked_it_is_refused_with_the_reason(here: Place) -> None:
    make_repository(here.work)
    (told,) = here.results(HOOK, config={**PLAIN, "tools": {"write": {"approval": "never"}}})
    assert told.startswith(
        "write: path: needs a person's approval to be written, because it runs or counts with their rights"
    )
    assert here.questions == []
    assert not (here.work / ".git" / "hooks" / "post-checkout").exists()


@proves("8.files.11")
def test_a_link_leads_to_nothing_guarded_with_or_without_a_yes(here: Place) -> None:
    make_repository(here.work)
    (here.work / "notes").symlink_to(".git/hooks")
    (here.work / "notes.md").symlink_to(".envrc")
    calls = [use("write", path=path, content="evil") for path in ("notes/post-checkout", "notes.md")]
    told = here.results(*calls, answers=True, config={**PLAIN, "tools": {"write": {"approval": "ask"}}})
    for text in told:
        assert "name it by its own path, not through a link" in text
    for text in here.results(*calls):
        assert "needs a person's approval to be written" in text
    assert not (here.work / ".git" / "hooks" / "post-checkout").exists()
    assert not (here.work / ".envrc").exists()


def test_where_a_guarded_name_leads_by_a_link_is_guarded_too(here: Place) -> None:
    (here.work / "env").mkdir(parents=True)
    (here.work / "env" / "own").write_text("own")
    (here.work / ".envrc").symlink_to("env/own")
    (told,) = here.results(use("write", path="env/own", content="evil"), answers=False)
    assert "was refused by the person" in told
    assert (here.work / "env" / "own").read_text() == "own"


def test_all_else_is_written_unasked_and_so_is_what_the_settings_leave_unguarded(here: Place) -> None:
    make_repository(here.work)
    calls = [
        use("write", path=path, content="x") for path in ("a.txt", ".gitignore", "agents/a.py", ".git/description")
    ]
    here.results(*calls, config={**PLAIN, "tools": {"unguarded": [".git"]}})
    assert here.questions == []
    assert [(here.work / path).read_text() for path in ("a.txt", ".git/description")] == ["x", "x"]


# ---- the home folder -------------------------------------------------------------------------------------------------


@proves("8.files.10", "Secrets at home, fledge's own settings and its state are hidden from every tool")
def test_with_the_home_folder_as_workspace_no_file_tool_sees_a_secret_or_what_is_fledges_own(here: Place) -> None:
    here.states = here.home / "deep" / "down"
    secrets = (".ssh/id_rsa", ".netrc", ".aws/credentials", ".config/fledge/fledge.json5", ".config/gh/hosts.yml")
    for path in secrets:
        (here.home / path).parent.mkdir(parents=True, exist_ok=True)
        (here.home / path).write_text("the secret")
    (here.home / ".config" / "fledge" / "fledge.json5").write_text("{} // the secret")
    (here.home / "link").symlink_to(".ssh/id_rsa")
    os.link(here.home / ".netrc", here.home / "hard")
    calls = [use("read", path=path) for path in (*secrets, "link", "hard", "deep/down/state-0/fledge.db")]
    calls += [use("grep", pattern="secret"), use("grep", pattern="secret", path=".ssh"), use("list", depth=6)]
    calls += [use("write", path=path, content="evil") for path in (*secrets, "hard", ".ssh/authorized_keys")]
    calls += [use("write", path=path, content="evil") for path in (".gnupg/x", ".npmrc", "deep/down/state-0/x")]
    told = here.results(*calls, workspace=here.home, answers=True)
    assert len(told) == len(calls)
    assert not [text for text in told if "the secret" in text]
    listed = told[10]
    assert [name in listed for name in ("hosts.yml", "fledge.db", "link -> .ssh/id_rsa")] == [False, False, True]
    hidden = [text for text in told if "is hidden from tools" in text]
    assert len(hidden) == len(calls) - 2  # all but the search and the list, which leave it out
    assert here.questions == []
    assert all((here.home / path).read_text().endswith("the secret") for path in secrets)
    assert not any((here.home / path).exists() for path in (".gnupg", ".npmrc", ".ssh/authorized_keys"))


@proves("8.files.11")
@pytest.mark.parametrize("path", [".bashrc", ".profile", ".config/autostart/x.desktop", ".gitconfig", "dots/zshrc"])
def test_with_the_home_folder_as_workspace_a_person_is_asked_before_start_up_files_are_written(
    here: Place, path: str
) -> None:
    (here.home / ".bashrc").write_text("own")
    (here.home / "dots").mkdir()
    (here.home / ".zshrc").symlink_to("dots/zshrc")
    (told,) = here.results(use("write", path=path, content="evil"), workspace=here.home, answers=False)
    assert told == "write was refused by the person who was asked; it was not run"
    assert (here.home / ".bashrc").read_text() == "own"
    assert not (here.home / ".config").exists()
    (told,) = here.results(use("write", path=path, content="mine"), workspace=here.home, answers=True)
    assert (here.home / path).read_text() == "mine"


# ---- commands --------------------------------------------------------------------------------------------------------


@real
@proves("8.exec.11")
def test_what_a_sandboxed_command_of_the_model_plants_is_not_run_by_the_persons_next_git(here: Place) -> None:
    make_repository(here.work)
    (here.work / "evil").write_text(f"#!/bin/sh\ntouch {here.home}/mark\n")
    (here.work / "evil").chmod(0o755)
    plant = (
        "git config core.fsmonitor ./evil; cp evil .git/hooks/post-checkout; git init x; git -C x config core.fsmonitor"
    )
    head = run_git(here.work, "rev-parse", "HEAD")
    link = f"$PWD/evil; git update-index --add --cacheinfo 160000,{head},x"
    told = here.results(use("exec", command=f"{plant} {link}"), config={"agents": {}})
    assert "Read-only file system" in told[0]
    subprocess.run(["git", "status"], cwd=here.work, env=here.env, check=True, capture_output=True)
    subprocess.run(["git", "checkout", "-q", "-b", "other"], cwd=here.work, env=here.env, check=True)
    assert not (here.home / "mark").exists()


@real
@proves("8.exec.22")
def test_a_repository_that_a_command_makes_is_set_aside_in_the_state_folder_and_the_model_is_told(here: Place) -> None:
    (told,) = here.results(use("exec", command="git init -q . && ls -A"), config={"agents": {}})
    (kept,) = here.states.glob("*/set-aside/*/.git")
    assert told.startswith(".git\n[exit code 0; ")
    assert f"[{here.work}/.git appeared while a sandboxed command ran, and was set aside: {kept}]" in told
    assert list(here.work.iterdir()) == []


@proves("8.exec.22")
def test_what_a_command_made_before_its_process_was_killed_is_set_aside_at_the_next_start(here: Place) -> None:
    here.work.mkdir()
    state = here.states / "state-0"
    watched = watch(state / "set-aside", here.work, [f"{here.work}/.envrc"], [])
    (here.work / ".envrc").write_text("evil")
    os.close(watched.held)  # as the end of its process does
    here.results(config={"agents": {}})
    assert list(here.work.iterdir()) == []
    assert (watched.file.with_suffix("") / ".envrc").read_text() == "evil"


@real
def test_a_person_is_asked_before_a_command_may_write_what_is_guarded(here: Place) -> None:
    make_repository(here.work)
    call = use("exec", command="git commit -q --allow-empty -m mine", writable=[".git"])
    config = {"tools": {"exec": {"env": ["GIT_CONFIG_COUNT"]}}}
    here.env |= {f"GIT_{who}_{what}": "t" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    (told,) = here.results(call, answers=False, config=config)
    assert told == "exec was refused by the person who was asked; it was not run"
    here.results(call, answers=True, config=config)
    assert run_git(here.work, "log", "-1", "--format=%s") == "mine"
    assert len(here.questions) == 2
    (told,) = here.results(call, config={"tools": {"exec": {"approval": "never"}}})
    assert told.startswith("exec: writable: needs a person's approval, and no person was asked")


@proves("8.exec.9", "Commands see the usual variables of the environment, and those that `tools.exec.env` names")
def test_a_command_sees_no_variable_that_nobody_named(here: Place) -> None:
    here.env |= {"MY_PAT": "one", "X_BEARER": "two", "SLACK_HOOK": "three", "LANG": "C.UTF-8"}
    command = use("exec", command='echo "$MY_PAT|$X_BEARER|$SLACK_HOOK|$LANG|$HOME"')
    config: dict[str, Any] = {**PLAIN, "tools": {"exec": {"approval": "never"}}}
    (told,) = here.results(command, config=config)
    assert told.startswith(f"|||C.UTF-8|{here.home}\n")
    config["tools"]["exec"]["env"] = ["X_BEARER"]
    (told,) = here.results(command, config=config)
    assert told.startswith(f"|two||C.UTF-8|{here.home}\n")


def test_a_command_sees_no_key_of_a_provider_even_if_the_settings_name_its_variable(here: Place) -> None:
    here.env |= {"PLAIN_NAME": "mine", "OTHER": "yours"}
    providers = {"acme": {"baseUrl": "https://a.example/v1", "apiKeyEnv": "PLAIN_NAME"}}
    tools = {"exec": {"approval": "never", "env": ["PLAIN_NAME", "OTHER"]}}
    config: dict[str, Any] = {**PLAIN, "models": {"providers": providers}, "tools": tools}
    (told,) = here.results(use("exec", command='echo "$PLAIN_NAME|$OTHER"'), config=config)
    assert told.startswith("|yours\n")


@real
@proves("8.exec.10", "`sandbox.network: none` cuts the network of sandboxed commands, and of those of children")
@pytest.mark.parametrize(("network", "reached"), [("shared", True), ("none", False)])
def test_a_setting_cuts_the_network_of_the_sandbox(here: Place, network: str, reached: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo reached"
        config = {"agents": {"defaults": {"sandbox": {"network": network}}}}
        (told,) = here.results(use("exec", command=command), config=config)
    assert ("reached\n" in told) is reached


@real
@proves("8.exec.10")
def test_a_child_of_somebody_without_network_has_none_whatever_its_own_settings_say(here: Place) -> None:
    sandboxes = [
        {"id": "main", "sandbox": {"network": "none"}, "subagents": {"allowAgents": ["other"]}},
        {"id": "other"},
    ]

    def script(request: Request) -> Answer:
        is_child = "# Subagent Context" in request.system
        first = use("exec", command="true") if is_child else use("sessions_spawn", task="look", agentId="other")
        return first if said(request) == 0 else "done"

    described: list[tuple[bool, bool]] = []

    def watched(request: Request) -> Answer:
        is_child = "# Subagent Context" in request.system
        described.extend(
            (is_child, "It has no network." in spec.description) for spec in request.tools if spec.name == "exec"
        )
        return script(request)

    async def main() -> None:
        opened = here.open(ScriptedModel(watched), {"agents": {"list": sandboxes}})
        async with asyncio.timeout(PATIENCE_S), opened as fl:
            await fl.session("main").send("go")
            await fl.until(lambda tx: any(is_child for is_child, _ in described) or None)

    asyncio.run(main())
    assert set(described) == {(False, True), (True, True)}
