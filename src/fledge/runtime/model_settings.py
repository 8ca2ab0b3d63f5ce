"""From the block `models` of the settings to what opens models: the catalogue and the registry with its providers.

For whatever opens models (a program, the command, `doctor`), so that all of them read the settings in one way.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from fledge.config import Config
from fledge.config.providers import configured
from fledge.config.schema import ModelProvider, ProviderModel, WebSearch
from fledge.models.catalog import Catalog, shipped
from fledge.models.names import Registry


def configured_catalog(config: Config) -> Catalog:
    """The built-in catalogue with the rows of the settings over it."""
    models = config.models
    rows: dict[str, dict[str, Any]] = {
        f"{name}/{model.id}": _row(model) for name, provider in models.providers.items() for model in provider.models
    }
    for name, row in models.catalog.items():
        rows[name] = rows.get(name, {}) | to_builtins(row)
    return Catalog(rows) if rows else shipped()


def configured_registry(
    config: Config, env: Mapping[str, str] | None = None, catalog: Catalog | None = None
) -> Registry:
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
    """The variables of the environment that hold keys of services, by the settings."""
    return {one.api_key_env for one in _services(config) if one.api_key_env}


def key_files(config: Config) -> Iterable[str]:
    """The files that hold keys of services, by the settings."""
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
