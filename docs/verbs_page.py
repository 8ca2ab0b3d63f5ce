"""The page of verbs, `docs/verbs.md`, made from the table of methods: what each takes and answers, and who calls it."""

import re
from pathlib import Path

import msgspec

from fledge.commands.index import READS
from fledge.commands.methods import METHODS
from fledge.commands.table import Method

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "verbs.md"

HEAD = """# Verbs

All methods of the gateway and of the control socket (`src/fledge/commands/`). A `?` marks an optional parameter.
`reads`: the method changes nothing. `called by`: the command line or the web page uses it. A name in brackets is a
former name, which still works and is logged once. How to call them: [protocol](protocol.md).

Made by `python -m docs.generate`.

| verb | parameters | answers | reads | called by | what it does |
|---|---|---|---|---|---|
"""


def page() -> str:
    """The page as it should be."""
    used = {"command line": _named("src/fledge/cli", "py"), "page": _named("src/fledge/web", "js")}
    return HEAD + "".join(_row(METHODS[name], used) for name in sorted(METHODS))


def _row(method: Method, used: dict[str, set[str]]) -> str:
    fields = msgspec.structs.fields(method.params)
    params = ", ".join(f"`{one.encode_name}`" + ("" if one.required else "?") for one in fields)
    formerly = f" ({method.formerly})" if method.formerly else ""
    doors = ", ".join(door for door, names in used.items() if method.name in names)
    meaning = " ".join(method.meaning.split())
    reads = "yes" if method.name in READS else ""
    return f"| `{method.name}`{formerly} | {params} | {_shown(method.result)} | {reads} | {doors} | {meaning} |\n"


def _shown(kind: object) -> str:
    words = getattr(kind, "__name__", str(kind)) if not getattr(kind, "__args__", ()) else str(kind)
    return "`" + re.sub(r"\b(?:\w+\.)+", "", words) + "`"


def _named(folder: str, ending: str) -> set[str]:
    """The methods that files of a folder name."""
    text = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / folder).glob(f"*.{ending}")))
    return {name for name in METHODS if f'"{name}"' in text}
