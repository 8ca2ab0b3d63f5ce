"""Which model a command of `fledge` uses, in one order for all commands.

`--model`, then the settings, then the remembered model, then a key that is set, then a local Ollama. Only a
conversation (`fledge`, `fledge run`) chooses by keys. It says so before it sends anything, and remembers the choice in
the user's folder if the model is the catalogue's default. `--continue` uses the model that was last named for the state
folder. `fledge.open` never chooses.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from fledge.config import Config, model_for_conversation
from fledge.config.places import read_memory, user_folder
from fledge.egress import Environment
from fledge.errors import FledgeError, Refused
from fledge.models.choosing import UNASKED_S
from fledge.models.names import Registry
from fledge.plain_file import write_private
from fledge.runtime.model_settings import configured_catalog, configured_registry

FILE = "model.json"
MOST_FOLDERS = 100
"""The named model is remembered for this many state folders, the most recent ones."""


class ChosenModel(Struct, frozen=True):
    """The model to use, and how it was chosen."""

    model: str
    by: Literal["option", "settings", "memory", "key", "ollama"]
    because: str = ""
    """The reason of a choice by a key or an address, also of a remembered one."""

    @property
    def is_new(self) -> bool:
        """True if the user did not name it: it is shown to them before anything is sent."""
        return self.by in ("key", "ollama")

    @property
    def given(self) -> str | None:
        """The model to open a folder with; None if its settings name it."""
        return None if self.by == "settings" else self.model

    @property
    def words(self) -> str:
        """A new choice, in words for the user."""
        return f"model: {self.model} (because {self.because}; --model NAME or fledge init changes it)"


class _Memory(Struct, frozen=True, omit_defaults=True):
    """The content of `model.json` in the user's folder."""

    model: str = ""
    because: str = ""
    named: dict[str, str] = field(default_factory=dict)
    """The last `--model` of each state folder."""


def settled_model(
    config: Config,
    env: Environment,
    named: str | None = None,
    *,
    state: Path | None = None,
    goes_on: bool = False,
) -> ChosenModel | None:
    """The named model, or the remembered one if it can still be used; None if there is neither.

    A usable model that is named for a state folder is remembered for it. `goes_on`: unfinished work of that folder
    continues, with the model remembered for it.
    """
    user = user_folder(env)
    memory = _remembered(user)
    place = "" if state is None else os.path.realpath(state)
    if goes_on and named is None:
        named = memory.named.get(place)
    elif place and named != memory.named.get(place) and (named is None or _is_usable(config, env, named)):
        folders = {other: model for other, model in memory.named.items() if other != place}
        folders |= {} if named is None else {place: named}
        _remember(user, replace(memory, named=dict(list(folders.items())[-MOST_FOLDERS:])))
    if named is not None:
        return ChosenModel(named, "option")
    settled = model_for_conversation(config, "main")
    if settled is not None:
        return ChosenModel(settled.name, "settings")
    if memory.model and _is_usable(config, env, memory.model):
        return ChosenModel(memory.model, "memory", memory.because)
    return None


async def choose_model(
    config: Config, env: Environment, named: str | None = None, *, state: Path, goes_on: bool = False
) -> ChosenModel:
    """The model that `settled_model` finds, else one whose key is set, else a local Ollama's. Raises `Refused`, naming
    what is missing."""
    settled = settled_model(config, env, named, state=state, goes_on=goes_on)
    if settled is not None:
        return settled
    catalog = configured_catalog(config)
    chosen = await choose_by_key(config, configured_registry(config, env, catalog))
    if chosen.model == catalog.default_of(chosen.model.partition("/")[0]):
        # A server's list or a variable may name another model next time, so those are not remembered.
        user = user_folder(env)
        _remember(user, replace(_remembered(user), model=chosen.model, because=chosen.because))
    return chosen


async def choose_by_key(config: Config, registry: Registry, names_all: bool = False) -> ChosenModel:
    """A model of the first usable service, else of a local Ollama. Raises `Refused` if there is none, with the usual
    keys of which one would do, or all of them (`names_all`)."""
    found = registry.standings(config.models.providers)
    without_model: list[str] = []
    for one in found:
        if not one.reason:
            continue
        model = await registry.first_model(one.provider)
        if model is not None:
            return ChosenModel(model, "key", one.reason)
        without_model.append(f"{one.provider.name} ({one.reason}) names no model that can be used")
    local = next((one for one in found if one.provider.name == "ollama" and not one.reason), None)
    if local is not None:
        model = await registry.first_model(local.provider, UNASKED_S)
        if model is not None:
            return ChosenModel(model, "ollama", "a local Ollama answers and no key is set")
    words = "; ".join(without_model) or registry.usable_words(config.models.providers, names_all)
    raise Refused("error", f"no model is set, and {words}. Or give --model NAME (`fledge models --all` lists them)")


def _is_usable(config: Config, env: Environment, model: str) -> bool:
    try:
        configured_registry(config, env).check_key(model)
    except FledgeError:
        return False
    return True


# ---- memory ----------------------------------------------------------------------------------------------------------


def _remembered(user: Path) -> _Memory:
    expected = "a readable JSON object; remove it to choose again"
    return read_memory(user / FILE, _Memory, expected) or _Memory()


def _remember(user: Path, memory: _Memory) -> None:
    """Write the file. If that fails, the choice is made again next time."""
    with suppress(OSError):
        write_private(user / FILE, json.dumps(msgspec.to_builtins(memory), indent=1))
