"""What is seen of a play from outside its processes: every commit, every request to a model, every tool that begins.

Whatever must not be is noted in `wrong`, in sentences, at the moment it is seen. The witness outlives processes, so it
counts across them.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence

from fledge.core.reconcile import STOP_S
from fledge.core.run import Ending, Stopping
from fledge.core.transcript import Line, Replied, from_body
from fledge.core.transcript import Noted as Note
from fledge.models.base import AssistantMessage, ModelMessage, Request, UserMessage
from fledge.orchestrator import transcripts
from fledge.runtime import context
from fledge.store.base import Tx
from fledge.testing import START, InlineStore, VirtualClock
from fledge.tools.base import ToolContext
from tests.sim import answers, beats, leaving, standing, verdict
from tests.sim.hands import ASKS
from tests.sim.mind import Who, wire_faults
from tests.sim.outside import Outside
from tests.sim.people import NAMES, walk
from tests.sim.schedule import HORIZON_S, Schedule
from tests.sim.watch import Noted
from tests.sim.workers import Workers

HEARS_S, DEAF_S = 0.1, 60.0
"""How long after it was killed, superseded or called off a driver may still begin something: until it hears of it. One
whose model does not let itself be cancelled goes on for a while; nothing of that is written."""
PROMPT_S = 10.0
"""Nothing that could be taken up lies about for longer, whatever hangs elsewhere."""
EVERY = 16
"""Counters and folds are computed from scratch after every so many commits."""


class Witness:
    """Sees everything, across processes; `tell` hears it, too."""

    def __init__(self, plan: Schedule, tell: Callable[[str], None] | None) -> None:
        self.plan, self._tell = plan, tell
        self.seed, self.trouble, self.chatty = plan.seed, plan.trouble, plan.beyond.chatty
        self.wrong: list[str] = []
        self.ledger = Noted()
        self.commits = self.life = 0
        self._waits: dict[tuple[str, int], float] = {}
        """Since when something waits that nothing holds up."""
        self.lived: dict[int, float] = {}
        """Until when each process lived."""
        self.dead = True
        self.closes = False
        """It is being closed: it takes up nothing more."""
        self._asks: Counter[tuple[str, int]] = Counter()
        self._begun: Counter[str] = Counter()
        self._called_off: dict[str, float] = {}
        self._hears_s = DEAF_S if plan.lingering else HEARS_S
        self.outside, self.workers = Outside(self), Workers(self)
        self.foreign = self.workers.names

    def look_at(self, store: InlineStore, clock: VirtualClock) -> None:
        """From now on this process is watched."""
        self._store, self._clock = store, clock
        self.dead = self.closes = False
        self.life += 1
        self._waits.clear()

    def died(self) -> None:
        """The process is gone: what its tasks still do does not count."""
        if not self.dead:
            self.dead = True
            self.lived[self.life] = self.now()

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
        return NAMES.get(session) or self.ledger.labels[session]

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
        now = self._clock.now()
        self.wrong += verdict.limits_exceeded(tx, self.plan, noted, now)
        self.wrong += verdict.steps_exceeded(self.plan, self.ledger, noted)
        self.wrong += verdict.misplaced(tx, noted) + verdict.begun_below_a_kill(tx, noted)
        self.wrong += beats.unsound(tx, self.plan, noted.beats, now) + answers.unsound(tx, noted.closed, noted.posted)
        self.wrong += standing.unknown(tx)
        beaten = (self.ledger.beaten + noted.beaten) - (self.ledger.came_due + noted.came_due)
        self.wrong += [f"{session} beats more often than its time came" for session in beaten]
        if self.commits % EVERY == 0:
            self.wrong += verdict.sound(tx)
            waiting = verdict.could_go_on(tx, self.plan, now, self.outside.under_way)
            self._waits = {what: self._waits.get(what, now) for what in waiting if not self.closes}
            late = [what for (what, _), since in self._waits.items() if now - since > PROMPT_S]
            self.wrong += [f"nothing holds it up, and it waits: {what}" for what in late]

    def judge(self, tx: Tx) -> list[str]:
        """Everything that is wrong once all is at rest."""
        runs = {key: tx.runs.load(key) for key in walk(tx)}
        wrong = verdict.judge(tx, self.ledger) + leaving.judge(tx, self.plan, self.ledger, self.outside, runs)
        wrong += leaving.misquoted(tx, self.workers.done, runs)
        return wrong + leaving.unheard(tx, self.workers.done, runs, {**self.lived, self.life: self.now()})

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
        lines = [
            Line(entry.seq, from_body(entry.body)) for entry in tx.transcripts.entries(who.session, limit=1_000_000)
        ]
        replied = [at for at, line in enumerate(lines) if isinstance(line.body, Replied)]
        faults: list[str] = []
        if request.messages[-1:] != (UserMessage(context.COMPACT_PROMPT),):
            seen = sum(isinstance(message, AssistantMessage) for message in request.messages)
            notes = [(line.body.hides_from, line.seq) for line in lines if isinstance(line.body, Note)]
            asked_for = replied if notes else replied[seen : seen + 1]
            # What a heartbeat hid is as if it had never been: the next one begins at the same place.
            hidden = [(first, last) for first, last in notes if first]
            asked_for = [at for at in asked_for if not any(one <= lines[at].seq < end for one, end in hidden)]
            if any(context.messages(lines[:at]) == request.messages for at in asked_for):
                faults.append("asked again for a reply that is committed")
            known = tx.sessions.get(who.session)
            if known is not None and known.epoch == who.epoch and not self._just_called_off(who.session):
                faults += wire_faults(request) + beats.remembered(request)
                stored = context.messages(transcripts.lines(tx, who.session))
                if stored != request.messages and not self._was_posted(stored, request):
                    faults.append("asked with another transcript than the one that is stored")
        if self._stopped_before(tx, who.session):
            faults.append("asked after it was killed")
        return len(replied), faults

    def _was_posted(self, stored: Sequence[ModelMessage], request: Request) -> bool:
        """What is told by a post enters a transcript while its session thinks of something else."""
        rest = iter(stored)
        return self.plan.rules.deliver == "send" and all(message in rest for message in request.messages)

    def _stopped_before(self, tx: Tx, session: str) -> bool:
        """A kill reached it, and not just now."""
        run = tx.runs.find(session)
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
            answers = self._store.run(lambda tx: tx.approvals.of(place.session))
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
