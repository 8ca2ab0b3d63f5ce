"""`Fledge`: an open state folder, as a program uses it. Spawn runs and wait for them, talk to conversations, look at
everything, answer what waits for a person. What each of these does is decided elsewhere; this is the way to it.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, overload

from msgspec import Struct

from fledge.api import spawning, views
from fledge.api.changes import Changes
from fledge.api.conversation import Conversation
from fledge.api.handle import Handle, consume, deadline
from fledge.api.spawning import SpawnOptions
from fledge.api.values import GivenUp, Plan, Question, Result, RunInfo
from fledge.clock import Clock
from fledge.config import Config
from fledge.core.keys import parse_key
from fledge.core.policy import Budget
from fledge.core.run import Run
from fledge.errors import BadInput, Refused
from fledge.ids import Ids
from fledge.orchestrator import budget as purses
from fledge.orchestrator import control, spawn, steps
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.engine import Engine
from fledge.runtime.agent import Agent
from fledge.runtime.feed import Subscription
from fledge.runtime.profiles import ConfiguredProfiles
from fledge.store.base import Store, Tx

T = TypeVar("T")
Ended = Callable[[Handle[Any]], Awaitable[None] | None]
Which = Handle[Any] | str

log = logging.getLogger("fledge.api")


class Parts(Struct, frozen=True, kw_only=True):
    """What a `Fledge` is made of; `fledge.open` puts it together."""

    state: Path
    config: Config
    profiles: ConfiguredProfiles
    agent: Agent
    rules: Rules
    program: str
    """The program's own session key."""
    open_store: Callable[[], Store]
    clock: Clock | None = None
    ids: Ids | None = None


class Fledge:
    """An open state folder. Made by `fledge.open`; use it in `async with`.

    >>> run = await fl.spawn("Say hello")
    >>> (await run).text
    'echo: Say hello'
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.state = parts.state
        self.config = parts.config
        self.program = parts.program
        """The session key under which this program is told of what it spawned."""
        self._store: Store | None = None
        self._engine: Engine | None = None
        self._changes: Changes | None = None
        self._on_end: list[Ended] = []
        self._ends: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()

    async def __aenter__(self) -> "Fledge":
        """Own the folder, and take up what is unfinished in it."""
        parts = self._parts
        if self._store is not None:
            raise Refused("error", "this fledge is open already: call fledge.open again for another")
        self._store = parts.open_store()
        try:
            engine = Engine(self._store, parts.agent, clock=parts.clock, ids=parts.ids, rules=parts.rules)
            self._changes = Changes(engine)
            engine.on_change(self._ended)
            self._engine = await engine.__aenter__()
            await engine.commit(self._open_program)
        except BaseException:
            await self._let_go()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop driving, wait until every driver has let go, close the folder. What is unfinished goes on later."""
        await self._let_go()

    async def _let_go(self) -> None:
        if self._changes is not None:
            self._changes.close()
        try:
            if self._engine is not None:
                engine, self._engine = self._engine, None
                await engine.__aexit__(None, None, None)
            for task in self._ends:
                task.cancel()
            await asyncio.gather(*self._ends, return_exceptions=True)
        finally:
            if self._store is not None:
                await self._store.close()
            await self._parts.profiles.close()

    def _open_program(self, c: Commit) -> None:
        known = c.tx.session(self.program)
        if known is not None and known.kind != "program":
            raise BadInput("program", f"{self.program} is a conversation; choose another name for the program")
        spawn.open_program(c, self.program)

    @property
    def engine(self) -> Engine:
        """The engine underneath, for what has no method here. `Refused` unless open."""
        if self._engine is None:
            raise Refused("error", "this fledge is not open: use `async with fledge.open(…) as fl:`")
        return self._engine

    @property
    def _watch(self) -> Changes:
        self.engine  # noqa: B018  (refuses if closed)
        assert self._changes is not None
        return self._changes

    # ---- runs

    @overload
    async def spawn(self, task: str, *, result_type: type[T], **options: Unpack[SpawnOptions]) -> Handle[T]: ...

    @overload
    async def spawn(self, task: str, **options: Unpack[SpawnOptions]) -> Handle[Any]: ...

    async def spawn(
        self, task: str, *, result_type: type[Any] | None = None, **options: Unpack[SpawnOptions]
    ) -> Handle[Any]:
        """Start a run whose answer this program gets; returns at once, with a handle.

        The run is durable from here on: it goes on after a crash, and `fl.run(id)` finds it. `Refused` if a limit
        forbids it, `BadInput` for a field that makes no sense; then nothing was started.

        >>> run = await fl.spawn("Say hello", label="greeting", timeout=60)
        >>> (await run).label
        'greeting'
        """
        request = spawning.request(self.config, self.program, task, options)
        self._parts.profiles.check(request.spec.agent_id, request.spec)
        run = await self.engine.commit(lambda c: _spawn(c, request, options.get("budget")))
        return Handle(self.engine, self._watch, run.key, run.run_id, result_type)

    async def run(self, run_id: str, *, result_type: type[Any] | None = None) -> Handle[Any]:
        """A handle on a run that exists: by any run id it ever had, or its session key. `NotFound` if there is none.

        >>> first = await fl.spawn("Say hello")
        >>> (await (await fl.run(first.run_id))).text
        'echo: Say hello'
        """
        if not isinstance(run_id, str):
            raise BadInput("run_id", "must be a run id or a session key", run_id)
        key = await self.engine.store.read(lambda tx: views.named(tx, run_id))
        return Handle(self.engine, self._watch, key, run_id, result_type)

    async def gather(
        self,
        runs: Iterable[Which | Awaitable[Handle[Any]]],
        *,
        at_least: int | Literal["all", "any"] = "all",
        timeout: float | None = None,
    ) -> list[Result[Any]]:
        """Wait for several: for all, any, or at least so many; answers a result for each, in order.

        Those that are not done by then are `pending`, not exceptions; they go on, and can be waited for again.

        >>> done = await fl.gather([fl.spawn("one"), fl.spawn("two"), fl.spawn("three")], at_least=2, timeout=60)
        >>> sum(result.done for result in done) >= 2
        True
        """
        at = deadline(self.engine, timeout)
        wanted = _wanted(at_least)
        handles = await self._handles(runs)
        keys = [handle.session_key for handle in handles]
        enough = len(keys) if wanted is None else min(wanted, len(keys))

        def met(tx: Tx) -> bool | None:
            return sum(views.is_settled(tx, key) for key in keys) >= enough or None

        await self._watch.until(met, keys, at)
        ended = await self.engine.store.read(lambda tx: [views.is_readable(tx.load_run(key)) for key in keys])
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
        """The runs of a requester (this program, if none is named), oldest first; those of one status if one is named.

        A status is `active`, `done`, a phase, or an outcome's word.

        >>> run = await fl.spawn("Say hello", label="greeting")
        >>> [run.label for run in await fl.runs()]
        ['greeting']
        """
        parent = self.program if requester is None else _key(requester, "requester")
        found = await self.engine.store.read(lambda tx: [views.run_info(tx, key) for key in tx.children(parent)])
        return [run for run in found if status is None or status in _words(run)]

    async def tree(self, root: str | None = None) -> list[RunInfo]:
        """Everything below a session (if none is named: this program and the main conversation), with its children.

        >>> run = await fl.spawn("Say hello", label="greeting")
        >>> [run.label for run in await fl.tree()]
        ['greeting']
        """
        roots = [self.program, "agent:main:main"] if root is None else [_key(root, "root")]

        def view(tx: Tx) -> list[RunInfo]:
            return [views.run_info(tx, key, deep=True) for session in roots for key in tx.children(session)]

        return await self.engine.store.read(view)

    def on_end(self, told: Ended) -> None:
        """Call this with a handle for each run that ends from now on, anybody's; awaited if it is async.

        >>> ended = asyncio.Event()
        >>> fl.on_end(lambda run: ended.set())
        >>> run = await fl.spawn("Say hello")
        >>> await ended.wait()
        True
        """
        if not callable(told):
            raise BadInput("told", "must be a function that takes a handle", told)
        self._on_end.append(told)

    def _ended(self, key: str) -> None:
        if not self._on_end or key in self._told or self._engine is None:
            return
        self._told.add(key)
        task = asyncio.ensure_future(self._tell_end(key))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _tell_end(self, key: str) -> None:
        handle = await self.run(key)
        for told in self._on_end:
            try:
                answer = told(handle)
                if inspect.isawaitable(answer):
                    await answer
            except Exception:
                log.exception("on_end of %s failed", key)

    # ---- conversations

    def session(self, key: str = "main") -> Conversation:
        """A conversation with a model that can spawn: `main`, a name, or a whole key. It begins with the first message.

        >>> (await fl.session("main").send("Hello")).text
        'echo: Hello'
        """
        name = _key(key, "key")
        if name == self.program:
            raise BadInput("key", "is this program's own name: no model answers there", key)
        return Conversation(self.engine, self._watch, self._parts.agent.feed, parse_key(name), self._parts.profiles)

    def listen(self, size: int = 1000) -> Subscription:
        """Hear what happens inside turns from now on: words, tools, retries, of every session. Close it when done.

        >>> heard = fl.listen()
        >>> reply = await fl.session("main").send("Hello")
        >>> heard.close()
        >>> [event.kind async for event in heard]
        ['start', 'assistant:text', 'usage', 'end']
        """
        self.engine  # noqa: B018  (refuses if closed)
        return self._parts.agent.feed.listen(size)

    # ---- what waits for a person

    async def approvals(self) -> list[Question]:
        """Tool calls that wait for a person, oldest first.

        >>> await fl.approvals()
        []
        """
        return await self.engine.store.read(lambda tx: [views.question(one) for one in tx.open_approvals()])

    async def approve(self, question_id: str, *, by: str = "program", digest: str | None = None) -> None:
        """Let the call be run. With `digest`, only if it is still the call that was shown. `Refused` if it is decided.

        >>> for question in await fl.approvals():
        ...     await fl.approve(question.id, by="me", digest=question.digest)
        """
        await self.engine.commit(lambda c: steps.answer(c, question_id, True, by, digest))

    async def deny(self, question_id: str, *, by: str = "program", digest: str | None = None) -> None:
        """The call is not run; the model is told so.

        >>> for question in await fl.approvals():
        ...     await fl.deny(question.id)
        """
        await self.engine.commit(lambda c: steps.answer(c, question_id, False, by, digest))

    async def plans(self) -> list[Plan]:
        """Plans of this program's runs, and of the main conversation's, that await an answer.

        >>> run = await fl.spawn("Say hello", label="greeting", plan_mode=True)
        >>> plan = await run.plan()
        >>> [plan.label for plan in await fl.plans()]
        ['greeting']
        """
        waiting = [run for run in _flat(await self.tree()) if run.phase == "awaiting_approval"]
        found = await self.engine.store.read(lambda tx: [views.plan(tx, run.session_key) for run in waiting])
        return [plan for plan in found if plan is not None]

    async def approve_plan(self, which: Which, words: str = "APPROVED: proceed") -> str:
        """Let the plan be carried out; answers the new attempt's run id. `Refused` if no plan awaits an answer.

        >>> run = await fl.spawn("Say hello", plan_mode=True)
        >>> plan = await run.plan()
        >>> run_id = await fl.approve_plan(run)
        >>> (await run).status
        'ok'
        """
        return await self._answer_plan(which, True, words)

    async def reject_plan(self, which: Which, reason: str) -> str:
        """Let it plan again, with the reason; answers the new attempt's run id.

        >>> run = await fl.spawn("Say hello", plan_mode=True)
        >>> plan = await run.plan()
        >>> run_id = await fl.reject_plan(run, "too short")
        """
        if not isinstance(reason, str) or not reason.strip():
            raise BadInput("reason", "must say why the plan is rejected", reason)
        return await self._answer_plan(which, False, reason)

    async def _answer_plan(self, which: Which, approve: bool, words: str) -> str:
        def answer(c: Commit) -> str:
            return control.answer_plan(c, _which(c.tx, which), approve, words).run_id

        return await self.engine.commit(answer)

    # ---- what found nobody

    async def undelivered(self) -> list[GivenUp]:
        """Results that were given up on, oldest first: each can be retried, dismissed, or read by its run id.

        >>> await fl.undelivered()
        []
        """
        return await self.engine.store.read(lambda tx: [views.given_up(tx, row) for row in tx.undelivered()])

    async def retry(self, which: Which) -> None:
        """Announce a given-up result again. `Refused` if nothing of the run is undelivered.

        >>> for given_up in await fl.undelivered():
        ...     await fl.retry(given_up.session_key)
        """
        await self.engine.commit(lambda c: control.retry(c, _which(c.tx, which)))

    async def dismiss(self, which: Which) -> None:
        """Take a given-up result off the list.

        >>> for given_up in await fl.undelivered():
        ...     await fl.dismiss(given_up.session_key)
        """
        await self.engine.commit(lambda c: control.dismiss(c, _which(c.tx, which)))


def _spawn(c: Commit, request: spawn.Request, ceiling: Budget | None) -> Run:
    known = c.tx.spawned_by(request.terms.parent, request.key) if request.key else None
    run = spawn.spawn(c, request)
    if known is None and ceiling is not None:
        purses.give(c, run.key, ceiling)
    return run


def _wanted(at_least: int | str) -> int | None:
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


def _key(name: str, field: str) -> str:
    """A whole session key for `main`, a plain name of the main agent, or a key."""
    if not isinstance(name, str) or not name.strip():
        raise BadInput(field, "must be a session's name or key", name)
    word = name.strip()
    return str(parse_key(word if word.lower() == "main" or word.lower().startswith("agent:") else f"agent:main:{word}"))


def _which(tx: Tx, which: Which) -> str:
    return which.session_key if isinstance(which, Handle) else views.named(tx, which)


def _words(run: RunInfo) -> tuple[str, ...]:
    return (run.status, run.phase, "active" if run.ended_at is None else "done")


def _flat(runs: Iterable[RunInfo]) -> list[RunInfo]:
    return [one for run in runs for one in (run, *_flat(run.children))]
