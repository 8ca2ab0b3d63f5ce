"""`init`, `config`, `trust` and `doctor` through the real process."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web

from fledge.cli import doctor
from fledge.cli.settings import template
from fledge.config import Config, parse
from fledge.config.places import is_trusted, read_written
from tests.cli import command
from tests.cli.command import Done
from tests.cli.test_workspace import NO_SUCH_MODEL, Home
from tests.statements import proves

Fledge = Callable[..., Done]


@pytest.fixture
def fledge(tmp_path: Path) -> Fledge:
    """The command in a project folder, with a user's folder of its own."""
    project = tmp_path / "project"
    project.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    env = kept | {"FLEDGE_CONFIG": str(tmp_path / "user"), "FLEDGE_STATE": str(tmp_path / "state")}

    return partial(command.fledge, cwd=project, env=env)


def test_the_file_that_init_writes_holds_every_default_and_changes_nothing() -> None:
    assert parse(template()).config == Config()


def test_init_writes_once_and_never_overwrites(fledge: Fledge, tmp_path: Path) -> None:
    assert fledge("init").stdout.startswith("wrote fledge.json5\n")
    path = tmp_path / "project" / "fledge.json5"
    path.write_text("{}")
    done = fledge("init")
    assert done.returncode == 1
    assert "exists already" in done.stderr
    assert path.read_text() == "{}"


def test_config_shows_what_applies_and_where_it_comes_from(fledge: Fledge, tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "fledge.json5").write_text("{agents: {defaults: {subagents: {maxConcurrent: 3}}}}")
    assert f"// from {tmp_path}/user/fledge.json5" in fledge("config").stdout
    assert fledge("config", "agents.defaults.subagents.maxConcurrent").stdout == "3\n"
    assert fledge("config", "agents.defaults.subagents.maxSpawnDepth").stdout == "1\n"
    shown = fledge("config", "announce.style", "--set", "announce.style=full")
    assert shown.stdout == '"full"\n'
    assert "no such setting" in fledge("config", "announce.stile").stderr


def test_config_shows_a_block_and_names_the_file_that_is_wrong(fledge: Fledge, tmp_path: Path) -> None:
    shown = fledge("config", "agents.defaults.subagents.budget").stdout.splitlines()
    assert shown[:2] == ["// all at its default", "agents.defaults.subagents.budget.tokens: 0"]
    assert fledge("config", "agent").returncode == 1
    path = tmp_path / "project" / "fledge.json5"
    path.write_text("{agents: {defaults: {workspac: 3}}}")
    done = fledge("config")
    assert done.stderr == f"fledge: {path}: agents.defaults.workspac: unknown key (did you mean workspace?)\n"
    path.write_text("{agents: {defaults: {}}}")
    assert fledge("config", "--set", "agents.x=1").stderr.startswith("fledge: agents.x: unknown key")


def test_a_wrong_agents_file_is_named_and_an_untrusted_one_is_told(fledge: Fledge, tmp_path: Path) -> None:
    path = tmp_path / "project" / "agents" / "reviewer.md"
    path.parent.mkdir()
    path.write_text("---\nmodel: openai/gpt-5\n---\nYou review.")
    done = fledge("agents")
    assert done.stdout.startswith("main\n")
    assert "openai/gpt-5" not in done.stdout
    assert "not trusted, so these settings of it do not count: agents.list.reviewer.model" in done.stderr
    path.write_text("---\nmodel: 5\n---\nYou review.")
    done = fledge("agents")
    assert done.stderr.startswith(f"fledge: {path}: agents.list.reviewer.model: must be a model's name")
    assert done.stderr.count("\n") == 1


@proves("8.trust.1")
def test_trust_says_what_it_lets_in_and_a_change_takes_it_back(fledge: Fledge, tmp_path: Path) -> None:
    path = tmp_path / "project" / "fledge.json5"
    path.write_text("{agents: {defaults: {model: 'openai/gpt-5'}}}")
    assert "not trusted" in fledge("config").stdout
    done = fledge("trust")
    assert "now counts: agents.defaults.model" in done.stdout
    assert "is trusted already" in fledge("trust").stdout
    assert '"openai/gpt-5"' in fledge("config", "agents.defaults.model").stdout
    path.write_text("{agents: {defaults: {model: 'openai/gpt-6'}}}")
    assert fledge("config", "agents.defaults.model").stdout == "not set\n"
    assert "changed since" in fledge("trust", "--list").stdout
    assert "no longer trusted" in fledge("trust", "--revoke").stdout
    assert fledge("trust", "--list").stdout == "no folder is trusted\n"


@proves("8.trust.6", "A project that changed after it was trusted is shown with the difference")
def test_without_a_terminal_the_commands_that_show_and_trust_a_change_are_named(fledge: Fledge, tmp_path: Path) -> None:
    path = tmp_path / "project" / "fledge.json5"
    path.write_text("{\n  agents: {defaults: {model: 'openai/gpt-5'}},\n}\n")
    assert "would count: agents.defaults.model" in fledge("trust", "--show").stdout
    fledge("trust")
    assert fledge("trust", "--show").stdout == f"{path.parent} is trusted, as its files are now\n"
    path.write_text("{\n  // ours\n  agents: {defaults: {model: 'openai/gpt-5'}},\n}\n")
    told = fledge("run", "hello", "--model", "nosuch/x").stderr.splitlines()[0]
    assert "changed since it was trusted, so these settings of it do not count: agents.defaults.model" in told
    assert told.endswith("`fledge trust --show` shows the difference, `fledge trust` trusts it")
    shown = fledge("trust", "--show").stdout
    assert "\n+  // ours\n" in shown
    assert "would count: agents.defaults.model" in shown
    assert "is not trusted" in fledge("trust", "--show").stdout, "showing trusts nothing"
    assert "\n+  // ours\n" in fledge("trust").stdout
    assert '"openai/gpt-5"' in fledge("config", "agents.defaults.model").stdout


@proves("8.trust.6")
@pytest.mark.parametrize(("answer", "said_yes"), [("y\n", True), ("n\n", False)])
def test_at_a_terminal_a_project_that_changed_is_shown_and_asked_about(
    tmp_path: Path, answer: str, said_yes: bool
) -> None:
    home = Home(tmp_path)
    project = home.home / "project"
    (project / "fledge.json5").write_text("{agents: {defaults: {model: 'nosuch/x'}}}\n")
    home.run("trust", cwd=project)
    (project / "fledge.json5").write_text("// ours\n{agents: {defaults: {model: 'nosuch/x'}}}\n")
    _, shown = home.run_at_terminal(answer, "run", "hello", cwd=project)
    assert "has changed since you trusted it" in shown
    assert "+// ours" in shown
    assert "Trust it as it is now? [y/N]" in shown
    assert (NO_SUCH_MODEL in shown) is said_yes
    assert ("do not count" in shown) is not said_yes
    assert is_trusted(read_written(project), home.user) is said_yes


def test_trusting_a_folder_without_settings_is_refused(fledge: Fledge) -> None:
    done = fledge("trust")
    assert done.returncode == 1
    assert "nothing to trust" in done.stderr


def test_doctor_names_what_is_missing_and_what_to_do(fledge: Fledge) -> None:
    done = fledge("doctor")
    assert done.returncode == 1
    assert "no model is set" in done.stdout
    assert "or set agents.defaults.model (fledge init)" in done.stdout
    done = fledge("doctor", "--model", "openai/gpt-5")
    assert "OPENAI_API_KEY is not set" in done.stdout


def test_doctor_says_which_setting_is_wrong_and_goes_on_checking(fledge: Fledge, tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "fledge.json5").write_text("{agent: {}}")
    done = fledge("doctor")
    assert "did you mean agents?" in done.stdout
    assert "space" in done.stdout


async def _examined(tmp_path: Path, status: int, off_s: float) -> dict[str, doctor.Finding]:
    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == "Bearer sk-test-0123456789"
        return web.Response(status=status, headers={"Date": formatdate(time.time() + off_s)})

    app = web.Application()
    app.router.add_get("/v1/models", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        env = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": "sk-test-0123456789"}
        findings = await doctor.examine(tmp_path, tmp_path / "state", env, "openai/gpt-5")
    finally:
        await runner.cleanup()
    assert "sk-test" not in "\n".join(doctor.lines(findings))
    return {one.name: one for one in findings}


@pytest.mark.parametrize(
    ("status", "off_s", "provider", "clock"),
    [(200, 0.0, "ok", "ok"), (401, 0.0, "fail", "ok"), (200, -4000.0, "ok", "fail"), (404, 4000.0, "ok", "fail")],
)
def test_doctor_asks_the_provider_whether_it_can_be_reached_and_what_time_it_is(
    tmp_path: Path, status: int, off_s: float, provider: str, clock: str
) -> None:
    found = asyncio.run(_examined(tmp_path, status, off_s))
    assert (found["provider"].state, found["clock"].state) == (provider, clock)
    assert found["key"].state == "ok"


def test_doctor_tells_of_what_commands_made_and_only_a_person_may_allow(tmp_path: Path) -> None:
    state, kept = tmp_path / "state", tmp_path / "state" / "set-aside" / "0123"
    kept.mkdir(parents=True)
    (kept / ".envrc").touch()
    findings = {one.name: one for one in asyncio.run(doctor.examine(tmp_path, state, {}, "own/model"))}
    assert findings["set aside"].state == "warn"
    assert findings["set aside"].words == f"1 command made files that only you may allow: see {state}/set-aside"


def test_doctor_finds_a_store_it_cannot_open_and_a_folder_others_can_enter(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o755)
    (state / "fledge.db").write_bytes(b"garbage" * 1000)
    findings = {one.name: one for one in asyncio.run(doctor.examine(tmp_path, state, {}, "own/model"))}
    assert findings["store"].state == "fail"
    assert findings["permissions"].state == "warn"
    assert findings["model"].state == "warn"


ENGINE = """
import os
print("imported", file=open({log!r}, "a"))

class Engine:
    async def subagent_started(self, session_key, requester, timeout_s):
        print("started", file=open({log!r}, "a"))

    async def subagent_ended(self, session_key, reason):
        print(reason, file=open({log!r}, "a"))

engine = Engine()
"""
SPAWNING = """
import fledge
from fledge.testing import ScriptedModel

async def body(fl):
    await (await fl.spawn("go"))
    await fl.until(lambda tx: not tx.outbox.count_waiting() or None)

fledge.run_sync(body, "../state", model=ScriptedModel(lambda request: "done"))
"""
NAMED = '{plugins: {slots: {contextEngine: "own_engine:engine"}}}'


@proves("6.hooks.10")
@pytest.mark.parametrize("owner", ["user", "project"])
def test_the_context_engine_is_imported_where_the_owner_names_it_and_not_where_an_untrusted_project_does(
    tmp_path: Path, owner: str
) -> None:
    log = tmp_path / "log"
    for name in ("user", "project", "own"):
        (tmp_path / name).mkdir()
    (tmp_path / "own" / "own_engine.py").write_text(ENGINE.format(log=str(log)))
    (tmp_path / owner / "fledge.json5").write_text(NAMED)
    env = {"FLEDGE_CONFIG": str(tmp_path / "user"), "PYTHONPATH": str(tmp_path / "own"), "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", SPAWNING], cwd=tmp_path / "project", env=env, check=True, timeout=120)
    heard = log.read_text().split() if log.exists() else []
    assert heard == (["imported", "started", "completed"] if owner == "user" else [])


@proves("6.hooks.10")
def test_the_command_takes_no_context_engine_from_the_folder_it_works_in(tmp_path: Path) -> None:
    for name in ("user", "project"):
        (tmp_path / name).mkdir()
    (tmp_path / "project" / "own_engine.py").write_text(ENGINE.format(log=str(tmp_path / "log")))
    (tmp_path / "user" / "fledge.json5").write_text(NAMED)
    env = {"FLEDGE_CONFIG": str(tmp_path / "user"), "HOME": str(tmp_path), "OPENAI_API_KEY": "none"}
    asked = ("run", "--state", "../state", "--model", "openai/gpt-5", "hello")
    done = command.process(*asked, cwd=tmp_path / "project", env=env)
    assert done.returncode == 1
    assert "plugins.slots.contextEngine: cannot be imported: ModuleNotFoundError" in done.stderr
    assert not (tmp_path / "log").exists()
