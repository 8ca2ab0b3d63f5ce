"""The loop: due → transition → commit → perform. One task group owns everything it starts.

No timer lives only in memory: each pass asks the rows what is due, does it, and sleeps until the next due time or until
a commit says that something changed. Starting on a store that another process left behind is the same loop. The
performer does what the engine may not do itself (think, call hooks, remove files). `Changes` lets a caller wait until
rows say something; `kill_outcome` waits until a kill is decided.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

from msgspec.structs import replace

from fledge.cancellation import error_message, is_stop, trace
from fledge.clock import Clock, SystemClock, deadline_after
from fledge.core import events as ev
from fledge.core.cluster import PATIENCE_S, Member, News, is_alive
from fledge.core.policy import doubled_s
from fledge.core.reconcile import STOP_S
from fledge.core.route import Address
from fledge.core.run import Ending, Instant, Killed
from fledge.errors import NotArrived, Refused, StaleWrite, Stopped, StoreError, StoreLost, Undeliverable
from fledge.ids import Ids, RandomIds
from fledge.orchestrator import bindings, cluster, effects, heartbeat, journal, messages, recover, turns
from fledge.orchestrator.commit import Commit, Hints, Rules, news_of
from fledge.orchestrator.effects import Killing
from fledge.orchestrator.journal import Counters
from fledge.orchestrator.turns import Drive
from fledge.store.base import OutboxPost, QueuePlace, Store, Tx

T = TypeVar("T")
P = ParamSpec("P")

CLAIMS_A_PASS = 64
DUE_A_PASS = 256
TROUBLE_S = 1.0
"""How soon a row that could not be taken up is tried again; each further pause is twice as long."""
RETRY_S = 0.1
"""The same for a commit of something that has happened."""
MOST_TROUBLE_S = 30.0
"""The longest of these pauses."""
MOST_TOLD = 100
"""So many different errors of a store that fails are logged."""
EARLY_S = 0.05
"""How soon a row is tried again that was due by the clock here and not by that of the database."""
DEATH_S = 1.0
"""How often an engine looks whether others of its machine have died."""
LOOK_S = 0.02
"""How long news of other engines is collected before this one looks."""

_TakesUp = Callable[[Commit, str], bool]
"""Takes up a row that has come due; False if it was not due any more."""

log = logging.getLogger("fledge.engine")


class Performer(Protocol):
    """Does what only the world can do. None of these may assume that it is called once: after a crash it is again."""

    async def drive(self, engine: "Engine", drive: Drive) -> None:
        """Execute the session's turn and say how it ended, through commits of `turns`. Cancelled when it must stop.

        Returning or raising without an end is itself an end: an error. Its words are those of `Refused`, or they say
        that it is an internal error.
        """
        ...

    def failed(self, drive: Drive, error: str, retry_in_s: float) -> None:
        """Called after a drive has ended with such an error; the turn is tried again in so many seconds, or is over
        (0)."""
        ...

    async def remove(self, leaves: tuple[str, ...]) -> None:
        """Remove what a run left outside the database; removing what is gone already is fine. Raises if it cannot."""
        ...

    async def call(self, post: OutboxPost) -> Address | None:
        """Send one thing from the outbox; answers the address that a hook was asked for, if it named one.

        Raises if it did not arrive; `NotArrived` may say when to try again, `Undeliverable` that it is useless.
        """
        ...


class _Interruptible:
    """Inside this block (`with`) the step of a driver can be cancelled."""

    __slots__ = ("_interrupts", "_lease", "_leave_step")

    def __init__(
        self,
        interrupts: dict[tuple[str, int], Callable[[int], None]],
        lease: tuple[str, int],
        leave_step: Callable[[int], None],
    ) -> None:
        self._interrupts, self._lease, self._leave_step = interrupts, lease, leave_step

    def __enter__(self) -> None:
        self._interrupts[self._lease] = self._leave_step

    def __exit__(self, *error: object) -> None:
        del self._interrupts[self._lease]


class _StoreTrouble:
    """The loops that meet a store that fails: each error is logged once, and once that the store works again."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._loops = 0

    def begins(self) -> None:
        """One more loop meets errors."""
        self._loops += 1

    def met(self, error: BaseException) -> None:
        """A loop has met this error, and waits before it tries again."""
        words = error_message(error)
        if words in self._told or len(self._told) == MOST_TOLD:
            return
        self._told.add(words)
        if isinstance(error, StoreError):
            log.error("store error, tried again at least every %.0f s: %s", MOST_TROUBLE_S, words)
        else:
            log.error("processing a due row failed: %s\n%s", words, trace(error))

    def ends(self) -> None:
        """A loop meets no errors any more."""
        self._loops -= 1
        if not self._loops:
            self._told.clear()
            log.warning("the store works again")


class _Decision(Generic[P, T]):
    """A decision as a job of the store, and the hints of the last time that it was run; None: it has failed, or was not
    run. A batch may run it again."""

    __slots__ = ("_act", "_args", "_engine", "_kwargs", "hints")

    def __init__(
        self, engine: "Engine", act: Callable[Concatenate[Commit, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        self._engine, self._act, self._args, self._kwargs = engine, act, args, kwargs
        self.hints: Hints | None = None

    def __call__(self, tx: Tx) -> T:
        self.hints = None
        c = self._engine.begun(tx)
        result = self._act(c, *self._args, **self._kwargs)
        effects.settle(c)
        if c.owner and (news := news_of(c.hints)) is not None:
            tx.tell(news)
        self.hints = c.hints
        return result


class Engine:
    """Runs the loop while it is open: `async with Engine(store, performer): …`. Without `drives` it only reads and
    commits. It drives at most `slots` sessions at once; None: as many as the lanes are wide.

    `settings` and `limits` are compared with those of the other engines on the store: digests by section, and values
    that all must have in common."""

    def __init__(
        self,
        store: Store,
        performer: Performer,
        *,
        clock: Clock | None = None,
        ids: Ids | None = None,
        rules: Rules | None = None,
        drives: bool = True,
        slots: int | None = None,
        settings: Mapping[str, str] | None = None,
        limits: Mapping[str, str] | None = None,
    ) -> None:
        self.store, self.performer = store, performer
        self.ids, self.rules = ids or RandomIds(), rules or Rules()
        self.owner = self.ids.unique()
        self._cluster, self.drives, self._slots = store.cluster, drives, slots
        self._member: Member | None = None
        self._is_server_time = clock is None
        self.clock = clock or SystemClock()
        if self._cluster is not None:
            self.clock = clock or self._cluster.clock
            widths = {f"lanes.{lane}": str(width) for lane, width in self.rules.widths.items()}
            own = cluster.this_process(self.owner, self._cluster.lease_s, drives)
            self._member = replace(own, settings=settings or {}, limits={**widths, **(limits or {})})
        self.counters = Counters()
        self._poked, self._closes = asyncio.Event(), asyncio.Event()
        self._closing = False
        self._drivers: dict[str, dict[int, asyncio.Task[None]]] = {}
        """By session and epoch: a superseded driver may still be on its way out when the next one starts."""
        self._over: set[tuple[str, int]] = set()
        """Drivers that have committed their end and are about to return."""
        self._interrupts: dict[tuple[str, int], Callable[[int], None]] = {}
        """By driver that can leave a step and go on: the function that interrupts it."""
        self._missed: set[str] = set()
        """Sessions that were to stop while no driver of theirs was known here: one may just have been claimed."""
        self._errands: dict[str, asyncio.Task[None]] = {}
        self._trouble = _StoreTrouble()
        self._troubled = False
        """Some due row could not be taken up in the last pass."""
        self._failed_passes = 0
        """In how many passes in a row that was so."""
        self._is_early = False
        """Some row was due in the last pass by the clock here alone."""
        self._dead: frozenset[str] = frozenset()
        """Engines of this machine whose death is proved."""
        self._left_at: Instant | None = None
        """Since when sessions wait that are the share of other engines."""
        self._looks_soon = False
        self._has_gap = False
        """News of other engines was lost."""
        self._group: asyncio.TaskGroup | None = None
        self._loop: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[str], None]] = []
        self._watchers: list[Callable[[str], None]] = []
        self.on_watched: Callable[[list[str], list[str]], None] | None = None
        """Called with sessions that clients of another process watch, whenever that process reports them."""

    async def __aenter__(self) -> "Engine":
        await self._join()
        try:
            if self.drives:
                await self._take_over()
                await self.commit_with_retry(heartbeat.schedule)
            self._group = await asyncio.TaskGroup().__aenter__()
        except BaseException:
            await self._leave_others()
            raise
        if self.drives:
            self._loop = self._group.create_task(self._run(), name="fledge-engine")
            if self._member is not None:
                self._group.create_task(self._watch_others(), name="fledge-others")
        return self

    async def __aexit__(self, *error: object) -> None:
        """Stop claiming, stop every driver, and wait until all have let go. Nothing that was begun is lost.

        Raises `StoreLost` if that is why everything has stopped.
        """
        self._closing = True
        self._poked.set()
        self._closes.set()
        if self._member is not None:
            with suppress(RuntimeError):  # everything is stopping already
                self._start(self._drain(), "fledge-drain")
        for epochs in self._drivers.values():
            for task in epochs.values():
                task.cancel()
        for errand in self._errands.values():
            errand.cancel()  # it is done again by the next engine: at least once
        assert self._group is not None
        try:
            await self._group.__aexit__(None, None, None)
        except BaseExceptionGroup as errors:
            lost = errors.subgroup(StoreLost)
            if lost is None:
                raise
            raise lost.exceptions[0] from None
        finally:
            await self._leave_others()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call this, after the commit, with each run whose outcome or delivery was decided. Must not raise or block."""
        self._listeners.append(listener)

    def on_move(self, watcher: Callable[[str], None]) -> None:
        """Call this, after the commit, with each session that moved (its run or the state of its turn changed); with an
        empty key if any may have, because the news of other processes was interrupted.

        A move may be reported twice, or although it came to nothing; none is left out. Must not raise or block.
        """
        self._watchers.append(watcher)

    def is_driving(self, session: str) -> bool:
        """True while a driver of this session runs in this process, also one that is stopping."""
        return session in self._drivers

    async def commit(self, act: Callable[Concatenate[Commit, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run one decision in one transaction; afterwards the engine looks at what it changed."""
        job = _Decision(self, act, *args, **kwargs)
        begun = time.perf_counter()
        try:
            result = await self.store.transact(job)
        except asyncio.CancelledError:
            # The caller is gone, but the job may well be done: look at what it changed once it is.
            self._errand(f"heed {id(job)}", self._catch_up(job))
            raise
        except StoreLost as lost:
            self._give_up(lost)
            raise
        self.counters.commits.append(time.perf_counter() - begun)
        if job.hints is not None:
            self._heed(job.hints)
        return result

    def begun(self, tx: Tx) -> Commit:
        """A decision of this engine begins."""
        at = self.clock.now() if tx.at is None or not self._is_server_time else tx.at
        return Commit(tx, at, self.ids, self.rules, "" if self._member is None else self.owner)

    def _give_up(self, lost: StoreLost) -> None:
        """Stop everything, and the program that has this engine open: another process has the folder now."""

        async def fail() -> None:
            raise lost

        if self._group is not None and not self._closing:
            self._closing = True
            self._start(fail(), "fledge-lost")

    async def _catch_up(self, job: "_Decision[P, T]") -> None:
        """Jobs are done in order: after this one, everything submitted before is on disk, or has failed."""
        with suppress(StoreError):  # this one may fail too, and says nothing of those before it
            await self.store.transact(lambda tx: None)
        if job.hints is not None:
            self._tell(job.hints)
        self._poked.set()

    def _tell(self, hints: Hints) -> None:
        if hints.was_missed:
            log.warning("others took this process for dead, which was not seen within its lease, and do its work now")
        self.counters.note(hints)
        if hints.moves or hints.tries or hints.failing:
            journal.write(hints)
        if hints.moves or hints.moved or hints.stop:
            self._report(*hints.changed())

    def _report(self, ended: Iterable[str], moved: Iterable[str]) -> None:
        for key in ended:
            for listener in self._listeners:
                listener(key)
        for key in moved if self._watchers else ():
            for watcher in self._watchers:
                watcher(key)

    def _stop(self, stopped: Iterable[tuple[str, int]], interrupted: Iterable[tuple[str, int, int]]) -> None:
        for session, last in stopped:
            for epoch, task in self._drivers.get(session, {}).items():
                if epoch <= last:
                    task.cancel()
            self._missed.update({session} - self._drivers.keys())
        for called_off in interrupted:
            self._interrupt(*called_off)

    def _heed(self, hints: Hints) -> None:
        if hints.stop or hints.interrupted:
            self._stop(hints.stop, hints.interrupted)
        for lease in hints.released:
            if lease[1] in self._drivers.get(lease[0], ()):
                self._over.add(lease)
        self._tell(hints)
        if hints.look:
            self._poked.set()

    def interruptible(self, drive: Drive, leave_step: Callable[[int], None]) -> "_Interruptible":
        """While this context is open, a commit that cancels the driver's step calls `leave_step` afterwards, with the
        count of its cancelled steps: news of a step that it has left already may still arrive.

        A driver that never opens it is stopped instead, and its turn is driven again from what was committed.
        """
        return _Interruptible(self._interrupts, (drive.session, drive.epoch), leave_step)

    def _interrupt(self, session: str, epoch: int, times: int) -> None:
        leave_step = self._interrupts.get((session, epoch))
        if leave_step is not None:
            leave_step(times)
        elif (task := self._drivers.get(session, {}).get(epoch)) is not None:
            task.cancel()

    async def commit_with_retry(
        self, act: Callable[Concatenate[Commit, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """Commit something that has already happened: try until the store takes it, or the engine closes.

        None if a newer driver has taken over, so that it does not count any more. Raises `StoreLost`.
        """
        try:
            return await self.until_it_works(lambda: self.commit(act, *args, **kwargs))
        except StoreLost:
            raise
        except StoreError:
            return None

    async def until_it_works(
        self, access: Callable[[], Awaitable[T]], told: Callable[[StoreError, float], None] | None = None
    ) -> T:
        """Repeat an access to the store until the store takes it. `told` is called with each error and the pause after
        it. Raises errors that a retry cannot solve, and any error once the engine closes."""
        tries = 0
        try:
            while True:
                try:
                    return await access()
                except (StaleWrite, StoreLost):
                    raise
                except StoreError as error:
                    if self._closing:
                        raise
                    if not tries:
                        self._trouble.begins()
                    self._trouble.met(error)
                    pause_s = doubled_s(RETRY_S, tries, MOST_TROUBLE_S)
                    tries += 1
                    if told is not None:
                        told(error, pause_s)
                    await self.clock.wait_until(self.clock.now() + pause_s, self._closes)
        finally:
            if tries:
                self._trouble.ends()

    # ---- the loop

    async def _run(self) -> None:
        while not self._closing:
            self._poked.clear()
            now = self.clock.now()
            next_at: Instant | None = None
            try:
                worked = await self._pass(now)
                if not worked:
                    next_at = await self._next_due(now)
            except StoreError as error:
                worked = False
                self._note_trouble(error)
            self._count_failed_passes()
            if not worked:
                again_at = [] if next_at is None else [next_at]
                if self._troubled:
                    again_at.append(now + doubled_s(TROUBLE_S, self._failed_passes - 1, MOST_TROUBLE_S))
                again_at += [now + EARLY_S] if self._is_early else []
                again_at += [] if self._left_at is None else [self._left_at + PATIENCE_S]
                await self.clock.wait_until(min(again_at, default=None), self._poked)

    def _count_failed_passes(self) -> None:
        if self._troubled and not self._failed_passes:
            self._trouble.begins()
        elif self._failed_passes and not self._troubled:
            self._trouble.ends()
        self._failed_passes = self._failed_passes + 1 if self._troubled else 0

    async def _next_due(self, now: Instant) -> Instant | None:
        return await self.store.read(lambda tx: tx.next_due(now))

    async def _pass(self, now: Instant) -> bool:
        """Do what is due now; True if there was anything, so there may be more."""

        def look(tx: Tx) -> tuple[list[QueuePlace], list[str], list[OutboxPost], list[tuple[_TakesUp, list[str]]]]:
            tx.ask_for_due(now, DUE_A_PASS)
            places = tx.queue.claimable(self.rules.widths, now, CLAIMS_A_PASS)
            due_runs, due_posts = tx.runs.due(now, DUE_A_PASS), tx.outbox.due(now, DUE_A_PASS)
            due: list[tuple[_TakesUp, list[str]]] = [
                (heartbeat.come_due, tx.heartbeats.due(now, DUE_A_PASS)),
                (messages.time_out_request, tx.requests.overdue(now, DUE_A_PASS)),
                (turns.wait_passed, tx.turns.overdue(now, DUE_A_PASS)),
                (bindings.come_due, tx.routes.due(now, DUE_A_PASS)),
            ]
            if self._member is not None and (held := tx.errands.of_others(self.owner)):
                due_runs = [key for key in due_runs if f"clean:{key}" not in held]
                due_posts = [post for post in due_posts if f"post:{post.key}" not in held]
            return places, due_runs, due_posts, due

        self._missed.clear()  # claims of an earlier pass are known by now
        places, keys, posts, due = await self.store.read(look)
        worked = self._troubled = False
        if self._cluster is not None and self._cluster.lease.is_over:
            posts = []  # others may send these; news to look comes once this engine is seen again
        for post in posts:
            worked |= self._errand(f"post:{post.key}", self._send(post))
        if not places:
            self._left_at = None
        jobs = [self._claim(places)] if places else []
        jobs += [self._come_due(key) for key in keys]
        jobs += [self.commit(take_up, key) for take_up, rows in due for key in rows]
        for outcome in await asyncio.gather(*jobs, return_exceptions=True):
            if isinstance(outcome, BaseException):
                self._note_trouble(outcome)
            else:
                worked |= outcome
        self._is_early = self._member is not None and not worked and len(jobs) > bool(places)
        return worked

    def _note_trouble(self, error: BaseException) -> None:
        """A row that cannot be taken up must not keep the others waiting; it is tried again soon."""
        self._troubled = True
        self._trouble.met(error)

    async def _claim(self, places: list[QueuePlace]) -> bool:
        """Claim these, all in one commit if that works, else each in its own. Where others claim too, that commit looks
        again."""
        try:
            if self._member is None:
                drives = await self.commit(turns.claim_all, places, self.owner)
            else:
                drives = await self._claim_share(self._member, places)
        except Exception:
            if len(places) == 1:
                raise
            claimed = False
            for outcome in await asyncio.gather(*(self._claim([one]) for one in places), return_exceptions=True):
                if isinstance(outcome, BaseException):
                    self._note_trouble(outcome)
                else:
                    claimed = True
            return claimed
        for drive in drives:
            self._start(self._drive(drive), f"drive {drive.session}")
        return self._member is None or bool(drives)

    async def _claim_share(self, member: Member, places: list[QueuePlace]) -> list[Drive]:
        driving = sum(map(len, self._drivers.values()))
        limit = CLAIMS_A_PASS if self._slots is None else min(CLAIMS_A_PASS, self._slots - driving)
        if limit <= 0:
            return []
        now, among = self.clock.now(), {place.session for place in places} if len(places) == 1 else None
        is_greedy = self._left_at is not None and now >= self._left_at + PATIENCE_S
        claims = await self.commit(cluster.claim, member, limit, is_greedy, among)
        self._left_at = (self._left_at or now) if claims.left else None
        return claims.drives

    async def _come_due(self, key: str) -> bool:
        leaves = await self.commit(recover.files_to_remove, key)
        if leaves:
            return self._errand(f"clean:{key}", self._clean(key, leaves))
        return await self.commit(recover.come_due, key)

    # ---- what the performer does

    def _start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        assert self._group is not None
        try:
            return self._group.create_task(work, name=name)
        except RuntimeError:
            work.close()  # the group is shutting down: no other task would
            raise

    async def _drive(self, drive: Drive) -> None:
        """Perform the drive, and free its slot. A task that was stopped waits for nothing more, so another frees it."""
        task = asyncio.current_task()
        assert task is not None
        epochs = self._drivers.setdefault(drive.session, {})
        epochs[drive.epoch] = task
        try:
            if not self._closing and not (drive.session in self._missed and await self._is_to_stop(drive)):
                await self._perform(drive)
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # the group is shutting down: the next engine frees it
                self._start(self._leave(drive), f"leave {drive.session}")
            raise
        finally:
            del epochs[drive.epoch]
            if not epochs:
                self._drivers.pop(drive.session, None)
        await self._leave(drive)

    async def _leave(self, drive: Drive) -> None:
        """Free the slot of a driver that has returned, unless its last commit did."""
        lease = (drive.session, drive.epoch)
        if lease in self._over:
            self._over.discard(lease)
        else:
            await self.commit_with_retry(turns.left, drive.session, drive.epoch)

    async def _is_to_stop(self, drive: Drive) -> bool:
        """True if a stop came between the claim and the start of this driver, so that nothing could be cancelled."""
        self._missed.discard(drive.session)
        try:
            driver = await self.store.read(lambda tx: tx.drivers.get(drive.session))
        except StoreError:
            return False  # it is stopped later, when its time is up
        return driver is None or driver.epoch != drive.epoch or driver.release_at is not None

    async def _perform(self, drive: Drive) -> None:
        error = "the driver returned without an end"
        try:
            more = drive.more
            while more:
                more = await self.until_it_works(lambda: self.commit(turns.read_more, drive))
            await self.performer.drive(self, drive)
        except (StaleWrite, Stopped, StoreLost):
            return  # the new driver, or the kill, decides
        except BaseException as raised:
            if is_stop(raised):
                raise
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from raised  # it was stopped, whatever it raises on its way out
            error = raised.reason if isinstance(raised, Refused) else f"internal error: {error_message(raised)}"
            is_new = drive.failed is None or drive.failed.reason != error
            if is_new and not isinstance(raised, Refused | StoreError):
                log.error("driver of %s failed\n%s", drive.session, trace(raised))
        if (drive.session, drive.epoch) not in self._over:
            retry_in_s = await self.commit_with_retry(turns.fail, drive, error)
            if retry_in_s is not None:
                self.performer.failed(drive, error, retry_in_s)

    def _errand(self, name: str, errand: Coroutine[None, None, None]) -> bool:
        """Start something outside, unless it is under way; True if it was started."""
        if name in self._errands or self._closing or self._group is None:
            errand.close()
            return False
        task = self._errands[name] = self._start(errand, name)
        task.add_done_callback(lambda _: self._returned(name))
        return True

    def _returned(self, name: str) -> None:
        self._errands.pop(name, None)
        self._poked.set()

    async def _is_taken(self, errand: str) -> bool:
        """True if this engine is to do it, not another one."""
        member = self._member
        return member is None or bool(await self.commit_with_retry(cluster.take, member, errand))

    def _ends_errand(self, c: Commit, errand: str) -> bool:
        """This engine has done it, or could not; False if another one was to do it by now."""
        return self._member is None or c.tx.errands.end(errand, self.owner)

    async def _clean(self, key: str, leaves: tuple[str, ...]) -> None:
        errand = f"clean:{key}"
        if not await self._is_taken(errand):
            return
        error: str | None = None
        try:
            await self.performer.remove(leaves)
        except BaseException as raised:
            if is_stop(raised):
                raise
            error = error_message(raised)

        def cleaned(c: Commit) -> None:
            if self._ends_errand(c, errand):
                recover.cleaned(c, key, error)

        await self.commit_with_retry(cleaned)

    async def _is_waiting(self, post: OutboxPost) -> bool:
        """False if the post was sent between looking and acting, or the engine closes while that cannot be read."""
        try:
            return await self.until_it_works(lambda: self.store.read(lambda tx: tx.outbox.is_waiting(post.key)))
        except StoreError:
            return False

    async def _send(self, post: OutboxPost) -> None:
        if post.state == "undelivered":
            await self.commit_with_retry(lambda c: c.tx.outbox.dismiss(post.key, c.at))  # it was kept long enough
            return
        errand = f"post:{post.key}"
        # A process that was stopped in between must not send what others may have sent meanwhile.
        lease = None if self._cluster is None else self._cluster.lease
        if not await self._is_taken(errand):
            return
        if not await self._is_waiting(post) or (lease is not None and lease.is_over):
            if self._member is not None:
                await self.commit_with_retry(self._ends_errand, errand)
            return
        try:
            answer = await self.performer.call(post)
        except BaseException as raised:
            if is_stop(raised):
                raise
            error = error_message(raised)
            wait_s = raised.wait_s if isinstance(raised, NotArrived) else 0.0
            permanent = isinstance(raised, Undeliverable)

            def not_sent(c: Commit) -> None:
                if self._ends_errand(c, errand):
                    recover.post_failed(c, post, error, wait_s, permanent)

            await self.commit_with_retry(not_sent)
        else:

            def sent(c: Commit) -> None:
                self._ends_errand(c, errand)
                recover.post_sent(c, post, answer)

            await self.commit_with_retry(sent)

    # ---- other engines on the same store

    async def _join(self) -> None:
        member = self._member
        if member is None or self._cluster is None:
            return
        await self._find_dead(member, await self.store.read(lambda tx: tx.engines.all()))
        for words in await self.commit(cluster.join, member, self._dead):
            log.warning("%s", words)
        self._cluster.join(self.owner, self._hear)

    async def _rejoin(self) -> None:
        """The others took this engine for dead: be one of them again."""
        member = self._member
        if member is not None:
            await self.commit_with_retry(lambda c: bool(cluster.rejoin(c, member)))

    async def _drain(self) -> None:
        await self.commit_with_retry(lambda c: c.tx.engines.drain(self.owner))

    async def _leave_others(self) -> None:
        """Let other engines take over at once what this engine held."""
        if self._member is None or self._cluster is None:
            return
        self._closing = True
        await self._cluster.leave()
        with suppress(StoreLost):  # then the engines that have the store find out
            await self.commit_with_retry(cluster.leave, self.owner)

    async def _take_over(self) -> None:
        taken: cluster.TakenOver | None = cluster.TakenOver(more=True)
        while taken is not None and taken.more:
            taken = await self.commit_with_retry(self._take_over_some)
        for one in () if taken is None else taken.gone:
            log.warning("%s has died: other processes go on with its work", one.shown)

    def _take_over_some(self, c: Commit) -> cluster.TakenOver:
        up_at = 0.0 if self._cluster is None else self._cluster.up_at  # as of now: the server may have been away
        return cluster.take_over(c, self.owner, self._member is not None, self._dead, up_at)

    async def _find_dead(self, own: Member, members: list[Member]) -> bool:
        """Look which of these engines are of this machine and have died; True if there are any."""
        self._dead = await asyncio.to_thread(cluster.proved_dead, members, own)
        return bool(self._dead)

    async def _watch_others(self) -> None:
        """Take up what dead engines leave: as soon as their lease is over, and at once where they died on this
        machine."""
        assert self._cluster is not None
        assert self._member is not None
        has_failed = False
        while not self._closing:
            now, up_at = self.clock.now(), self._cluster.up_at
            next_at = now + self._cluster.lease_s / 2
            others: list[Member] = []
            try:
                others = [one for one in await self.store.read(lambda tx: tx.engines.all()) if one.id != self.owner]
                if await self._find_dead(self._member, others) or not all(is_alive(one, now, up_at) for one in others):
                    await self._take_over()
                ends = (max(one.until_at, up_at + one.lease_s) + EARLY_S for one in others)
                next_at = min([next_at, *(at for at in ends if at > now)])
                if has_failed:
                    has_failed = False
                    self._trouble.ends()
            except Exception as error:  # a row that cannot be handled does not stop the others
                if not has_failed:
                    has_failed = True
                    self._trouble.begins()
                self._trouble.met(error)
            await self._wait_for_death(self._member, others, next_at)

    async def _wait_for_death(self, own: Member, others: list[Member], until_at: Instant) -> None:
        """Wait until then, or until one of these engines has died on this machine."""
        here = [one for one in others if one.machine and one.machine == own.machine]
        while not self._closing and (now := self.clock.now()) < until_at:
            await self.clock.wait_until(min(until_at, now + DEATH_S) if here else until_at, self._closes)
            if here and await self._find_dead(own, here):
                return

    def _hear(self, news: News) -> None:
        """Apply the news of other engines' commits."""
        if self._closing:
            return
        if news.expelled:
            self._errand("rejoin", self._rejoin())
        if news.everything:
            self._has_gap = True
            self._errand("reconcile", self._reconcile())
        if news.watched and self.on_watched is not None:
            self.on_watched(news.watched, news.begun)
        self._stop(news.stop, news.interrupted)
        self._report(news.ended, [""] if news.everything else news.moved)
        if news.look and not self._looks_soon:
            self._looks_soon = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._looks_soon = False
        self._poked.set()

    async def _reconcile(self) -> None:
        """Stop drivers that were stopped or taken over while the news of it was lost."""
        while self._has_gap:
            self._has_gap = False
            driven = [(session, epoch) for session, epochs in self._drivers.items() for epoch in epochs]
            try:
                rows = await self.store.read(lambda tx: [tx.drivers.get(one) for one, _ in driven])  # noqa: B023
            except StoreError as error:
                log.error("store error: %s", error)  # they find out when they write
                return
            for (session, epoch), row in zip(driven, rows, strict=True):
                if row is None or row.epoch != epoch or row.release_at is not None:
                    self._stop([(session, epoch)], ())
                elif row.interrupts and (leave_step := self._interrupts.get((session, epoch))) is not None:
                    leave_step(row.interrupts)


# ---- waiting until the rows say something ----------------------------------------------------------------------------

CLOSED = "this fledge is closed; open the state folder again and ask by run id or session key: nothing is lost"


class Changes:
    """Wakes callers that wait when a session or run they watch has changed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[str | None, set[asyncio.Event]] = {}
        """By session: the events to set when it moves; by None: those to set when any session does."""
        self._closed = False
        engine.on_move(self._moved)

    def _moved(self, key: str) -> None:
        waiting = self._waiting
        if not waiting:
            return
        places = (waiting.get(key, ()), waiting.get(None, ())) if key else waiting.values()
        for place in places:
            for event in place:
                event.set()

    def watch(self, moved: asyncio.Event, key: str | None = None) -> None:
        """Set the event whenever this session, or any, moves, until `unwatch`."""
        self._waiting.setdefault(key, set()).add(moved)

    def unwatch(self, moved: asyncio.Event, key: str | None = None) -> None:
        """Leave the event alone from now on."""
        waiting = self._waiting.get(key, set())
        waiting.discard(moved)
        if not waiting:
            self._waiting.pop(key, None)

    def check_open(self) -> None:
        """Refused once nothing more will change here."""
        if self._closed:
            raise Refused("error", CLOSED)

    def close(self) -> None:
        """Nothing more will change here: every waiting caller gets `Refused`."""
        self._closed = True
        self._moved("")

    async def until(
        self, look: Callable[[Tx], T | None], keys: Collection[str] | None, at: Instant | None = None
    ) -> T | None:
        """The value of `look`, as soon as it is not None; None if `at` comes first.

        It looks again whenever one of these sessions moves; `keys` None: any. Giving up on the wait changes nothing.
        """
        moved = asyncio.Event()
        watched: Collection[str | None] = [None] if keys is None else keys
        for key in watched:
            self.watch(moved, key)
        try:
            while True:
                moved.clear()
                self.check_open()
                found = await self._engine.store.read(look)
                if found is not None or (at is not None and self._engine.clock.now() >= at):
                    return found
                await self._engine.clock.wait_until(at, moved)
        finally:
            for key in watched:
                self.unwatch(moved, key)


def deadline(engine: Engine, timeout: float | None) -> Instant | None:
    """When a wait of so many seconds ends, by the engine's clock; None waits for ever."""
    return deadline_after(engine.clock.now(), timeout)


# ---- waiting until a kill is decided ---------------------------------------------------------------------------------

KILL_WAIT_S = STOP_S + 1.0
"""Until then everything that was killed is decided."""


async def kill_outcome(engine: Engine, changes: Changes, done: Killing) -> Killing:
    """How a kill came out, as soon as everything it stopped is gone, or its time is up."""
    at = engine.clock.now() + KILL_WAIT_S

    def is_there(tx: Tx, key: str) -> bool:
        run = tx.runs.find(key)
        return engine.is_driving(key) or (run is not None and isinstance(run.phase, Ending))

    def look(tx: Tx) -> bool | None:
        return None if any(is_there(tx, key) for key in done.stopping) else True

    if done.stopping:
        await changes.until(look, done.stopping, at)
    running = tuple(key for key in done.stopping if engine.is_driving(key))
    return await engine.store.read(lambda tx: _sorted_kill(tx, done, running))


def _sorted_kill(tx: Tx, done: Killing, running: tuple[str, ...]) -> Killing:
    finished = tuple(key for key in done.stopping if key not in running and _has_won(tx, key))
    gone = tuple(key for key in done.stopping if key not in running and key not in finished)
    return Killing((*done.killed, *gone), running, finished)


def _has_won(tx: Tx, key: str) -> bool:
    """True of a run that committed a complete end before it could be stopped."""
    run = tx.runs.find(key)
    if run is None or run.ended is None or isinstance(run.ended.outcome, Killed):
        return False
    names = [type(event) for event in tx.events.of(key)]
    return ev.AttemptEnded in names[names.index(ev.KillOrdered) :] if ev.KillOrdered in names else False
