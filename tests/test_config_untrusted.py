"""An untrusted project through its real files: no limit in force is looser with them than without them."""

import json
from pathlib import Path

from fledge.config import subagent_limits
from fledge.config.places import FILE, FoundSettings, discover
from fledge.runtime.profiles import rules_of


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
