"""`fledge init`, `fledge config`, `fledge agents` and `fledge trust`: the settings of this folder, written, shown and
trusted; and a person's yes to a workspace that holds the whole home folder."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fledge.cli.printing import CommandOutput, is_at_terminal, note, say, says_yes
from fledge.config import (
    Config,
    Loaded,
    SingleSettings,
    as_document,
    describe,
    merge,
    model_for_conversation,
    sandbox_for,
    spawnable,
    subagent_limits,
    with_default_model,
    workspaces,
)
from fledge.config.layers import nested
from fledge.config.places import FILE, difference, discover, is_trusted, read_written, revoke, trust, trusted_projects
from fledge.config.shape import Setting
from fledge.config.shown import DEFAULT, shown
from fledge.core.protected import is_broad
from fledge.core.schema import JsonObject
from fledge.errors import BadInput, Refused

_HEAD = """// Settings of fledge for this folder. JSON5: comments and trailing commas are fine.
// Every line that is commented out shows its default; `fledge docs config` lists all of them.
// Others who clone this folder run `fledge trust` before settings that loosen anything count for them.
"""
_AGENTS = """    // More agents, each with settings of its own (or one file each in agents/<id>.md):
    // list: [{ id: "reviewer", model: "anthropic/claude-sonnet-4-5", tools: { deny: ["exec"] } }],
"""
_TOOLS = """    // Ask a person before each call of a tool:
    // exec: { approval: "ask" },
"""
WIDTH = 46


def init(folder: str) -> list[str]:
    """Write a commented settings file. Refused if there is one already: nothing is overwritten."""
    path = Path(folder) / FILE
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError:
        raise BadInput(str(path), "exists already; edit it, or move it away first") from None
    except OSError as error:
        raise BadInput(str(path), f"cannot be written: {error.strerror}") from None
    return [
        f"wrote {path}",
        "next: set agents.defaults.model in it, then `fledge trust`, `fledge doctor`, and `fledge`",
    ]


def template() -> str:
    """The text of a settings file in which every setting is at its default and explained."""
    tree: JsonObject = {}
    for one in describe():
        if "[]" not in one.key and "<" not in one.key:
            tree = merge(tree, nested(one.key.split("."), one))
    return _HEAD + "{\n" + "".join(_lines(tree, 1)) + "}\n"


def _value(default: str) -> str:
    if default == "not set":
        return "…"
    if default == "required":
        return "<required>"
    try:
        json.loads(default)
    except ValueError:
        return json.dumps(default)
    return default


def _lines(tree: Mapping[str, Any], depth: int) -> list[str]:
    pad = "  " * depth
    lines: list[str] = []
    for key, value in tree.items():
        if isinstance(value, dict):
            extra = {"agents": _AGENTS, "tools": _TOOLS}.get(key, "") if depth == 1 else ""
            # A block with a required key is commented out as a whole.
            off = "// " if any(isinstance(one, Setting) and one.default == "required" for one in value.values()) else ""
            lines += [f"{pad}{off}{key}: {{\n", *_lines(value, depth + 1), extra, f"{pad}{off}}},\n"]
        else:
            setting = f"{pad}// {key}: {_value(value.default)},"
            lines.append(f"{setting:<{WIDTH}} // {value.meaning} ({value.allowed})\n")
    return lines


def show(settings: SingleSettings, key: str | None, everything: bool = False) -> list[str]:
    """The settings that apply in this folder, or one of them, and where they come from. `everything`: every setting
    there is, without secrets."""
    found = discover(Path.cwd(), settings)
    value: object = as_document(found.loaded.config)
    if everything:
        rows = []
        for one in shown(found.loaded.config, found.loaded.layers):
            default = "" if one.source == DEFAULT or not one.default else f", default {one.default}"
            rows.append(f"{one.key}: {one.value}  ({one.source}{default})")
        return rows
    if key is not None:
        known = {one.key: one for one in describe()}
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        below = [f"{name}: {one.default}" for name, one in known.items() if name.startswith(f"{key}.")]
        if value is None and below:
            return ["// all at its default", *below]
        if value is None and key not in known:
            raise BadInput(
                key, "no such setting; `fledge config` shows those that are set, `fledge docs config` lists all"
            )
        return [known[key].default if value is None else json.dumps(value, indent=2, ensure_ascii=False)]
    sources = [f"// from {source}" for source in found.sources] or ["// no settings file: everything is at its default"]
    warnings = [f"// {warning}" for warning in found.loaded.warnings]
    return [*sources, *warnings, json.dumps(value, indent=2, ensure_ascii=False)]


def trust_folder(folder: Path, or_nothing: bool = False) -> list[str]:
    """Trust the settings of a folder as they are now, and list the settings that now count. Refused, unless
    `or_nothing`: a folder without settings."""
    written = read_written(folder)
    if or_nothing and not written.names:
        return []
    if is_trusted(written):
        return [f"{folder} is trusted already, as its files are now"]
    waiting = discover(folder, written=written).left_out if written.names else ()
    changes = difference(written)
    trust(written)
    lets_in = [f"  now counts: {setting}" for setting in waiting]
    names = ", ".join(written.names)
    return [*changes, f"trusted {folder}: {names}", *lets_in, "a change of any of these files takes the trust back"]


def show_trust(folder: Path) -> list[str]:
    """A preview of `fledge trust`: how the files differ from those that were trusted, and which settings would
    count."""
    written = read_written(folder)
    if not written.names:
        return [f"{folder} has no {FILE} and no agents/*.md: there is nothing to trust"]
    if is_trusted(written):
        return [f"{folder} is trusted, as its files are now"]
    waiting = discover(folder, written=written).left_out
    would = [f"  would count: {setting}" for setting in waiting] or ["  nothing in it waits for trust"]
    head = f"{folder} is not trusted: {', '.join(written.names)}"
    return [*difference(written), head, *would, "`fledge trust` trusts it as it is"]


def load_settings(settings: SingleSettings) -> Config:
    """The settings that apply in this folder; their warnings are printed."""
    loaded = discover(Path.cwd(), settings).loaded
    for warning in loaded.warnings:
        note(warning)
    return loaded.config


def agents(model: str | None, settings: SingleSettings) -> CommandOutput:
    """The configured agents, and what each may spawn."""
    config = load_settings(settings)
    config = config if model is None else with_default_model(config, model)
    ids = ["main", *(one.id for one in config.agents.list if one.id != "main")]
    facts = {one.id: (one.model, one.description) for other in ids for one in spawnable(config, other)}
    rows = [" · ".join([one, *filter(None, facts.get(one, ()))]) for one in ids]
    return CommandOutput(rows, [_agent(config, one) for one in ids])


def _agent(config: Config, agent_id: str) -> dict[str, object]:
    model, limits = model_for_conversation(config, agent_id), subagent_limits(config, agent_id)
    return {
        "id": agent_id,
        "spawns": [other.id for other in spawnable(config, agent_id)],
        "model": "" if model is None else model.name,
        "fallbacks": [] if model is None else list(model.fallbacks),
        "maxDepth": limits.max_spawn_depth,
        "maxChildren": limits.max_children_per_agent,
        "sandbox": sandbox_for(config, agent_id).mode,
    }


def settings_to_drive(settings: SingleSettings, tell: Callable[[str], None] = note) -> Loaded:
    """The settings here for a process that drives; `tell` gets their warnings. If the project has changed since it was
    trusted, a person at the terminal sees the difference and is asked to trust it again, exactly as it was read.
    Refused: a workspace that holds the whole home folder and that the person has not allowed."""
    folder = Path.cwd()
    written = read_written(folder)
    found = discover(folder, settings, written=written)
    if found.changed and found.left_out and is_at_terminal():
        note(f"{folder} has changed since you trusted it:")
        say("\n".join(f"  {line}" for line in difference(written)), sys.stderr)
        if says_yes("Trust it as it is now?"):
            trust(written)
            found = discover(folder, settings, written=written)
    loaded = found.loaded
    for warning in loaded.warnings:
        tell(warning)
    confirm_workspace(loaded.config)
    return loaded


def distrust(folder: Path) -> list[str]:
    """Revoke the trust in a folder."""
    return [f"{folder} is {'no longer' if revoke(folder) else 'not'} trusted"]


def trusted() -> list[str]:
    """The folders that were trusted, and the broad workspaces that the person has allowed."""
    projects = [
        path
        + ("" if is_trusted(read_written(Path(path))) else "  (changed since: not trusted until you trust it again)")
        for path in trusted_projects()
    ] or ["no folder is trusted"]
    return [*projects, *(f"{path}  (as a workspace, with your home folder in it)" for path in workspaces.accepted())]


# ---- broad workspaces ------------------------------------------------------------------------------------------------


def trust_workspace(folder: Path, *, revoke: bool) -> list[str]:
    """Let agents work in a folder that holds the whole home folder; `revoke`: revoke that."""
    place = os.path.realpath(folder)
    if revoke:
        return [f"agents may {'no longer' if workspaces.take_back(folder) else 'not'} work in {place}"]
    workspaces.accept(folder)
    return [f"agents may work in {place}; fledge trust --workspace … --revoke takes it back"]


def confirm_workspace(config: Config) -> None:
    """If agents would work in the whole home folder, ask the person at the terminal, once, whether they may. Refused,
    naming the command that allows it: the person says no, or no person is at the terminal."""
    place = os.path.realpath(Path(config.agents.defaults.workspace or ".").expanduser())
    if not is_broad(place, os.path.realpath(Path.home())) or place in workspaces.accepted():
        return
    if is_at_terminal():
        note(workspaces.needs_yes(place))
        if says_yes("Let agents work here?"):
            workspaces.accept(Path(place))
            return
    raise Refused("forbidden", workspaces.needs_yes(place))
