"""Every setting as a page or a person may see it: value, default, source. Never a secret.

Keys of providers and channels are not settings (those name a variable or a file), but people put them where they do not
belong. So the values of headers, queries and environments are hidden, only the host of an address is shown, and any
part of a text that looks like a secret is removed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from fledge.config.layers import Layers, SettingPath, as_document, leaves
from fledge.config.schema import Config
from fledge.config.shape import describe
from fledge.core.redact import redacted
from fledge.core.value import Value

HIDDEN: Final = "(hidden)"
DEFAULT: Final = "default"
PROGRAM: Final = "the program"
_MAPS: Final = ("headers", "query", "env")
"""Blocks whose values are free: a secret may stand in any of them."""
_ADDRESS: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


class SettingShown(Value, kw_only=True):
    """One setting."""

    key: str
    value: str
    """As JSON."""
    default: str
    source: str
    """`default`, the file that sets it, `--set`, or `the program`."""
    meaning: str = ""


def shown(config: Config, layers: Layers = ()) -> list[SettingShown]:
    """Every setting, in the order of the reference; those of agents, tools, providers and channels follow as they are
    set. A setting whose value is a group (a model with its fallbacks) is shown as the values of that group."""
    known = {tuple(one.key.split(".")): one for one in describe() if "[]" not in one.key and "<" not in one.key}
    found = dict(leaves(as_document(config)))
    sources = [(name, dict(leaves(document))) for name, document in layers]

    def row(path: SettingPath, default: str = "", meaning: str = "") -> SettingShown:
        value, source = default, DEFAULT
        if path in found:
            value, source = _value(path, found[path]), _source(path, found[path], sources)
        return SettingShown(key=".".join(path), value=value, default=default, source=source, meaning=meaning)

    below = {listed: [path for path in found if path[: len(listed)] == listed] for listed in known}
    rows = [row(path, one.default, one.meaning) for at, one in known.items() for path in below[at] or [at]]
    listed = {path for paths in below.values() for path in paths}
    return rows + [row(path) for path in found if path not in listed]


def _source(path: SettingPath, value: object, sources: Sequence[tuple[str, Mapping[SettingPath, object]]]) -> str:
    """The last layer that sets this value, by itself or as the short form of its group (`model: "name"`)."""
    groups = [path[:length] for length in range(1, len(path))]
    for name, document in reversed(sources):
        if path in document or any(document.get(group) == value for group in groups):
            return name
    return PROGRAM


def _value(path: SettingPath, value: object) -> str:
    if any(part in _MAPS for part in path[:-1]):
        return HIDDEN
    return json.dumps(without_secrets(value), ensure_ascii=False)


def without_secrets(value: object) -> object:
    """The value without the parts of its texts that look like a secret, and with only the host of its addresses."""
    if isinstance(value, list | tuple):
        return [without_secrets(one) for one in value]
    if isinstance(value, Mapping):
        return {key: without_secrets(one) for key, one in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str):
        return value
    return _host(value) if _ADDRESS.match(value) else redacted(value)


def _host(address: str) -> str:
    """An address without user, path and query: a secret may stand in each of them."""
    try:
        parts = urlsplit(address)
        place = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
        rest = parts.path.strip("/") or parts.query or parts.fragment
    except ValueError:
        return HIDDEN
    return f"{place}/…" if rest else place
