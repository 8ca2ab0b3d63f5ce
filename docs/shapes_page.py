"""`src/fledge/web/shapes.js`, made from the schema: the values that the gateway answers, as JSDoc types."""

from pathlib import Path
from typing import Any

from fledge.commands.methods import schema

TARGET = Path(__file__).parents[1] / "src" / "fledge" / "web" / "shapes.js"

HEAD = """\
// The values that the gateway answers and tells, as types for editors and readers. Made from the gateway's schema by
// `python -m docs.generate`; a test fails when it is stale, and another when the page reads a field that is not here.
"""


def page() -> str:
    """The file as it should be."""
    published = schema()
    wanted: dict[str, None] = {}
    for one in published["methods"].values():
        _collect(one["result"], published["$defs"], wanted)
    _collect(published["events"], published["$defs"], wanted)
    kinds = [_typedef(name, published["$defs"][name]) for name in sorted(wanted)]
    return HEAD + "".join(f"\n{one}" for one in kinds if one) + "\nexport {};\n"


def _collect(schema: Any, parts: dict[str, Any], wanted: dict[str, None]) -> None:
    """The parts that a schema refers to, at any depth."""
    if isinstance(schema, list):
        for one in schema:
            _collect(one, parts, wanted)
    elif isinstance(schema, dict):
        name = str(schema.get("$ref", "")).rpartition("/")[2]
        if name in parts and name not in wanted:
            wanted[name] = None
            _collect(parts[name], parts, wanted)
        for key, one in schema.items():
            if key != "discriminator":
                _collect(one, parts, wanted)


def _typedef(name: str, schema: dict[str, Any]) -> str:
    if "properties" not in schema:
        return ""
    meaning = " ".join(schema.get("description", "").split())
    lines = [f"/** {meaning}".rstrip(), f" * @typedef {{object}} {name.rpartition('.')[2]}"]
    required = schema.get("required", [])
    for field, kind in schema["properties"].items():
        shown = field if field in required else f"[{field}]"
        lines.append(f" * @property {{{_kind(kind)}}} {shown}")
    return "\n".join(lines) + "\n */\n"


def _kind(schema: Any) -> str:
    match schema:
        case {"$ref": ref}:
            return str(ref).rpartition("/")[2].rpartition(".")[2]
        case {"anyOf": kinds}:
            return "|".join(_kind(one) for one in kinds)
        case {"enum": words}:
            return "|".join("null" if one is None else f'"{one}"' for one in words)
        case {"type": "array", "items": items} if items:
            return f"({_kind(items)})[]"
        case {"type": list(names)}:
            return "|".join(_kind({"type": one}) for one in names)
        case {"type": "integer" | "number"}:
            return "number"
        case {"type": str(name)} if name in ("string", "boolean", "null", "object"):
            return name
        case _:
            return "*"
