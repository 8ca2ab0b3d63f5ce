"""A conversation with children in a small world, moved by the real `transition_turn`: one step is one commit.

The world has what `orchestrator.effects.move_turn` has around it: rows in an inbox, children that settle, a driver, a
person who is asked, heartbeats, deadlines, crashes. Which rows enter a turn is decided by `core.inbox`, what a yield
comes to by `core.policy`. Time is abstract: all happens at `NOW`, and whatever is due later may come at any moment.
After each commit `Commit.check` says which property is broken, if one is.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from fledge.core import inbox, policy
from fledge.core.effects import FreeDriver, SupersedeDriver
from fledge.core.events import YieldCondition
from fledge.core.turn import (
    REPLIED,
    Arrived,
    AskingPerson,
    CloseTurn,
    CutCalls,
    Driven,
    Due,
    Idle,
    IllegalTurn,
    Looked,
    OpenTurn,
    PostWake,
    TellCrashed,
    TellGivenUp,
    Turn,
    TurnAnswered,
    TurnAsked,
    TurnClaimed,
    TurnEffect,
    TurnEnd,
    TurnFacts,
    TurnFailed,
    TurnInput,
    TurnLost,
    TurnOver,
    TurnProgressed,
    TurnStep,
    TurnStopped,
    TurnYielded,
    Wait,
    WaitPassed,
    WishHeartbeat,
)

NOW: Final = 0.0
LATER: Final = 1.0

Transition = Callable[[Turn, TurnInput, TurnFacts], TurnStep]
Child = Literal["at work", "aiming", "silent", "over"]
"""`aiming`: it has settled, and a hook is asked where its answer should go; `silent`: it has settled without a row, and
its parent has not heard of that."""
Whim = Literal[
    "message", "notice", "beat", "step", "ask", "yield", "fail", "break", "limit", "crash", "exit", "kill", "stop",
    "interrupt", "timeout", "withdraw",
]  # fmt: skip


class Same(dict[str, int]):
    """Generations that nobody changes: a turn that carries them can be a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return 0


OPENS: Final = OpenTurn("main", 1, Same(), 0, 0, 0, NOW)


class Row(Struct, frozen=True, gc=False):
    """A row of the inbox, until what it says is answered or taken back."""

    kind: Literal["send", "completion", "notice", "wake"]
    state: Literal["unread", "read", "owed"] = "unread"
    """`read`: by the open turn; `owed`: by one that has yielded."""
    quiet: bool = False
    """Nobody waits for it."""


class State(Struct, frozen=True, gc=False):
    """The world between two commits."""

    turn: Turn
    rows: tuple[Row, ...]
    children: tuple[Child, ...]
    left: tuple[int, ...]
    """How often each whim of the configuration may still happen."""
    asked: bool = False
    """A person has been asked and has not answered."""
    wish: Literal["", "asked", "for rows", "now"] = ""
    """A heartbeat is wanted: by a person or for quiet rows, soon; or by now."""
    past: bool = False
    """The time of the wait has passed."""
    violation: str = ""


@dataclass(frozen=True)
class Configuration:
    """How many children there are, what may happen, and how often."""

    children: int
    whims: dict[Whim, int]
    for_ever: tuple[Whim, ...] = ()
    """What may happen without end."""
    people: inbox.QueueMode = "steer"
    completions: inbox.QueueMode = "collect"
    asks_for: tuple[YieldCondition, ...] = ("all",)
    """What yields may wait for."""
    hooks: bool = False
    """A hook is asked where the answer to a child should go."""
    fire_and_forget: bool = False
    """Nobody waits for what the children say."""


class Commit:
    """One commit: the state it began with, and what it makes of that."""

    def __init__(self, model: "Model", state: State, at: float = NOW) -> None:
        self.model, self.before, self.at = model, state, at
        self.turn, self.rows, self.children = state.turn, list(state.rows), list(state.children)
        self.left, self.asked, self.wish, self.past = list(state.left), state.asked, state.wish, state.past
        self.driven = isinstance(state.turn.at, Driven)
        """A driver may write."""
        self.queue: deque[TurnInput] = deque()
        self.changes_wait = False
        """The step may drop the wait, or begin one."""
        self.is_failure = self.is_posted = self.untold = False
        """A try has failed; what the turn read was posted; a turn was given up, and nobody has heard of that."""
        self.broken = ""

    # ---- as the orchestrator does ------------------------------------------------------------------------------------

    def take_up(self, event: TurnInput) -> None:
        self.is_failure = isinstance(event, TurnFailed)
        try:
            step = self.model.transition(self.turn, event, self._facts(event))
        except IllegalTurn as illegal:
            self.breaks(f"P9: {illegal}")
            return
        self.turn = step.turn
        for effect in step.effects:
            self._carry_out(effect)

    def _facts(self, event: TurnInput) -> TurnFacts:
        turn = self.turn
        if turn.open is not None and not isinstance(
            event, TurnOver | TurnYielded | TurnFailed | TurnLost | TurnStopped
        ):
            return TurnFacts(at=self.at)
        if isinstance(event, Arrived) and turn.wait is None and (isinstance(turn.at, Idle) or turn.at == Due()):
            return TurnFacts(at=self.at, rows_at=self.at)
        unread = [row for row in self.rows if row.state == "unread"]
        sends = [row for row in unread if row.kind == "send"]
        quiet = bool(unread) and all(row.quiet for row in unread)
        return TurnFacts(
            at=self.at,
            unsettled=self.unsettled,
            settled=len(self.children) - self.unsettled,
            rows_at=self._drain_at(unread) if unread and not quiet else None,
            messages_at=self._drain_at(sends) if sends else None,
            quiet=quiet,
            wish=self.wish == "now",
        )

    def _drain_at(self, rows: list[Row]) -> float:
        return inbox.drain_at([self._item(0, row) for row in rows], inbox.QueueSettings(), self.at)

    def _item(self, key: int, row: Row) -> inbox.WaitingItem:
        return _item(key, row.kind, self.model.mode(row))

    @property
    def unsettled(self) -> int:
        return self.children.count("at work")

    def _carry_out(self, effect: TurnEffect) -> None:
        match effect:
            case FreeDriver() | SupersedeDriver():
                self.driven = False
            case CloseTurn():
                self._close(effect)
            case CutCalls():
                self.asked = False
            case PostWake(wait=wait):
                silent, unread = "silent" in self.children, any(row.kind == "completion" for row in self.unread())
                self.children = ["over" if child == "silent" else child for child in self.children]
                if wait.over == "past" or silent or not unread:
                    self.rows.append(Row("wake"))
            case WishHeartbeat():
                if self.turn.wait is not None:
                    self.breaks("P6: a heartbeat is wished that cannot come before the wait is over")
                self.wish = "asked" if self.wish == "asked" else "for rows"
            case TellCrashed(turn=turn):
                self.untold = False
                if not turn.heartbeat:
                    self.arrives(Row("notice", quiet=True))
            case TellGivenUp():
                self.is_posted = True

    def _close(self, close: CloseTurn) -> None:
        """What was read has ended like this, but for what is still owed."""
        if close.owes == "all":
            self.rows = [replace(row, state="owed") if row.state == "read" else row for row in self.rows]
            return
        ended = ("read",) if close.owes == "earlier" else ("read", "owed")
        self.untold = close.end.kind == "crashed" or (self.is_failure and not self.is_posted)
        gone = [row for row in self.rows if row.state in ended]
        self.rows = [row for row in self.rows if row.state not in ended]
        if gone and close.end.kind == "yielded":
            self.breaks("P2: what was read was answered by a yield")
        if any(row.state == "owed" for row in gone) and self.turn.wait is not None:
            self.breaks("P2: what a wait owes was answered before it was over")
        if self.asked:
            self.breaks("P9: a turn was closed with a question open")

    def unread(self) -> list[Row]:
        """What may be read now: while it waits no completion."""
        waits = self.turn.wait is not None
        return [row for row in self.rows if row.state == "unread" and not (waits and row.kind == "completion")]

    def arrives(self, row: Row) -> None:
        """Put a row into the inbox; in mode `interrupt` it calls off the step of a driver."""
        self.rows.append(row)
        if self.model.mode(row) == "interrupt" and self.driven and self._entering(at_boundary=True):
            self.read(at_boundary=True)
            return
        spoken = any(one.kind == "send" and one.state == "unread" for one in self.rows)
        self.queue.append(Arrived(row.quiet, hurries=spoken))

    def _entering(self, at_boundary: bool) -> list[int]:
        """Places of the rows that enter now."""
        waits = self.turn.wait is not None
        items = [
            self._item(at, row)
            for at, row in enumerate(self.rows)
            if row.state == "unread" and not (waits and row.kind == "completion")
        ]
        return [int(item.key) for item in inbox.take(items, at_boundary)]

    def read(self, at_boundary: bool) -> bool:
        """Let what may enter the open turn enter it; False if nothing does."""
        return self._consume(self._entering(at_boundary))

    def _consume(self, places: list[int]) -> bool:
        opened = self.turn.open
        if not places or opened is None:
            return False
        taken = [self.rows[at] for at in places]
        rows = [replace(row, state="read") if at in places else row for at, row in enumerate(self.rows)]
        # Notices and wakes want no answer.
        self.rows = [row for row in rows if row.state != "read" or row.kind in ("send", "completion")]
        if self.turn.wait is not None and any(row.kind == "completion" for row in taken):
            self.breaks("P5: a completion was read while a wait stood")
        if not all(row.quiet for row in taken):
            opened = replace(opened, heartbeat="")
        if any(row.kind == "send" for row in taken):
            opened = replace(opened, wakes=0)
        self.turn = replace(self.turn, at=replace(self.turn.at, open=opened))
        return True

    # ---- steps -------------------------------------------------------------------------------------------------------

    def claim(self) -> None:
        resumed, self.driven = self.turn.open is not None, True
        self.changes_wait = not resumed and self.turn.wait is not None and bool(self.turn.wait.over)
        if isinstance(self.turn.at, AskingPerson):
            self.asked = False  # its question has expired
        if self.asked:
            self.breaks("P6: driven for nothing: its question is open")
        self.take_up(TurnClaimed(OPENS))
        opened = self.turn.open
        if opened is None:
            # A heartbeat that was asked for once more is put off for a moment: then it has its turn.
            if not self.wish:
                self.breaks("P6: claimed for nothing")
            return
        if self.changes_wait and self.turn.wait is not None:
            self.breaks("P4: a wake left the wait as it was")
        begins = not resumed and self.turn.wait is None and self._begin(opened)
        if not self.read(at_boundary=resumed) and not resumed and not begins:
            self.breaks("P6: a turn opened with nothing to read")

    def _begin(self, opened: OpenTurn) -> bool:
        """True of a heartbeat's turn: everything that it reads is quiet."""
        rows, wanted = [self.rows[at] for at in self._entering(at_boundary=False)], self.wish == "now"
        if not (rows or wanted):
            return False
        self.wish = ""
        if not all(row.quiet for row in rows):
            return False
        self.turn = replace(self.turn, at=Driven(replace(opened, heartbeat="default")))
        return True

    def progress(self) -> None:
        self.take_up(TurnProgressed())
        self.read(at_boundary=True)

    def ask(self) -> None:
        self.asked = True
        self.take_up(TurnAsked(LATER))

    def answer(self) -> None:
        """The last question is answered: a turn without an open one is due when that would have expired."""
        self.asked, opened = False, self.turn.open
        self.turn = replace(self.turn, at=Due(LATER, opened))
        self.take_up(TurnAnswered())
        if self.turn.at != Due(None, opened):
            self.breaks("P9: every question is answered, and the turn is not due")

    def wait(self, asked: YieldCondition) -> bool:
        """Yield; False if the call is refused."""
        opened, is_aside = self.turn.open, self.turn.wait is not None
        unread = sum(row.kind == "completion" and row.state == "unread" for row in self.rows)
        unsettled, settled = self.unsettled, len(self.children) - self.unsettled
        wakes = 0 if opened is None else opened.wakes
        to_come = unsettled + (unread if is_aside else 0)
        match policy.judge_yield(asked, wakes, to_come, settled, unread, is_aside):
            case "read":
                self._consume([at for at, row in enumerate(self.rows) if row in self.unread() and _is_completion(row)])
            case "wait":
                until = policy.wait_until(asked, unsettled, settled, unread)
                self.changes_wait, self.past = True, False
                wait = Wait(until, LATER, wakes=wakes)
                self.take_up(TurnYielded(wait))
                if _condition(self.turn.wait) != wait:
                    self.breaks("P4: a yield waits for something else")
            case _:
                return False
        return True

    def settle(self, at: int, child: Child) -> None:
        """A child settles; its row, if it has one, arrives first."""
        self.children[at] = child
        if child == "over":
            self.arrives(Row("completion", quiet=self.model.configuration.fire_and_forget))
        self.drain()
        if self.turn.wait is not None and child != "aiming":
            self.take_up(Looked())

    def answers(self, at: int) -> None:
        self.settle(at, "aiming" if self.model.configuration.hooks else "over")

    def aimed(self, at: int) -> None:
        self.children[at] = "over"
        self.arrives(Row("completion"))

    def stop(self, kills: bool) -> None:
        self.changes_wait = True
        self.take_up(TurnStopped(TurnEnd("stopped")))
        for at, child in enumerate(self.children):
            if kills and child == "at work":
                self.settle(at, "silent")
        self.drain()
        idle = isinstance(self.turn.at, Idle) and self.turn.wait is None
        if not idle and not self.unread() and self.wish != "now":
            self.breaks("P10: a stop leaves something going on")

    def time_out(self, at: int) -> None:
        """The time of the request at this place is over. Only a turn that answers it is stopped."""
        row = self.rows[at]
        if self.turn.open is None or (self.turn.wait is not None and row.state == "owed"):
            del self.rows[at]
        else:
            self.take_up(TurnStopped(TurnEnd("timeout"), keeps_wait=True))

    def withdraw(self, at: int) -> None:
        del self.rows[at]
        self.queue.append(Looked())

    def beat(self) -> None:
        """A heartbeat that is wanted comes due, and the session is not busy."""
        if self.turn.open is not None:
            self.wish = ""  # the open turn reads what waits, and asks again for what it leaves
        elif isinstance(self.turn.at, Due):
            self.wish = "now"
        elif self.wish == "for rows" and not any(row.quiet for row in self.unread()):
            self.wish = ""
        else:
            self.wish = "now"
            self.take_up(Looked())

    def pass_time(self) -> None:
        self.past = True
        self.take_up(WaitPassed())

    # ---- the end of the commit ---------------------------------------------------------------------------------------

    def breaks(self, why: str) -> None:
        self.broken = self.broken or why

    def drain(self) -> None:
        while self.queue:
            self.take_up(self.queue.popleft())

    def state(self) -> State:
        """The state after the commit."""
        self.drain()
        self._check()
        if self.turn.wait is None:
            self.past = False
        return State(
            self.turn, tuple(self.rows), tuple(self.children), tuple(self.left), self.asked, self.wish, self.past,
            self.broken,
        )  # fmt: skip

    def _check(self) -> None:
        turn, wait = self.turn, self.turn.wait
        if self.driven != isinstance(turn.at, Driven):
            self.breaks("P7: a driver without a turn" if self.driven else "P7: a turn is driven without a driver")
        if turn.open is None and any(row.state == "read" for row in self.rows):
            self.breaks("P2: what was read has no turn that answers it")
        if wait is None and turn.open is None and any(row.state == "owed" for row in self.rows):
            self.breaks("P2: what was read is owed by no wait")
        if self.untold:
            self.breaks("P2: a turn was given up in silence")
        if self.asked != isinstance(turn.at, AskingPerson):
            self.breaks("P9: a turn asks a person without a question, or has a question and does not ask")
        before = self.before.turn.wait
        if not self.changes_wait and _condition(before) != _condition(wait):
            self.breaks("P5: a wait did not survive a step that is no yield, wake or stop")
        if wait is not None and self.past and not wait.over:
            self.breaks("P4: the time of a wait has passed, and the wait stands")
        if turn.open is not None:
            return
        if isinstance(turn.at, Idle) and not all(row.quiet for row in self.unread()):
            self.breaks("P5: a row is unread, and no turn is due for it")
        if wait is None:
            return
        holds = policy.holds(wait.until_settled, self.unsettled, len(self.children) - self.unsettled)
        if holds and not wait.over and "aiming" not in self.children:
            self.breaks("P4: a wait that is over stands while no turn is open")
        if wait.over and not isinstance(turn.at, Due):
            self.breaks("P4: a wait is over, and no turn is due for it")


def _condition(wait: Wait | None) -> Wait | None:
    """The wait without whether it is over."""
    return None if wait is None else replace(wait, over="")


def _is_completion(row: Row) -> bool:
    return row.kind == "completion"


@cache
def _item(key: int, kind: inbox.ItemKind, mode: inbox.QueueMode) -> inbox.WaitingItem:
    return inbox.WaitingItem(str(key), kind, NOW, "", mode)


class Model:
    """What may happen in a configuration."""

    def __init__(self, configuration: Configuration, transition: Transition) -> None:
        self.configuration, self.transition = configuration, transition
        self.whims = tuple(configuration.whims)

    def mode(self, row: Row) -> inbox.QueueMode:
        if row.kind == "completion":
            return self.configuration.completions
        return self.configuration.people if row.kind == "send" else "collect"

    def first(self) -> State:
        at_work: Child = "at work"
        children = (at_work,) * self.configuration.children
        return State(Turn(), (), children, tuple(self.configuration.whims.values()))

    def unfinished(self, state: State) -> str:
        """Why the world is not at rest; empty if it is."""
        if not isinstance(state.turn.at, Idle):
            return f"the session is {type(state.turn.at).__name__}"
        if state.turn.wait is not None:
            return "the session waits"
        if state.rows:
            return f"a {state.rows[0].kind} is {state.rows[0].state}"
        if state.wish:
            return "a heartbeat is wanted"
        return "a child has not settled" if {"at work", "aiming"} & {*state.children} else ""

    def steps(self, state: State) -> Iterator[tuple[str, str, State]]:
        """Who does what, and the state after it."""
        if state.violation:
            return
        yield from self._system(state)
        for whim in (*self.whims, *self.configuration.for_ever):
            if whim in self.configuration.for_ever:
                yield from (("forced", label, commit.state()) for label, commit in self._whim(state, whim))
            elif state.left[self.whims.index(whim)]:
                for label, commit in self._whim(state, whim):
                    commit.left[self.whims.index(whim)] -= 1
                    yield "world", label, commit.state()

    def _do(self, state: State, deed: Callable[[Commit], object]) -> State:
        commit = Commit(self, state)
        deed(commit)
        return commit.state()

    def _system(self, state: State) -> Iterator[tuple[str, str, State]]:
        at, wait = state.turn.at, state.turn.wait
        match at:
            case Due() | AskingPerson():
                yield "system", "claimed", self._do(state, Commit.claim)
            case Driven():
                yield "system", "replied", self._do(state, lambda c: c.take_up(TurnOver(REPLIED)))
        if isinstance(at, AskingPerson):
            yield "world", "answered", self._do(state, Commit.answer)
        for number, child in enumerate(state.children):
            if child == "at work":
                yield "system", f"child {number} settles", self._do(state, partial(Commit.answers, at=number))
            elif child == "aiming":
                yield "system", f"the hook of child {number} answers", self._do(state, partial(Commit.aimed, at=number))
        if state.wish in ("asked", "for rows") and not isinstance(at, Driven) and wait is None:
            yield "system", "a heartbeat is due", self._do(state, Commit.beat)
        if wait is not None and not wait.over and wait.due_at is not None:
            commit = Commit(self, state, LATER)
            commit.pass_time()
            yield "forced", "the time of the wait passes", commit.state()

    def _whim(self, state: State, whim: Whim) -> Iterator[tuple[str, Commit]]:
        commit, is_driven = Commit(self, state), isinstance(state.turn.at, Driven)
        match whim:
            case "message":
                commit.arrives(Row("send"))
            case "notice":
                commit.arrives(Row("notice", quiet=True))
            case "beat":
                commit.wish = "asked"
            case "stop" | "interrupt":
                commit.stop(kills=whim == "stop")
            case "withdraw" | "timeout":
                yield from self._about_messages(state, whim)
                return
            case "kill":
                yield from self._kills(state)
                return
            case "yield":
                yield from self._yields(state) if is_driven else ()
                return
            case _ if not is_driven:
                return
            case "step":
                commit.progress()
            case "ask":
                commit.ask()
            case "fail":
                commit.take_up(TurnFailed("no model answers", 1.0))
            case "break":
                failed = None if state.turn.open is None else state.turn.open.failed
                commit.at = NOW if failed is None or failed.ends_at is None else LATER
                commit.take_up(TurnFailed("no workspace", 1.0, LATER))
            case "limit":
                commit.take_up(TurnOver(TurnEnd("failed", "the budget is spent")))
            case "crash" | "exit":
                commit.take_up(TurnLost(step_open=whim == "crash"))
        yield whim, commit

    def _about_messages(self, state: State, whim: Whim) -> Iterator[tuple[str, Commit]]:
        for at, row in enumerate(state.rows):
            if row.kind == "send" and (row.state == "unread") == (whim == "withdraw"):
                commit = Commit(self, state)
                commit.withdraw(at) if whim == "withdraw" else commit.time_out(at)
                yield whim, commit

    def _kills(self, state: State) -> Iterator[tuple[str, Commit]]:
        for at, child in enumerate(state.children):
            if child == "at work":
                commit = Commit(self, state)
                commit.settle(at, "silent")
                yield f"child {at} is killed", commit

    def _yields(self, state: State) -> Iterator[tuple[str, Commit]]:
        for asked in self.configuration.asks_for:
            commit = Commit(self, state)
            if commit.wait(asked):
                yield f"yields for {asked}", commit
