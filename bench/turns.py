"""A durable turn: two model calls and one tool call, every step committed, in many conversations at once.

A `ScriptedModel` that takes no time to think, through `AgentLoop`, `Engine` and `SqliteStore`. Each conversation has a
message waiting before the measuring begins, so a turn writes in four commits: the claim, which it shares with others,
the reply that calls the tool, the result, the final reply. The floor's child makes six, two of which (the spawn, the
reading by its requester) a turn does not have: four sixths of its CPU stand beside a turn's.
"""

import asyncio
import tempfile
from pathlib import Path
from statistics import median

import msgspec

from bench import lives
from bench.lives import CountingStore
from bench.measure import Meter
from fledge.clock import SystemClock
from fledge.core.inbox import QueueSettings
from fledge.core.run import Run
from fledge.ids import RandomIds
from fledge.models.base import Call, Request, ToolMessage
from fledge.models.scripted import ScriptedModel, use
from fledge.orchestrator import control, effects, spawn
from fledge.orchestrator.commit import Commit, Rules
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive
from fledge.runtime.agent import AgentLoop
from fledge.runtime.feed import Feed, TurnEvent
from fledge.runtime.profile import Profile
from fledge.store.base import OutboxPost, Session, Spec, Tx
from fledge.store.entry_files import EntryFiles
from fledge.store.sqlite import SqliteStore
from fledge.tools.base import tool
from fledge.tools.registry import ToolSet

FLOOR_SHARE = 4 / 6
KINDS = ["user", "assistant", "tool", "assistant"]
"""What one turn leaves in a transcript."""
TIMEOUT_S = 300


@tool(repeatable=True)
async def add(a: int, b: int) -> str:
    """The sum of two numbers."""
    return str(a + b)


def script(request: Request) -> Call | str:
    """Ask for a sum, then say it."""
    last = request.messages[-1]
    return f"done:{last.text}" if isinstance(last, ToolMessage) else use("add", a=2, b=3)


class OneProfile:
    """Every session thinks alike."""

    def __init__(self, workspace: Path) -> None:
        self._profile = Profile(
            model=ScriptedModel(script),
            model_name="scripted",
            system="You add numbers.",
            tools=ToolSet([add]),
            workspace=workspace,
            images=EntryFiles(workspace),
        )

    async def profile(self, engine: Engine, drive: Drive) -> Profile:
        """The one."""
        return self._profile

    def runtime(self, name: str) -> None:
        """There are no other runtimes."""

    def check_needs(self, spec: Spec) -> None:
        """Nothing is missing."""

    def work_place(self, session: Session) -> tuple[Path, dict[str, str]]:
        """Nobody works outside our own loop."""
        raise AssertionError(session)

    def handover(self, session: Session, run: Run | None) -> None:
        """Nobody hands anything over."""

    async def remove(self, leaves: tuple[str, ...]) -> None:
        """There is nothing outside the database."""

    async def call(self, post: OutboxPost) -> None:
        """There is nobody to be told."""


class Ends(Feed):
    """Counts ended turns; set once all have ended, or one has failed."""

    def __init__(self, turns: int) -> None:
        super().__init__()
        self._missing = turns
        self.errors: list[str] = []
        self.over = asyncio.Event()
        self.is_heard = True  # always: it listens itself

    def emit(self, event: TurnEvent) -> None:
        """Count it."""
        if event.kind == "end":
            self._missing -= 1
        elif event.kind == "error":
            self.errors.append(event.text)
        if not self._missing or self.errors:
            self.over.set()
        super().emit(event)


class Turns(msgspec.Struct, frozen=True):
    """What as many turns as sessions cost together."""

    sessions: int
    wall_s: float
    cpu_s: float
    commits: int
    """Logical ones."""
    reads: int
    writes: int
    """To disk; many commits share one."""

    @property
    def cpu_ms_a_turn(self) -> float:
        """CPU of one whole turn, the engine's part included."""
        return 1000 * self.cpu_s / self.sessions

    def __str__(self) -> str:
        """CPU of a turn, and what it asked of the store."""
        asked = f"{self.commits / self.sessions:.2f} commits, {self.reads / self.sessions:.2f} reads"
        return f"{self.cpu_ms_a_turn:.2f} ms/turn, {asked}"


def median_turns(rounds: list[Turns]) -> Turns:
    """The round with the median CPU, whole."""
    middle = median([x.cpu_s for x in rounds])
    return min(rounds, key=lambda x: abs(x.cpu_s - middle))


def turns(sessions: int) -> Turns:
    """One turn in each of so many conversations, all at once."""

    async def main(folder: str) -> Turns:
        sqlite = SqliteStore.open(folder)
        store = CountingStore(sqlite)
        async with asyncio.timeout(TIMEOUT_S):
            found = await _measured(store, sqlite, sessions, Path(folder))
        await store.close()
        return found

    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        return asyncio.run(main(folder))


async def _measured(store: CountingStore, sqlite: SqliteStore, sessions: int, workspace: Path) -> Turns:
    rules = Rules(queue=QueueSettings(debounce_s=0.0), widths={"main": sessions})
    keys = [f"agent:main:talk-{number}" for number in range(sessions)]
    await store.transact(lambda tx: _speak(tx, keys, rules))
    ends = Ends(sessions)
    asked, reads, writes = store.asked, store.reads, sqlite.commits
    with Meter() as m:
        async with Engine(store, AgentLoop(OneProfile(workspace), ends), rules=rules):
            await ends.over.wait()
    asked, reads, writes = store.asked - asked, store.reads - reads, sqlite.commits - writes
    if ends.errors:
        raise RuntimeError(f"a turn failed: {ends.errors[0]}")
    await store.read(lambda tx: _check_all_answered(tx, keys))
    return Turns(sessions, m.wall_s, m.cpu_s, asked, reads, writes)


def _speak(tx: Tx, keys: list[str], rules: Rules) -> None:
    c = Commit(tx, SystemClock().now(), RandomIds(), rules)
    for key in keys:
        spawn.open_conversation(c, key)
        control.send(c, key, "add two and three")
    effects.settle(c)


def _check_all_answered(tx: Tx, keys: list[str]) -> None:
    answered = sum(
        [entry.kind for entry in tx.transcripts.entries(key)] == KINDS
        and tx.turns.get(key) is None
        and not tx.inbox.unread(key, 1)
        for key in keys
    )
    if answered != len(keys):
        raise RuntimeError(f"{answered} of {len(keys)} turns were answered: the figures mean nothing")


def floor_ms(sessions: int) -> float:
    """The floor's CPU for four of its six commits, as many at once."""
    return FLOOR_SHARE * lives.floor(sessions, sessions).cpu_ms_a_child
