"""Runs from code: start them, wait for one or several, list them, hear of their ends."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Literal, TypeVar, Unpack, overload

from fledge.api import spawning, views
from fledge.api.agents import Agent
from fledge.api.handle import Handle, consume
from fledge.api.opened import Opened
from fledge.api.spawning import SpawnOptions
from fledge.api.values import Result, RunInfo
from fledge.core.access import tool_name
from fledge.core.params import as_written
from fledge.errors import BadInput
from fledge.orchestrator.asked import NATIVE, Caller
from fledge.orchestrator.changes import deadline
from fledge.store.base import Tx

ALL = 1_000_000
T = TypeVar("T")
Told = Callable[[Handle[Any]], Awaitable[None] | None]
Which = Handle[Any] | str


class Runs(Opened):
    """The part of `Fledge` that is about runs."""

    @overload
    async def spawn(self, task: str, *, agent: Agent[T], **options: Unpack[SpawnOptions]) -> Handle[T]: ...

    @overload
    async def spawn(
        self,
        task: str,
        *,
        output_type: type[T],
        agent: Agent[Any] | str | None = ...,
        **options: Unpack[SpawnOptions],
    ) -> Handle[T]: ...

    @overload
    async def spawn(
        self,
        task: str,
        *,
        result_type: type[T],
        agent: Agent[Any] | str | None = ...,
        **options: Unpack[SpawnOptions],
    ) -> Handle[T]: ...

    @overload
    async def spawn(
        self,
        task: str,
        *,
        agent: Agent[Any] | str | None = ...,
        output_type: object = ...,
        result_type: object = ...,
        **options: Unpack[SpawnOptions],
    ) -> Handle[Any]: ...

    async def spawn(
        self,
        task: str,
        *,
        agent: Agent[Any] | str | None = None,
        output_type: Any = None,
        result_type: Any = None,
        **options: Unpack[SpawnOptions],
    ) -> Handle[Any]:
        """Start a run in the background; return a handle at once. `await handle` waits for its `Result`.

        The run is stored before this returns: it continues after a crash, and `fl.run(id)` finds it again.

        - `agent`: who works on it, a `fledge.Agent` given to `fledge.open`, or a name; by default `main`.
        - `output_type` (or `result_type`): the type of `Result.value`, a struct, dataclass, TypedDict, pydantic model
          or plain type. The answer must be JSON of that type.
        - `tools`: functions among them are given to this run alone. After a restart such a run waits until the program
          spawns it again with the same `idempotency_key`, or opens the folder with that function.

        Raises `Refused` if a limit forbids the run and `BadInput` for a wrong option; nothing was started then.

        >>> run = await fl.spawn("Say hello", label="greeting", timeout=60)
        >>> (await run).label
        'greeting'
        """
        asked = spawning.asked(task, agent, output_type, result_type, options)
        self._check_agent(asked.agent)
        if asked.functions:
            self._parts.profiles.bring(asked.functions)
        caller = Caller(
            session=self.program, is_program=True, brings=tuple(tool_name(one.name) for one in asked.functions)
        )
        try:
            read = self.spawner.read(asked.params, caller)
        except BadInput as error:
            raise as_written(error, spawning.WRITTEN) from None
        if read.request.spec.runtime == NATIVE:
            self.check(read.request.spec.agent_id, read.request.spec)
        run = await self.spawner.admit(read.request)
        if asked.functions:
            await self._program_came()
        return self._handle(run.key, run.run_id, asked.output_type, read.request.spec.label)

    def _check_agent(self, value: Agent[Any] | None) -> None:
        """Refused: an agent given as a value that was not given to `open`, or another one of its name."""
        if value is not None and value not in self._parts.agents:
            raise BadInput("agent", "must be one that was given to fledge.open(agents=[…])", value.name)

    def _handle(self, key: str, run_id: str, output_type: Any = None, label: str = "") -> Handle[Any]:
        feed = self._parts.agent.feed
        return Handle(self.engine, self.spawner, self._watch, feed, key, run_id, output_type, label)

    async def again(self, which: Which, *, idempotency_key: str = "") -> Handle[Any]:
        """Start a new run with the task and the options of an earlier one, however that one ended.

        The new run has the requester of the earlier one. Raises `Refused` if a limit forbids it. Calling again with the
        same `idempotency_key` returns the same run.

        >>> first = await fl.spawn("Say hello", label="greeting")
        >>> (await (await fl.again(first))).text
        'echo: Say hello'
        """
        (handle,) = await self._handles([which])
        run = (await self.spawner.again(handle.session_key, idempotency_key)).run
        return self._handle(run.key, run.run_id, handle.output_type, handle.label)

    @overload
    async def run(self, run_id: str, *, output_type: type[T]) -> Handle[T]: ...

    @overload
    async def run(self, run_id: str, *, output_type: object = ..., result_type: object = ...) -> Handle[Any]: ...

    async def run(self, run_id: str, *, output_type: Any = None, result_type: Any = None) -> Handle[Any]:
        """Return a handle on an existing run, by any run id it ever had or by its session key. Raises `NotFound`.

        >>> first = await fl.spawn("Say hello")
        >>> (await (await fl.run(first.run_id))).text
        'echo: Say hello'
        """
        if not isinstance(run_id, str):
            raise BadInput("run_id", "must be a run id or a session key", run_id)
        kind = spawning.one_type(output_type, result_type)

        def look(tx: Tx) -> tuple[str, str]:
            key = views.named(tx, run_id)
            return key, tx.runs.spec(key).label

        key, label = await self.engine.store.read(look)
        return self._handle(key, run_id, kind, label)

    async def gather(
        self,
        runs: Iterable[Which | Awaitable[Handle[Any]]],
        *,
        at_least: int | Literal["all", "any"] = "all",
        timeout: float | None = None,
    ) -> list[Result[Any]]:
        """Wait for several runs; return one `Result` for each, in the same order.

        `at_least` is `"all"`, `"any"` or a number. After that, or after `timeout` seconds, the results of unfinished
        runs have the status `pending`: those runs continue and can be awaited again.

        >>> done = await fl.gather([fl.spawn("one"), fl.spawn("two"), fl.spawn("three")], at_least=2, timeout=60)
        >>> sum(result.done for result in done) >= 2
        True
        """
        at = deadline(self.engine, timeout)
        needed = wanted(at_least)
        handles = await self._handles(runs)
        keys = [handle.session_key for handle in handles]
        enough = len(keys) if needed is None else min(needed, len(keys))

        def met(tx: Tx) -> bool | None:
            return sum(views.is_settled(tx, key) for key in keys) >= enough or None

        await self._watch.until(met, keys, at)
        ended = await self.engine.store.read(lambda tx: [views.is_readable(tx.runs.load(key)) for key in keys])
        await asyncio.gather(*(consume(self.engine, key) for key, over in zip(keys, ended, strict=True) if over))
        return list(await asyncio.gather(*(handle.peek() for handle in handles)))

    async def _handles(self, runs: Iterable[Which | Awaitable[Handle[Any]]]) -> list[Handle[Any]]:
        async def held(one: Which | Awaitable[Handle[Any]]) -> Handle[Any]:
            if isinstance(one, Handle):
                return one
            if isinstance(one, str):
                return await self.run(one)
            found = await one if inspect.isawaitable(one) else one
            if not isinstance(found, Handle):
                raise BadInput("runs", "must be handles, run ids, or spawns", found)
            return found

        return list(await asyncio.gather(*(held(one) for one in runs)))

    async def runs(self, *, requester: str | None = None, status: str | None = None) -> list[RunInfo]:
        """List the runs of a requester, oldest first; by default those of this program.

        `status` filters: `active`, `done`, a phase such as `queued`, or an outcome such as `ok`. Archived runs are
        listed only with the status `archived`.

        >>> run = await fl.spawn("Say hello", label="greeting")
        >>> [run.label for run in await fl.runs()]
        ['greeting']
        """
        parent = self.program if requester is None else views.session_key(requester, "requester")
        return await self.engine.store.read(lambda tx: views.runs(tx, parent, status))

    async def tree(self, root: str | None = None) -> list[RunInfo]:
        """List the runs below a session, each with its children, oldest first; by default below all sessions.

        Archived runs are left out.

        >>> run = await fl.spawn("Say hello", label="greeting")
        >>> [run.label for run in await fl.tree()]
        ['greeting']
        """

        def view(tx: Tx) -> list[RunInfo]:
            roots = tx.sessions.roots() if root is None else [views.session_key(root, "root")]
            return views.forest(tx, roots, ALL).runs

        return await self.engine.store.read(view)

    def on_end(self, told: Told) -> None:
        """Call this function with a handle whenever any run in the folder ends; it may be async.

        A run that was killed and resumed ends twice.

        >>> ended = asyncio.Event()
        >>> fl.on_end(lambda run: ended.set())
        >>> run = await fl.spawn("Say hello")
        >>> await ended.wait()
        True
        """
        if not callable(told):
            raise BadInput("told", "must be a function that takes a handle", told)
        heard: dict[str, str] = {}
        """The run id with which each has ended."""

        async def tell(key: str) -> None:
            run = await self.engine.store.read(lambda tx: tx.runs.find(key))
            if run is None or run.ended is None or heard.get(key) == run.run_id:
                return
            heard[key] = run.run_id
            answer = told(await self.run(key))
            if inspect.isawaitable(answer):
                await answer

        def ended(key: str) -> None:
            if self._engine is not None:
                self._start(tell(key))

        self.engine.on_change(ended)


def wanted(at_least: int | str) -> int | None:
    """How many must be done; None: all."""
    match at_least:
        case "all":
            return None
        case "any":
            return 1
        case bool():
            raise BadInput("at_least", "must be a number, 'all' or 'any'", at_least)
        case int() if at_least >= 0:
            return at_least
        case _:
            raise BadInput("at_least", "must be a number, 'all' or 'any'", at_least)
