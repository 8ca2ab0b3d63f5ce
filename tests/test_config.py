"""The settings: defaults, bounds, forms, what is refused, and the reference page."""

import json
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fledge.config import BudgetBlock, Config, SandboxBlock, check, describe, page, parse, subagent_limits
from fledge.errors import BadInput
from tests.statements import proves

DOCS = Path(__file__).parent.parent / "docs" / "config.md"
S = "agents.defaults.subagents."


def found(config: Config, key: str) -> object:
    """What the config holds under this key."""
    value: object = config
    for part in key.split("."):
        name = part.removesuffix("[]")
        assert isinstance(value, msgspec.Struct)
        fields = {one.encode_name: one.name for one in msgspec.structs.fields(type(value))}
        value = getattr(value, fields[name])
        if part.endswith("[]"):
            assert isinstance(value, tuple)
            value = value[0]
    return value


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


# ---- defaults and bounds ---------------------------------------------------------------------------------------------

A = "tools.sessions_spawn.attachments."
DEFAULTS: dict[str, object] = {
    "channels": {},
    "gateway.host": "127.0.0.1",
    "gateway.port": 18789,
    "gateway.allowedHosts": (),
    "gateway.allowedOrigins": (),
    "gateway.maxBodyKb": 8192,
    "gateway.requestsPerSecond": 50,
    "gateway.maxConnections": 256,
    "gateway.maxSubscriptions": 64,
    "hooks": {},
    "models.providers": {},
    "models.catalog": {},
    "models.patienceSeconds": 600.0,
    "models.caFile": None,
    "agents.defaults.model": None,
    "agents.defaults.maxTokens": None,
    "agents.defaults.workspace": None,
    "agents.defaults.maxConcurrent": 4,
    "agents.defaults.maxSteps": 1000,
    "agents.defaults.maxRepeatedSteps": 100,
    S + "limits": None,
    S + "maxSpawnDepth": 1,
    S + "maxChildrenPerAgent": 5,
    S + "maxConcurrent": 8,
    S + "maxRetained": 0,
    S + "archiveAfterMinutes": 60,
    S + "runTimeoutSeconds": 0,
    S + "queueTimeoutSeconds": 0,
    S + "stuckAfterSeconds": 300,
    S + "model": None,
    S + "thinking": None,
    S + "budget": BudgetBlock(tokens=0, usd=0.0, turns=0, seconds=0.0),
    S + "allowAgents": None,
    "agents.defaults.heartbeat.every": "off",
    "agents.defaults.heartbeat.activeHours": None,
    "agents.defaults.heartbeat.ackMaxChars": 300,
    "agents.defaults.heartbeat.prompt": None,
    "agents.defaults.heartbeat.target": "last",
    "agents.defaults.heartbeat.to": None,
    "agents.defaults.heartbeat.model": None,
    "agents.defaults.sandbox": SandboxBlock(mode="auto", network="shared", session_tools_visibility="spawned"),
    "agents.list": (),
    "announce.style": "auto",
    "announce.inlineChars": 4000,
    "announce.deliver": "turn",
    "announce.maxRetries": 3,
    "archive.deleteKept": False,
    "messages.queue.mode": None,
    "messages.queue.people": None,
    "messages.queue.debounceMs": 1000,
    "messages.queue.cap": 20,
    "messages.queue.drop": "summarize",
    "messages.queue.byChannel": {},
    "messages.queue.debounceMsByChannel": {},
    "plan.approvalHours": 24.0,
    "plugins.slots.contextEngine": "",
    "retention.keptDays": 30,
    "retention.timelineDays": 30,
    "session.agentToAgent.maxPingPongTurns": 5,
    "session.parentForkMaxTokens": 100_000,
    "session.threadBindings.enabled": True,
    "session.threadBindings.idleHours": 24.0,
    "session.threadBindings.maxAgeHours": 0.0,
    "tools.allow": None,
    "tools.deny": (),
    "tools.exec.approval": None,
    "tools.exec.env": (),
    "tools.unguarded": (),
    "tools.exec.anyPaths": (),
    "tools.subagents.tools.allow": None,
    "tools.subagents.tools.alsoAllow": (),
    "tools.subagents.tools.deny": (),
    "tools.agentToAgent.enabled": False,
    "tools.agentToAgent.allow": (),
    "tools.sessions.visibility": "tree",
    "tools.web.search.provider": None,
    "tools.web.search.enabled": True,
    "tools.web.search.apiKeyEnv": None,
    "tools.web.search.apiKeyFile": None,
    "tools.web.search.baseUrl": None,
    "tools.sessions_spawn.approval": None,
    A + "enabled": False,
    A + "maxFiles": 50,
    A + "maxFileBytes": 1_048_576,
    A + "maxTotalBytes": 5_242_880,
    A + "retainOnSessionKeep": False,
    "runtimes": {},
    "undelivered.retentionDays": 7,
}
LEAST = {
    "agents.defaults.maxConcurrent": 1,
    "agents.defaults.maxSteps": 0,
    "agents.defaults.maxRepeatedSteps": 0,
    S + "maxSpawnDepth": 1,
    S + "maxChildrenPerAgent": 1,
    S + "maxConcurrent": 1,
    S + "maxRetained": 0,
    S + "runTimeoutSeconds": 0,
    S + "queueTimeoutSeconds": 0,
    S + "stuckAfterSeconds": 1,
    S + "budget.tokens": 0,
    S + "budget.usd": 0,
    S + "budget.turns": 0,
    S + "budget.seconds": 0,
    "agents.defaults.heartbeat.ackMaxChars": 0,
    "announce.inlineChars": 0,
    "announce.maxRetries": 0,
    "messages.queue.debounceMs": 0,
    "messages.queue.cap": 1,
    "retention.keptDays": 1,
    "retention.timelineDays": 1,
    "session.agentToAgent.maxPingPongTurns": 0,
    "session.parentForkMaxTokens": 0,
    "session.threadBindings.idleHours": 0,
    "session.threadBindings.maxAgeHours": 0,
    A + "maxFiles": 0,
    A + "maxFileBytes": 0,
    A + "maxTotalBytes": 0,
    "undelivered.retentionDays": 1,
}
MOST = {S + "maxSpawnDepth": 5, "session.agentToAgent.maxPingPongTurns": 5}
WORDS = {
    S + "limits": ["strict"],
    S + "thinking": ["off", "minimal", "low", "medium", "high", "xhigh", "adaptive"],
    "agents.defaults.sandbox.mode": ["auto", "off", "non-main", "all"],
    "agents.defaults.sandbox.network": ["shared", "none"],
    "agents.defaults.sandbox.sessionToolsVisibility": ["spawned", "all"],
    "announce.style": ["auto", "full", "compact"],
    "announce.deliver": ["turn", "send"],
    "messages.queue.mode": ["steer", "followup", "collect", "steer-backlog", "interrupt"],
    "messages.queue.people": ["steer", "followup", "collect", "steer-backlog", "interrupt"],
    "messages.queue.drop": ["summarize", "old", "new"],
    "tools.sessions.visibility": ["self", "tree", "agent", "all"],
    "tools.exec.approval": ["never", "ask"],
    "tools.sessions_spawn.approval": ["never", "ask"],
}


@pytest.mark.parametrize(("key", "default"), DEFAULTS.items())
def test_an_empty_document_has_the_default(key: str, default: object) -> None:
    assert found(parse("{}").config, key) == default


@proves("2.phases.33")
@proves("2.announce.8")
@proves("2.hops.17")
@proves("3.limits.1", "`maxSpawnDepth` is 1, from 1 to 5")
@proves("3.limits.4")
@proves("3.limits.9", "`archiveAfterMinutes` is 60")
@proves("3.limits.10", "`runTimeoutSeconds` 0 is none")
@proves("6.sweep.10")
@proves("6.sweep.12")
@proves("8.gateway.5", "It listens on loopback unless told")
def test_every_setting_has_its_default_in_the_table_above() -> None:
    assert [row.key for row in describe() if not row.key.startswith(tuple(DEFAULTS)) and "<" not in row.key] == []


OWN = {key.replace("defaults", "list[]"): least for key, least in LEAST.items() if key.startswith(S)}


@proves("3.limits.2")
@pytest.mark.parametrize(("key", "least"), (LEAST | OWN).items())
def test_the_least_value_is_accepted_and_one_below_is_refused(key: str, least: int) -> None:
    assert found(check(nested(key, least)).config, key) == least
    number = "a number" if key.endswith(("usd", "seconds", "Hours")) else "an integer"
    bounds = "from {} to 5" if key.endswith(("maxSpawnDepth", "maxPingPongTurns")) else "of at least {}"
    path = key.replace("list[]", "list.research")
    assert refusal(check, nested(key, least - 1)) == (
        f"{path}: must be {number} {bounds.format(least)} (got {least - 1})"
    )


@proves("3.limits.1")
@pytest.mark.parametrize(("key", "most"), MOST.items())
def test_the_largest_value_is_accepted_and_one_above_is_refused(key: str, most: int) -> None:
    assert found(check(nested(key, most)).config, key) == most
    assert refusal(check, nested(key, most + 1)).endswith(f" to {most} (got {most + 1})")


@pytest.mark.parametrize("key", [key for key in LEAST if key not in MOST])
def test_a_number_without_an_upper_bound_may_be_as_large_as_is_kept_exactly(key: str) -> None:
    largest = 9007199254740991
    assert found(check(nested(key, largest)).config, key) == largest
    assert f", no further from 0 than {largest} (got 9007199254740992" in refusal(check, nested(key, largest + 1))


@pytest.mark.parametrize("minutes", [0, -1, -9007199254740991])
def test_archiving_never_is_any_number_of_minutes_up_to_0(minutes: int) -> None:
    assert parse(f"{{agents: {{defaults: {{subagents: {{archiveAfterMinutes: {minutes}}}}}}}}}") == check(
        nested(S + "archiveAfterMinutes", minutes)
    )
    assert found(check(nested(S + "archiveAfterMinutes", minutes)).config, S + "archiveAfterMinutes") == minutes


def test_a_plan_waits_longer_than_0_hours() -> None:
    assert check(nested("plan.approvalHours", 0.01)).config.plan.approval_hours == 0.01
    assert refusal(check, nested("plan.approvalHours", 0)) == ("plan.approvalHours: must be a number above 0 (got 0)")


@pytest.mark.parametrize(("key", "words"), WORDS.items())
def test_a_choice_takes_its_words_in_any_case_and_no_other(key: str, words: list[str]) -> None:
    for word in words:
        assert found(check(nested(key, f" {word.upper()} ")).config, key) == word
    shown = '"strict"' if words == ["strict"] else f"one of {', '.join(words)}"
    for wrong in ("loud", 3, None, ["auto"]):
        got = json.dumps(wrong) if wrong is None or isinstance(wrong, list) else repr(wrong)
        assert refusal(check, nested(key, wrong)) == f"{key}: must be {shown} (got {got})"


@pytest.mark.parametrize(
    ("alias", "mode"),
    [
        ("queue", "steer"),
        ("queued", "steer"),
        ("abort", "interrupt"),
        ("coalesce", "collect"),
        ("steer+backlog", "steer-backlog"),
    ],
)
def test_a_queue_mode_has_other_names(alias: str, mode: str) -> None:
    assert check(nested("messages.queue.mode", alias)).config.messages.queue.mode == mode


@proves("3.params.25")
@pytest.mark.parametrize("block", ["agents.defaults.subagents", "agents.list.x.subagents"])
def test_an_old_name_of_a_setting_counts_with_a_warning_and_not_beside_the_present_one(block: str) -> None:
    def read(**settings: object) -> tuple[int, tuple[str, ...]]:
        document: dict[str, object] = {"agents": {"defaults": {"subagents": settings}}}
        if "list" in block:
            document = {"agents": {"list": [{"id": "x", "subagents": settings}]}}
        loaded = check(document)
        return subagent_limits(loaded.config, "x").run_timeout_seconds, loaded.warnings

    assert read(runTimeoutSeconds=5) == (5, ())
    assert read(timeoutSeconds=7) == (7, (f"{block}.timeoutSeconds: is called {block}.runTimeoutSeconds now",))
    both = read(timeoutSeconds=7, runTimeoutSeconds=5)
    assert both == (5, (f"{block}.timeoutSeconds: ignored beside {block}.runTimeoutSeconds",))
    with pytest.raises(BadInput, match=f"^{block}.timeoutSeconds: must be an integer of at least 0"):
        read(timeoutSeconds=-1)


WRONG = [
    (S + "maxConcurrent", True, "an integer of at least 1", "true"),
    (S + "maxConcurrent", "8", "an integer of at least 1", "'8'"),
    (S + "maxConcurrent", 8.5, "an integer of at least 1", "8.5"),
    (S + "maxConcurrent", None, "an integer of at least 1", "null"),
    (S + "maxConcurrent", float("nan"), "an integer of at least 1", "nan"),
    (S + "maxConcurrent", float("inf"), "an integer of at least 1", "inf"),
    (S + "archiveAfterMinutes", "60", "an integer", "'60'"),
    (S + "archiveAfterMinutes", float("-inf"), "an integer", "-inf"),
    (S + "budget.usd", False, "a number of at least 0", "false"),
    (S + "budget.usd", float("nan"), "a number of at least 0", "nan"),
    (S + "budget.usd", float("inf"), "a number of at least 0, no further from 0 than 9007199254740991", "inf"),
    (S + "budget", 3, "an object", "3"),
    (S + "model", 3, "a model's name, or {primary, fallbacks}", "3"),
    (S + "model", ["a"], "a model's name, or {primary, fallbacks}", '["a"]'),
    (S + "allowAgents", "*", "a list, each element an agent's id or *", "'*'"),
    ("tools.allow", {}, "a list, each element text", "{}"),
    ("tools.agentToAgent.enabled", 1, "true or false", "1"),
    ("tools.agentToAgent.enabled", "true", "true or false", "'true'"),
    ("agents.defaults.workspace", 3, "text", "3"),
    ("agents.list", {}, "a list, each element an object", "{}"),
    ("agents", [], "an object", "[]"),
    (
        "messages.queue.byChannel",
        "collect",
        "an object, each value a queue mode, or {mode, people}",
        "'collect'",
    ),
    ("messages.queue.debounceMsByChannel", [], "an object, each value an integer of at least 0", "[]"),
]


@proves("7.input.1")
@pytest.mark.parametrize(("key", "value", "right", "got"), WRONG)
def test_a_wrong_value_is_refused_with_its_key_what_is_right_and_what_it_was(
    key: str, value: object, right: str, got: str
) -> None:
    assert refusal(check, nested(key, value)) == f"{key}: must be {right} (got {got})"


def test_a_whole_number_may_be_written_with_a_point() -> None:
    config = parse("{messages: {queue: {debounceMs: 1e3, cap: 7.0}}, plan: {approvalHours: 2}}").config
    assert repr(config.messages.queue.debounce_ms) == "1000"
    assert repr(config.messages.queue.cap) == "7"
    assert repr(config.plan.approval_hours) == "2.0"


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("tools.deny", ["exec", 3], "tools.deny.1: must be text (got 3)"),
        ("tools.deny", [" "], "tools.deny.0: must be text that is not blank and has no control characters (got ' ')"),
        (
            "agents.defaults.workspace",
            "a\x00b",
            "agents.defaults.workspace: must be text that is not blank and has no control characters (got 'a\\x00b')",
        ),
        (
            "agents.defaults.workspace",
            "\ud800",
            "agents.defaults.workspace: must be text that is not blank and has no control characters (got '\\ud800')",
        ),
        ("messages.queue.byChannel", {"irc": "x"}, "messages.queue.byChannel.irc: must be one of steer, followup, "),
        ("messages.queue.byChannel", {"irc": 3}, "messages.queue.byChannel.irc: must be a queue mode, or {mode, peopl"),
        (
            "messages.queue.byChannel",
            {"irc": {"people": "x"}},
            "messages.queue.byChannel.irc.people: must be one of steer, followup, ",
        ),
        (
            "messages.queue.byChannel",
            {"": "steer"},
            "messages.queue.byChannel.'': must be text that is not blank and has no control characters (got '')",
        ),
        (S + "model", {"fallbacks": []}, S + "model.primary: is required: text"),
        (S + "model", {"primary": ""}, S + "model.primary: must be text that is not blank"),
        (S + "model", {"primary": "a", "fallback": "b"}, S + "model.fallback: unknown key (did you mean fallbacks?)"),
        (S + "allowAgents", ["a b"], S + "allowAgents.0: must be 1 to 64 letters, digits"),
        ("agents.list", [{"id": "a"}, 3], "agents.list.1: must be an object (got 3)"),
        ("agents.list", [{"model": "m"}], "agents.list.0.id: is required: 1 to 64 letters, digits, '-' or '_'"),
        ("agents.list", [{"id": "a b"}], "agents.list.0.id: must be 1 to 64 letters, digits, '-' or '_', starting"),
        ("agents.list", [{"id": "Research", "model": 3}], "agents.list.research.model: must be a model's name"),
        ("agents.list", [{"id": 3}], "agents.list.0.id: must be 1 to 64 letters, digits, '-' or '_' (got 3)"),
    ],
)
def test_what_is_wrong_inside_a_list_or_object_is_named_by_its_place(path: str, value: object, shown: str) -> None:
    assert refusal(check, nested(path, value)).startswith(shown)


def test_text_may_have_lines_and_tabs() -> None:
    theme = "calm\n\tand short"
    assert check(nested("agents.list[].identity.theme", theme)).config.agents.list[0].identity.theme == theme


# ---- the reference ---------------------------------------------------------------------------------------------------


def test_the_page_in_the_repository_is_what_the_code_makes() -> None:
    assert DOCS.read_text(encoding="utf-8") == page(), "run: python -m fledge.config > docs/config.md"


def test_running_the_package_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_module("fledge.config", run_name="__main__")
    assert capsys.readouterr().out == page()


@pytest.mark.parametrize(
    ("key", "default", "allowed"),
    [
        ("agents.list[].id", "required", "1 to 64 letters, digits, '-' or '_'"),
        ("agents.list[].identity.name", "not set", "text"),
        ("agents.list[].subagents.maxSpawnDepth", "as in agents.defaults", "an integer from 1 to 5"),
        ("agents.defaults.model", "not set", "a model's name, or {primary, fallbacks}"),
        (S + "maxConcurrent", "8", "an integer of at least 1"),
        (S + "archiveAfterMinutes", "60", "an integer"),
        ("plan.approvalHours", "24", "a number above 0"),
        ("archive.deleteKept", "false", "true or false"),
        ("session.threadBindings.enabled", "true", "true or false"),
        ("tools.deny", "[]", "a list, each element text"),
        ("tools.<tool>.approval", "not set", "one of never, ask"),
        ("messages.queue.debounceMsByChannel", "{}", "an object, each value an integer of at least 0"),
        ("agents.defaults.heartbeat.every", "off", "off, or a duration such as 30m or 1h30m, of at least 1s"),
    ],
)
def test_a_setting_is_described(key: str, default: str, allowed: str) -> None:
    found_ = {one.key: one for one in describe()}[key]
    assert (found_.default, found_.allowed) == (default, allowed)


def test_every_setting_is_described_once_with_a_meaning_that_fits_a_table() -> None:
    described = describe()
    assert len({one.key for one in described}) == len(described)
    assert [one.key for one in described if not one.meaning or "|" in one.meaning + one.allowed] == []


def test_the_page_has_a_section_per_block_and_names_the_ignored_keys() -> None:
    headings = [line for line in page().splitlines() if line.startswith("## ")]
    assert headings == [
        *[f"## {field.encode_name}" for field in msgspec.structs.fields(Config)],
        "## Keys of OpenClaw that are ignored",
    ]
    assert "\n- `agents.list[].identity`: avatar\n" in page()
    assert "\n- at the top: $include, $schema, " in page()


def test_importing_the_settings_loads_neither_json5_nor_anything_that_waits() -> None:
    names = "('json5', 'asyncio', 'sqlite3', 'zoneinfo', 'difflib')"
    script = f"import sys, fledge.config; print([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
