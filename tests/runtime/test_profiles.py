"""How each session thinks, from configuration: model, prompt, tools, folder, questions."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fledge.config import check, with_settings
from fledge.core.heartbeat import ActiveHours, HeartbeatSettings
from fledge.core.policy import Limits
from fledge.core.run import Terms
from fledge.errors import BadInput, Refused
from fledge.models.names import Registry
from fledge.models.scripted import ScriptedModel, echo
from fledge.orchestrator import control, heartbeat, spawn
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive
from fledge.runtime.command import CommandRuntime
from fledge.runtime.profile import Profile
from fledge.runtime.profiles import ConfiguredProfiles, rules_of
from fledge.store.base import Session, SessionFacts, Spec
from fledge.testing import InlineStore, ScriptedPerformer, SeededIds, Stage, VirtualClock, run_virtual
from tests.left_out import requires
from tests.statements import proves

MAIN = "agent:main:main"


def look(
    tmp_path: Path,
    *settings: str,
    child: dict[str, Any] | None = None,
    model: str | None = "scripted/one",
    beat: bool = False,
) -> Profile:
    """The profile of the main conversation, or of a child of it, under these settings."""
    found: list[Profile | BaseException] = []
    registry = Registry({})
    registry.add_model("scripted/one", ScriptedModel(echo))
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    state = tmp_path / f"state-{len(list(tmp_path.iterdir()))}"
    config = with_settings({} if model is None else {"agents": {"defaults": {"model": model}}}, settings).config
    profiles = ConfiguredProfiles(
        config, workspace=work, state=work / "state", registry=registry, env={"HOME": str(tmp_path)}
    )

    async def script(stage: Stage) -> None:
        drive: Drive = stage.drive
        if child is not None and child.get("approved") and stage.run is not None and stage.run.plan == "planning":
            await stage.say("1. do it")
            await stage.engine.commit(lambda c: control.answer_plan(c, stage.session, True, "APPROVED: proceed"))
        elif child is None or stage.run is not None:
            try:
                found.append(await profiles.profile(stage.engine, drive))
            except (Refused, BadInput) as error:
                found.append(error)
        elif not await stage.engine.store.read(lambda tx: tx.runs.children(MAIN)):
            request = spawn.SpawnRequest(
                spec=Spec(task="look around", label="eyes", **child.get("spec", {})),
                terms=Terms(parent=MAIN, **child.get("terms", {})),
                facts=child.get("facts", SessionFacts()),
                limits=Limits(max_depth=child.get("depth", 1)),
                generations=drive.generations,
            )
            await stage.engine.commit(lambda c: spawn.spawn(c, request))

    async def main() -> None:
        async with Engine(
            InlineStore(state), ScriptedPerformer(script), clock=VirtualClock(), ids=SeededIds(1)
        ) as engine:
            await engine.commit(lambda c: spawn.open_conversation(c, MAIN))
            if beat:
                await engine.commit(lambda c: heartbeat.request(c, MAIN, "somebody asked"))
            else:
                await engine.commit(lambda c: control.send(c, MAIN, "go"))
            for _ in range(100):
                if found:
                    break
                await engine.clock.wait_until(engine.clock.now() + 1.0, asyncio.Event())

    run_virtual(main())
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def test_a_conversation_has_the_built_in_tools_and_those_for_subagents(tmp_path: Path) -> None:
    names = look(tmp_path).tools.names
    assert names == {
        *("read", "write", "edit", "list", "grep", "exec", "web_fetch"),
        *("sessions_spawn", "sessions_yield", "sessions_subagent_remove", "subagents"),
        *("sessions_send", "sessions_list", "sessions_history", "session_status", "agents_list"),
    }


CLAUDE = "anthropic/claude-sonnet-5-5"


@proves("7.input.30")
@pytest.mark.parametrize(
    ("model", "settings", "searches"),
    [
        (CLAUDE, (), True),
        ("openai/gpt-5.6-terra", (), True),
        ("groq/openai/gpt-oss-120b", (), False),
        (CLAUDE, ("tools.web.search.enabled=false",), False),
        (CLAUDE, ("tools.deny=['web_search']",), False),
        (CLAUDE, ("tools.allow=['read']",), False),
        (CLAUDE, ("tools.web_search.approval=ask",), False),
        (CLAUDE, ("tools.web.search.provider=brave",), False),
    ],
)
def test_the_provider_searches_where_it_can_and_the_settings_let_it(
    tmp_path: Path, model: str, settings: tuple[str, ...], searches: bool
) -> None:
    tools = look(tmp_path, *settings, model=model).tools
    assert bool(tools.hosted) == searches
    assert ("web_search" in {spec.name for spec in tools.specs}) == ("tools.web.search.provider=brave" in settings)
    assert ("web_search" in look(tmp_path, *settings, model=model, child={}).tools.hosted) == searches


@proves("3.prompt.12")
def test_a_leaf_cannot_spawn_or_direct_anybody(tmp_path: Path) -> None:
    names = look(tmp_path, child={}).tools.names
    assert not names & {"sessions_spawn", "subagents", "sessions_list", "sessions_history", "agents_list"}
    assert {"read", "session_status"} <= names


@proves("3.limits.17")
def test_an_orchestrator_can(tmp_path: Path) -> None:
    assert {"sessions_spawn", "subagents"} <= look(tmp_path, child={"depth": 2}).tools.names


@proves("3.plan.2", "The planner has read-only tools")
def test_a_planner_has_only_what_changes_nothing(tmp_path: Path) -> None:
    names = look(tmp_path, child={"terms": {"plan": True}}).tools.names
    assert {"read", "list", "grep"} <= names
    assert not names & {"write", "edit", "exec"}


@proves("3.prompt.13")
def test_allow_and_deny_hold_for_all_and_for_children(tmp_path: Path) -> None:
    assert look(tmp_path, "tools.allow=['read','list']").tools.names == {"read", "list"}
    assert "exec" not in look(tmp_path, "tools.deny=['e*']").tools.names
    assert "write" not in look(tmp_path, "tools.subagents.tools.deny=['write']", child={}).tools.names


@proves("3.prompt.7")
@proves("3.prompt.8", "A child loads only the first two")
@pytest.mark.parametrize(
    ("child", "seen"), [(None, {"AGENTS.md", "TOOLS.md", "SOUL.md"}), ({}, {"AGENTS.md", "TOOLS.md"})]
)
def test_documents_of_the_folder_are_in_the_prompt_and_a_child_sees_only_two(
    tmp_path: Path, child: dict[str, Any] | None, seen: set[str]
) -> None:
    (tmp_path / "work").mkdir()
    for name in ("AGENTS.md", "TOOLS.md", "SOUL.md"):
        (tmp_path / "work" / name).write_text(f"words of {name}")
    system = look(tmp_path, child=child).system
    assert {name for name in ("AGENTS.md", "TOOLS.md", "SOUL.md") if f"words of {name}" in system} == seen


@pytest.mark.parametrize("text", ["- look at the mail", ""])
def test_what_to_look_after_is_read_for_heartbeats_only(tmp_path: Path, text: str) -> None:
    assert look(tmp_path, beat=True).checklist is None
    (tmp_path / "work" / "HEARTBEAT.md").write_text(text)
    spoken, beating = look(tmp_path), look(tmp_path, beat=True)
    assert (spoken.checklist, beating.checklist) == (None, text)
    assert "## HEARTBEAT.md" not in spoken.system
    assert f"## HEARTBEAT.md\n\n{text}" in beating.system


@proves("3.prompt.1")
def test_a_childs_prompt_holds_its_task_and_its_rules(tmp_path: Path) -> None:
    system = look(tmp_path, child={}).system
    assert system.startswith("# Subagent Context")
    assert "look around" in system


def test_without_a_model_the_refusal_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"give --model NAME, such as .*, or set agents.defaults.model"):
        look(tmp_path, model=None)


def test_a_name_that_means_no_model_is_refused_with_its_nearest(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="no provider 'opnai'"):
        look(tmp_path, model="opnai/x")


def test_a_tool_asks_if_the_settings_say_so(tmp_path: Path) -> None:
    assert look(tmp_path, "tools.read.approval=ask").asks >= {"read"}
    assert "exec" not in look(tmp_path, "tools.exec.approval=never", "agents.defaults.sandbox.mode=off").asks


@proves("8.exec.3", "Else it asks by default")
def test_commands_outside_a_sandbox_ask_by_default(tmp_path: Path) -> None:
    assert "exec" in look(tmp_path, "agents.defaults.sandbox.mode=off").asks


@proves("2.announce.13", "`announce.style` and `announce.inlineChars` shape a completion's text")
@proves("3.limits.4")
def test_settings_of_queue_announce_and_lanes_reach_the_commits() -> None:
    settings = (
        "messages.queue.mode=steer",
        "messages.queue.debounceMs=250",
        "announce.style=compact",
        "announce.inlineChars=77",
        "archive.deleteKept=true",
        "agents.defaults.maxConcurrent=2",
        "agents.defaults.subagents.maxConcurrent=3",
    )
    rules = rules_of(with_settings({}, settings).config)
    assert (rules.queue.mode, rules.queue.debounce_s) == ("steer", 0.25)
    assert (rules.style, rules.inline_chars, rules.delete_kept) == ("compact", 77, True)
    assert rules.widths == {"main": 2, "subagent": 3, "nested": 1}


def test_settings_of_heartbeats_reach_the_commits() -> None:
    assert rules_of(with_settings({}, ()).config).heartbeat == HeartbeatSettings()
    settings = (
        "agents.defaults.heartbeat.every=30m",
        "agents.defaults.heartbeat.ackMaxChars=7",
        "agents.defaults.heartbeat.activeHours.start=22:00",
        "agents.defaults.heartbeat.activeHours.end=06:30",
        "agents.defaults.heartbeat.activeHours.timezone=Europe/Paris",
        "agents.defaults.heartbeat.prompt=Look at the mail.",
        "agents.defaults.heartbeat.target=ops",
        "agents.defaults.heartbeat.to=ann",
    )
    assert rules_of(with_settings({}, settings).config).heartbeat == HeartbeatSettings(
        every_s=1800.0,
        hours=ActiveHours(1320, 390),
        zone="Europe/Paris",
        ack_chars=7,
        prompt="Look at the mail.",
        target="ops",
        to="ann",
    )


def test_a_configured_runtime_sees_only_the_secrets_it_was_given(tmp_path: Path) -> None:
    file = {"runtimes": {"other": {"command": ["env"], "passEnv": ["OTHER_API_KEY"], "timeoutSeconds": 5}}}
    env = {"HOME": str(tmp_path), "OTHER_API_KEY": "mine", "OPENAI_API_KEY": "not yours"}
    profiles = ConfiguredProfiles(check(file).config, workspace=tmp_path, state=tmp_path / "state", env=env)
    found = profiles.runtime("other")
    assert isinstance(found, CommandRuntime)
    assert (found.command, found.timeout_s, found.env) == (("env",), 5.0, {"OTHER_API_KEY": "mine"})
    assert profiles.runtimes == ("other",)
    _, known = profiles.work_place(Session(MAIN, "main", None, 0, SessionFacts(), False, 0, 0, 0.0))
    assert "OPENAI_API_KEY" not in known


@pytest.mark.parametrize("name", ["subagent", "a b", ""])
def test_a_runtime_needs_a_name_that_a_model_can_give(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="runtimes"):
        ConfiguredProfiles(
            check({}).config,
            workspace=tmp_path,
            state=tmp_path / "state",
            env={},
            runtimes={name: CommandRuntime(command=["x"])},
        )


# ---- ceilings --------------------------------------------------------------------------------------------------------


def test_a_child_never_has_a_tool_its_parent_lacked_whatever_the_settings_say_now(tmp_path: Path) -> None:
    facts = SessionFacts(tools=("read", "web_fetch", "gone"))
    assert look(tmp_path, child={"facts": facts}).tools.names == {"read", "web_fetch"}
    also = "tools.subagents.tools.alsoAllow=['exec']"
    assert look(tmp_path, also, child={"facts": facts}).tools.names == {"read", "web_fetch"}


@pytest.mark.parametrize(
    ("settings", "lacks"),
    [
        ("agents.list=[{id: 'main', tools: {deny: ['exec']}}, {id: 'helper'}]", {"exec"}),
        ("agents.list=[{id: 'main', tools: {allow: ['read', 'sessions_spawn']}}, {id: 'helper'}]", {"exec", "write"}),
        ("agents.list=[{id: 'main'}, {id: 'helper'}]", set[str]()),
    ],
)
def test_a_child_of_a_conversation_has_no_tool_that_is_denied_to_the_agent_of_that(
    tmp_path: Path, settings: str, lacks: set[str]
) -> None:
    names = look(tmp_path, settings, child={"facts": SessionFacts(agent_id="helper")}).tools.names
    assert {"exec", "write", "read"} - names == lacks


def test_an_approved_plan_has_full_tools_but_none_beyond_its_ceiling(tmp_path: Path) -> None:
    facts = SessionFacts(tools=("read", "write"))
    child = {"facts": facts, "terms": {"plan": True}}
    assert look(tmp_path, child=child).tools.names == {"read"}
    assert look(tmp_path, child={**child, "approved": True}).tools.names == {"read", "write"}


def test_a_child_that_was_spawned_for_a_sandbox_runs_in_one(tmp_path: Path) -> None:
    requires("bubblewrap")
    off = "agents.defaults.sandbox.mode=off"
    assert not look(tmp_path, off, child={}).boxed
    assert look(tmp_path, off, child={"facts": SessionFacts(boxed=True)}).boxed


def test_a_child_that_was_spawned_for_a_sandbox_does_not_run_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="spawned to run in a sandbox"):
        look(tmp_path, "agents.defaults.sandbox.mode=off", child={"facts": SessionFacts(boxed=True)})


def test_a_child_works_in_the_folder_it_was_given(tmp_path: Path) -> None:
    assert look(tmp_path, child={"facts": SessionFacts(workspace="/elsewhere")}).workspace == Path("/elsewhere")
    assert look(tmp_path, child={}).workspace == tmp_path / "work"


def test_the_schema_of_an_answer_is_in_its_prompt(tmp_path: Path) -> None:
    system = look(tmp_path, child={"spec": {"output_schema": {"type": "array"}}}).system
    assert '{"type":"array"}' in system
    assert "SUMMARY:" not in system
