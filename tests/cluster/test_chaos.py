"""Everything fails in one run: four workers and two gateways are killed, stopped and continued, the server is
restarted, connections are cut. Clients go on with another gateway. Nothing is lost, doubled or done again.

What happens follows from a seed; a failure prints it with all that happened. `FLEDGE_SOAK=1 FLEDGE_SEED=n` plays the
same faults again.
"""

import asyncio
import random
import re
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fledge.errors import StoreError
from fledge.orchestrator.commit import Commit
from fledge.store.base import Tx
from tests.cluster.gateways import Caller, GatewayProcess
from tests.cluster.processes import Process, busy, settled, wrong
from tests.cluster.several import LEASE_S, MAIN, RULES, Worker, eventually, play, working
from tests.effort import SOAK, seeds
from tests.left_out import requires
from tests.statements import proves
from tests.store.postgres import Server, running

WIDTH = RULES.widths["subagent"]
WORKERS, GATEWAYS = 4, 2
STEP_S = 0.05
CLIENTS = 4
FAULTS = ("kill worker", "kill worker", "kill gateway", "stop worker", "stop gateway", "cut", "cut", "restart")
BOUND_S = 80.0 if not SOAK else 400.0
DIED = re.compile(r"process (\d+) on \S+ has died")


async def _ready(processes: list[Process | GatewayProcess]) -> None:
    """Wait until all of them are."""
    for process in processes:
        await process.ready()


class Cluster:
    """Workers and gateways on a server of their own, what is done to them, and when."""

    def __init__(self, server: Server, folder: Path, dice: random.Random) -> None:
        self.server, self.folder, self.dice = server, folder, dice
        self.url, self.posts = server.url("chaos"), folder / "posts"
        self.workers: list[Process] = []
        self.gateways: list[GatewayProcess] = []
        self.crashed: set[int] = set()
        """Workers that were killed, or stopped for longer than their lease."""
        self._started: list[Process] = []
        self._began_at = time.monotonic()

    @property
    def _processes(self) -> list[Process | GatewayProcess]:
        return [*self.workers, *self.gateways]

    def note(self, words: str) -> None:
        """Print what happens, and when."""
        print(f"{time.monotonic() - self._began_at:6.2f} s  {words}")

    async def start(self) -> None:
        self.posts.touch()
        self.workers += [self._worker() for _ in range(WORKERS)]
        self.gateways += [GatewayProcess(self.url, self.folder) for _ in range(GATEWAYS)]
        await _ready(self._processes)

    def end(self) -> None:
        for process in self._processes:
            process.kill()

    def _worker(self) -> Process:
        self._started.append(Process(self.url, STEP_S, posts=str(self.posts)))
        return self._started[-1]

    def _missed(self) -> set[int]:
        """Processes that others took for dead: also one that had no CPU for longer than its lease."""
        return {int(pid) for one in self._started for pid in DIED.findall(one.said)}

    @property
    def complaints(self) -> list[str]:
        """What processes said that have ended by themselves."""
        return [process.complaint for process in self._processes if process.complaint]

    async def fail(self) -> None:
        """Let everything fail, one after the other."""
        faults: dict[str, Callable[[], object]] = {
            "cut": lambda: self.server.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'fledge %'"
            ),
            "restart": self._restart,
        }
        for what in self.dice.sample(FAULTS, len(FAULTS)):
            await asyncio.sleep(self.dice.uniform(0.2, 0.7))
            match what:
                case "kill worker":
                    place = self.dice.randrange(WORKERS)
                    self.note(f"{what} {self.workers[place].pid}")
                    self.crashed.add(self.workers[place].pid)
                    self.workers[place].kill()
                    self.workers[place] = await self._worker().ready()
                case "kill gateway":
                    place = self.dice.randrange(GATEWAYS)
                    self.note(f"{what} {self.gateways[place].pid}")
                    self.gateways[place].kill()
                    self.gateways[place] = await GatewayProcess(self.url, self.folder).ready()
                case "stop worker" | "stop gateway":
                    places = slice(WORKERS) if what == "stop worker" else slice(WORKERS, None)
                    one = self.dice.choice(self._processes[places])
                    stopped_s = LEASE_S + self.dice.uniform(0.5, 1.5)
                    self.note(f"{what} {one.pid} for {stopped_s:.1f} s")
                    self.crashed.add(one.pid)
                    one.signal(signal.SIGSTOP)
                    await asyncio.sleep(stopped_s)
                    one.signal(signal.SIGCONT)
                case _:
                    self.note(what)
                    await asyncio.to_thread(faults[what])
        self.note("nothing more fails")

    @asynccontextmanager
    async def in_time(self, observer: Worker) -> AsyncIterator[None]:
        """A block that ends in time. If it does not, the rows and the processes say what they are at."""
        try:
            async with asyncio.timeout(BOUND_S):
                yield
        except TimeoutError:
            self.note(await observer.see(_unfinished))
            for process in self.workers:
                self.note(f"{process.pid} {process.complaint or 'lives'}: {process.said[-500:]}")
            raise

    def _restart(self) -> None:
        self.server.stop()
        self.server.start()

    def resent(self) -> list[str]:
        """Posts that were sent again though no process that had sent them crashed."""
        senders: dict[str, list[int]] = {}
        for line in self.posts.read_text().splitlines():
            key, _, pid = line.rpartition(" ")
            senders.setdefault(key, []).append(int(pid))
        dead = self.crashed | self._missed()
        return [f"{key} by {pids}" for key, pids in senders.items() if not dead.issuperset(pids[:-1])]

    def sent(self) -> set[str]:
        return {line.rpartition(" ")[0] for line in self.posts.read_text().splitlines()}


def _unfinished(tx: Tx) -> str:
    """What is not settled yet, and who does what."""
    runs = tx.unit.all("SELECT key, phase, due_at FROM runs WHERE delivery IS NULL OR delivery <> 'delivered'")
    active = tx.unit.all("SELECT session, queue_lane, due_at, epoch, owner, release_at FROM active")
    engines = [(one.pid, one.id, one.drives, one.seen_at) for one in tx.engines.all()]
    return f"runs {runs}\nat work {active}\nengines {engines}\nunread {tx.inbox.count_unread(MAIN)}"


@asynccontextmanager
async def cluster(server: Server, folder: Path, dice: random.Random) -> AsyncIterator[tuple[Cluster, Worker]]:
    """The processes, and one here that looks."""
    found = Cluster(server, folder, dice)
    async with working(found.url, drives=False) as observer:
        try:
            await found.start()
            yield found, observer
        finally:
            found.end()


async def post(observer: Worker, number: int) -> None:
    """Put something into the outbox, however often the server is away. A post that is there already is left alone."""

    def put(c: Commit) -> None:
        c.tx.outbox.post(f"post {number}", "note", None, "{}", c.at)
        c.hints.look = True

    await observer.engine.commit_with_retry(put)


@pytest.mark.parametrize("seed", seeds(1, 5))
@proves("7.engines.17", "Whatever is killed, stopped or restarted: nothing is lost, doubled or done again")
def test_whatever_fails_nothing_is_lost_or_done_twice(seed: int, tmp_path: Path) -> None:
    requires("postgresql")
    children = 200 if not SOAK else 800
    print(f"seed {seed}")

    async def test(server: Server) -> None:
        dice = random.Random(seed)
        async with cluster(server, tmp_path, dice) as (chaos, observer):
            caller, keys = Caller(chaos.gateways, random.Random(seed + 1)), dict[int, str]()
            todo = iter(range(children))

            async def client() -> None:
                for number in todo:
                    told = await caller.call("runs.spawn", task="work", idempotencyKey=f"child {number}")
                    keys[number] = told["childSessionKey"]
                    await post(observer, number)

            chaos.note(f"{children} children for {WORKERS} workers, by {GATEWAYS} gateways")
            clients = [asyncio.ensure_future(client()) for _ in range(CLIENTS)]
            failing = asyncio.ensure_future(chaos.fail())
            widest = done = 0
            async with chaos.in_time(observer):
                while done < children or not failing.done():
                    for task in (failing, *clients):
                        if task.done():
                            task.result()
                    with suppress(StoreError):  # the server is being restarted
                        widest = max(widest, await observer.see(lambda tx: busy(tx, observer.engine.clock.now())))
                        done = await observer.see(settled)
                await asyncio.gather(failing, *clients)
                chaos.note(f"all settled; {caller.asked_again} calls were made again, {widest} sessions driven at once")
                with suppress(TimeoutError):
                    await eventually(observer, lambda tx: wrong(tx, [*keys.values()]) == [], 10.0)
                    await eventually(observer, lambda tx: tx.outbox.count_waiting() == 0, 10.0)
            assert await observer.see(lambda tx: wrong(tx, [*keys.values()])) == []
            runs = await observer.see(lambda tx: tx.unit.column("SELECT key FROM runs"))
            assert Counter(runs) == Counter(keys.values()), "each call has made one run"
            assert chaos.resent() == []
            assert chaos.sent() == {f"post {number}" for number in range(children)}
            assert chaos.complaints == []
            assert WIDTH // 2 < widest <= WIDTH

    with running() as server:
        play(test(server))


FeedRow = tuple[int, str, str]
"""An event of a run: its number, the run, what happened."""


def followed(gateway: GatewayProcess) -> list[FeedRow]:
    """The events of a gateway's feed, from the first until the last run is admitted."""
    told: list[FeedRow] = []
    for event in gateway.client.events(cursor=0):
        if event["type"] == "run":
            told.append((event["cursor"], event["sessionKey"], event["event"]))
            if (event["label"], event["event"]) == ("last", "Admitted"):
                return told
    raise AssertionError("the feed has ended")


async def write(caller: Caller, writer: int, runs: int) -> None:
    """Spawn, kill and send, as a client does."""
    for number in range(runs):
        label = f"{writer} {number}"
        run = await caller.call("runs.spawn", task="work", label=label, idempotencyKey=label)
        if number % 3 == 0:
            await caller.call("runs.kill", target=run["childSessionKey"])
        elif number % 3 == 1:
            await caller.call("agent", session=MAIN, message=label, idempotencyKey=label)


@proves("7.engines.16", "Clients that follow the events on two gateways get all of them on both, in the same order")
def test_two_gateways_tell_the_same_events_while_four_clients_write(server: Server, tmp_path: Path) -> None:
    writers, runs, url = 4, 8, server.url(server.new_schema())

    async def test() -> None:
        processes: list[Process | GatewayProcess] = []
        async with working(url, drives=False) as observer:
            try:
                gateways = [GatewayProcess(url, tmp_path) for _ in range(2)]
                workers = [Process(url, 0.01) for _ in range(2)]
                processes += [*gateways, *workers]
                await _ready(processes)
                following = [asyncio.ensure_future(asyncio.to_thread(followed, gateway)) for gateway in gateways]
                callers = [Caller(gateways, random.Random(writer)) for writer in range(writers)]
                await asyncio.gather(*(write(caller, writer, runs) for writer, caller in enumerate(callers)))
                await callers[0].call("runs.spawn", task="work", label="last")
                first, second = await asyncio.gather(*following)
                rows = await observer.see(lambda tx: tx.events.after(0, first[-1][0]))
                stored = [(one.seq, one.run, type(one.event).__name__) for one in rows if one.seq <= first[-1][0]]
                assert first == second == stored
                assert len({key for _, key, _ in first}) == writers * runs + 1
            finally:
                for process in processes:
                    process.kill()

    play(test())
