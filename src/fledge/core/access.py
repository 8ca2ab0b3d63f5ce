"""Permissions between sessions: the tools of a child, visibility, control, spawn targets, agent to agent, stops.

Every answer is None (allowed) or a `Refusal` that names the rule, the value and the setting. Facts about sessions and
settings arrive as arguments; this file does not know where they are kept nor what a tool does. Limits on numbers and
times are in `policy`.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from fnmatch import fnmatchcase
from typing import Final, Literal

from fledge.core.freeze import REPLY_SKIP, classify_reply
from fledge.core.policy import Refusal
from fledge.core.value import Value

Role = Literal["orchestrator", "leaf"]
Visibility = Literal["self", "tree", "agent", "all"]
Action = Literal["list", "steer", "kill", "approve", "reject", "remove"]

NEVER_A_CHILDS: Final = frozenset({"gateway", "agents_list", "cron", "sessions_send"})
"""Denied to every child unless a setting lifts it."""
NEVER_A_LEAFS: Final = frozenset(
    {"sessions_spawn", "subagents", "sessions_subagent_remove", "sessions_list", "sessions_history"}
)
"""Denied besides to a child that may not spawn."""
MAX_PING_PONG: Final = 5
NEAR: Final = 3
"""How many similar names the refusal of an unknown one gives."""
NAME_CHARS: Final = 80
"""How much of an unknown name is compared with others."""

_ALIASES: Final = {"bash": "exec"}
_IMPLIED_BY: Final = {"apply_patch": "exec", "sessions_history": "sessions_spawn"}
"""Tools that an `allow` list allows together with another: a caller that may spawn may also read its children's
results."""
_CHILD_TOOLS: Final = "tools.subagents.tools"
_DEPTH: Final = "agents.defaults.subagents.maxSpawnDepth"
_SPAWN: Final = "sessions_spawn"


# ---- questions -------------------------------------------------------------------------------------------------------

AsksBecause = Literal["settings", "program", "tool"]
"""Why a call asks: the settings say so of its tool; it starts a program; the tool says so of such calls."""


def why_asked(tool: str, because: AsksBecause, is_boxed: bool) -> str:
    """Why a person is asked about a call, in words for that person."""
    match because, tool:
        case "program", _:
            return "it starts a program of another runtime, outside any sandbox"
        case "settings", "exec" if not is_boxed:
            return "commands run without a sandbox here"
        case "settings", _:
            return f"the settings ask before each call of {tool}"
        case _, "exec":
            return "it wants to write places that the sandbox keeps read-only"
        case _, "write" | "edit":
            return "it changes a protected file"
        case _:
            return "the tool asks before such a call"


# ---- tools -----------------------------------------------------------------------------------------------------------


class ToolRules(Value, kw_only=True):
    """`tools.subagents.tools`: names and `*` globs, letter case aside. No `allow` at all is not allow-only."""

    deny: tuple[str, ...] = ()
    allow: tuple[str, ...] | None = None
    also_allow: tuple[str, ...] = ()


def refuse_tool(tool: str, ceiling: frozenset[str], role: Role, rules: ToolRules) -> Refusal | None:
    """None if a child in this role may use the tool.

    The parent's ceiling comes first and `deny` second; nothing lifts either. A default denial is lifted by `alsoAllow`,
    or by the tool's full name in `allow`; a glob there lifts nothing, so that `allow: ["*"]` opens no door.
    """
    return _refuse_name(tool_name(tool), {tool_name(held) for held in ceiling}, role, rules)


def _refuse_name(name: str, held: Set[str], role: Role, rules: ToolRules) -> Refusal | None:
    if name not in held:
        return Refusal("forbidden", f'tool "{name}": its parent has no such tool to pass on')
    if _listed(name, rules.deny):
        return Refusal("forbidden", f'tool "{name}" is denied: {_CHILD_TOOLS}.deny')
    also = _listed(name, rules.also_allow)
    named = rules.allow is not None and name in {tool_name(word) for word in rules.allow}
    denied_to = _denied_to(name, role)
    if denied_to is not None and not (also or named):
        return Refusal("forbidden", f'tool "{name}" is denied to {denied_to}')
    if rules.allow is not None and not also and not _allowed(name, rules.allow):
        return Refusal("forbidden", f'tool "{name}" is not among those allowed: {_CHILD_TOOLS}.allow')
    return None


def child_tools(ceiling: frozenset[str], role: Role, rules: ToolRules) -> frozenset[str]:
    """Every tool of the parent's ceiling that a child in this role may use, under the names the ceiling gives them."""
    held = {tool_name(tool) for tool in ceiling}
    return frozenset(tool for tool in ceiling if _refuse_name(tool_name(tool), held, role, rules) is None)


def planning_tools(tools: frozenset[str], read_only: frozenset[str]) -> frozenset[str]:
    """The tools of a child while it makes a plan: those that change nothing."""
    harmless = {tool_name(tool) for tool in read_only}
    return frozenset(tool for tool in tools if tool_name(tool) in harmless)


def tool_name(word: str) -> str:
    """The one name of a tool: outer space and letter case aside, `bash` is `exec`."""
    name = word.strip().lower()
    return _ALIASES.get(name, name)


def unknown_tools(asked: Sequence[str], known: Collection[str]) -> list[str]:
    """The names among these, of names and patterns, that no tool has. A pattern with `*` means whatever there is."""
    return [word for word in asked if "*" not in word and tool_name(word) not in known]


def nearest_tools(words: Sequence[str], known: Collection[str]) -> str:
    """The tools with names like these unknown ones, and all tools that there are."""
    near = dict.fromkeys(one for word in words for one in _near(tool_name(word), known))
    there_are = f"there are {', '.join(sorted(known))}"
    return f"did you mean {' or '.join(near)}? {there_are}" if near else there_are


def _denied_to(name: str, role: Role) -> str | None:
    """The subagents to which the tool is denied by default, and the setting that lifts it; None if a child in this role
    may have it."""
    if name in NEVER_A_CHILDS:
        return f"any subagent: {_CHILD_TOOLS}.alsoAllow"
    if role != "leaf" or name not in NEVER_A_LEAFS:
        return None
    deepest = f"a subagent at the deepest level, which may not spawn: {_DEPTH}"
    return deepest if name == _SPAWN else f"{deepest}, or {_CHILD_TOOLS}.alsoAllow"


def _listed(name: str, patterns: Sequence[str]) -> bool:
    return any(_globbed(name, tool_name(pattern)) for pattern in patterns)


def _allowed(name: str, patterns: Sequence[str]) -> bool:
    return _listed(name, patterns) or _listed(_IMPLIED_BY.get(name, name), patterns)


def _globbed(text: str, pattern: str) -> bool:
    # Only `*` is special: a `[` or `?` in a pattern stands for itself.
    return fnmatchcase(text, pattern.replace("[", "[[]").replace("?", "[?]"))


# ---- seeing ----------------------------------------------------------------------------------------------------------


def sandboxed_visibility(asked: Visibility, session_tools: Literal["spawned", "all"] = "spawned") -> Visibility:
    """The visibility of a sandboxed caller: at most its tree, unless `sandbox.sessionToolsVisibility` is `all`."""
    return asked if asked == "self" or session_tools == "all" else "tree"


def refuse_sight(
    caller: str, target: str, seen: Visibility = "tree", *, in_tree: bool, same_agent: bool, may_talk: bool
) -> Refusal | None:
    """None if the caller may see the target.

    Everyone sees itself. From `tree` on a session also sees its subagents and all below them (`in_tree`), whichever
    agent they run as: their results must be readable. Other sessions of its agent need `agent`; other agents' need
    `all` and the agent-to-agent rules (`may_talk`).
    """
    if caller == target or (in_tree and seen != "self"):
        return None
    if same_agent and seen in ("agent", "all"):
        return None
    if same_agent or seen != "all":
        whose = "" if same_agent else "another agent's session, "
        needed = "tree" if in_tree else "agent" if same_agent else "all"
        why = f"{whose}visibility is {seen}, needs {needed}: tools.sessions.visibility"
    elif may_talk:
        return None
    else:
        why = "another agent's session: tools.agentToAgent.enabled and tools.agentToAgent.allow"
    return Refusal("forbidden", f"{caller} may not see {target}: {why}")


# ---- controlling -----------------------------------------------------------------------------------------------------


def refuse_control(action: Action, caller: str, role: Role, target: str, controller: str) -> Refusal | None:
    """None if the caller may act on the target: its stored controller, allowed to have children, and not the target."""
    if caller == target:
        return Refusal("forbidden", f"{action}: a session may not {action} itself ({caller})")
    if role == "leaf":
        return Refusal(
            "forbidden", f"{action}: {caller} is a leaf and controls no other session: role stored at its spawn"
        )
    if caller != controller:
        return Refusal("forbidden", f"{action}: {target} is controlled by another session, not by {caller}")
    return None


def refuse_stopped(at_turn_start: Mapping[str, int], now: Mapping[str, int]) -> Refusal | None:
    """None if no stop has reached the caller's session or an ancestor of it since its turn began.

    Both map session keys to their `stop_generation`: as stored on the turn, and as read in this commit. A session that
    the turn did not record had never been stopped then; one that is gone by now can no longer be.
    """
    for key, generation in now.items():
        if generation != at_turn_start.get(key, 0):
            return Refusal("forbidden", f"{key} was stopped after this turn began: stop_generation is {generation}")
    return None


# ---- spawn targets ---------------------------------------------------------------------------------------------------

SHOWN_AGENTS = 20
"""How many agents it names where none is similar."""


def refuse_target(
    own: str, wanted: str, known: Collection[str], allow_agents: Sequence[str] | None, by_model: bool
) -> Refusal | None:
    """None if a child of agent `own` may run as agent `wanted`.

    The own agent always may. Any other must be `known`. People and programs may spawn every known agent; a model only
    those in `allow_agents`, where `*` is all and None (not set) is none.
    """
    target, own = wanted.strip().lower(), own.strip().lower()
    if target == own:
        return None
    if target not in known:
        return Refusal(
            "error",
            f'agentId: there is no agent "{target}" ({_near_agents(target, known)}); '
            f"an agent is an entry of agents.list or a file agents/{target}.md, of a project that is trusted",
        )
    permitted = {word.strip().lower() for word in allow_agents or ()}
    if not by_model or target in permitted or "*" in permitted:
        return None
    listed = ", ".join(sorted(permitted)) or "none"
    return Refusal(
        "forbidden",
        f'agent "{target}" may not be spawned by the model of "{own}" (permitted: {listed}): '
        f'to permit it, add "{target}" to subagents.allowAgents of agent "{own}", or of agents.defaults',
    )


def _near(word: str, known: Collection[str]) -> list[str]:
    from difflib import get_close_matches  # needed only to explain a mistake

    return get_close_matches(word[:NAME_CHARS], sorted(known), n=NEAR)


def _near_agents(wanted: str, known: Collection[str]) -> str:
    near = _near(wanted, known)
    return f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(sorted(known)[:SHOWN_AGENTS])}"


# ---- agent to agent --------------------------------------------------------------------------------------------------


class AgentToAgent(Value, kw_only=True):
    """`tools.agentToAgent`, with `session.agentToAgent.maxPingPongTurns`. An empty `allow` names every agent."""

    enabled: bool = False
    allow: tuple[str, ...] = ()
    max_turns: int = MAX_PING_PONG


def refuse_agents(rules: AgentToAgent, from_agent: str, to_agent: str) -> Refusal | None:
    """None if one agent may speak with another: the same always; others if enabled and both ends are allowed."""
    sender, receiver = from_agent.strip().lower(), to_agent.strip().lower()
    if sender == receiver:
        return None
    if not rules.enabled:
        return Refusal("forbidden", f'"{sender}" to "{receiver}": tools.agentToAgent.enabled is false')
    for end in (sender, receiver):
        if rules.allow and not any(_globbed(end, pattern.strip().lower()) for pattern in rules.allow):
            return Refusal(
                "forbidden", f'"{sender}" to "{receiver}": "{end}" is not listed in tools.agentToAgent.allow'
            )
    return None


def talks_on(max_turns: int, turns: int, reply: str, is_with_itself: bool) -> bool:
    """True if the other takes one more turn of a ping-pong, after `turns` of them.

    It ends with an empty or silent reply, with `REPLY_SKIP` alone, after the turns allowed (never more than 5). A
    session does not talk with itself.
    """
    is_said = classify_reply(reply) == "text" and reply.strip() != REPLY_SKIP
    return is_said and turns < min(max_turns, MAX_PING_PONG) and not is_with_itself
