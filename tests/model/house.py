"""The real engine and the real agent, with every model, tool and channel waiting for a word from outside.

Whoever holds the house decides what each of them says, and when; what people do; when time passes, and when the process
dies. Between two moves everything stands still. What is wrong is found by the simulation's own witness (`tests.sim`):
at every commit, whenever the house is quiet, and when everything has come to rest.
"""

import asyncio
import logging
import shutil
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, Literal, TypeVar

from fledge.core.run import Run
from fledge.errors import FledgeError, Refused
from fledge.models.base import Broke, Call, Model, ModelEvent, ReplyEnded, Request, Text, Usage
from fledge.models.scripted import ScriptedReply
from fledge.orchestrator import control, steps
from fledge.orchestrator.engine import Engine
from fledge.store.base import Tx
from fledge.testing import START, VirtualClock, virtual_runner
from fledge.tools.base import Tool, ToolContext, tool
from tests.empty import empty_store
from tests.sim import verdict
from tests.sim.cast import Cast
from tests.sim.mind import Who
from tests.sim.people import Deciding, opening, walk
from tests.sim.process import Process
from tests.sim.schedule import Schedule
from tests.sim.watch import Spy
from tests.sim.witness import Ears, Witness

T = TypeVar("T")

Kind = Literal["model", "tool", "thread"]
Word = ScriptedReply | Broke | Exception | None
"""What a model says; that a tool or a channel fails, or, without one, that it works."""

QUIET_S = 0.05
"""When no commit was begun for so long, nothing will happen by itself at this moment."""
DEAF_S = 3.0
"""How long a model that will not be hurried goes on after it was cancelled."""
REST_S = 3 * 86_400.0
"""Nothing may take longer than this to come to rest."""
AFTERWARDS_S = 2 * 3600.0
"""The sweeper's time: what held at rest must hold after it, too."""


class Held:
    """Something that waits for a word."""

    def __init__(self, kind: Kind, label: str, what: str) -> None:
        self.kind, self.label, self.what = kind, label, what
        self.word: asyncio.Future[Word] = asyncio.get_running_loop().create_future()


class House:
    """The system under test, process after process. A move ends when the house is quiet, or after a pause if one is
    given, so that the next comes in between; it raises AssertionError if anything is wrong by then."""

    def __init__(self, plan: Schedule, spy: type[Spy] = Spy, tell: Callable[[str], None] | None = None) -> None:
        self.plan, self.witness, self._spy = plan, Witness(plan, tell), spy
        self.held: list[Held] = []
        self._folder, self._runner = empty_store("fledge-house-"), virtual_runner()
        self._acting: set[asyncio.Task[None]] = set()
        self._ears, self._log = Ears(self.witness), logging.getLogger("fledge")
        self._log.addHandler(self._ears)
        self._log.propagate = False
        self._run(self._open())

    def close(self) -> None:
        """Nothing is left of it."""
        self._runner.run(self._process.bury())
        self._runner.close()
        self._log.removeHandler(self._ears)
        self._log.propagate = True
        shutil.rmtree(self._folder)

    # ---- moves

    def waiting(self, *kinds: Kind) -> list[Held]:
        """Who waits for a word, the longest first."""
        return [held for held in self.held if held.kind in kinds and not held.word.done()]

    def give(self, held: Held, word: Word, pause_s: float | None = None) -> None:
        """The word that somebody waits for."""
        held.word.set_result(word)
        self._run(self._pause(pause_s))

    def commit(self, decide: Deciding, pause_s: float | None = None) -> None:
        """A person acts. A refusal is an answer like any other."""

        async def move() -> None:
            self._act(decide)
            await self._pause(pause_s)

        self._run(move())

    def pass_time(self, seconds: float) -> None:
        """Nobody gives a word for so long."""

        async def move() -> None:
            await asyncio.sleep(seconds)
            await self._quiet()

        self._run(move())

    def kill(self) -> None:
        """kill -9, and a new process."""
        self._run(self._reopen())

    def doom(self, commits: int, how: Literal["before", "after"]) -> None:
        """The process will be killed at its n-th commit from now; the next is started when the house is quiet."""
        self._process.store.doom(commits, how)

    def restart(self) -> None:
        """The process is closed in good order, and started again."""

        async def move() -> None:
            await self._shut()
            await self._reopen()

        self._run(move())

    def settle(self) -> None:
        """Everybody says something final, people answer what they are asked: everything must come to rest, and then
        all must have been told, once, where it belongs."""

        async def move() -> None:
            for pause_s in (0.0, AFTERWARDS_S):
                await asyncio.sleep(pause_s)
                await self._rest()
                self.witness.wrong += self.look(self.witness.judge)
            await self._shut()

        self._run(move())

    def look(self, view: Callable[[Tx], T]) -> T:
        """What the rows say now."""
        return self._process.look(view)

    def runs(self) -> list[Run]:
        """All runs there are, parents first."""
        return self.look(lambda tx: [tx.runs.load(key) for key in walk(tx)])

    # ---- what happens by itself

    def _run(self, move: Coroutine[Any, Any, None]) -> None:
        self._runner.run(move)
        self._process.store.look_on()
        wrong = self.witness.wrong
        assert not wrong, "\n".join(wrong[:6])

    async def _pause(self, pause_s: float | None) -> None:
        if pause_s is None:
            await self._quiet()
        else:
            await asyncio.sleep(pause_s)

    async def _quiet(self) -> None:
        """Let happen what can happen now. A process that has died on the way is followed by another."""
        while not self.witness.wrong:
            store = self._process.store
            begun = store.begun
            await asyncio.sleep(QUIET_S)
            if self._life.done() and not self._closing.is_set() and not store.died.is_set():
                self._fell_over(self._life)
            if store.runs_away:
                self.witness.wrong.append(f"goes round in circles: {store.begun} commits")
            if store.died.is_set() and not self.witness.wrong:
                await self._reopen()
            elif store.begun == begun and not store.is_busy:
                break
        self.witness.wrong += self.look(self._faults)

    def _faults(self, tx: Tx) -> list[str]:
        # What comes due at this very moment may still be taken up.
        before = self._process.engine.clock.now() - QUIET_S / 2
        return [*verdict.sound(tx), *verdict.overlooked(tx, self.plan, before)]

    def _fell_over(self, task: "asyncio.Task[None]") -> None:
        raised = None if task.cancelled() else task.exception()
        words = "" if raised is None else "".join(traceback.format_exception(raised))
        self.witness.wrong.append(f"the engine fell over: {words}")

    async def _reopen(self) -> None:
        await self._process.bury()
        await self._open()

    async def _open(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, trouble: None)
        cast = HeldCast(self.witness, self)
        self._process = Process(self.witness, self._folder, VirtualClock(START), cast, self.plan.rules, spy=self._spy)
        self._closing = asyncio.Event()
        self._life = asyncio.create_task(self._live(self._process.engine, self._closing))
        await self._quiet()

    async def _live(self, engine: Engine, closing: asyncio.Event) -> None:
        async with engine:
            await engine.commit(opening)
            await closing.wait()

    async def _shut(self) -> None:
        """Close the engine; nothing may be left of it."""
        process = self._process
        self._closing.set()
        self.witness.closes = True
        died = asyncio.create_task(process.store.died.wait())
        await asyncio.wait([self._life, died], return_when=asyncio.FIRST_COMPLETED)
        if process.store.died.is_set():
            return
        if self._life.cancelled() or self._life.exception() is not None:
            self._fell_over(self._life)
        left = asyncio.all_tasks() - {asyncio.current_task(), died, *self._acting}
        died.cancel()
        if left:
            self.witness.wrong.append(f"tasks left: {sorted(task.get_name() for task in left)}")

    def _act(self, decide: Deciding) -> None:
        engine = self._process.engine

        async def act() -> None:
            try:
                await engine.commit(decide)
            except FledgeError:
                return
            except Exception:
                self.witness.wrong.append(traceback.format_exc())

        task = asyncio.create_task(act())
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)

    async def _rest(self) -> None:
        by, wait_s = self.witness.now() + REST_S, 1.0
        while not self.witness.wrong and (found := self.look(verdict.restless)):
            if self.witness.now() > by:
                self.witness.wrong += [f"never comes to rest: {what}" for what in found]
                return
            if self._wind_up():
                wait_s = 1.0
            await self._quiet()
            await asyncio.sleep(wait_s)
            wait_s = min(600.0, wait_s * 1.5)

    def _wind_up(self) -> bool:
        """Give everybody a final word; True if anybody had waited for one."""
        waiting = self.waiting("model", "tool", "thread")
        for held in waiting:
            held.word.set_result(ScriptedReply(f"the last word of {held.label}") if held.kind == "model" else None)
        for run in self.runs():
            if run.phase.name == "awaiting_approval":
                self._act(partial(control.answer_plan, key=run.key, approve=True, words="APPROVED: proceed"))
        for asked in self.look(lambda tx: tx.approvals.open()):
            self._act(partial(steps.answer, approval_id=asked.id, allow=True, answered_by="a person"))
        return bool(waiting)

    # ---- those who wait

    async def hold(self, kind: Kind, label: str, what: str, deaf: bool = False) -> Word:
        """Wait for a word. Whoever is deaf goes on for a while when it is cancelled."""
        held = Held(kind, label, what)
        loop, until = asyncio.get_running_loop(), None
        ignored: asyncio.CancelledError | None = None
        self.held.append(held)
        try:
            while not held.word.done():
                if until is not None and ignored is not None and loop.time() >= until:
                    raise ignored
                try:
                    await asyncio.wait([held.word], timeout=None if until is None else until - loop.time())
                except asyncio.CancelledError as cancelled:
                    if not deaf:
                        raise
                    ignored, until = ignored or cancelled, until or loop.time() + DEAF_S
            return held.word.result()
        finally:
            self.held.remove(held)


class HeldCast(Cast):
    """Sessions whose models, tools and threads wait in the house."""

    def __init__(self, witness: Witness, house: House) -> None:
        super().__init__(witness)
        self._house = house

    def _mind(self, who: Who) -> Model:
        return _HeldModel(self._house, who)

    def _hands(self) -> list[Tool]:
        async def work(name: str, context: ToolContext, repeatable: bool) -> str:
            self._witness.begins(name, context, repeatable)
            word = await self._house.hold("tool", self._witness.label(context.session), name)
            if isinstance(word, Exception):
                raise word
            return f"{name} is done"

        async def hand_looks(context: ToolContext) -> str:
            return await work("hand_looks", context, True)

        async def hand_acts(context: ToolContext) -> str:
            return await work("hand_acts", context, False)

        async def hand_asks(context: ToolContext) -> str:
            return await work("hand_asks", context, False)

        return [tool(read_only=True)(hand_looks), tool(hand_acts), tool(hand_asks)]

    async def bind_thread(self, engine: Engine, run: Run) -> None:
        """Takes until the word is given."""
        word = await self._house.hold("thread", self._witness.label(run.key), "a thread")
        if isinstance(word, Exception):
            raise Refused("error", f"thread: {word}")


class _HeldModel:
    def __init__(self, house: House, who: Who) -> None:
        self._house, self._who = house, who

    async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        house, who = self._house, self._who
        replies, _ = house.witness.asked(who, request)
        word = await house.hold("model", who.label, f"reply {replies + 1}", deaf=house.plan.lingering)
        if isinstance(word, Broke):
            yield word
            return
        assert isinstance(word, ScriptedReply)
        yield Text(word.text)
        for index, call in enumerate(word.calls):
            yield Call(f"call_{index}", call.name, call.arguments)
        yield Usage(100 + 20 * len(request.messages), 50)
        yield ReplyEnded("tools" if word.calls else "end", "held")

    async def close(self) -> None:
        return
