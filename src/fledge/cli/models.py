"""`fledge models`: the models that can be used now, what makes each usable, and what they cost.

Models of vendors are those of the catalogue; servers that people run themselves are asked for theirs. Nothing is sent
that costs anything.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fledge.cli.printing import Shown
from fledge.config.places import discover
from fledge.models.catalog import Card, Catalog
from fledge.models.choosing import ASKED_S, UNASKED_S, Standing, default_model, served_models
from fledge.runtime.model_settings import configured_catalog, configured_registry

WIDTH = 44


async def usable_models(folder: Path, env: Mapping[str, str], settings: tuple[str, ...], everything: bool) -> Shown:
    """The models that can be used here now; `everything`: also those of services that cannot, with what is missing."""
    config = discover(folder, settings).loaded.config
    catalog = configured_catalog(config)
    registry = configured_registry(config, env, catalog)
    found = registry.standings(config.models.providers)
    names = await asyncio.gather(*(_names(one, catalog, env, registry.ca_file) for one in found))
    lines: list[str] = []
    rows: list[dict[str, Any]] = []
    left_out = 0
    for one, listed in zip(found, names, strict=True):
        reason = one.reason or ("a local server answers" if listed and one.provider.key == "if set" else "")
        if not reason and not everything:
            left_out += 1
            continue
        default = default_model(one.provider, catalog, env)
        lines.append(f"{one.provider.name}: {reason or f'not usable: {one.missing}'}")
        lines += [f"  {_line(name, catalog.find(name), name == default)}" for name in listed]
        rows += [_row(name, one, reason, catalog.find(name), name == default) for name in listed]
    if left_out:
        lines.append(f"{left_out} more providers are not usable: fledge models --all says what is missing")
    return Shown(lines, rows)


async def _names(one: Standing, catalog: Catalog, env: Mapping[str, str], ca_file: str | None) -> list[str]:
    """The models of a service by their full names: the catalogue's, else what the server says."""
    prefix = f"{one.provider.name}/"
    known = [name for name in catalog.names() if name.startswith(prefix)]
    if known or (not one.reason and one.provider.key == "needed"):
        return known
    if one.provider.model_env:
        named = default_model(one.provider, catalog, env)
        return [] if named is None else [named]
    seconds = ASKED_S if one.reason else UNASKED_S
    return [prefix + name for name in await served_models(one.provider, env, ca_file, seconds)]


def _line(name: str, card: Card | None, is_default: bool) -> str:
    if card is None:
        return name
    price = "price unknown"
    if card.price is not None:
        price = f"${card.price.input:g} in, ${card.price.output:g} out per million tokens"
    words = [
        price,
        f"window {card.window:,}",
        *(["images"] if card.images else []),
        *(["default"] if is_default else []),
    ]
    return f"{name:<{WIDTH}} {' · '.join(words)}"


def _row(name: str, one: Standing, reason: str, card: Card | None, is_default: bool) -> dict[str, Any]:
    price = None if card is None or card.price is None else card.price
    return {
        "name": name,
        "provider": one.provider.name,
        "usable": bool(reason),
        "because": reason,
        "missing": "" if reason else one.missing,
        "default": is_default,
        "window": None if card is None else card.window,
        "maxOutput": None if card is None else card.max_output,
        "images": None if card is None else card.images,
        "price": None if price is None else {"input": price.input, "output": price.output},
    }
