"""A store that is watched: what its commits do goes into a ledger, and each is looked at for limits that must hold.

It is a real SQLite file behind `InlineStore`. Jobs take time, may be run twice, and at a chosen one the process dies:
from then on nothing is written, and whoever waits for the store is cancelled. The ledger belongs to the play, not to
the process, so it remembers what a deleted transcript held.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, cast

from msgspec import Struct, field

from fledge.core.effects import Owes
from fledge.core.events import Event
from fledge.core.exchange import Exchange
from fledge.core.route import Address
from fledge.core.run import Instant, Run
from fledge.core.transcript import Replied, Resulted, Spoken, Told, from_body
from fledge.core.turn import OpenTurn, TurnEnd
from fledge.store.base import EntryKind, HeartbeatRow, InboxRowKind, Spec, Tx, Used
from fledge.testing import InlineStore
from tests.sim.answers import Closed
from tests.sim.schedule import Death, Schedule, dice

T = TypeVar("T")
MOST_COMMITS = 3_000


class Posted(Struct, frozen=True):
    """Something that is to leave."""

    kind: str
    lane: str
    body: str
    at: Instant
    retries: int


class Noted(Struct):
    """What one commit did, or what all did so far."""

    admitted: dict[str, Run] = field(default_factory=dict)
    """Every run that was ever admitted, as it was born."""
    labels: dict[str, str] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    sent: dict[str, str] = field(default_factory=dict)
    """Messages that were accepted, by row, and for which session."""
    told: dict[str, list[str]] = field(default_factory=dict)
    """By row: the sessions whose transcripts took it in."""
    replies: dict[str, int] = field(default_factory=dict)
    """By session: how many replies were committed."""
    answered: set[tuple[str, int, int]] = field(default_factory=set)
    """Calls with a committed result."""
    steps: set[tuple[str, int, int]] = field(default_factory=set)
    """Replies with calls: session, turn and entry."""
    called_off_steps: set[tuple[str, int]] = field(default_factory=set)
    """Of those, the ones whose calls were closed before they were done: session and entry."""
    crowded: set[str] = field(default_factory=set)
    """Sessions that may have more active children than before."""
    posted: dict[str, Posted] = field(default_factory=dict)
    """Everything that was ever put into the outbox, in order."""
    sent_at: dict[str, Instant] = field(default_factory=dict)
    given_up_at: dict[str, Instant] = field(default_factory=dict)
    put_away_at: dict[str, Instant] = field(default_factory=dict)
    """Posts that somebody tried again, or took off the list of what was given up."""
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    """Messages between sessions, as they last stood."""
    beats: dict[str, tuple[HeartbeatRow, HeartbeatRow]] = field(default_factory=dict)
    """Of one commit: what was wanted of a conversation before it and after it."""
    came_due: Counter[str] = field(default_factory=Counter)
    """By session: how often the time of its periodic heartbeat came."""
    beaten: Counter[str] = field(default_factory=Counter)
    """By session: how often a turn was opened for it."""
    closed: list[Closed] = field(default_factory=list)
    """Turns that this commit closed."""
    threads: dict[str, Address] = field(default_factory=dict)
    """By the key of the post that must tell it: where a child was bound when its outcome was announced."""
    called_off: set[str] = field(default_factory=set)
    """Sessions whose driver was superseded, or its step called off."""
    wrong: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    """The same in words, where somebody wants to read it."""

    def add(self, more: "Noted") -> None:
        self.admitted |= more.admitted
        self.labels |= more.labels
        self.forgotten |= more.forgotten
        self.sent |= more.sent
        for row, sessions in more.told.items():
            self.told.setdefault(row, []).extend(sessions)
        for session, count in more.replies.items():
            self.replies[session] = self.replies.get(session, 0) + count
        self.answered |= more.answered
        self.steps |= more.steps
        self.called_off_steps |= more.called_off_steps
        self.posted |= more.posted
        self.sent_at |= more.sent_at
        self.given_up_at |= more.given_up_at
        self.put_away_at |= more.put_away_at
        self.exchanges |= more.exchanges
        self.came_due += more.came_due
        self.beaten += more.beaten
        self.threads |= more.threads


class _Noun:
    """A noun of a transaction: its verbs, or what a spy has in their place, as a method called `noun_verb`."""

    def __init__(self, spy: "Spy", name: str, noun: object) -> None:
        self._spy, self._name, self._noun = spy, name, noun

    def __getattr__(self, verb: str) -> Any:
        name = f"{self._name}_{verb}"
        if hasattr(type(self._spy), name):
            return getattr(self._spy, name)
        return self._spy.said(name, getattr(self._noun, verb))


class Spy:
    """A transaction that notes what is done through it."""

    def __init__(self, tx: Tx, noted: Noted, words: bool) -> None:
        self._tx, self._noted, self._words = tx, noted, words

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tx, name)
        return found if callable(found) else _Noun(self, name, found)

    def said(self, verb: str, found: Callable[..., Any]) -> Callable[..., Any]:
        """The verb, with a line about each call."""
        if not self._words or verb not in _WORTH_A_LINE:
            return found

        def said(*args: Any, **more: Any) -> Any:
            answer = found(*args, **more)
            told = ", ".join([*map(_short, args), *(f"{name}={_short(value)}" for name, value in more.items())])
            self._noted.lines.append(f"{verb} {told}" + ("" if answer is None else f" -> {_short(answer)}"))
            return answer

        return said

    def runs_create(self, run: Run, spec: Spec, event: Event, number: int) -> None:
        self._tx.runs.create(run, spec, event, number)
        self._noted.admitted[run.key] = run
        self._noted.labels[run.key] = spec.label
        self._noted.crowded.add(run.terms.parent)
        self._say(f"{run.key}: born, {spec.label!r} of {run.terms.parent}")

    def runs_save(self, before: Run, after: Run, event: Event) -> None:
        self._tx.runs.save(before, after, event)
        if self._words:
            self._say(f"{after.key}: {_short(event)} -> {_short(after.phase)}")

    def runs_forget(self, key: str) -> None:
        self._tx.runs.forget(key)
        self._noted.forgotten.add(key)

    def inbox_put(
        self, key: str, session: str | None, kind: InboxRowKind, source: str | None, body: str, at: Instant, **more: Any
    ) -> bool:
        new = self._tx.inbox.put(key, session, kind, source, body, at, **more)
        if new and kind == "send" and session is not None:
            self._noted.sent[key] = session
        route = self._tx.routes.get(source) if new and kind == "outcome" and source is not None else None
        if route is not None and route.kind == "bound":
            self._noted.threads[f"final:{key.removeprefix('announce:v1:')}"] = route.address
        self._say(f"put_row {key} into {session}, {kind} of {source}: {'new' if new else 'known'}")
        return new

    def sessions_child_unsettled(self, session: str) -> object:
        self._noted.crowded.add(session)
        return self._tx.sessions.child_unsettled(session)

    def transcripts_append(
        self, session: str, at: Instant, entries: Sequence[tuple[EntryKind, str]], used: Used | None = None
    ) -> int:
        last = self._tx.transcripts.append(session, at, entries, used)
        for seq, (_, text) in enumerate(entries, last - len(entries) + 1):
            match from_body(text):
                case Spoken(row=row) if row:
                    self._noted.told.setdefault(row, []).append(session)
                case Told(completions=completions):
                    for item in completions:
                        self._noted.told.setdefault(item.row, []).append(session)
                case Replied(calls=calls):
                    self._is_driven(session)
                    self._noted.replies[session] = self._noted.replies.get(session, 0) + 1
                    turn = self._tx.turns.get(session)
                    if calls and turn is not None:
                        self._noted.steps.add((session, turn.turn, seq))
                case Resulted(entry=entry, index=index, text=words):
                    self._noted.answered.add((session, entry, index))
                    if words.endswith("; it was not finished"):
                        self._noted.called_off_steps.add((session, entry))
            self._say(f"{session} += {_short(text)}")
        return last

    def turns_close(self, session: str, end: TurnEnd, at: Instant, owes: Owes = "nothing") -> None:
        turn, run = self._tx.turns.get(session), self._tx.runs.find(session)
        if turn is not None:
            entries = self._tx.transcripts.entries(session, after=turn.opened_after, limit=1_000_000)
            bodies = tuple(from_body(entry.body) for entry in entries)
            is_talk = not turn.heartbeat and (run is None or run.ended is not None)
            earlier = owes == "nothing" and self._tx.turns.wait(session) is not None
            self._noted.closed.append(Closed(session, turn.turn, end, turn.origin, is_talk, earlier, bodies))
        self._tx.turns.close(session, end, at, owes)
        self._say(f"close_turn {session} {end.description}, owes {owes}")

    def outbox_post(self, key: str, kind: str, run: str | None, body: str, due_at: Instant, **more: Any) -> bool:
        new = self._tx.outbox.post(key, kind, run, body, due_at, **more)
        if new:
            self._noted.posted[key] = Posted(kind, more.get("lane", ""), body, due_at, more.get("retries", 3))
            if key.startswith("hook:subagent_ended:") and run is not None and self._is_unannounced(run):
                self._noted.wrong.append(f"{key} before its answer is told")
        self._say(f"post {key}: {'new' if new else 'known'}")
        return new

    def _is_unannounced(self, run: str) -> bool:
        known = self._tx.runs.find(run)
        if known is None or not known.terms.expects or known.terms.mode == "session":
            return False
        return any(row.kind == "outcome" and row.state == "unread" for row in self._tx.inbox.of_run(run))

    def outbox_done(self, key: str, at: Instant) -> None:
        self._tx.outbox.done(key, at)
        self._noted.sent_at[key] = at
        self._say(f"post_done {key}")

    def outbox_give_up(self, key: str, error: str, until: Instant, at: Instant) -> None:
        self._tx.outbox.give_up(key, error, until, at)
        self._noted.given_up_at[key] = at
        self._say(f"give_up_post {key}: {error}")

    def outbox_dismiss(self, key: str, at: Instant) -> bool:
        self._noted.put_away_at[key] = at
        return self._tx.outbox.dismiss(key, at)

    def outbox_retry(self, key: str, at: Instant, expires_at: Instant | None) -> bool:
        self._noted.put_away_at[key] = at
        self._say(f"retry_post {key}")
        return self._tx.outbox.retry(key, at, expires_at)

    def exchanges_save(self, exchange: Exchange, at: Instant) -> None:
        self._tx.exchanges.save(exchange, at)
        self._noted.exchanges[exchange.id] = exchange
        self._say(f"exchange {exchange.id} {exchange.kind}: {exchange.stage}, {exchange.hops} hops")

    def heartbeats_save(self, heartbeat: HeartbeatRow) -> None:
        session = heartbeat.session
        before = self._tx.heartbeats.get(session) or HeartbeatRow(session)
        if session in self._noted.beats:
            before = self._noted.beats[session][0]
        self._noted.came_due[session] += before.beat_at not in (None, heartbeat.beat_at) and bool(heartbeat.beat_at)
        self._tx.heartbeats.save(heartbeat)
        self._noted.beats[session] = (before, heartbeat)
        self._say(f"heartbeat {_short(heartbeat)}")

    def turns_save(self, turn: OpenTurn) -> None:
        before = self._tx.turns.get(turn.session)
        self._tx.turns.save(turn)
        began = before is not None and before.heartbeat != "interval" and turn.heartbeat == "interval"
        self._noted.beaten[turn.session] += began
        self._say(f"turn {_short(turn)}")

    def drivers_supersede(self, session: str, until: Instant) -> None:
        self._tx.drivers.supersede(session, until)
        self._noted.called_off.add(session)
        self._say(f"supersede {session} until {until}")

    def drivers_interrupt(self, session: str) -> None:
        self._tx.drivers.interrupt(session)
        self._noted.called_off.add(session)
        self._say(f"interrupt {session}")

    def _is_driven(self, session: str) -> None:
        """A reply is written by the driver that holds the session now, by nobody else."""
        driver, known = self._tx.drivers.get(session), self._tx.sessions.get(session)
        if driver is None or known is None or driver.epoch != known.epoch:
            self._noted.wrong.append(f"{session} is written to by {driver}")

    def _say(self, words: str) -> None:
        if self._words:
            self._noted.lines.append(words)


_WORTH_A_LINE = frozenset(
    (
        *("inbox_consume", "inbox_suppress", "inbox_void", "inbox_give_up", "inbox_dismiss", "inbox_reopen"),
        *("inbox_readdress", "queue_claim", "queue_put", "queue_remove", "drivers_release", "drivers_stop"),
        *("turns_open", "sessions_delete", "sessions_child_settled", "approvals_move", "outbox_failed"),
        *("routes_set", "routes_drop"),
    )
)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


class WatchedStore:
    """One process's store."""

    def __init__(
        self,
        store: InlineStore,
        ledger: Noted,
        check: Callable[[Tx, Noted], None],
        plan: Schedule,
        life: int,
        death: Death | None,
        words: bool,
        spy: type[Spy],
        is_enough: Callable[[], bool],
        on_death: Callable[[], None],
    ) -> None:
        self._store, self._ledger, self._check, self._spy = store, ledger, check, spy
        self.cluster = store.cluster
        self._is_enough, self._on_death = is_enough, on_death
        self._death, self._reruns, self._slow, self._words = death, plan.reruns, plan.slow_store, words
        self._throw = dice(plan.seed, "store", life)
        self._turn_at = 0.0
        self._pending: set[asyncio.Future[Any]] = set()
        self.begun = self._seen = 0
        self.died = asyncio.Event()

    async def transact(self, job: Callable[[Tx], T]) -> T:
        """Jobs are run in the order they came, even if whoever asked is gone by then."""
        self._live()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._pending.add(answer)
        answer.add_done_callback(self._pending.discard)
        # Two jobs never share a moment: the loop does not promise to keep the order of those that do.
        takes_s = self._throw.choice([0.0, 0.001, 0.02]) if self._slow else 0.0
        self._turn_at = max(self._turn_at + 1e-6, loop.time() + takes_s)
        loop.call_at(self._turn_at, self._run, job, answer)
        return await answer

    def _run(self, job: Callable[[Tx], T], answer: "asyncio.Future[T]") -> None:
        if self.died.is_set():
            return
        self.begun += 1
        if self._dies("before"):
            return self.die()
        try:
            if self._throw.random() < self._reruns:
                self._in_vain(job)
            result = self._committed(job)
            told = partial(_succeed, answer, result)
        except Exception as raised:
            told = partial(_fail, answer, raised)
        if self._dies("after"):
            return self.die()
        loop = asyncio.get_running_loop()
        loop.call_later(self._throw.choice([0.0, 0.001]) if self._slow else 0.0, told)

    def _committed(self, job: Callable[[Tx], T]) -> T:
        noted = Noted()

        def watched(tx: Tx) -> T:
            result = job(cast(Tx, self._spy(tx, noted, self._words)))
            self._check(tx, noted)
            return result

        result = self._store.run(watched)
        self._ledger.add(noted)
        return result

    def _in_vain(self, job: Callable[[Tx], T]) -> None:
        """What happens to a job whose neighbours in a batch failed: it is undone, and run again."""

        def undone(tx: Tx) -> None:
            job(tx)
            raise _Undone

        try:
            self._store.run(undone)
        except _Undone:
            return

    @property
    def runs_away(self) -> bool:
        """No schedule takes this many commits: somebody goes round in circles."""
        return self.begun - self._seen > MOST_COMMITS

    def look_on(self) -> None:
        """Whoever plays moves, and has seen that all went well so far: commits are counted from here."""
        self._seen = self.begun

    def _dies(self, when: str) -> bool:
        if self.runs_away or self._is_enough():
            return True
        return self._death is not None and self._death.how == when and self.begun >= self._death.commits

    def doom(self, commits: int, how: Literal["before", "after"]) -> None:
        """The process will die at the n-th commit from now."""
        self._death = Death(self.begun + commits, how, 0.0)

    @property
    def is_busy(self) -> bool:
        """Somebody waits for a commit."""
        return bool(self._pending)

    def die(self) -> None:
        """From now on nothing is written, and nobody is answered."""
        self.died.set()
        self._on_death()
        for waiting in list(self._pending):
            waiting.cancel()

    def _live(self) -> None:
        if self.died.is_set():
            raise asyncio.CancelledError

    async def read(self, job: Callable[[Tx], T]) -> T:
        self._live()
        result = await self._store.read(lambda tx: job(cast(Tx, self._spy(tx, Noted(), False))))
        await asyncio.sleep(self._throw.choice([0.0, 0.001]) if self._slow else 0)
        self._live()
        return result

    async def close(self) -> None:
        await self._store.close()


class _Undone(Exception):
    pass


def _succeed(answer: "asyncio.Future[T]", result: T) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[T]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
