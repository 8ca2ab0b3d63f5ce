"""What is seen of a play from outside its processes: every commit, every request to a model, every tool that begins.

Whatever must not be is noted in `wrong`, in sentences, at the moment it is seen. The witness outlives processes, so it
counts across them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from fledge.core.reconcile import STOP_S
from fledge.core.run import Ending, Stopping
from fledge.core.transcript import Line, Replied, from_body
from fledge.core.transcript import Noted as Note
from fledge.models.base import AssistantMessage, Request, UserMessage
from fledge.orchestrator import transcripts
from fledge.runtime import context
from fledge.store.base import Tx
from fledge.testing import START, InlineStore, VirtualClock
from fledge.tools.base import ToolContext
from tests.sim import verdict
from tests.sim.hands import ASKS
from tests.sim.mind import Who, wire_faults
from tests.sim.people import ROOTS
from tests.sim.schedule import HORIZON_S, Schedule
from tests.sim.watch import Noted

HEARS_S, DEAF_S = 0.1, 60.0
"""How long after it was killed, superseded or called off a driver may still begin something: until it hears of it. One
whose model does not let itself be cancelled goes on for a while; nothing of that is written."""
EVERY = 16
"""Counters and folds are computed from scratch after every so many commits."""


class Witness:
    """Sees everything, across processes; `tell` hears it, too."""

    def __init__(self, plan: Schedule, tell: Callable[[str], None] | None) -> None:
        self.plan, self._tell = plan, tell
        self.seed, self.trouble = plan.seed, plan.trouble
        self.wrong: list[str] = []
        self.ledger = Noted()
        self.commits = 0
        self.dead = True
        """The process of now has died: what its tasks still do does not count."""
        self._asks: Counter[tuple[str, int]] = Counter()
        self._begun: Counter[str] = Counter()
        self._called_off: dict[str, float] = {}
        self._hears_s = DEAF_S if plan.lingering else HEARS_S

    def look_at(self, store: InlineStore, clock: VirtualClock) -> None:
        """From now on this process is watched."""
        self._store, self._clock = store, clock
        self.dead = False

    @property
    def talks(self) -> bool:
        """Somebody listens."""
        return self._tell is not None

    @property
    def requests(self) -> int:
        """How often models were asked."""
        return sum(self._asks.values())

    def now(self) -> float:
        """Seconds since the play began."""
        return self._clock.now() - START

    @property
    def calm(self) -> bool:
        """Nothing new is to be begun."""
        return self.now() >= HORIZON_S

    def label(self, session: str) -> str:
        """What a session is called: its place in the tree of spawns, the same in every play of the seed."""
        names = {key: key.rpartition(":")[2] for key in ROOTS}
        return names.get(session) or self.ledger.labels[session]

    def say(self, words: str) -> None:
        """Something for whoever listens."""
        if self._tell is not None:
            at = "" if words.startswith("----") else f"{self.now():10.3f}  "
            self._tell(at + words)

    # ---- commits

    def committing(self, tx: Tx, noted: Noted) -> None:
        """Called inside every commit, with what it did."""
        self.commits += 1
        if noted.lines:
            self.say(f"commit {self.commits}")
        for line in noted.lines:
            self.say(f"    {line}")
        self.wrong += noted.wrong
        self._called_off |= dict.fromkeys(noted.called_off, self._clock.now())
        for row in noted.told:
            sessions = [*self.ledger.told.get(row, ()), *noted.told[row]]
            if len(sessions) > 1:
                self.wrong.append(f"row {row} is told more than once, in {sessions}")
        self.wrong += verdict.limits_exceeded(tx, self.plan, noted, self._clock.now())
        if self.commits % EVERY == 0:
            self.wrong += verdict.sound(tx)

    # ---- models

    def asked(self, who: Who, request: Request) -> tuple[int, int]:
        """A model is asked: never for a reply that is committed, never with a transcript that is torn."""
        replies, faults = self._store.run(lambda tx: self._position(tx, who, request))
        self._asks[who.session, replies] += 1
        self.say(f"model of {who.label} is asked, {len(request.messages)} messages, {replies} replies")
        if not self.dead:
            self.wrong += [f"{who.label}, {replies} replies: {fault}" for fault in faults]
        return replies, self._asks[who.session, replies]

    def _position(self, tx: Tx, who: Who, request: Request) -> tuple[int, list[str]]:
        """How many replies the transcript holds, and what is wrong with asking now."""
        lines = [Line(entry.seq, from_body(entry.body)) for entry in tx.entries(who.session, limit=1_000_000)]
        replied = [at for at, line in enumerate(lines) if isinstance(line.body, Replied)]
        faults: list[str] = []
        if request.messages[-1:] != (UserMessage(context.COMPACT_PROMPT),):
            seen = sum(isinstance(message, AssistantMessage) for message in request.messages)
            summarised = any(isinstance(line.body, Note) for line in lines)
            asked_for = replied if summarised else replied[seen : seen + 1]
            if any(context.messages(lines[:at]) == request.messages for at in asked_for):
                faults.append("asked again for a reply that is committed")
            known = tx.session(who.session)
            if known is not None and known.epoch == who.epoch and not self._just_called_off(who.session):
                faults += wire_faults(request)
                if context.messages(transcripts.lines(tx, who.session)) != request.messages:
                    faults.append("asked with another transcript than the one that is stored")
        if self._stopped_before(tx, who.session):
            faults.append("asked after it was killed")
        return len(replied), faults

    def _stopped_before(self, tx: Tx, session: str) -> bool:
        """A kill reached it, and not just now."""
        run = tx.find_run(session)
        if run is None or not isinstance(run.phase, Ending) or not isinstance(run.phase.cause, Stopping):
            return False
        return run.phase.due_at - STOP_S < self._clock.now() - self._hears_s

    def _just_called_off(self, session: str) -> bool:
        return self._called_off.get(session, 0.0) > self._clock.now() - self._hears_s

    # ---- tools

    def begins(self, name: str, place: ToolContext, repeatable: bool) -> int:
        """A tool begins: never again if it may not be repeated, never after its result, never unasked."""
        if self.dead:
            raise asyncio.CancelledError
        key = place.call_key
        self._begun[key] += 1
        self.say(f"tool {name} of {self.label(place.session)} begins")
        if self._begun[key] > 1 and not repeatable:
            self.wrong.append(f"{name} was begun {self._begun[key]} times: {key}")
        answered = (place.session, place.entry, place.index) in self.ledger.answered
        if answered and not self._just_called_off(place.session):
            self.wrong.append(f"{name} is begun though its result is committed: {key}")
        if name in ASKS:
            answers = self._store.run(lambda tx: tx.approvals(place.session))
            states = [asked.state for asked in answers if (asked.entry, asked.index) == (place.entry, place.index)]
            if states != ["started"]:
                self.wrong.append(f"{name} is begun though the person said {states}: {key}")
        if self._store.run(lambda tx: self._stopped_before(tx, place.session)):
            self.wrong.append(f"{name} is begun after a kill: {key}")
        return self._begun[key]


class Ears(logging.Handler):
    """What the engine complains about is wrong, unless its process has died."""

    def __init__(self, witness: Witness) -> None:
        super().__init__(logging.ERROR)
        self._witness = witness

    def emit(self, record: logging.LogRecord) -> None:
        if not self._witness.dead:
            trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
            self._witness.wrong.append(f"logged: {record.getMessage()} {trace}")
