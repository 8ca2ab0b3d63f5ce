"""Who may do what: tools of a child, sight, control, spawn targets, agent to agent, stops."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.core.access import (
    MAX_PING_PONG,
    NEVER_A_CHILDS,
    NEVER_A_LEAFS,
    Action,
    AgentToAgent,
    AsksBecause,
    Role,
    ToolRules,
    Visibility,
    child_tools,
    nearest_tools,
    planning_tools,
    refuse_agents,
    refuse_control,
    refuse_sight,
    refuse_stopped,
    refuse_target,
    refuse_tool,
    sandboxed_visibility,
    talks_on,
    tool_name,
    unknown_tools,
    why_asked,
)
from fledge.core.policy import Refusal
from tests.statements import proves

SESSION_TOOLS = frozenset(
    {"sessions_spawn", "subagents", "sessions_subagent_remove", "sessions_list", "sessions_history"}
)
CEILING = frozenset({"gateway", "agents_list", "cron", "sessions_send", "read", "exec", *SESSION_TOOLS})


def forbidden(reason: str) -> Refusal:
    return Refusal("forbidden", reason)


# ---- tools -----------------------------------------------------------------------------------------------------------


@proves("3.prompt.11", "A child never has gateway, agents_list, cron or sessions_send")
def test_the_default_denials_are_those_of_the_contract() -> None:
    assert {"gateway", "agents_list", "cron", "sessions_send"} == NEVER_A_CHILDS
    assert NEVER_A_LEAFS == SESSION_TOOLS
    assert MAX_PING_PONG == 5


@proves("3.prompt.11")
@proves("3.prompt.12", "A leaf also has no sessions_spawn, subagents, sessions_list or sessions_history")
@proves("3.prompt.13", "`tools.subagents.tools.deny` always wins")
@proves("3.prompt.14", "`allow` makes it allow-only")
@proves("3.prompt.15", "`alsoAllow` lifts a default denial")
@pytest.mark.parametrize(
    ("role", "rules", "tools"),
    [
        ("leaf", ToolRules(), {"read", "exec"}),
        ("orchestrator", ToolRules(), {"read", "exec", *SESSION_TOOLS}),
        ("leaf", ToolRules(deny=("read",)), {"exec"}),
        ("leaf", ToolRules(deny=("*",)), set()),
        ("leaf", ToolRules(deny=("bash",)), {"read"}),
        ("leaf", ToolRules(deny=("e?ec", "[e]xec")), {"read", "exec"}),
        ("leaf", ToolRules(allow=()), set()),
        ("leaf", ToolRules(allow=("READ ",)), {"read"}),
        ("leaf", ToolRules(allow=("bash",)), {"exec"}),
        ("leaf", ToolRules(allow=("*",)), {"read", "exec"}),
        ("leaf", ToolRules(allow=("*", "cron")), {"read", "exec", "cron"}),
        ("leaf", ToolRules(allow=("read", "sessions_list")), {"read", "sessions_list"}),
        ("leaf", ToolRules(also_allow=("cron",)), {"read", "exec", "cron"}),
        (
            "leaf",
            ToolRules(also_allow=("sessions_*",)),
            {"read", "exec", "sessions_send", *SESSION_TOOLS - {"subagents"}},
        ),
        ("leaf", ToolRules(allow=("read",), also_allow=("cron",)), {"read", "cron"}),
        ("leaf", ToolRules(also_allow=("cron",), deny=("cron",)), {"read", "exec"}),
        ("leaf", ToolRules(allow=("cron",), deny=("c*",)), set()),
        ("leaf", ToolRules(also_allow=("write",)), {"read", "exec"}),
    ],
)
def test_a_child_has_what_rules_and_ceiling_leave_it(role: Role, rules: ToolRules, tools: set[str]) -> None:
    assert child_tools(CEILING, role, rules) == tools


@pytest.mark.parametrize("rules", [ToolRules(allow=("exec",)), ToolRules(allow=("bash",)), ToolRules(allow=("ex*",))])
def test_allowing_exec_allows_apply_patch(rules: ToolRules) -> None:
    assert child_tools(frozenset({"apply_patch", "read"}), "leaf", rules) == {"apply_patch"}


@pytest.mark.parametrize(
    ("role", "rules", "left"),
    [
        ("orchestrator", ToolRules(allow=("sessions_spawn",)), {"sessions_spawn", "sessions_history"}),
        ("orchestrator", ToolRules(allow=("sessions_spawn",), deny=("sessions_history",)), {"sessions_spawn"}),
        ("leaf", ToolRules(allow=("sessions_spawn",)), {"sessions_spawn"}),
    ],
)
def test_whoever_is_allowed_to_spawn_may_read_what_came_of_it(role: Role, rules: ToolRules, left: set[str]) -> None:
    assert child_tools(frozenset({"sessions_spawn", "sessions_history", "read"}), role, rules) == left


@pytest.mark.parametrize(
    ("pattern", "left"), [("a[b]", {"what?", "ab"}), ("what?", {"a[b]", "ab"}), ("*?", {"a[b]", "ab"})]
)
def test_only_the_star_is_special_in_a_pattern(pattern: str, left: set[str]) -> None:
    assert child_tools(frozenset({"a[b]", "what?", "ab"}), "leaf", ToolRules(deny=(pattern,))) == left


def test_denying_exec_leaves_apply_patch() -> None:
    assert child_tools(frozenset({"apply_patch", "exec"}), "leaf", ToolRules(deny=("exec",))) == {"apply_patch"}


@pytest.mark.parametrize(
    ("tool", "role", "rules", "reason"),
    [
        (
            "write",
            "orchestrator",
            ToolRules(also_allow=("write",)),
            'tool "write": its parent has no such tool to pass on',
        ),
        ("cron", "leaf", ToolRules(deny=("cron",)), 'tool "cron" is denied: tools.subagents.tools.deny'),
        (
            "Gateway",
            "orchestrator",
            ToolRules(),
            'tool "gateway" is denied to any subagent: tools.subagents.tools.alsoAllow',
        ),
        (
            "subagents",
            "leaf",
            ToolRules(),
            'tool "subagents" is denied to a subagent at the deepest level, which may not spawn:'
            " agents.defaults.subagents.maxSpawnDepth, or tools.subagents.tools.alsoAllow",
        ),
        (
            "sessions_spawn",
            "leaf",
            ToolRules(),
            'tool "sessions_spawn" is denied to a subagent at the deepest level, which may not spawn:'
            " agents.defaults.subagents.maxSpawnDepth",
        ),
        (
            "bash",
            "leaf",
            ToolRules(allow=("read",)),
            'tool "exec" is not among those allowed: tools.subagents.tools.allow',
        ),
    ],
)
def test_a_refused_tool_names_the_rule_and_the_setting(tool: str, role: Role, rules: ToolRules, reason: str) -> None:
    assert refuse_tool(tool, CEILING, role, rules) == forbidden(reason)


def test_an_alias_is_the_same_tool_and_keeps_the_name_the_ceiling_gives_it() -> None:
    assert refuse_tool("bash", frozenset({"exec"}), "leaf", ToolRules()) is None
    assert child_tools(frozenset({"bash"}), "leaf", ToolRules(allow=("exec",))) == {"bash"}
    assert [tool_name(word) for word in (" BASH", "exec", "Read")] == ["exec", "exec", "read"]


names = st.sampled_from([*sorted(CEILING), "write", "*", "sessions_*", "bash"])
word_lists = st.lists(names, max_size=4).map(tuple)


@proves("3.prompt.13")
@proves("3.prompt.16", "Never beyond the parent's ceiling")
@given(
    st.frozensets(st.sampled_from(sorted(CEILING))),
    st.sampled_from(["orchestrator", "leaf"]),
    st.builds(ToolRules, deny=word_lists, allow=st.none() | word_lists, also_allow=word_lists),
)
def test_no_rule_reaches_beyond_the_ceiling_or_past_a_denial(
    ceiling: frozenset[str], role: Role, rules: ToolRules
) -> None:
    tools = child_tools(ceiling, role, rules)
    assert tools <= ceiling
    assert not {tool_name(tool) for tool in tools} & {tool_name(word) for word in rules.deny}


def test_planning_leaves_only_tools_that_change_nothing() -> None:
    assert planning_tools(frozenset({"read", "bash", "write"}), frozenset({"READ", "exec", "grep"})) == {"read", "bash"}
    assert planning_tools(frozenset({"read"}), frozenset()) == frozenset()


# ---- seeing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "clamped", "free"),
    [("self", "self", "self"), ("tree", "tree", "tree"), ("agent", "tree", "agent"), ("all", "tree", "all")],
)
def test_a_sandboxed_caller_sees_at_most_its_tree_unless_told(
    asked: Visibility, clamped: Visibility, free: Visibility
) -> None:
    assert sandboxed_visibility(asked) == sandboxed_visibility(asked, "spawned") == clamped
    assert sandboxed_visibility(asked, "all") == free


def refused_sight(facts: str, *seen: Visibility) -> Refusal | None:
    return refuse_sight(
        "agent:a:main",
        "agent:a:main" if "self" in facts else "agent:b:x",
        *seen,
        in_tree="tree" in facts,
        same_agent="agent" in facts,
        may_talk="a2a" in facts,
    )


SETTING = "tools.sessions.visibility"


@proves("4.sight.1", "Visibility is self, tree, agent or all, tree by default")
@pytest.mark.parametrize(
    ("facts", "seen", "why"),
    [
        ("self agent", "self", None),
        ("self agent", "all", None),
        ("tree agent", "self", f"visibility is self, needs tree: {SETTING}"),
        ("tree agent", "tree", None),
        ("tree agent", "agent", None),
        ("tree agent", "all", None),
        ("tree", "self", f"another agent's session, visibility is self, needs tree: {SETTING}"),
        ("tree", "tree", None),
        ("tree", "agent", None),
        ("tree", "all", None),
        ("agent", "self", f"visibility is self, needs agent: {SETTING}"),
        ("agent", "tree", f"visibility is tree, needs agent: {SETTING}"),
        ("agent", "agent", None),
        ("agent", "all", None),
        ("a2a", "self", f"another agent's session, visibility is self, needs all: {SETTING}"),
        ("a2a", "tree", f"another agent's session, visibility is tree, needs all: {SETTING}"),
        ("a2a", "agent", f"another agent's session, visibility is agent, needs all: {SETTING}"),
        ("a2a", "all", None),
        ("", "all", "another agent's session: tools.agentToAgent.enabled and tools.agentToAgent.allow"),
    ],
)
def test_visibility_decides_who_sees_whom(facts: str, seen: Visibility, why: str | None) -> None:
    expected = None if why is None else forbidden(f"agent:a:main may not see agent:b:x: {why}")
    assert refused_sight(facts, seen) == expected


@proves("4.sight.1")
def test_the_default_visibility_is_the_tree() -> None:
    assert refused_sight("tree agent") is None
    assert refused_sight("agent") == refused_sight("agent", "tree") != refused_sight("agent", "self")


# ---- controlling -----------------------------------------------------------------------------------------------------

ACTIONS: list[Action] = ["list", "steer", "kill", "approve", "reject", "remove"]


@proves("1.roles.2", "Only the controller may list, steer, kill; by default that is the requester")
@proves("4.steer.1", "Only the controller steers")
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize(
    ("caller", "role", "reason"),
    [
        ("boss", "orchestrator", None),
        ("boss", "leaf", "{}: boss is a leaf and controls no other session: role stored at its spawn"),
        ("peer", "orchestrator", "{}: child is controlled by another session, not by peer"),
        ("child", "leaf", "{0}: a session may not {0} itself (child)"),
        ("child", "orchestrator", "{0}: a session may not {0} itself (child)"),
    ],
)
def test_only_the_controller_acts_on_a_child(action: Action, caller: str, role: Role, reason: str | None) -> None:
    expected = None if reason is None else forbidden(reason.format(action))
    assert refuse_control(action, caller, role, "child", "boss") == expected


def test_a_session_that_controls_itself_by_record_still_may_not_steer_itself() -> None:
    assert refuse_control("steer", "child", "orchestrator", "child", "child") is not None


@pytest.mark.parametrize(
    ("at_turn_start", "now", "stopped"),
    [
        ({}, {}, None),
        ({"me": 0, "root": 2}, {"me": 0, "root": 2}, None),
        ({"me": 0, "root": 2}, {"me": 1, "root": 2}, "me was stopped after this turn began: stop_generation is 1"),
        ({"me": 0, "root": 2}, {"me": 0, "root": 3}, "root was stopped after this turn began: stop_generation is 3"),
        ({"me": 1}, {"me": 0}, "me was stopped after this turn began: stop_generation is 0"),
        ({"me": 0}, {"me": 0, "root": 0}, None),
        ({"me": 0}, {"me": 0, "root": 1}, "root was stopped after this turn began: stop_generation is 1"),
        ({"me": 0, "gone": 4}, {"me": 0}, None),
    ],
)
def test_a_stop_of_the_caller_or_an_ancestor_refuses_what_its_turn_still_asks(
    at_turn_start: dict[str, int], now: dict[str, int], stopped: str | None
) -> None:
    assert refuse_stopped(at_turn_start, now) == (None if stopped is None else forbidden(stopped))


# ---- spawn targets ---------------------------------------------------------------------------------------------------


KNOWN = ("main", "coder", "codec", "writer", "critic")


@proves("3.params.3")
@proves("3.limits.18", "The own agent may always be spawned")
@proves("3.limits.19", "Other agents by `agents.list[].subagents.allowAgents`, `*` for any")
@pytest.mark.parametrize(
    ("wanted", "allowed"),
    [
        ("main", None),
        (" MAIN", []),
        ("Coder", ["coder"]),
        ("coder", [" CODER "]),
        ("coder", ["*"]),
        ("coder", ["*", "y"]),
    ],
)
def test_a_model_may_spawn_its_own_agent_and_listed_ones(wanted: str, allowed: list[str] | None) -> None:
    assert refuse_target("Main", wanted, KNOWN, allowed, by_model=True) is None


@proves("3.limits.19")
@pytest.mark.parametrize(
    ("allowed", "listed"),
    [
        (None, "none"),
        ([], "none"),
        (["writer"], "writer"),
        (["Writer", "critic", "writer"], "critic, writer"),
        (["code*"], "code*"),
    ],
)
def test_a_target_refused_to_a_model_names_the_setting_to_write(allowed: list[str] | None, listed: str) -> None:
    assert refuse_target("main", "Coder", KNOWN, allowed, by_model=True) == forbidden(
        f'agent "coder" may not be spawned by the model of "main" (permitted: {listed}): to permit it, add "coder" to '
        'subagents.allowAgents of agent "main", or of agents.defaults'
    )


@proves("3.limits.33", "People and programs may spawn every agent there is; `allowAgents` binds models alone")
@pytest.mark.parametrize("allowed", [None, [], ["writer"], ["*"]])
def test_people_and_programs_may_spawn_every_known_agent(allowed: list[str] | None) -> None:
    assert refuse_target("main", "coder", KNOWN, allowed, by_model=False) is None


@proves("3.limits.29", "An unknown agent is refused as unknown to everyone, with near matches")
@pytest.mark.parametrize("by_model", [True, False])
@pytest.mark.parametrize(
    ("wanted", "hint"),
    [("Code", "did you mean coder or codec?"), ("zzz", "there are: codec, coder, critic, main, writer")],
)
def test_an_unknown_agent_is_said_to_be_unknown_with_near_matches(wanted: str, hint: str, by_model: bool) -> None:
    refused = refuse_target("main", wanted, KNOWN, ["*"], by_model)
    assert refused is not None
    assert (refused.status, refused.reason.split(";")[0]) == (
        "error",
        f'agentId: there is no agent "{wanted.lower()}" ({hint})',
    )
    assert f"agents/{wanted.lower()}.md" in refused.reason


# ---- agent to agent --------------------------------------------------------------------------------------------------


@proves("4.a2a.1", "`tools.agentToAgent.enabled` and `allow` decide")
@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (AgentToAgent(), "tools.agentToAgent.enabled is false"),
        (AgentToAgent(allow=("*",)), "tools.agentToAgent.enabled is false"),
        (AgentToAgent(enabled=True), None),
        (AgentToAgent(enabled=True, allow=("*",)), None),
        (AgentToAgent(enabled=True, allow=("COD*", " writer")), None),
        (AgentToAgent(enabled=True, allow=("writer",)), '"coder" is not listed in tools.agentToAgent.allow'),
        (AgentToAgent(enabled=True, allow=("coder",)), '"writer" is not listed in tools.agentToAgent.allow'),
        (AgentToAgent(enabled=True, allow=("code", "writer")), '"coder" is not listed in tools.agentToAgent.allow'),
    ],
)
def test_agents_speak_if_enabled_and_both_ends_are_listed(rules: AgentToAgent, why: str | None) -> None:
    expected = None if why is None else forbidden(f'"coder" to "writer": {why}')
    assert refuse_agents(rules, "Coder", " writer") == expected


def test_sessions_of_one_agent_need_no_agent_to_agent_rule() -> None:
    assert refuse_agents(AgentToAgent(allow=("nobody",)), "coder", "CODER ") is None


@proves("4.a2a.3", "Ping-pong is at most 5 turns")
@pytest.mark.parametrize(
    ("turns", "max_turns", "goes_on"),
    [
        (0, 5, True),
        (1, 5, True),
        (2, 5, True),
        (4, 5, True),
        (5, 5, False),
        (4, 9, True),
        (5, 9, False),
        (1, 2, True),
        (2, 2, False),
        (0, 0, False),
        (0, -1, False),
    ],
)
def test_ping_pong_ends_after_the_turns_allowed(turns: int, max_turns: int, goes_on: bool) -> None:
    assert talks_on(max_turns, turns, "and you?", is_with_itself=False) is goes_on


@pytest.mark.parametrize(
    ("reply", "goes_on"),
    [
        ("", False),
        (" \n", False),
        ("REPLY_SKIP", False),
        (" REPLY_SKIP\n", False),
        ("REPLY_SKIP now", True),
        ("NO_REPLY", False),
        ("ok", True),
    ],
)
def test_an_empty_or_silent_reply_or_reply_skip_alone_ends_the_ping_pong(reply: str, goes_on: bool) -> None:
    assert talks_on(MAX_PING_PONG, 0, reply, is_with_itself=False) is goes_on


def test_a_session_does_not_talk_with_itself() -> None:
    assert not talks_on(MAX_PING_PONG, 0, "hello", is_with_itself=True)


# ---- questions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "because", "is_boxed", "why"),
    [
        ("sessions_spawn", "program", False, "it starts a program of another runtime, outside any sandbox"),
        ("exec", "settings", False, "commands run without a sandbox here"),
        ("exec", "settings", True, "the settings ask before each call of exec"),
        ("launch", "settings", False, "the settings ask before each call of launch"),
        ("exec", "tool", True, "it wants to write places that the sandbox keeps read-only"),
        ("write", "tool", False, "it changes a protected file"),
        ("edit", "tool", False, "it changes a protected file"),
        ("launch", "tool", False, "the tool asks before such a call"),
    ],
)
def test_a_question_says_why_it_asks(tool: str, because: AsksBecause, is_boxed: bool, why: str) -> None:
    assert why_asked(tool, because, is_boxed) == why


# ---- tools of a spawn ------------------------------------------------------------------------------------------------

TOOLS = {"exec", "grep", "read", "write"}


@pytest.mark.parametrize(
    ("asked", "unknown"),
    [
        ([], []),
        (["read", " Read ", "BASH"], []),
        (["re*", "*", "nothing_*"], []),
        (["reed", "read", "deploy"], ["reed", "deploy"]),
        (["[r]ead"], ["[r]ead"]),
    ],
)
def test_a_name_that_no_tool_has_is_unknown_and_a_pattern_never_is(asked: list[str], unknown: list[str]) -> None:
    assert unknown_tools(asked, TOOLS) == unknown


def test_unknown_tools_are_told_with_those_they_may_mean_and_all_there_are() -> None:
    all_of_them = "there are exec, grep, read, write"
    assert nearest_tools(["reed", "writes"], TOOLS) == f"did you mean read or write? {all_of_them}"
    assert nearest_tools(["zzz" * 100], TOOLS) == all_of_them
