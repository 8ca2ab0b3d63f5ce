"""Agent profiles written as Markdown: `agents/<id>.md`, settings in front matter, the body the agent's own prompt.

    ---
    description: reads code and explains it
    model: openai/gpt-5
    tools: read, grep, list
    subagents.maxSpawnDepth: 2
    ---
    You explain code to people who did not write it.

A key is one of the agent's settings (`docs/config.md`, `agents.list[]`), with dots if it is nested deeper; `tools`
lists the tools that the agent may use, `disallowedTools` those that it may not. A value is JSON5, else plain text; a
list may also stand below its key, one `- element` a line. This file does not know whether a folder is trusted.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from fledge.config.check import SettingsDocument
from fledge.config.text import utf8, value_of
from fledge.confine import files_of, read_plain
from fledge.core.keys import AGENT_ID
from fledge.core.schema import JsonObject
from fledge.errors import BadInput

MAX_BYTES = 64 * 1024
MAX_FILES = 100
SettingsFile = tuple[Path, bytes]
"""A path, and the bytes of the file."""
_KEY = re.compile(r"([A-Za-z][\w.-]*)\s*:\s*(.*)")
_LISTS = {"tools": ("tools", "allow"), "disallowedTools": ("tools", "deny")}


def profiles_of(files: Iterable[SettingsFile]) -> SettingsDocument:
    """One layer of settings with the profile of each file; empty without files. Refused, naming file and line: a file
    that is no profile."""
    agents = [profile(path.stem, _text(path, raw), str(path)) for path, raw in files]
    return {"agents": {"list": agents}} if agents else {}


def profile_files(folder: Path) -> list[SettingsFile]:
    """The profiles of the folder and their bytes, by name. Refused: too many profiles, one that cannot be read.

    Links are ignored: a profile is a file of the folder itself.
    """
    found: list[SettingsFile] = []
    with files_of(folder) as held:
        if held is None:
            return []
        for name in sorted(name for name in os.listdir(held) if name.endswith(".md")):
            try:
                file = read_plain(held, name, MAX_BYTES + 1)
            except OSError as error:
                raise BadInput(str(folder / name), "must be a readable file", error.strerror) from None
            if file is not None:
                found.append((folder / name, file[0]))
            if len(found) > MAX_FILES:
                raise BadInput(str(folder), f"must hold at most {MAX_FILES} profiles")
    return found


def _text(path: Path, raw: bytes) -> str:
    if len(raw) > MAX_BYTES:
        raise BadInput(str(path), f"must be at most {MAX_BYTES} bytes")
    return utf8(raw, path).removeprefix("\ufeff").replace("\r\n", "\n")


def profile(name: str, text: str, source: str) -> JsonObject:
    """One agent's block of settings from the text of its profile."""
    if not AGENT_ID.fullmatch(name.lower()):
        raise BadInput(source, "must be named like an agent: letters, digits, - and _", name)
    agent: JsonObject = {"id": name.lower()}
    front, body = _parts(text, source)
    for where, key, value in _settings(front, source):
        path = _LISTS.get(key, tuple(key.split(".")))
        if key in _LISTS and isinstance(value, str):
            value = [word for word in re.split(r"[,\s]+", value) if word]
        if path in (("id",), ("name",)):
            if str(value).strip().lower() != agent["id"]:
                raise BadInput(where, f"{key} must be the file's own name", value)
        elif path == ("prompt",):
            raise BadInput(where, "the prompt is the text below the front matter")
        else:
            _put(agent, path, value, where)
    if body.strip():
        agent["prompt"] = body.strip()
    return agent


def _parts(text: str, source: str) -> tuple[list[str], str]:
    lines = text.split("\n")
    if lines[0].strip() != "---":
        return [], text
    for number, line in enumerate(lines[1:], start=1):
        if line.strip() == "---":
            return lines[1:number], "\n".join(lines[number + 1 :])
    raise BadInput(source, "front matter must be closed by a line ---")


def _settings(lines: list[str], source: str) -> list[tuple[str, str, object]]:
    """Each setting: its file and line, its key, its value."""
    found: list[tuple[str, str, object]] = []
    for number, line in enumerate(lines, start=2):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        if stripped.startswith("- ") and found and isinstance(found[-1][2], list):
            found[-1][2].append(value_of(stripped.removeprefix("- ")))
            continue
        where, pair = f"{source} line {number}", _KEY.fullmatch(stripped)
        if pair is None or line[0] in " \t":
            raise BadInput(where, "must look like key: value", stripped)
        key, value = pair.groups()
        found.append((where, key, value_of(value) if value else []))
    return found


def _put(agent: JsonObject, path: tuple[str, ...], value: object, where: str) -> None:
    at = agent
    for key in path[:-1]:
        below = at.setdefault(key, {})
        if not isinstance(below, dict):
            raise BadInput(where, f"{key} was already given one value")
        at = below
    if path[-1] in at:
        raise BadInput(where, "must give each key once", ".".join(path))
    at[path[-1]] = value
