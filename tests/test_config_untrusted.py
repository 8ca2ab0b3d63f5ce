"""An untrusted project through its real files: no limit in force is looser with them than without them."""

import json
import math
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fledge.config import Config, agent_to_agent, step_limits, subagent_limits
from fledge.config.layers import layer_of, merge
from fledge.config.places import FILE, FoundSettings, discover
from fledge.config.shape import describe
from fledge.config.untrusted_settings import RULES
from fledge.core.schema import JsonObject
from fledge.orchestrator.spawn_params import attachment_limits
from fledge.runtime.profiles import rules_of
from tests.statements import proves

CHILDREN = "agents.defaults.subagents."
LIMITS = {
    one.key: int("at least 0" not in one.allowed and "from 0" not in one.allowed)
    for one in describe()
    if one.key in RULES and re.match("an? (integer|number)", one.allowed)
}
"""Every number that an untrusted project may set, with its least value."""
FOR_ALL = [limit for limit in LIMITS if "[]" not in limit]
OF_AGENT = [limit for limit in LIMITS if "[]" in limit]
Level = int | str | None
"""All limits of a place at this number, or at their least one if it is 0; a preset; or not set."""


def _children(agent: dict[str, object], defaults: dict[str, object] | None = None) -> dict[str, object]:
    """Settings with the block `subagents` of agent x and, if given, that of the defaults."""
    document: dict[str, object] = {"list": [{"id": "x", "subagents": agent}]}
    return {"agents": document if defaults is None else {**document, "defaults": {"subagents": defaults}}}


def _found(folder: Path, user: object, project: object, *single: str) -> FoundSettings:
    """The settings of an untrusted project, from the files in these folders."""
    for name, document in (("user", user), ("project", project)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / FILE).write_text(json.dumps(document))
    found = discover(folder / "project", single, folder / "user")
    assert not found.trusted or project == {}
    return found


def test_a_preset_of_an_untrusted_project_counts_number_by_number(tmp_path: Path) -> None:
    user = _children({"maxConcurrent": 3}, {"maxRetained": 4})
    found = _found(tmp_path, user, _children({"limits": "strict"}))
    limits = subagent_limits(found.loaded.config, "x")
    assert (limits.max_concurrent, limits.max_retained) == (3, 4)
    assert found.left_out == ("agents.list.x.subagents.maxConcurrent", "agents.list.x.subagents.maxRetained")

    found = _found(tmp_path, _children({"maxConcurrent": 9}, {}), _children({"limits": "strict", "maxRetained": 2}))
    limits = subagent_limits(found.loaded.config, "x")
    assert (limits.max_concurrent, limits.max_retained) == (5, 2)
    assert found.left_out == ()


def test_an_untrusted_project_opens_no_lane(tmp_path: Path) -> None:
    found = _found(tmp_path, _children({}, {"maxConcurrent": 8}), _children({"maxConcurrent": 2}))
    assert rules_of(found.loaded.config).widths == {"main": 4, "subagent": 8, "nested": 1}
    assert found.left_out == ("agents.list.x.subagents.maxConcurrent",)

    found = _found(tmp_path, _children({"maxConcurrent": 3}, {"maxConcurrent": 8}), _children({"maxConcurrent": 2}))
    assert rules_of(found.loaded.config).widths == {"main": 4, "subagent": 8, "nested": 1, "subagent:x": 2}
    assert found.left_out == ()


# ---- every limit -----------------------------------------------------------------------------------------------------


def _single(limits: list[str], level: Level) -> list[str]:
    """Single settings with these limits, those of an agent for agent x."""
    places = [(limit.replace("list[]", "list.x"), LIMITS[limit]) for limit in limits]
    if level is None:
        return []
    if isinstance(level, str):
        blocks = {place.partition(".subagents.")[0] for place, _ in places if ".subagents." in place}
        return [f"{block}.subagents.limits={level}" for block in blocks]
    return [f"{place}={max(level, least)}" for place, least in places]


def _file(for_all: Level, of_agent: Level) -> JsonObject:
    """A settings file that has agent x."""
    own: Any = layer_of(_single(OF_AGENT, of_agent)).get("agents", {"list": {"x": {}}})
    return merge(layer_of(_single(FOR_ALL, for_all)), {"agents": {"list": [{"id": "x", **own["list"]["x"]}]}})


def _in_force(config: Config) -> dict[str, float]:
    """Every limit as numbers that may only fall; without a limit it is infinite."""
    steps, files = step_limits(config), attachment_limits(config)
    found: dict[str, float] = {
        "agents.defaults.maxSteps": steps.max_steps or math.inf,
        "agents.defaults.maxRepeatedSteps": steps.max_repeated or math.inf,
        "session.agentToAgent.maxPingPongTurns": agent_to_agent(config).max_turns,
        "session.parentForkMaxTokens": config.session.parent_fork_max_tokens or math.inf,
        "tools.sessions_spawn.attachments.maxFiles": files.max_files,
        "tools.sessions_spawn.attachments.maxFileBytes": files.max_file_bytes,
        "tools.sessions_spawn.attachments.maxTotalBytes": files.max_total_bytes,
    }
    for lane, width in rules_of(config).widths.items():
        name = "agents.defaults.maxConcurrent" if lane == "main" else f"{CHILDREN}maxConcurrent"
        found[f"{name} of the lane {lane}"] = width
    for agent in ("main", "x"):
        limits = subagent_limits(config, agent)
        for name, number in {
            "maxSpawnDepth": limits.max_spawn_depth,
            "maxChildrenPerAgent": limits.max_children_per_agent,
            "maxRetained": limits.max_retained or math.inf,
            "runTimeoutSeconds": limits.run_timeout_seconds or math.inf,
            "queueTimeoutSeconds": limits.queue_timeout_seconds or math.inf,
            **{f"budget.{key}": getattr(limits.budget, key) or math.inf for key in limits.budget.__struct_fields__},
        }.items():
            found[f"{CHILDREN}{name} of {agent}"] = number
    return found


@proves("8.trust.2")
@pytest.mark.parametrize("for_all", [None, 2])
@pytest.mark.parametrize("of_agent", [None, 0, 2, "strict"])
@pytest.mark.parametrize(("single", "single_of_agent"), list(product([None, 2], repeat=2)))
def test_no_limit_is_looser_with_an_untrusted_project(
    for_all: Level, of_agent: Level, single: Level, single_of_agent: Level, tmp_path: Path
) -> None:
    user = _file(for_all, of_agent)
    singles = [*_single(FOR_ALL, single), *_single(OF_AGENT, single_of_agent)]
    before = _in_force(_found(tmp_path, user, {}, *singles).loaded.config)
    assert {name.partition(" ")[0] for name in before} == set(FOR_ALL), "the limits that this test measures"
    for levels in product([None, 0, 1, 3, "strict"], repeat=2):
        after = _in_force(_found(tmp_path, user, _file(*levels), *singles).loaded.config)
        assert {name: now for name, now in after.items() if now > before.get(name, 0)} == {}, levels
