"""Keys and forms of settings: unknown and ignored keys, tools, presets, durations, hours, agents."""

from collections.abc import Callable

import pytest

from fledge import config as settings
from fledge.config import as_document, check, duration_s, parse, subagent_limits
from fledge.config.foreign import UNUSED
from fledge.config.shape import describe
from fledge.errors import BadInput
from tests.statements import proves

H = "agents.defaults.heartbeat.activeHours"
S = "agents.defaults.subagents."


def nested(key: str, value: object) -> dict[str, object]:
    """The document that sets only this key; `[]` is one agent called research."""
    head, _, rest = key.partition(".")
    if head.endswith("[]"):
        agent = {"id": "research", **nested(rest, value)}
        return {head.removesuffix("[]"): [agent]}
    return {head: nested(rest, value) if rest else value}


def refusal(act: Callable[..., object], *given: object) -> str:
    """The message with which this is refused."""
    with pytest.raises(BadInput) as caught:
        act(*given)
    return str(caught.value)


# ---- unknown, ignored, tools -----------------------------------------------------------------------------------------


BLOCKS = (
    "agents, announce, archive, channels, gateway, hooks, messages, models, plan, plugins, retention, runtimes, "
    "session, tools, undelivered"
)


@proves("7.input.12", "Other unknown keys are an error with the nearest valid one")
@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("agents.defaults.subagents.maxConcurent", "did you mean maxConcurrent?"),
        ("agents.defaults.subagents.MAXSPAWNDEPTH", "did you mean maxSpawnDepth?"),
        ("agents.list[].subagents.allow_agents", "did you mean allowAgents?"),
        ("agents.list[].modle", "did you mean model?"),
        ("tools.alow", "did you mean allow?"),
        ("tools.agentToAgnt", "did you mean agentToAgent?"),
        ("tools.exec.aproval", "did you mean approval?"),
        ("anounce", "did you mean announce?"),
        ("heartbeat", "did you mean agents.defaults.heartbeat?"),
        ("stuckAfterSeconds", "did you mean agents.defaults.subagents.stuckAfterSeconds?"),
        ("tools.subagents.deny", "did you mean tools.subagents.tools.deny?"),
        ("plan.zzz", "valid here: approvalHours"),
        ("archive.zzz", "valid here: deleteKept"),
        ("zzz", f"valid here: {BLOCKS}"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(key: str, hint: str) -> None:
    path = key.replace("list[]", "list.research")
    assert refusal(check, nested(key, {})) == f"{path}: unknown key ({hint})"


@pytest.mark.parametrize(("key", "shown"), [("a.b", "'a.b'"), ("x\n", r"'x\n'"), ("k" * 65, repr("k" * 40))])
def test_an_odd_key_is_shown_quoted_and_short(key: str, shown: str) -> None:
    assert refusal(check, {key: 1}).startswith(f"{shown}: unknown key (")


def test_a_key_of_64_characters_is_shown_as_it_is() -> None:
    assert refusal(check, {"k" * 64: 1}).startswith("k" * 64 + ": unknown key (")


KNOWN_UNUSED = [
    *[
        (key, key)
        for key in (
            "channels.telegram",
            "gateway.bind",
            "cron",
            "browser",
            "skills",
            "plugins.entries",
            "plugins.slots.memory",
            "ui",
            "logging",
            "auth",
        )
    ],
    *[
        (key, key)
        for key in ("hooks.token", "models.pricing", "env", "wizard", "meta", "talk", "memory", "audio", "canvasHost")
    ],
    *[(key, key) for key in ("discovery", "$schema", "bindings", "commands", "mcp", "secrets", "update", "web")],
    (S + "announceTimeoutMs", S + "announceTimeoutMs"),
    (S + "delegationMode", S + "delegationMode"),
    ("agents.defaults.contextTokens", "agents.defaults.contextTokens"),
    ("agents.defaults.skipBootstrap", "agents.defaults.skipBootstrap"),
    ("agents.defaults.heartbeat.session", "agents.defaults.heartbeat.session"),
    ("agents.list[].default", "agents.list.research.default"),
    ("agents.list[].identity.avatar", "agents.list.research.identity.avatar"),
    ("agents.list[].sandbox.docker", "agents.list.research.sandbox.docker"),
    ("messages.responsePrefix", "messages.responsePrefix"),
    ("session.scope", "session.scope"),
    ("session.reset", "session.reset"),
    ("session.threadBindings.spawnSubagentSessions", "session.threadBindings.spawnSubagentSessions"),
    ("tools.exec.host", "tools.exec.host"),
    ("tools.web.fetch", "tools.web.fetch"),
]


@proves("7.input.11", "Known OpenClaw keys that fledge does not use are a warning")
@pytest.mark.parametrize(("key", "path"), KNOWN_UNUSED)
def test_a_key_of_openclaw_that_is_not_used_is_a_warning(key: str, path: str) -> None:
    loaded = check(nested(key, {"deep": [float("nan")]}))
    assert loaded.warnings == (f"{path}: ignored, a key of OpenClaw that fledge does not use",)


@pytest.mark.parametrize("key", ["tools.exec.security", "tools.profile", "agents.list[].tools.byProvider"])
def test_ignoring_a_key_that_kept_tools_away_says_what_to_set_instead(key: str) -> None:
    assert check(nested(key, "deny")).warnings == (
        f"{key.replace('list[]', 'list.research')}: ignored, a key of OpenClaw that fledge does not use; "
        "to keep a tool away use deny, to be asked first tools.<tool>.approval",
    )


def test_an_unused_key_elsewhere_is_unknown() -> None:
    assert refusal(check, nested("plan.cron", {})) == ("plan.cron: unknown key (valid here: approvalHours)")


@pytest.mark.parametrize(("block", "keys"), UNUSED.items())
def test_no_unused_key_is_a_setting(block: str, keys: tuple[str, ...]) -> None:
    prefix = f"{block}." if block else ""
    used = {row.key for row in describe()}
    assert [key for key in keys if any(f"{row}.".startswith(f"{prefix}{key}.") for row in used)] == []


def test_warnings_come_in_the_order_of_the_document_and_the_rest_applies() -> None:
    loaded = parse("{ui: 1, plan: {approvalHours: 2}, cron: 1}")
    assert [warning.partition(":")[0] for warning in loaded.warnings] == ["ui", "cron"]
    assert loaded.config.plan.approval_hours == 2


def test_tools_say_whether_they_ask_and_an_agent_goes_before_all() -> None:
    config = parse(
        """{tools: {exec: {approval: "ask"}, mine: {approval: "never"}, read: {}, sessions_spawn: {approval: "ask"}},
            agents: {list: [{id: "free", tools: {exec: {approval: "never"}, sessions_spawn: {approval: "never"}}}]}}"""
    ).config
    asked = {
        (agent, tool): settings.approval_for(config, agent, tool)
        for agent in ("main", "free")
        for tool in ("exec", "bash", "mine", "read", "web_fetch", "sessions_spawn")
    }
    assert asked == {
        ("main", "exec"): "ask",
        ("main", "bash"): "ask",
        ("main", "mine"): "never",
        ("main", "read"): None,
        ("main", "web_fetch"): None,
        ("main", "sessions_spawn"): "ask",
        ("free", "exec"): "never",
        ("free", "bash"): "never",
        ("free", "mine"): "never",
        ("free", "read"): None,
        ("free", "web_fetch"): None,
        ("free", "sessions_spawn"): "never",
    }


@pytest.mark.parametrize("tool", ["read", "write", "edit", "list", "grep", "exec", "bash", "web_fetch", "web_search"])
def test_a_built_in_tool_may_stand_there_without_a_rule(tool: str) -> None:
    config = check({"tools": {tool: {}}}).config
    assert list(config.tools.rules) == [tool] * (tool != "exec")  # which has a block of its own
    assert settings.approval_for(config, "main", tool) is None


@pytest.mark.parametrize(("shell", "other"), [("exec", "bash"), ("bash", "exec")])
def test_the_shell_asks_if_either_of_its_names_does(shell: str, other: str) -> None:
    config = check({"tools": {shell: {"approval": "ask"}, other: {"approval": "never"}}}).config
    assert [settings.approval_for(config, "main", tool) for tool in ("exec", "bash")] == ["ask", "ask"]


@pytest.mark.parametrize(
    ("tools", "shown"),
    [
        ({"mine": {}}, "tools.mine: unknown key ("),
        ({"mine": "ask"}, "tools.mine: unknown key ("),
        ({"mine": {"approval": "maybe"}}, "tools.mine.approval: must be one of never, ask (got 'maybe')"),
        ({"exec": "ask"}, "tools.exec: must be an object (got 'ask')"),
        ({"a\x07": {"approval": "ask"}}, r"tools.'a\x07': must be text that is not blank"),
        ({"rules": {"exec": {}}}, "tools.rules: unknown key ("),
    ],
)
def test_a_tool_is_told_from_a_misspelled_key_by_its_approval(tools: dict[str, object], shown: str) -> None:
    assert refusal(check, {"tools": tools}).startswith(shown)


# ---- presets, forms, agents ------------------------------------------------------------------------------------------


@proves("3.limits.14", 'The preset `limits: "strict"` is 5 concurrent and 15 retained')
@pytest.mark.parametrize(
    ("defaults", "own", "concurrent", "retained"),
    [
        ({}, {}, 8, 0),
        ({"limits": "strict"}, {}, 5, 15),
        ({"limits": "strict", "maxConcurrent": 8}, {}, 8, 15),
        ({"maxRetained": 0, "limits": "strict"}, {}, 5, 0),
        ({}, {"limits": "strict"}, 5, 15),
        ({"maxConcurrent": 3, "maxRetained": 4}, {"limits": "strict"}, 5, 15),
        ({"limits": "strict"}, {"maxConcurrent": 9}, 9, 15),
        ({"limits": "strict"}, {"limits": "strict", "maxRetained": 16}, 5, 16),
    ],
)
def test_the_strict_preset_gives_way_to_a_key_beside_it(
    defaults: dict[str, object], own: dict[str, object], concurrent: int, retained: int
) -> None:
    document = {"agents": {"defaults": {"subagents": defaults}, "list": [{"id": "a", "subagents": own}]}}
    config = check(document).config
    limits = subagent_limits(config, "a")
    assert (limits.max_concurrent, limits.max_retained) == (concurrent, retained)
    assert check(as_document(config)).config == config


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("off", 0),
        ("OFF ", 0),
        ("0", 0),
        ("0m", 0),
        ("30", 1800),
        ("30m", 1800),
        ("90s", 90),
        ("1h", 3600),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("2d", 172800),
        ("1000ms", 1),
        ("1s", 1),
        ("1M", 60),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds
    every = check(nested("agents.defaults.heartbeat.every", text)).config.agents.defaults.heartbeat.every
    assert every == text.strip().lower()


@pytest.mark.parametrize("text", ["999ms", "0.9s", "-1m", "m", "1 h", "30mm", "1h 30m", "soon", "1e3m", "1" * 10, "1w"])
def test_what_is_no_duration_of_a_second_or_more_is_refused(text: str) -> None:
    right = "must be off, or a duration such as 30m or 1h30m, of at least 1s"
    assert refusal(duration_s, text, "every") == f"every: {right} (got {text!r})"
    key = "agents.defaults.heartbeat.every"
    assert refusal(check, nested(key, text)) == f"{key}: {right} (got {text!r})"


def test_a_duration_that_is_refused_without_a_field_is_called_duration() -> None:
    assert refusal(duration_s, "soon").startswith("duration: must be off")


START, END = "must be a time of day such as 08:30", "must be a time of day such as 22:00, at most 24:00"
ZONE = "must be local, or a time zone such as Europe/Paris"


@pytest.mark.parametrize(
    ("hours", "zone"),
    [
        ({"start": "00:00", "end": "24:00"}, "local"),
        ({"start": "23:59", "end": "00:00", "timezone": "user"}, "local"),
        ({"start": "19:05", "end": "08:30", "timezone": "local"}, "local"),
        ({"start": "08:00", "end": "08:00", "timezone": "UTC"}, "UTC"),
    ],
)
def test_active_hours_are_times_of_day(hours: dict[str, object], zone: str) -> None:
    active = check(nested(H, hours)).config.agents.defaults.heartbeat.active_hours
    assert active is not None
    assert (active.start, active.end, active.timezone) == (hours["start"], hours["end"], zone)


@pytest.mark.parametrize(
    ("hours", "shown"),
    [
        ({"start": "24:00", "end": "24:00"}, f"start: {START} (got '24:00')"),
        ({"start": "8:00", "end": "24:00"}, f"start: {START} (got '8:00')"),
        ({"start": "08:60", "end": "24:00"}, f"start: {START} (got '08:60')"),
        ({"start": "08:00", "end": "24:01"}, f"end: {END} (got '24:01')"),
        ({"start": "08:00", "end": "08:00x"}, f"end: {END} (got '08:00x')"),
        ({"start": "08:00"}, "end: is required: a time of day such as 22:00, at most 24:00"),
        ({"end": "08:00"}, "start: is required: a time of day such as 08:30"),
        ({"start": "08:00", "end": "09:00", "timezone": "Moon/Base"}, f"timezone: {ZONE} (got 'Moon/Base')"),
        ({"start": "08:00", "end": "09:00", "timezone": "../x"}, f"timezone: {ZONE} (got '../x')"),
        ({"start": "08:00", "end": "09:00", "timezone": "Europe"}, f"timezone: {ZONE} (got 'Europe')"),
    ],
)
def test_what_is_no_time_of_day_or_zone_is_refused(hours: dict[str, object], shown: str) -> None:
    assert refusal(check, nested(H, hours)) == f"{H}.{shown}"


def test_agents_have_lower_case_ids_and_may_allow_any_other() -> None:
    config = parse('{agents: {list: [{id: "Research", subagents: {allowAgents: ["*", "Writer"]}}]}}').config
    assert config.agents.list[0].id == "research"
    assert config.agents.list[0].subagents.allow_agents == ("*", "writer")


def test_two_agents_of_one_id_are_refused() -> None:
    document = {"agents": {"list": [{"id": "b"}, {"id": "A"}, {"id": "a"}]}}
    assert refusal(check, document) == "agents.list.2.id: must be unique, agents.list.1 has it (got 'a')"
