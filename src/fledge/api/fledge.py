"""`Fledge`: an open state folder, as a program uses it. It spawns runs and waits for them, talks to conversations,
lists everything, and answers questions and plans that wait for a person. The rules for all of this are in other files;
this one passes the calls on.

Closing waits until every driver has released its session; a caller that is still waiting then gets `Refused`.
"""

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeVar, Unpack, overload

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fledge.api import spawn_options, views
from fledge.api.agents import Agent
from fledge.api.carried import GivenFile, GivenImage, kept
from fledge.api.conversation import Conversation
from fledge.api.handle import Handle, consume
from fledge.api.identity import Identity, limits_of, section_digests
from fledge.api.spawn_options import SpawnCall, SpawnOptions
from fledge.api.values import Accepted, GivenUp, Plan, Question, Result, RunInfo, Waited
from fledge.cancellation import BackgroundTasks
from fledge.clock import Clock
from fledge.config import Config
from fledge.config.permissions import forget, keep, revoke, sound_rules
from fledge.core.access import tool_name
from fledge.core.images import ImageEntry
from fledge.core.keys import parse_key
from fledge.core.params import as_written
from fledge.core.permission import Permission, counts, permission
from fledge.core.route import Address, check_address, origin_of
from fledge.errors import BadInput, FledgeError, Refused, check_text
from fledge.ids import Ids
from fledge.models.base import LEVELS
from fledge.orchestrator import control, messages, spawn, steps, turns
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.engine import Changes, Engine, deadline
from fledge.orchestrator.messenger import Messenger
from fledge.orchestrator.spawn_params import NATIVE, Caller
from fledge.orchestrator.spawner import Spawner
from fledge.runtime.agent import AgentLoop
from fledge.runtime.feed import Subscription
from fledge.runtime.profiles import ConfiguredProfiles
from fledge.runtime.relay import Relay
from fledge.store.base import Spec, Store, Tx, Wishes

T = TypeVar("T")

log = logging.getLogger("fledge.api")


class Parts(Struct, frozen=True, kw_only=True):
    """The parts of a `Fledge`; `fledge.open` makes them."""

    state: Path
    config: Config
    profiles: ConfiguredProfiles
    agent: AgentLoop
    rules: Rules
    program: str
    """The program's own session key."""
    open_store: Callable[[], Store]
    agents: tuple[Agent[Any], ...] = ()
    """Agents that the program gave as values."""
    identity: Callable[[], Identity]
    """Makes the identity of this process, to be compared with that of another process that uses the folder."""
    drives: bool = True
    clock: Clock | None = None
    ids: Ids | None = None


ALL = 1_000_000
EndListener = Callable[[Handle[Any]], Awaitable[None] | None]
Which = Handle[Any] | str


def wanted(at_least: int | str) -> int | None:
    """How many runs must be done; None: all."""
    match at_least:
        case "all":
            return None
        case "any":
            return 1
        case int() if not isinstance(at_least, bool) and at_least >= 0:
            return at_least
        case _:
            raise BadInput("at_least", "must be a number, 'all' or 'any'", at_least)


def check_timeout_ms(timeout_ms: float) -> None:
    """Raise `BadInput` unless this is a time to wait, in milliseconds."""
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not timeout_ms >= 0:
        raise BadInput("timeout_ms", "must be milliseconds, 0 or more", timeout_ms)


MOST_WORDS: Final = 4000
"""The most characters of the reason that goes with a denial."""
NO_RULE: Final = (
    "always: no rule can be made of this call. A rule is for one simple command of `exec`, without operators, quotes,"
    " substitutions or redirections, of a program by its name; allow it once"
)

Approver = Callable[[Question], bool | Awaitable[bool | None] | None]


async def called(function: Callable[[T], Any], given: T) -> Any:
    """The result of a function of the program, which may be async."""
    answer = function(given)
    return await answer if inspect.isawaitable(answer) else answer


async def handles_on(fl: "Fledge", runs: Iterable[Which | Awaitable[Handle[Any]]]) -> list[Handle[Any]]:
    """The handles of these runs, each given as a handle, as a run id or session key, or as a spawn that is not awaited
    yet."""

    async def held(one: Which | Awaitable[Handle[Any]]) -> Handle[Any]:
        if isinstance(one, Handle):
            return one
        if isinstance(one, str):
            return await fl.run(one)
        found = await one if inspect.isawaitable(one) else one
        if not isinstance(found, Handle):
            raise BadInput("runs", "must be handles, run ids, or spawns", found)
        return found

    return list(await asyncio.gather(*map(held, runs)))


def talked_with(given: str, field: str, program: str) -> str:
    """The key of the named conversation. Raises BadInput for this program's own name."""
    key = views.session_key(given, field)
    if key == program:
        raise BadInput(field, "is this program's own name: no model answers there", given)
    return key


def open_program(c: Commit, key: str) -> None:
    """Open the session of a program. Raises BadInput if the key belongs to a conversation."""
    known = c.tx.sessions.get(key)
    if known is not None and known.kind != "program":
        raise BadInput("program", f"{key} is a conversation; choose another name for the program")
    spawn.open_program(c, key)


def _which(tx: Tx, which: Which) -> str:
    return which.session_key if isinstance(which, Handle) else views.named(tx, which)


class Fledge:
    """An open state folder. Made by `fledge.open`; use it in `async with`.

    >>> run = await fl.spawn("Say hello")
    >>> (await run).text
    'echo: Say hello'
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._opened_by = 0
        """The id of the process that opened the folder; a forked child is another process and must open it itself."""
        self._store: Store | None = None
        self._engine: Engine | None = None
        self._changes: Changes | None = None
        self._opened = AsyncExitStack()
        """Closes everything that was opened, the last first."""
        self._opened.push_async_callback(parts.profiles.close)
        self._background = BackgroundTasks(log, lambda: self._engine is not None)
        self._is_asked = False
        """True once `on_approval` was called: a function of this program answers the questions that wait for a
        person."""

    def __repr__(self) -> str:
        return f"<fledge {str(self.state)!r}: {self._standing()}>"

    def _standing(self) -> str:
        if self._store is None:
            return "not open yet"
        return "open" if self._engine is not None else "closed"

    async def __aenter__(self) -> Self:
        """Open the folder and, if this process drives it, continue the unfinished work in it."""
        parts = self._parts
        if self._store is not None:
            raise Refused("error", "this fledge is open already: call fledge.open again for another")
        self._store = parts.open_store()
        self._opened_by = os.getpid()
        cluster = self._store.cluster
        async with self._opened as opening:
            opening.push_async_callback(self._store.close)
            opening.push_async_callback(self._background.end)
            engine = Engine(
                self._store,
                parts.agent,
                clock=parts.clock,
                ids=parts.ids,
                rules=parts.rules,
                drives=parts.drives,
                settings={} if cluster is None else section_digests(self.identity),
                limits={} if cluster is None else limits_of(self.config),
            )
            self._changes = Changes(engine)
            await parts.profiles.use_store(self._store)
            if parts.drives or cluster is not None:  # it drives, or gets news of engines in other processes
                await opening.enter_async_context(engine)
            if cluster is not None:
                relay = Relay(parts.agent.feed, engine, cluster)
                relay.start()
                opening.push_async_callback(relay.stop)
            self._engine = engine
            opening.callback(self._refuse_callers)
            if parts.drives:
                await engine.commit(open_program, self.program)
                await self._program_came()
            self._opened = opening.pop_all()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop driving, wait until every driver has released its session, close the folder. Unfinished work continues
        when the folder is opened again."""
        await self._opened.aclose()

    def _refuse_callers(self) -> None:
        """Refuse calls from now on, and those that are still waiting."""
        self._engine = None
        if self._changes is not None:
            self._changes.close()

    async def _program_came(self) -> None:
        """Continue runs that wait for agents, functions or runtimes that this process has."""
        after: str | None = ""
        while after is not None:
            seen, brings = after, self._parts.profiles.brings
            after = await self.engine.commit(turns.program_came, brings, seen)

    def _check_thinks(self, agent_id: str) -> None:
        """Check the agent as `check` does, if this process drives; otherwise the process that does the work checks
        it."""
        if self.drives:
            self.check(agent_id)

    @property
    def _watch(self) -> Changes:
        self.engine  # noqa: B018  (refuses if closed)
        assert self._changes is not None
        return self._changes

    # ---- runs

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

        - `agent`: the agent that works on the task: a `fledge.Agent` that was given to `fledge.open`, or the name of an
          agent; by default `main`.
        - `output_type` (or `result_type`): the type of `Result.value`, a struct, dataclass, TypedDict, pydantic model
          or plain type. The answer must be JSON of that type.
        - `tools`: functions among them are given to this run alone. After a restart such a run waits until the program
          spawns it again with the same `idempotency_key`, or opens the folder with that function.

        Raises `Refused` if a limit forbids the run and `BadInput` for a wrong option; nothing was started then.

        >>> run = await fl.spawn("Say hello", label="greeting", timeout=60)
        >>> (await run).label
        'greeting'
        """
        asked = spawn_options.read_options(task, agent, output_type, result_type, options)
        self._check_agent(asked.agent)
        key, run_id, label = await self._spawn(asked)
        return self._handle(key, run_id, asked.output_type, label)

    async def _spawn(self, asked: SpawnCall) -> tuple[str, str, str]:
        """The session key, the run id and the label of the run."""
        if asked.functions:
            self._parts.profiles.tool_choice.bring(asked.functions)
        caller = Caller(
            session=self.program, is_program=True, brings=tuple(tool_name(one.name) for one in asked.functions)
        )
        try:
            request = self.spawner.read(asked.params, caller)
            if request.spec.runtime == NATIVE:
                self.check(request.spec.agent_id, request.spec)
            run = await self.spawner.admit(request)
        except FledgeError as error:
            raise as_written(error, asked.written) from None
        if asked.functions:
            await self._program_came()
        return run.key, run.run_id, request.spec.label

    def _check_agent(self, value: Agent[Any] | None) -> None:
        """Raises BadInput for an agent value that was not given to `open`, even if an agent of the same name was."""
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
        (handle,) = await handles_on(self, [which])
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
        kind = spawn_options.one_type(output_type, result_type)
        key, label = await self._found(run_id)
        return self._handle(key, run_id, kind, label)

    async def _found(self, run_id: str) -> tuple[str, str]:
        """The session key and the label of a run."""

        def look(tx: Tx) -> tuple[str, str]:
            key = views.named(tx, run_id)
            return key, tx.runs.spec(key).label

        return await self.engine.store.read(look)

    @overload
    async def gather(
        self,
        runs: Iterable[Handle[T] | Awaitable[Handle[T]]],
        *,
        at_least: int | Literal["all", "any"] = ...,
        timeout: float | None = ...,
    ) -> list[Result[T]]: ...

    @overload
    async def gather(
        self,
        runs: Iterable[Which | Awaitable[Handle[Any]]],
        *,
        at_least: int | Literal["all", "any"] = ...,
        timeout: float | None = ...,
    ) -> list[Result[Any]]: ...

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
        at = self._deadline(timeout)
        needed = wanted(at_least)
        handles = await handles_on(self, runs)
        return await self._gathered(handles, len(handles) if needed is None else min(needed, len(handles)), at)

    def _deadline(self, timeout: float | None) -> float | None:
        """When a wait of `timeout` seconds ends, by the clock that `_gathered` uses; None waits for ever."""
        return deadline(self.engine, timeout)

    async def _gathered(self, handles: Sequence[Handle[Any]], enough: int, at: float | None) -> list[Result[Any]]:
        """The results, as soon as `enough` runs have settled, or at the time `at`."""
        keys = [handle.session_key for handle in handles]

        def met(tx: Tx) -> bool | None:
            return sum(views.is_settled(tx, key) for key in keys) >= enough or None

        await self._watch.until(met, keys, at)
        ended = await self.engine.store.read(lambda tx: [views.is_readable(tx.runs.load(key)) for key in keys])
        await asyncio.gather(*(consume(self.engine, key) for key, over in zip(keys, ended, strict=True) if over))
        return list(await asyncio.gather(*(handle.peek() for handle in handles)))

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

    def on_end(self, told: EndListener) -> None:
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
        """By session key: the run id with which the run had ended when it was last reported."""

        async def tell(key: str) -> None:
            run = await self.engine.store.read(lambda tx: tx.runs.find(key))
            if run is None or run.ended is None or heard.get(key) == run.run_id:
                return
            heard[key] = run.run_id
            await called(told, await self.run(run.run_id))

        def ended(key: str) -> None:
            if self._engine is not None:
                self._background.start(tell(key))

        self.engine.on_change(ended)

    # ---- conversations

    def session(self, key: str = "main", *, address: Address | None = None) -> Conversation:
        """Return a conversation with a model that can spawn subagents. It is created by its first message.

        `key` is `main`, another name, or a whole session key. `address` names a channel and a person: answers are sent
        there as well as returned. Without it they are sent to the address of the last message that had one, if any.

        >>> (await fl.session("main").send("Hello")).text
        'echo: Hello'
        """
        return self._conversation(talked_with(key, "key", self.program), address)

    def _conversation(self, key: str, address: Address | None) -> Conversation:
        parts = self._parts
        return Conversation(
            self.engine,
            self._watch,
            parts.agent.feed,
            key,
            parts.profiles,
            self._check_thinks,
            is_asked=lambda: self._is_asked,
            origin="" if address is None else origin_of(check_address(address)),
        )

    async def agent(
        self,
        message: str,
        *,
        session_key: str = "main",
        deliver: bool = True,
        lane: str = "",
        extra_system_prompt: str = "",
        model: str = "",
        thinking: str = "",
        timeout_seconds: float = 0,
        idempotency_key: str = "",
        images: Sequence[GivenImage] = (),
        attachments: Sequence[GivenFile] = (),
        address: Address | None = None,
        compact: bool = False,
    ) -> Accepted:
        """Send a message to a session, with options for the turn that answers it; return a run id at once.

        - `model`, `thinking`, `extra_system_prompt`: for this turn only.
        - `timeout_seconds`: stop the turn after this time.
        - `compact`: the model first summarises the conversation and continues from its summary.
        - `deliver`: with `False` the reply is sent to no channel.
        - `idempotency_key`: the same key returns the same run id, also after a restart.
        - `images` and `attachments` as in `Conversation.send`, `address` as in `Fledge.session`.

        >>> accepted = await fl.agent("Hello", session_key="main", idempotency_key="greeting")
        >>> accepted.status
        'accepted'
        >>> (await fl.agent_wait(accepted.run_id)).status
        'ok'
        """
        given = {"message": message, "extra_system_prompt": extra_system_prompt, "idempotency_key": idempotency_key}
        for field, words in given.items():
            check_text(field, words)
        session = self._conversation(talked_with(session_key, "session_key", self.program), address)
        wishes = Wishes(model, thinking, extra_system_prompt, lane, timeout_seconds, deliver, compact)
        self._check_wishes(wishes, session.key)
        return await session._accept(message, images, attachments, wishes, idempotency_key)

    def _check_wishes(self, wishes: Wishes, session: str) -> None:
        lanes = tuple(self._parts.rules.widths)
        if wishes.thinking and wishes.thinking not in LEVELS:
            raise BadInput("thinking", f"must be one of {', '.join(LEVELS)}", wishes.thinking)
        if wishes.model:
            self._parts.profiles.check_model(wishes.model, wishes.thinking or None)
        if wishes.lane and wishes.lane not in lanes:
            raise BadInput("lane", f"must be one of {', '.join(lanes)}", wishes.lane)
        timeout_s = wishes.timeout_s
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 <= timeout_s < 1e9:
            raise BadInput("timeout_seconds", "must be seconds, 0 for no limit", timeout_s)
        for field, given in (("deliver", wishes.deliver), ("compact", wishes.compact)):
            if not isinstance(given, bool):
                raise BadInput(field, "must be True or False", given)
        if not wishes.model:
            self._check_thinks(parse_key(session).agent_id)

    async def agent_wait(self, run_id: str, timeout_ms: float = 30_000) -> Waited:
        """Wait for the turn that `agent` started, or for any run: how it ended, or `pending` after `timeout_ms`.

        The id of an earlier attempt of a run leads to its current attempt, whose id is returned.

        >>> run = await fl.spawn("Say hello")
        >>> (await fl.agent_wait(run.run_id, timeout_ms=60_000)).status
        'ok'
        """
        check_timeout_ms(timeout_ms)
        at = deadline(self.engine, timeout_ms / 1000)

        def stands(tx: Tx) -> messages.RequestStanding:
            return messages.request_standing(tx, run_id)

        session = (await self.engine.store.read(stands)).session
        await self._watch.until(lambda tx: stands(tx).status != "pending" or None, [session], at)
        return msgspec.convert(await self.engine.store.read(stands), Waited, from_attributes=True)

    def listen(self, size: int = 1000, poke: Callable[[], None] | None = None, *, session: str = "") -> Subscription:
        """Subscribe to the events inside the turns of every session: text, tools, retries. Close the subscription when
        done. The first events are the text so far of replies that are being written, each as one piece.

        At most `size` events wait for a slow listener; older ones are dropped. `poke`, if given, is called at each
        event and must not block. Subscribe before the folder is opened to miss no event of work that continues then. If
        the store is on a server, events of turns that other processes drive come only for the session whose key is
        given as `session`, and for the sessions below it.

        >>> heard = fl.listen()
        >>> reply = await fl.session("main").send("Hello")
        >>> heard.close()
        >>> [event.kind async for event in heard]
        ['start', 'model:start', 'assistant:text', 'usage', 'end']
        """
        named = views.session_key(session, "session") if session else ""
        return self._parts.agent.feed.listen(size, poke, named, so_far="")

    # ---- what waits for a person

    async def approvals(self, *, decided: bool = False) -> list[Question]:
        """List the tool calls that wait for a person, oldest first.

        With `decided`, list the newest of those that no longer wait, newest first, with the person or the rule that
        answered each.

        >>> await fl.approvals()
        []
        """
        return await self.engine.store.read(views.decided_questions if decided else views.questions)

    def on_approval(self, answer: Approver) -> None:
        """Let this function answer the tool calls that wait for a person; it may be async.

        It gets a `Question` and returns True to allow the call, False to deny it, or None to leave it to someone else.
        `Conversation.send` then waits for the answer instead of returning a `pending` reply.

        >>> fl.on_approval(lambda question: question.tool == "exec" and "rm " not in question.arguments)
        """
        if not callable(answer):
            raise BadInput("answer", "must be a function that takes a question", answer)
        self._is_asked = True
        self._background.start(self._ask(answer))

    async def _ask(self, answer: Approver) -> None:
        asked: set[str] = set()
        while True:
            for question in await self._not_asked(asked) or ():
                asked.add(question.id)
                self._background.start(self._ask_about(question, answer))

    async def _not_asked(self, asked: Collection[str]) -> list[Question] | None:
        """The open questions that are not in `asked`, as soon as there are any."""

        def new(tx: Tx) -> list[Question] | None:
            return [views.question(tx, one) for one in tx.approvals.open() if one.id not in asked] or None

        return await self._watch.until(new, None)

    async def _ask_about(self, question: Question, answer: Approver) -> None:
        said = await called(answer, question)
        if isinstance(said, bool):
            act = self.approve if said else self.deny
            await act(question.id, digest=question.digest)

    async def approve(
        self,
        question_id: str,
        *,
        by: str = "program",
        digest: str | None = None,
        always: bool = False,
        children: bool = False,
    ) -> Permission | None:
        """Allow a tool call that waits for a person. Raises `Refused` if it was already answered.

        With `digest`, allow it only if it is still the call that was shown. With `always`, the commands in
        `question.always` no longer ask: for this agent, in this folder, and for subagents if `children` is set or a
        subagent asked. Returns the stored rule; raises `Refused` if no rule can be made of this call.

        >>> for question in await fl.approvals():
        ...     rule = await fl.approve(question.id, by="me", digest=question.digest, always=bool(question.always))
        """
        if not always:
            if children:
                raise BadInput("children", "needs always: it says whether the new rule covers subagents", children)
            await self.engine.commit(steps.answer, question_id, True, by, digest)
            return None
        now, user = self.engine.clock.now(), self._parts.profiles.user
        asked = await self.engine.store.read(lambda tx: steps.open_question(tx, question_id, now, digest))
        if asked.offer is None or not counts(asked.offer, self._parts.config.tools.exec.any_paths):
            raise Refused("forbidden", NO_RULE)
        rule = permission(replace(asked.offer, children=asked.offer.children or children), now, by)
        is_new = keep(user, rule)
        try:
            await self.engine.commit(steps.answer, question_id, True, by, asked.digest, rule=rule.id)
        except BaseException:
            if is_new:
                forget(user, rule)
            raise
        return rule

    async def deny(self, question_id: str, *, by: str = "program", digest: str | None = None, words: str = "") -> None:
        """Deny a tool call that waits for a person. The model reads `words` as the person's reason.

        >>> for question in await fl.approvals():
        ...     await fl.deny(question.id, words="use the test database")
        """
        if not isinstance(words, str) or len(words) > MOST_WORDS:
            raise BadInput("words", f"must be a text of at most {MOST_WORDS} characters", words)
        check_text("words", words)
        said = words.strip()
        await self.engine.commit(steps.answer, question_id, False, by, digest, words=said)

    async def permissions(self) -> list[Permission]:
        """List the rules by which commands run without asking, of all folders and agents, oldest first.

        Raises `BadInput`, which names the file, if a rule file cannot be read; such a rule is not applied. Neither is
        one whose `counts` is False: an earlier fledge made it, and covered more by it than fledge does today.

        >>> await fl.permissions()
        []
        """
        return list(sound_rules(self._parts.profiles.user, self._parts.config.tools.exec.any_paths))

    async def revoke_permission(self, rule_id: str) -> Permission:
        """Remove a rule, given its id or the beginning of its id; its commands ask again from then on. Raises
        `NotFound`.

        >>> for rule in await fl.permissions():
        ...     await fl.revoke_permission(rule.id)
        """
        if not isinstance(rule_id, str) or not rule_id.strip():
            raise BadInput("rule_id", "must be the id of a rule, or its beginning", rule_id)
        return revoke(self._parts.profiles.user, rule_id.strip(), self._parts.config.tools.exec.any_paths)

    async def plans(self) -> list[Plan]:
        """List the plans that wait for approval, oldest first.

        >>> run = await fl.spawn("Say hello", label="greeting", plan_mode=True)
        >>> plan = await run.plan()
        >>> [plan.label for plan in await fl.plans()]
        ['greeting']
        """
        return await self.engine.store.read(views.plans)

    async def approve_plan(self, which: Which, words: str = "APPROVED: proceed") -> str:
        """Approve a run's plan, so that it is carried out; return the run id of the new attempt.

        Raises `Refused` if no plan waits.

        >>> run = await fl.spawn("Say hello", plan_mode=True)
        >>> plan = await run.plan()
        >>> run_id = await fl.approve_plan(run)
        >>> (await run).status
        'ok'
        """
        check_text("words", words)
        return await self._answer_plan(which, True, words)

    async def reject_plan(self, which: Which, reason: str) -> str:
        """Reject a run's plan with a reason, so that it plans again; return the run id of the new attempt.

        >>> run = await fl.spawn("Say hello", plan_mode=True)
        >>> plan = await run.plan()
        >>> run_id = await fl.reject_plan(run, "too short")
        """
        if not isinstance(reason, str) or not reason.strip():
            raise BadInput("reason", "must say why the plan is rejected", reason)
        check_text("reason", reason)
        return await self._answer_plan(which, False, reason)

    async def _answer_plan(self, which: Which, approve: bool, words: str) -> str:
        def answer(c: Commit) -> str:
            return control.answer_plan(c, _which(c.tx, which), approve, words).run_id

        return await self.engine.commit(answer)

    # ---- undelivered

    async def undelivered(self) -> list[GivenUp]:
        """List undelivered results and messages, oldest first. Each can be retried or dismissed.

        >>> await fl.undelivered()
        []
        """
        return await self.engine.store.read(views.undelivered)

    async def retry(self, which: Which) -> None:
        """Deliver an undelivered result or message again. Raises `Refused` if it is not undelivered.

        >>> for given_up in await fl.undelivered():
        ...     await fl.retry(given_up.key)
        """
        await self._take_up("retry", which)

    async def dismiss(self, which: Which) -> None:
        """Remove an undelivered result or message from the list.

        >>> for given_up in await fl.undelivered():
        ...     await fl.dismiss(given_up.key)
        """
        await self._take_up("dismiss", which)

    async def _take_up(self, action: Literal["retry", "dismiss"], which: Which) -> None:
        def take_up(c: Commit) -> None:
            key = which if isinstance(which, str) and c.tx.outbox.get(which) is not None else _which(c.tx, which)
            control.take_up(c, action, key)

        await self.engine.commit(take_up)

    # ---- the open folder: its parts, and what all of the above need

    @property
    def state(self) -> Path:
        """The state folder."""
        return self._parts.state

    @property
    def config(self) -> Config:
        """The settings in effect."""
        return self._parts.config

    @property
    def program(self) -> str:
        """The session key of this program: the requester of the runs it spawns."""
        return self._parts.program

    @property
    def drives(self) -> bool:
        """True if unfinished runs continue in this process."""
        return self._parts.drives

    @property
    def identity(self) -> Identity:
        """The tools, agents, runtimes, hooks and settings of this process. Processes that share a folder compare them.

        >>> fl.identity.program
        'agent:main:program'
        """
        return self._parts.identity()

    @property
    def is_holder(self) -> bool:
        """True if this process holds the folder, so that functions run here; False if another process holds it.

        >>> fl.is_holder
        True
        """
        return self._engine is not None

    def check(self, agent_id: str = "main", spec: Spec | None = None) -> None:
        """Raise `BadInput` if this agent could not work: no model is set, or the model's name is wrong or its key is
        missing.

        Raises `Refused` if the agent's workspace contains the home folder and no person has confirmed that. With
        `spec`, check a task that may name its own model.

        >>> fl.check()
        """
        self._parts.profiles.check(agent_id, spec)

    def check_model(self, name: str, thinking: str | None = None) -> None:
        """Raise `BadInput` for an unknown model name, a missing key, or a thinking level the model does not have.

        >>> fl.check_model("scripted/echo")
        """
        self._parts.profiles.check_model(name, thinking)

    def keeping_images(self, images: Sequence[GivenImage]) -> AbstractAsyncContextManager[tuple[ImageEntry, ...]]:
        """Store images and keep their files until the block ends, so that a commit can refer to them.

        >>> async with fl.keeping_images([]) as entries:
        ...     print(entries)
        ()
        """
        return kept(self._parts.profiles.images, images)

    async def until(self, look: Callable[[Tx], T | None], *, timeout: float | None = None) -> T | None:
        """Call `look` with a transaction, at once and whenever any session changes, until it returns a value other than
        None; return that value.

        Returns None after `timeout` seconds. For queries that have no method here.

        >>> run = await fl.spawn("Say hello")
        >>> await fl.until(lambda tx: len(tx.runs.children(fl.program)) or None)
        1
        """
        return await self._watch.until(look, None, deadline(self.engine, timeout))

    @property
    def profiles(self) -> ConfiguredProfiles:
        """The model, prompt and tools of each agent, as configured."""
        return self._parts.profiles

    def watch(self, moved: asyncio.Event) -> None:
        """Set this event whenever any session changes, until `unwatch`. For programs that read rows themselves.

        >>> moved = asyncio.Event()
        >>> fl.watch(moved)
        >>> run = await fl.spawn("Say hello")
        >>> await moved.wait()
        True
        >>> fl.unwatch(moved)
        """
        self._watch.watch(moved)

    def unwatch(self, moved: asyncio.Event) -> None:
        """Stop setting this event. Does nothing if it was not given to `watch`.

        >>> fl.unwatch(asyncio.Event())
        """
        if self._changes is not None:
            self._changes.unwatch(moved)

    @property
    def engine(self) -> Engine:
        """The engine, for operations that have no method here. Raises `Refused` if the folder is not open in this
        process."""
        if self._engine is None:
            raise Refused("error", "this fledge is not open: use `async with fledge.open(…) as fl:`")
        if self._opened_by != os.getpid():
            raise Refused("error", f"process {self._opened_by} has this fledge open: call fledge.open in this one")
        return self._engine

    @property
    def spawner(self) -> Spawner:
        """Spawns runs on behalf of any session, as the tool `sessions_spawn` does. Raises `Refused` if not open.

        >>> type(fl.spawner).__name__
        'Spawner'
        """
        return self._parts.profiles.spawner(self.engine)

    @property
    def messenger(self) -> Messenger:
        """Sends messages from session to session and waits for answers. Raises `Refused` if not open.

        >>> type(fl.messenger).__name__
        'Messenger'
        """
        return Messenger(self.engine, self.config, self._watch)
