"""`fledge.open`, `fledge.connect` and `fledge.run_sync`: make a `Fledge` from a folder and the arguments of the user.

The one place that makes the parts of a `Fledge`: registry, profiles, agent loop, rules. `Fledge` itself makes the
engine. Nothing is opened, read or started before the `async with`, except the settings.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from fledge.api.agents import Agent as Value
from fledge.api.agents import with_those_they_name
from fledge.api.fledge import Fledge, Parts
from fledge.api.identity import identity
from fledge.api.spawn_options import program_key
from fledge.channels.base import Channel
from fledge.channels.terminal import NoTerminal
from fledge.client.connection import ControlSocket, Gateway, VerbServer
from fledge.client.folder import Elsewhere
from fledge.client.guest import Guest
from fledge.client.sharing import Shared
from fledge.clock import Clock
from fledge.config import Config, check, load, with_agents, with_default_model
from fledge.config.places import discover
from fledge.context_engine import ContextEngine, check_context_engine
from fledge.core.route import TERMINAL, check_channel
from fledge.errors import BadInput, Refused
from fledge.hooks import Hooks
from fledge.ids import Ids
from fledge.models.base import Model
from fledge.models.providers import Provider
from fledge.runtime.agent import AgentLoop
from fledge.runtime.base import Runtime, Work
from fledge.runtime.callable import CallableRuntime
from fledge.runtime.model_settings import configured_catalog, configured_registry
from fledge.runtime.profiles import ConfiguredProfiles
from fledge.store.addresses import folder_of, is_address, open_server
from fledge.store.base import Store
from fledge.store.sqlite import SqliteStore
from fledge.store.ways import CONTROL_SOCKET
from fledge.tools.base import Tool, ToolLike, as_tool

T = TypeVar("T")
Carries = Callable[[Work], Awaitable[str]]
"""An async function that carries out a piece of work."""

AgentsGiven = Mapping[str, Mapping[str, object]] | Sequence[Value[Any] | Mapping[str, object]]
"""Agents as a program gives them: values, or settings as `agents.list` has them."""

GIVEN = "given/model"
"""The name of a model that was given as an object."""

log = logging.getLogger("fledge.config")


class OpenOptions(TypedDict, total=False):
    """The options of `open`, for `run_sync`."""

    model: str | Model | None
    models: Mapping[str, Model] | None
    providers: Iterable[Provider]
    tools: Iterable[ToolLike]
    agents: AgentsGiven
    runtimes: Mapping[str, Runtime | Carries] | None
    channels: Mapping[str, Channel] | None
    hooks: Hooks | None
    context_engine: ContextEngine | None
    config: Config | Mapping[str, object] | str | Path | None
    workspace: str | Path | None
    program: str
    env: Mapping[str, str] | None
    address: str
    control: bool
    drives: bool
    store: str | Store | None
    clock: Clock | None
    ids: Ids | None


def open(
    state: str | Path,
    *,
    model: str | Model | None = None,
    models: Mapping[str, Model] | None = None,
    providers: Iterable[Provider] = (),
    tools: Iterable[ToolLike] = (),
    agents: AgentsGiven = (),
    runtimes: Mapping[str, Runtime | Carries] | None = None,
    channels: Mapping[str, Channel] | None = None,
    hooks: Hooks | None = None,
    context_engine: ContextEngine | None = None,
    config: Config | Mapping[str, object] | str | Path | None = None,
    workspace: str | Path | None = None,
    program: str = "program",
    env: Mapping[str, str] | None = None,
    address: str = "",
    control: bool = True,
    drives: bool = True,
    store: str | Store | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Fledge:
    """Open a state folder, as in `async with fledge.open(…) as fl`. The folder is created if it does not exist.

    With the address of a PostgreSQL server (`postgresql://user@host/database?schema=name`) as `store`, the database is
    on that server, and the folder keeps only files. With that address as `state` instead, the files are in a folder for
    this store below `~/.fledge/stores`, or below `$FLEDGE_STATE/stores`. Needs `fledge[postgres]`. Several processes
    may work with such a store at the same time: they share the work, and if one dies, another continues its work.

    Only one process holds a folder. A second process with the same tools, agents, runtimes, hooks, settings and
    workspace works through the first, and functions run there; when the first process ends, one of the others takes
    over. If any of these differ, `async with` raises `StoreLocked` in the second process.

    - `model`: the default model, by name (`openai/gpt-5`) or as an object. It replaces the setting
      `agents.defaults.model`.
    - `models`: more model objects, by name.
    - `providers`: model services in addition to the built-in ones and those of the settings.
    - `tools`: functions that every agent may use, in addition to the built-in tools.
    - `agents`: `fledge.Agent` values, or entries as in the setting `agents.list`. The model of `main` may spawn them,
      unless `allowAgents` is set.
    - `runtimes`: other executors of tasks, by name: an async function that takes `Work` and returns text, or a
      `CommandRuntime`.
    - `channels`: ways to send messages to people, by name, in addition to those of the settings.
    - `hooks`: your functions that are called when runs start and end.
    - `context_engine`: an object whose methods `subagent_started` and `subagent_ended` are called when a run begins and
      when its context is no longer needed. It replaces the setting `plugins.slots.contextEngine`.
    - `config`: a settings file, a mapping or a `Config`. Without it the user's settings apply, and the workspace's
      settings if they are trusted.
    - `workspace`: the folder in which agents work; by default the current one. The home folder must be named here or
      allowed by `fledge trust --workspace`.
    - `program`: the name of this program. A restarted program finds its results under the same name.
    - `env`: environment variables to use instead of `os.environ`.
    - `address`: the address at which this process serves a gateway; other processes read it in the folder.
    - `control`: with `False`, this process neither shares the folder nor works through another process.
    - `drives`: with `False`, this process continues no unfinished run: for programs that only read the folder, answer
      questions and the like.
    - `store`: the address of a PostgreSQL server; or a store, as a replacement for tests.
    - `clock`, `ids`: replacements for tests.

    >>> async with fledge.open("state", model=ScriptedModel(echo)) as fl:
    ...     run = await fl.spawn("Say hello")
    ...     print((await run).text)
    Say hello
    """
    if isinstance(state, str) and is_address(state):
        if store is not None:
            raise BadInput("store", "must be left out when `state` is the address of a server")
        folder, store = folder_of(state), state
    else:
        folder = _folder(state, "state")
    if isinstance(store, str) and not is_address(store):
        raise BadInput("store", "must be an address that begins with postgresql://")  # it may hold a password
    work = Path.cwd() if workspace is None else _folder(workspace, "workspace")
    if not work.is_dir():
        raise BadInput("workspace", "must be a folder that exists", str(work))
    values = _values(agents)
    settings = _with_agents(_config(config, work), agents, values)
    catalog = configured_catalog(settings)
    registry = configured_registry(settings, env, catalog)
    for provider in providers:
        if not isinstance(provider, Provider):
            raise BadInput("providers", "must be made with fledge.Provider", provider)
        registry.add_provider(provider)
    for name, own in (models or {}).items():
        registry.add_model(name, _model(own, f"models.{name}"))
    for own_agent in values:
        if given_model := _given(own_agent):
            registry.add_model(given_model, _model(own_agent.model, f"agents.{own_agent.name}.model"))
    if isinstance(model, str):
        settings = with_default_model(settings, model)
    elif model is not None:
        registry.add_model(GIVEN, _model(model, "model"))
        settings = with_default_model(settings, GIVEN)
    session = program_key(program)
    given_tools = _tools(tools)
    profiles = ConfiguredProfiles(
        settings,
        workspace=work,
        is_named=workspace is not None,
        state=folder,
        registry=registry,
        catalog=catalog,
        tools=given_tools,
        runtimes={name: _runtime(one, f"runtimes.{name}") for name, one in (runtimes or {}).items()},
        channels=_channels(channels or {}),
        hooks=hooks,
        context_engine=None if context_engine is None else check_context_engine(context_engine),
        env=env,
        given_agents={one.name: one.functions for one in values},
    )
    shares = control and not address and store is None
    parts = Parts(
        state=folder,
        config=settings,
        profiles=profiles,
        agent=AgentLoop(profiles),
        rules=profiles.rules(),
        program=session,
        agents=tuple(values),
        open_store=lambda: _opened(folder, store, CONTROL_SOCKET if shares else address, drives),
        identity=lambda: identity(
            state=str(folder.resolve()),
            program=session,
            tools=[*given_tools, *(function for one in values for function in one.functions)],
            runtimes=runtimes or (),
            hooks=hooks,
            config=settings,
            workspace=str(work.resolve()),
        ),
        drives=drives,
        clock=clock,
        ids=ids,
    )
    return Shared(parts) if shares else Fledge(parts)


def connect(where: str | Path, *, token: str = "", program: str = "program") -> Fledge:
    """Use a folder that another process holds, as in `async with fledge.connect(…) as fl`. This process never opens the
    folder itself.

    - `where`: the address of a gateway, or the state folder of a process on this machine.
    - `token`: the gateway's token; by default `$FLEDGE_GATEWAY_TOKEN`. A folder on this machine needs none.
    - `program`: the name of this program, as in `fledge.open`.

    >>> async with fledge.connect(fl.state) as there:
    ...     print((await (await there.spawn("Say hello"))).text)
    echo: Say hello
    """
    own = program_key(program)
    if isinstance(where, str) and "://" in where:
        place: VerbServer = Gateway(where, token or os.environ.get("FLEDGE_GATEWAY_TOKEN", ""))
    else:
        place = ControlSocket(_folder(where, "where"))
    return Guest(Elsewhere(place), own)


def run_sync(main: Callable[[Fledge], Awaitable[T]], state: str | Path, **options: Unpack[OpenOptions]) -> T:
    """Open a state folder, run `main(fl)`, close the folder and return the result. For scripts without an event loop.

    Takes the options of `fledge.open`. Raises `Refused` inside a running event loop: use `async with fledge.open(…)`.

    >>> async def main(fl):
    ...     return (await (await fl.spawn("Say hello"))).text
    >>> await asyncio.to_thread(fledge.run_sync, main, "state", model=ScriptedModel(echo))
    'Say hello'
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        raise Refused("error", "run_sync cannot be used inside a running event loop: use `async with fledge.open(…)`")
    if not callable(main):
        raise BadInput("main", "must be an async function that takes the opened fledge", main)

    async def opened() -> T:
        async with open(state, **options) as fl:
            return await main(fl)

    return asyncio.run(opened())


def _opened(folder: Path, store: str | Store | None, address: str, drives: bool) -> Store:
    if store is None:
        return SqliteStore.open(folder, address=address)
    return open_server(store, folder, address, drives=drives) if isinstance(store, str) else store


def _folder(value: str | Path, field: str) -> Path:
    if not isinstance(value, str | os.PathLike) or not str(value) or "\0" in str(value):
        raise BadInput(field, "must be a folder", value)
    return Path(value).expanduser()


def _config(config: Config | Mapping[str, object] | str | Path | None, workspace: Path) -> Config:
    if isinstance(config, Config):
        return config
    if config is None:
        loaded = discover(workspace).loaded
    elif isinstance(config, Mapping):
        loaded = check(dict(config), "config")
    elif isinstance(config, str | os.PathLike):
        path = Path(config).expanduser()
        if not path.is_file():
            raise BadInput("config", "must be a file that exists", str(path))
        loaded = load([path])
    else:
        raise BadInput("config", "must be a file, a mapping or a Config", config)
    for warning in loaded.warnings:
        log.warning("%s", warning)
    return loaded.config


def _values(agents: AgentsGiven) -> list[Value[Any]]:
    """The agents that were given as values, with those that they may spawn."""
    if isinstance(agents, str) or not isinstance(agents, Mapping | Sequence):
        raise BadInput("agents", "must be a list of agents, or a mapping from ids to settings", agents)
    return [] if isinstance(agents, Mapping) else with_those_they_name([a for a in agents if isinstance(a, Value)])


def _with_agents(config: Config, agents: AgentsGiven, values: Sequence[Value[Any]]) -> Config:
    given = agents
    if not isinstance(given, Mapping):
        entries = [one for one in given if not isinstance(one, Value)]
        given = [*entries, *(one.settings(_given(one)) for one in values)]
    return with_agents(config, given) if given else config


def _given(agent: Value[Any]) -> str:
    """The name for the model of an agent that was given as an object; empty if none was."""
    return "" if agent.model is None or isinstance(agent.model, str) else f"given/{agent.name}"


def _has_methods(value: object, *names: str) -> bool:
    return all(callable(getattr(value, name, None)) for name in names)


def _model(value: object, field: str) -> Model:
    if not _has_methods(value, "stream", "close"):
        raise BadInput(field, "must have the methods stream(request) and close(), or be a model's name", value)
    return value  # type: ignore[return-value]


def _runtime(value: Runtime | Carries, field: str) -> Runtime:
    if _has_methods(value, "run"):
        return value  # type: ignore[return-value]
    if not callable(value):
        raise BadInput(field, "must be an async function that takes a Work, or a CommandRuntime", value)
    return CallableRuntime(function=value)


def _channels(given: Mapping[str, Channel]) -> dict[str, Channel]:
    found: dict[str, Channel] = {TERMINAL: NoTerminal()}
    for name, one in given.items():
        if not _has_methods(one, "send", "close"):
            raise BadInput(f"channels.{name}", "must have the methods send(message) and close()", one)
        found[check_channel(name, f"channels.{name}")] = one
    return found


def _tools(tools: Iterable[ToolLike]) -> list[Tool]:
    if isinstance(tools, str) or not isinstance(tools, Iterable):
        raise BadInput("tools", "must be a list of functions and tools", tools)
    return [as_tool(one) for one in tools]
