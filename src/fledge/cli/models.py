"""`fledge models`: the models that can be used now, the reason why each is usable, and their prices.

The models of vendors come from the catalogue; self-hosted servers are asked for theirs. No request costs anything.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from fledge.cli.printing import CommandOutput
from fledge.config import SingleSettings
from fledge.config.places import discover
from fledge.models.catalog import Card
from fledge.models.choosing import ServiceModels
from fledge.runtime.model_settings import configured_catalog, configured_registry

WIDTH = 44


def usable_models(settings: SingleSettings, everything: bool) -> CommandOutput:
    """The models that can be used here now; `everything`: also those of services that cannot be used, with what is
    missing."""
    config = discover(Path.cwd(), settings).loaded.config
    catalog = configured_catalog(config)
    found = asyncio.run(configured_registry(config, os.environ, catalog).service_models(config.models.providers))
    shown = [service for service in found if service.reason or everything]
    lines: list[str] = []
    rows: list[dict[str, Any]] = []
    for service in shown:
        lines.append(f"{service.standing.provider.name}: {service.reason or f'not usable: {service.standing.missing}'}")
        for name in service.models:
            card = catalog.find(name)
            lines.append(f"  {_line(name, card, name == service.default)}")
            rows.append(_row(name, service, card))
    if left_out := len(found) - len(shown):
        lines.append(f"{left_out} more providers are not usable: fledge models --all says what is missing")
    return CommandOutput(lines, rows)


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


def _row(name: str, service: ServiceModels, card: Card | None) -> dict[str, Any]:
    price = card and card.price
    return {
        "name": name,
        "provider": service.standing.provider.name,
        "usable": bool(service.reason),
        "because": service.reason,
        "missing": "" if service.reason else service.standing.missing,
        "default": name == service.default,
        "window": card and card.window,
        "maxOutput": card and card.max_output,
        "images": card and card.images,
        "price": price and {"input": price.input, "output": price.output},
    }
