"""Example turns, their events and the facts around them: at least one of each state, with each kind of wait.

The tests of `core.turn` and the generated `docs/turns.md` share them. `AT` lies before every due time but that of the
waits whose time has come. Nothing here decides anything.
"""

from itertools import product
from typing import Final

from fledge.core.turn import (
    REPLIED,
    Arrived,
    AskingPerson,
    Driven,
    Due,
    FailedTry,
    Idle,
    Looked,
    OpenTurn,
    RowsLeft,
    Turn,
    TurnAnswered,
    TurnAsked,
    TurnClaimed,
    TurnEnd,
    TurnFacts,
    TurnFailed,
    TurnInput,
    TurnLost,
    TurnOver,
    TurnProgressed,
    TurnStopped,
    TurnYielded,
    Wait,
    WaitPassed,
)
from tests.core.samples import AT

MAIN: Final = "agent:main:main"
STOPPED: Final = TurnEnd("stopped")
TIMEOUT: Final = TurnEnd("timeout")


def opened(
    failures: int = 0, crashes: int = 0, wakes: int = 0, turn: int = 4, failed: FailedTry | None = None
) -> OpenTurn:
    """An open turn of the main conversation."""
    return OpenTurn(MAIN, turn, {MAIN: 1}, 2, failures, crashes, 900.0, wakes=wakes, failed=failed)


OPEN: Final = opened()
CRASHED: Final = opened(failures=1, crashes=2)
"""One more crash ends it."""
NEXT: Final = opened(turn=5)
"""The turn that a claim opens."""

ALL: Final = Wait(until_settled=None, due_at=2000.0, origin="chat:1", wakes=1)
TWO: Final = Wait(until_settled=2, due_at=2000.0, asked="2")
LATE: Final = Wait(until_settled=None, due_at=AT)
"""Its time has come."""
ENDLESS: Final = Wait(until_settled=None)
SETTLED: Final = Wait(until_settled=None, due_at=2000.0, origin="chat:1", wakes=1, over="settled")
PAST: Final = Wait(until_settled=2, due_at=AT, asked="2", over="past")

STATES: Final[dict[str, Idle | Due | Driven | AskingPerson]] = {
    "idle": Idle(),
    "due": Due(),
    "due later": Due(1005.0),
    "open and due": Due(None, OPEN),
    "open and due later": Due(1060.0, CRASHED),
    "driven": Driven(OPEN),
    "driven, crashed before": Driven(CRASHED),
    "asking": AskingPerson(1500.0, OPEN),
}
WAITS: Final[dict[str, Wait | None]] = {
    "": None,
    "waits for all": ALL,
    "waits for two": TWO,
    "waits, its time has come": LATE,
    "waits without end": ENDLESS,
    "settled": SETTLED,
    "past": PAST,
}


def is_possible(turn: Turn) -> bool:
    """False of a session that does nothing although its wait is over: no event leads there."""
    return not (isinstance(turn.at, Idle) and turn.wait is not None and turn.wait.over)


TURNS: Final[dict[str, Turn]] = {
    f"{state}, {wait}".strip(", "): turn
    for (state, at), (wait, waits) in product(STATES.items(), WAITS.items())
    if is_possible(turn := Turn(at, waits))
}

SAMPLE_TURN_EVENTS: Final[tuple[TurnInput, ...]] = (
    Arrived(),
    Arrived(hurries=True),
    Arrived(quiet=True),
    Arrived(quiet=True, hurries=True),
    RowsLeft(),
    Looked(),
    WaitPassed(),
    TurnClaimed(NEXT),
    TurnProgressed(),
    TurnAsked(1500.0),
    TurnAnswered(),
    TurnOver(REPLIED),
    TurnOver(TurnEnd("failed", "the budget is spent")),
    TurnYielded(ALL),
    TurnYielded(TWO),
    TurnFailed("HTTP 529", 2.0),
    TurnFailed("no workspace", 2.0, 600.0),
    TurnFailed("no workspace", 2.0, 0.0),
    TurnLost(step_open=True),
    TurnLost(step_open=False),
    TurnStopped(STOPPED),
    TurnStopped(TIMEOUT, keeps_wait=True),
)

CHILDREN: Final = {"at work": (2, 0), "one settled": (1, 1), "two settled": (1, 2), "all settled": (0, 2)}
"""How many are unsettled, and how many settled."""
ROWS: Final[dict[str, dict[str, float | bool]]] = {
    "nothing": {},
    "a message": {"rows_at": AT, "messages_at": AT},
    "a message later": {"rows_at": AT + 5.0, "messages_at": AT + 5.0},
    "a completion": {"rows_at": AT},
    "a completion later": {"rows_at": AT + 5.0},
    "a completion now, a message later": {"rows_at": AT, "messages_at": AT + 5.0},
    "quiet rows": {"quiet": True},
    "a heartbeat": {"wish": True},
    "quiet rows and a heartbeat": {"quiet": True, "wish": True},
    "a message and a heartbeat": {"rows_at": AT, "messages_at": AT, "wish": True},
}


def facts(children: str = "at work", rows: str = "nothing") -> TurnFacts:
    """The surroundings by these names."""
    unsettled, settled = CHILDREN[children]
    return TurnFacts(at=AT, unsettled=unsettled, settled=settled, **ROWS[rows])  # type: ignore[arg-type]


FACTS: Final = {f"{children}, {rows}": facts(children, rows) for children, rows in product(CHILDREN, ROWS)}


def situation(turn: Turn) -> str:
    """What a session is at, in words: its state, whether a turn is open, whether it waits."""
    match turn.at:
        case Idle():
            state = "idle"
        case Due(open=None):
            state = "due"
        case Due():
            state = "open and due"
        case Driven():
            state = "driven"
        case AskingPerson():
            state = "asking"
    if turn.wait is None:
        return state
    return f"{state}, wait over" if turn.wait.over else f"{state}, waits"
