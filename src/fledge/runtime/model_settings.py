"""The model catalogue and the registry of providers, from the settings' block `models`.

Programs, commands and `doctor` all use these functions, so that they read the settings in the same way.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from fledge.config import Config
from fledge.config.providers import configured
from fledge.config.schema import ModelProvider, ProviderModel, WebSearch
from fledge.egress import Environment
from fledge.models.catalog import Catalog, shipped
from fledge.models.names import Registry


def configured_catalog(config: Config) -> Catalog:
    """The built-in catalogue, overridden by the rows of the settings."""
    models = config.models
    rows: dict[str, dict[str, Any]] = {
        f"{name}/{model.id}": _row(model) for name, provider in models.providers.items() for model in provider.models
    }
    for name, row in models.catalog.items():
        rows[name] = rows.get(name, {}) | to_builtins(row)
    return Catalog(rows) if rows else shipped()


def configured_registry(config: Config, env: Environment | None = None, catalog: Catalog | None = None) -> Registry:
    """A registry with the providers of the settings."""
    ca_file = config.models.ca_file
    registry = Registry(
        env,
        catalog=catalog or configured_catalog(config),
        ca_file=None if ca_file is None else str(Path(ca_file).expanduser()),
    )
    for name, provider in config.models.providers.items():
        registry.add_provider(configured(name, provider))
    return registry


def key_variables(config: Config) -> Iterable[str]:
    """Environment variables with keys of services, as the settings name them."""
    return {one.api_key_env for one in _services(config) if one.api_key_env}


def key_files(config: Config) -> Iterable[str]:
    """Files with keys of services, as the settings name them."""
    return {one.api_key_file for one in _services(config) if one.api_key_file}


def _services(config: Config) -> list[ModelProvider | WebSearch]:
    return [*config.models.providers.values(), config.tools.web.search]


def _row(model: ProviderModel) -> dict[str, Any]:
    row: dict[str, Any] = {
        "window": model.context_window,
        "maxOutput": model.max_tokens,
        "efforts": None if model.reasoning is None else ["low", "medium", "high"] if model.reasoning else [],
        "images": None if model.input is None else "image" in model.input,
        "price": None if model.cost is None else to_builtins(model.cost),
    }
    return {field: value for field, value in row.items() if value is not None}
