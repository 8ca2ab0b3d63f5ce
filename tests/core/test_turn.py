"""A conversation's turns: every state with every event in one table, each event exactly, and what always holds.

A situation is a state, split by whether a turn is open and whether the session waits. In the table an event stands on
each line that some sample of it, with some facts, can lead to.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, Final, get_args

import pytest
from msgspec.structs import replace

from fledge.core import policy
from fledge.core.effects import FreeDriver, SupersedeDriver
from fledge.core.turn import (
    REPLIED,
    YIELDED,
    Arrived,
    AskingPerson,
    CloseTurn,
    CutCalls,
    Driven,
    Due,
    FailedTry,
    Idle,
    IllegalTurn,
    Looked,
    PostWake,
    RowsLeft,
    TellCrashed,
    TellFailing,
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
    transition_turn,
)
from tests.core.samples import AT
from tests.core.turn_samples import (
    ALL,
    CRASHED,
    ENDLESS,
    FACTS,
    LATE,
    NEXT,
    OPEN,
    PAST,
    SAMPLE_TURN_EVENTS,
    SETTLED,
    STOPPED,
    TIMEOUT,
    TURNS,
    TWO,
    facts,
    is_possible,
    opened,
    situation,
)
from tests.statements import proves

EVENTS: Final = get_args(TurnInput)
OUTAGE: Final = FailedTry("HTTP 529", None)
GIVEN_UP: Final = opened(9, failed=FailedTry("no workspace", AT))
ILLEGAL, NOTHING = "illegal", "nothing changes"
OF_A_DRIVER = "TurnProgressed TurnAsked TurnOver TurnYielded TurnFailed TurnLost"
OUTSIDE = "Arrived RowsLeft Looked WaitPassed"
LOOKS = "Arrived RowsLeft Looked"

GRID: Final[dict[str, dict[str, str]]] = {
    "idle": {
        "due": f"{LOOKS} TurnStopped",
        "idle": "Arrived RowsLeft TurnStopped",
        NOTHING: f"{OUTSIDE} TurnAnswered",
        ILLEGAL: f"TurnClaimed {OF_A_DRIVER}",
    },
    "idle, waits": {
        "due, waits": f"{LOOKS} TurnStopped",
        "due, wait over": f"{OUTSIDE} TurnStopped",
        "idle, waits": "TurnStopped",
        "idle": "TurnStopped",
        "due": "TurnStopped",
        NOTHING: f"{OUTSIDE} TurnAnswered",
        ILLEGAL: f"TurnClaimed {OF_A_DRIVER}",
    },
    "due": {
        "driven": "TurnClaimed",
        "idle": f"{LOOKS} TurnClaimed TurnStopped",
        "due": f"{LOOKS} TurnStopped",
        NOTHING: f"{OUTSIDE} TurnAnswered",
        ILLEGAL: OF_A_DRIVER,
    },
    "due, waits": {
        "driven, waits": "TurnClaimed",
        "idle, waits": f"{LOOKS} TurnClaimed TurnStopped",
        "due, waits": f"{LOOKS} TurnStopped",
        "due, wait over": f"{OUTSIDE} TurnStopped",
        "idle": "TurnStopped",
        "due": "TurnStopped",
        NOTHING: f"{OUTSIDE} TurnAnswered",
        ILLEGAL: OF_A_DRIVER,
    },
    "due, wait over": {
        "driven": "TurnClaimed",
        "due, wait over": f"{LOOKS} TurnStopped",
        "idle": "TurnStopped",
        "due": "TurnStopped",
        NOTHING: f"{OUTSIDE} TurnAnswered",
        ILLEGAL: OF_A_DRIVER,
    },
    "open and due": {
        "driven": "TurnClaimed",
        "open and due": "Arrived TurnAnswered",
        "idle": "TurnStopped",
        "due": "TurnStopped",
        NOTHING: f"{OUTSIDE} TurnAnswered",
        ILLEGAL: OF_A_DRIVER,
    },
    "open and due, waits": {
        "driven, waits": "TurnClaimed",
        "open and due, waits": "Arrived TurnAnswered",
        "open and due, wait over": "WaitPassed",
        "idle, waits": "TurnStopped",
        "due, waits": "TurnStopped",
        "due, wait over": "TurnStopped",
        "idle": "TurnStopped",
        "due": "TurnStopped",
        NOTHING: f"{OUTSIDE} TurnAnswered",
        ILLEGAL: OF_A_DRIVER,
    },
    "open and due, wait over": {
        "driven, wait over": "TurnClaimed",
        "open and due, wait over": "Arrived TurnAnswered",
        "due, wait over": "TurnStopped",
        "idle": "TurnStopped",
        "due": "TurnStopped",
        NOTHING: f"{OUTSIDE} TurnAnswered",
        ILLEGAL: OF_A_DRIVER,
    },
    "driven": {
        "driven": "TurnProgressed",
        "asking": "TurnAsked",
        "open and due": "TurnFailed TurnLost",
        "idle": "TurnOver TurnFailed TurnLost TurnStopped",
        "due": "TurnOver TurnFailed TurnLost TurnStopped",
        "idle, waits": "TurnYielded",
        "due, waits": "TurnYielded",
        "due, wait over": "TurnYielded",
        NOTHING: f"{OUTSIDE} TurnProgressed TurnAnswered",
        ILLEGAL: "TurnClaimed",
    },
    "driven, waits": {
        "driven, waits": "TurnProgressed",
        "driven, wait over": "WaitPassed",
        "asking, waits": "TurnAsked",
        "open and due, waits": "TurnFailed TurnLost",
        "idle, waits": "TurnOver TurnYielded TurnFailed TurnLost TurnStopped",
        "due, waits": "TurnOver TurnYielded TurnFailed TurnLost TurnStopped",
        "due, wait over": "TurnOver TurnYielded TurnFailed TurnLost TurnStopped",
        "idle": "TurnStopped",
        "due": "TurnStopped",
        NOTHING: f"{OUTSIDE} TurnProgressed TurnAnswered",
        ILLEGAL: "TurnClaimed",
    },
    "driven, wait over": {
        "driven, wait over": "TurnProgressed",
        "asking, wait over": "TurnAsked",
        "open and due, wait over": "TurnFailed TurnLost",
        "due, wait over": "TurnOver TurnYielded TurnFailed TurnLost TurnStopped",
        "idle, waits": "TurnYielded",
        "due, waits": "TurnYielded",
        "idle": "TurnStopped",
        "due": "TurnStopped",
        NOTHING: f"{OUTSIDE} TurnProgressed TurnAnswered",
        ILLEGAL: "TurnClaimed",
    },
    "asking": {
        "driven": "TurnClaimed",
        "open and due": "TurnAnswered",
        "idle": "TurnStopped",
        "due": "TurnStopped",
        NOTHING: OUTSIDE,
        ILLEGAL: OF_A_DRIVER,
    },
    "asking, waits": {
        "driven, waits": "TurnClaimed",
        "open and due, waits": "TurnAnswered",
        "asking, wait over": "WaitPassed",
        "idle, waits": "TurnStopped",
        "due, waits": "TurnStopped",
        "due, wait over": "TurnStopped",
        "idle": "TurnStopped",
        "due": "TurnStopped",
        NOTHING: OUTSIDE,
        ILLEGAL: OF_A_DRIVER,
    },
    "asking, wait over": {
        "driven, wait over": "TurnClaimed",
        "open and due, wait over": "TurnAnswered",
        "due, wait over": "TurnStopped",
        "idle": "TurnStopped",
        "due": "TurnStopped",
        NOTHING: OUTSIDE,
        ILLEGAL: OF_A_DRIVER,
    },
}


def verdict(turn: Turn, event: TurnInput, around: TurnFacts) -> str:
    """Where the event leads: the next situation, that nothing changes, or that it cannot happen."""
    try:
        step = transition_turn(turn, event, around)
    except IllegalTurn:
        return ILLEGAL
    return NOTHING if step == TurnStep(turn) else situation(step.turn)


CELLS = [(name, event.__name__) for name in GRID for event in EVENTS]


def expected(name: str, event: str) -> set[str]:
    return {line for line, events in GRID[name].items() if event in events.split()}


@proves("2.phases.42", "Every (state of a turn, event) pair moves, changes nothing, or is a bug of ours")
@pytest.mark.parametrize(("name", "event"), CELLS)
def test_the_event_leads_in_this_situation_exactly_where_the_table_says(name: str, event: str) -> None:
    turns = [turn for turn in TURNS.values() if situation(turn) == name]
    samples = [sample for sample in SAMPLE_TURN_EVENTS if type(sample).__name__ == event]
    found = {verdict(turn, sample, around) for turn, sample, around in product(turns, samples, FACTS.values())}
    assert found == expected(name, event)


@proves("2.phases.42")
def test_the_table_has_every_state_and_every_cell_and_nothing_unknown() -> None:
    assert {situation(turn) for turn in TURNS.values()} == set(GRID)
    assert {type(turn.at) for turn in TURNS.values()} == {Idle, Due, Driven, AskingPerson}
    assert {type(sample) for sample in SAMPLE_TURN_EVENTS} == set(EVENTS)
    assert [cell for cell in CELLS if not expected(*cell)] == []
    named = {event for lines in GRID.values() for events in lines.values() for event in events.split()}
    assert named == {event.__name__ for event in EVENTS}
    assert {line for lines in GRID.values() for line in lines} == {*GRID, ILLEGAL, NOTHING}


# ---- each event, exactly ---------------------------------------------------------------------------------------------

Case = tuple[str, Turn, TurnInput, TurnFacts, TurnStep]
LATER: Final = AT + 5.0
WORKING: Final = facts("at work")
MESSAGE: Final = facts("at work", "a message")
COMPLETION: Final = facts("one settled", "a completion")
LAST_COMPLETION: Final = facts("all settled", "a completion")
QUIET: Final = facts("at work", "quiet rows")
WISH: Final = facts("at work", "a heartbeat")


def step(turn: Turn, *effects: TurnEffect) -> TurnStep:
    return TurnStep(turn, effects)


def over(end: TurnEnd, owes: str = "nothing") -> tuple[CloseTurn, FreeDriver]:
    """What the end of a turn asks of the world."""
    return CloseTurn(end, owes), FreeDriver()  # type: ignore[arg-type]


def cut(end: TurnEnd, owes: str = "nothing") -> tuple[CutCalls, CloseTurn, SupersedeDriver]:
    """What a stop asks of the world."""
    return CutCalls(end.kind), CloseTurn(end, owes), SupersedeDriver(AT + 5.0)  # type: ignore[arg-type]


ARRIVED: Final[list[Case]] = [
    ("a message to an idle one: due at once", Turn(), Arrived(), MESSAGE, step(Turn(Due()))),
    (
        "to an idle one it is never collected first",
        Turn(),
        Arrived(),
        facts("at work", "a message later"),
        step(Turn(Due())),
    ),
    (
        "a message to one that waits: an aside",
        Turn(Idle(), ALL),
        Arrived(hurries=True),
        MESSAGE,
        step(Turn(Due(), ALL)),
    ),
    ("a completion to one that waits is held", Turn(Idle(), ALL), Arrived(), COMPLETION, step(Turn(Idle(), ALL))),
    ("the last completion ends the wait", Turn(Idle(), ALL), Arrived(), LAST_COMPLETION, step(Turn(Due(), SETTLED))),
    (
        "the second of two does, too",
        Turn(Idle(), TWO),
        Arrived(),
        facts("two settled", "a completion"),
        step(Turn(Due(), replace(TWO, over="settled"))),
    ),
    (
        "the wait comes before the message",
        Turn(Idle(), ALL),
        Arrived(hurries=True),
        facts("all settled", "a message"),
        step(Turn(Due(), SETTLED)),
    ),
    ("one that is due begins no later", Turn(Due()), Arrived(), facts(rows="a message later"), step(Turn(Due()))),
    (
        "one that collects goes on collecting",
        Turn(Due(1001.0)),
        Arrived(),
        facts(rows="a completion later"),
        step(Turn(Due(LATER))),
    ),
    ("what is not collected ends that", Turn(Due(LATER)), Arrived(), facts(rows="a message"), step(Turn(Due()))),
    (
        "what is quiet is for a heartbeat",
        Turn(),
        Arrived(quiet=True),
        QUIET,
        step(Turn(), WishHeartbeat()),
    ),
    (
        "while it waits quiet rows wish nothing: the end of the wait does",
        Turn(Idle(), ALL),
        Arrived(quiet=True),
        QUIET,
        step(Turn(Idle(), ALL)),
    ),
    (
        "a quiet row may be the last that it waited for",
        Turn(Idle(), ALL),
        Arrived(quiet=True),
        facts("all settled", "quiet rows"),
        step(Turn(Due(), SETTLED)),
    ),
    (
        "so it is for one that is due",
        Turn(Due(LATER)),
        Arrived(quiet=True),
        QUIET,
        step(Turn(Due(LATER)), WishHeartbeat()),
    ),
    (
        "a message ends the pause before the next try",
        Turn(Due(1060.0, CRASHED), ALL),
        Arrived(hurries=True),
        WORKING,
        step(Turn(Due(None, CRASHED), ALL)),
    ),
    (
        "a completion does not",
        Turn(Due(1060.0, CRASHED)),
        Arrived(),
        WORKING,
        step(Turn(Due(1060.0, CRASHED))),
    ),
    (
        "a driven one reads it at its next step",
        Turn(Driven(OPEN)),
        Arrived(hurries=True),
        MESSAGE,
        step(TURNS["driven"]),
    ),
    (
        "a message to one that asks a person changes nothing",
        Turn(AskingPerson(1500.0, OPEN)),
        Arrived(hurries=True),
        MESSAGE,
        step(TURNS["asking"]),
    ),
]

LOOKED: Final[list[Case]] = [
    ("rows are left: due", Turn(), RowsLeft(), MESSAGE, step(Turn(Due()))),
    ("quiet rows are left: a heartbeat is wished", Turn(), RowsLeft(), QUIET, step(Turn(), WishHeartbeat())),
    ("nothing is left", Turn(), RowsLeft(), WORKING, step(Turn())),
    ("quiet rows wish no second heartbeat", Turn(), Looked(), QUIET, step(Turn())),
    ("a heartbeat wants its turn", Turn(), Looked(), WISH, step(Turn(Due()))),
    (
        "a heartbeat that wants its turn is not wished again",
        Turn(),
        RowsLeft(),
        facts("at work", "quiet rows and a heartbeat"),
        step(Turn(Due())),
    ),
    ("a heartbeat waits for the end of the wait", Turn(Idle(), ALL), Looked(), WISH, step(Turn(Idle(), ALL))),
    ("quiet rows do, too", Turn(Idle(), ALL), RowsLeft(), QUIET, step(Turn(Idle(), ALL))),
    ("what it was due for was taken back", Turn(Due()), Looked(), WORKING, step(Turn())),
    ("in a wait, too", Turn(Due(), ALL), Looked(), COMPLETION, step(Turn(Idle(), ALL))),
    ("all have settled: woken", Turn(Idle(), ALL), Looked(), facts("all settled"), step(Turn(Due(), SETTLED))),
    ("not all have", Turn(Idle(), ENDLESS), Looked(), facts("two settled"), step(Turn(Idle(), ENDLESS))),
    (
        "two have settled",
        Turn(Idle(), TWO),
        Looked(),
        facts("two settled"),
        step(Turn(Due(), replace(TWO, over="settled"))),
    ),
    ("one has", Turn(Idle(), TWO), Looked(), facts("one settled"), step(Turn(Idle(), TWO))),
    ("a wait is over once", Turn(Due(), PAST), Looked(), facts("all settled"), step(Turn(Due(), PAST))),
    (
        "a turn is open: it looks at its end",
        Turn(Driven(OPEN), ALL),
        Looked(),
        LAST_COMPLETION,
        step(Turn(Driven(OPEN), ALL)),
    ),
    ("even if it is only due", Turn(Due(None, OPEN), ALL), RowsLeft(), MESSAGE, step(Turn(Due(None, OPEN), ALL))),
]

WAIT_PASSED: Final[list[Case]] = [
    (
        "the time has come: woken",
        Turn(Idle(), LATE),
        WaitPassed(),
        WORKING,
        step(Turn(Due(), replace(LATE, over="past"))),
    ),
    (
        "a message does not put it off",
        Turn(Due(), LATE),
        WaitPassed(),
        MESSAGE,
        step(Turn(Due(), replace(LATE, over="past"))),
    ),
    ("not yet", Turn(Idle(), ALL), WaitPassed(), WORKING, step(Turn(Idle(), ALL))),
    ("never", Turn(Idle(), ENDLESS), WaitPassed(), WORKING, step(Turn(Idle(), ENDLESS))),
    ("there is no wait", Turn(), WaitPassed(), WORKING, step(Turn())),
    (
        "it was over before",
        Turn(Due(), replace(LATE, over="settled")),
        WaitPassed(),
        WORKING,
        step(Turn(Due(), replace(LATE, over="settled"))),
    ),
    (
        "in an aside it is kept",
        Turn(Driven(OPEN), LATE),
        WaitPassed(),
        MESSAGE,
        step(Turn(Driven(OPEN), replace(LATE, over="past"))),
    ),
    (
        "while a person is asked, too",
        Turn(AskingPerson(1500.0, OPEN), LATE),
        WaitPassed(),
        MESSAGE,
        step(Turn(AskingPerson(1500.0, OPEN), replace(LATE, over="past"))),
    ),
]

CLAIMED: Final[list[Case]] = [
    ("a turn opens", Turn(Due()), TurnClaimed(NEXT), MESSAGE, step(Turn(Driven(NEXT)))),
    ("for a completion", Turn(Due(LATER)), TurnClaimed(NEXT), COMPLETION, step(Turn(Driven(NEXT)))),
    ("for a heartbeat", Turn(Due()), TurnClaimed(NEXT), WISH, step(Turn(Driven(NEXT)))),
    ("for quiet rows", Turn(Due()), TurnClaimed(NEXT), QUIET, step(Turn(Driven(NEXT)))),
    ("for nothing none opens", Turn(Due()), TurnClaimed(NEXT), WORKING, step(Turn(), FreeDriver())),
    ("a message in a wait: an aside", Turn(Due(), ALL), TurnClaimed(NEXT), MESSAGE, step(Turn(Driven(NEXT), ALL))),
    (
        "no aside opens for a completion",
        Turn(Due(), ALL),
        TurnClaimed(NEXT),
        COMPLETION,
        step(Turn(Idle(), ALL), FreeDriver()),
    ),
    ("nor for a heartbeat", Turn(Due(), ALL), TurnClaimed(NEXT), WISH, step(Turn(Idle(), ALL), FreeDriver())),
    ("nor for quiet rows", Turn(Due(), ALL), TurnClaimed(NEXT), QUIET, step(Turn(Idle(), ALL), FreeDriver())),
    (
        "the wait is over: the turn says so, and counts it",
        Turn(Due(), SETTLED),
        TurnClaimed(NEXT),
        LAST_COMPLETION,
        step(Turn(Driven(opened(turn=5, wakes=2))), PostWake(SETTLED)),
    ),
    (
        "even if there is nothing to read",
        Turn(Due(), PAST),
        TurnClaimed(NEXT),
        WORKING,
        step(Turn(Driven(opened(turn=5, wakes=1))), PostWake(PAST)),
    ),
    (
        "the open turn goes on",
        Turn(Due(1060.0, CRASHED), ALL),
        TurnClaimed(NEXT),
        WORKING,
        step(Turn(Driven(CRASHED), ALL)),
    ),
    (
        "its wait may be over: that comes after it",
        Turn(Due(None, OPEN), PAST),
        TurnClaimed(NEXT),
        LAST_COMPLETION,
        step(Turn(Driven(OPEN), PAST)),
    ),
    ("a question has expired", Turn(AskingPerson(AT, OPEN)), TurnClaimed(NEXT), WORKING, step(Turn(Driven(OPEN)))),
]

DRIVEN: Final[list[Case]] = [
    (
        "a step is committed: crashes before it count no more",
        Turn(Driven(CRASHED), ALL),
        TurnProgressed(),
        WORKING,
        step(Turn(Driven(opened(failures=1)), ALL)),
    ),
    (
        "a person is asked",
        Turn(Driven(OPEN), ALL),
        TurnAsked(1500.0),
        WORKING,
        step(Turn(AskingPerson(1500.0, OPEN), ALL), FreeDriver()),
    ),
    (
        "no model answers: tried again and told, with the wait kept",
        Turn(Driven(OPEN), ALL),
        TurnFailed("HTTP 529", 2.0),
        WORKING,
        step(Turn(Due(1002.0, opened(1, failed=OUTAGE)), ALL), FreeDriver(), TellFailing("HTTP 529")),
    ),
    (
        "failures are counted, crashes begin anew",
        Turn(Driven(CRASHED)),
        TurnFailed("HTTP 529", 4.0),
        WORKING,
        step(Turn(Due(1004.0, opened(2, failed=OUTAGE))), FreeDriver(), TellFailing("HTTP 529")),
    ),
    (
        "an outage of the model is told once, whatever its words, and is waited out",
        Turn(Driven(opened(99, failed=OUTAGE))),
        TurnFailed("HTTP 529, request 7", 60.0),
        WORKING,
        step(Turn(Due(1060.0, opened(100, failed=FailedTry("HTTP 529, request 7", None)))), FreeDriver()),
    ),
    (
        "another reason: its patience begins",
        Turn(Driven(opened(3, failed=OUTAGE))),
        TurnFailed("no workspace", 2.0, 600.0),
        WORKING,
        step(
            Turn(Due(1002.0, opened(4, failed=FailedTry("no workspace", 1600.0)))),
            FreeDriver(),
            TellFailing("no workspace"),
        ),
    ),
    (
        "the same reason: the same patience, and nothing more to tell",
        Turn(Driven(opened(4, failed=FailedTry("no workspace", 1010.0)))),
        TurnFailed("no workspace", 2.0, 600.0),
        WORKING,
        step(Turn(Due(1002.0, opened(5, failed=FailedTry("no workspace", 1010.0)))), FreeDriver()),
    ),
    (
        "a new reason that is not the model's is told; the patience goes on",
        Turn(Driven(opened(4, failed=FailedTry("no workspace", 1010.0)))),
        TurnFailed("no sandbox", 2.0, 600.0),
        WORKING,
        step(
            Turn(Due(1002.0, opened(5, failed=FailedTry("no sandbox", 1010.0)))),
            FreeDriver(),
            TellFailing("no sandbox"),
        ),
    ),
    (
        "the last try comes when the patience is over",
        Turn(Driven(opened(4, failed=FailedTry("no workspace", 1010.0)))),
        TurnFailed("no workspace", 60.0, 600.0),
        WORKING,
        step(Turn(Due(1010.0, opened(5, failed=FailedTry("no workspace", 1010.0)))), FreeDriver()),
    ),
    (
        "the patience is over: given up",
        Turn(Driven(GIVEN_UP)),
        TurnFailed("no workspace", 2.0, 600.0),
        MESSAGE,
        step(
            Turn(Due()),
            CutCalls("no workspace"),
            TellGivenUp("no workspace", GIVEN_UP),
            CloseTurn(TurnEnd("failed", "no workspace"), "nothing"),
            FreeDriver(),
        ),
    ),
    (
        "an aside is given up: the wait stands",
        Turn(Driven(GIVEN_UP), ALL),
        TurnFailed("no workspace", 2.0, 600.0),
        WORKING,
        step(
            Turn(Idle(), ALL),
            CutCalls("no workspace"),
            TellGivenUp("no workspace", GIVEN_UP),
            CloseTurn(TurnEnd("failed", "no workspace"), "earlier"),
            FreeDriver(),
        ),
    ),
    (
        "now no model answers: the patience counts no longer",
        Turn(Driven(GIVEN_UP)),
        TurnFailed("HTTP 529", 2.0),
        WORKING,
        step(Turn(Due(1002.0, opened(10, failed=OUTAGE))), FreeDriver(), TellFailing("HTTP 529")),
    ),
    (
        "a step is committed: failures that follow are new",
        Turn(Driven(opened(3, failed=OUTAGE))),
        TurnProgressed(),
        WORKING,
        step(Turn(Driven(opened(3)))),
    ),
    (
        "the driver is gone: due at once",
        Turn(Driven(OPEN), ALL),
        TurnLost(step_open=True),
        WORKING,
        step(Turn(Due(None, opened(crashes=1)), ALL), SupersedeDriver(AT)),
    ),
    (
        "without an open step that is no crash",
        Turn(Driven(CRASHED)),
        TurnLost(step_open=False),
        WORKING,
        step(Turn(Due(None, CRASHED)), SupersedeDriver(AT)),
    ),
    (
        "the third crash ends it",
        Turn(Driven(CRASHED)),
        TurnLost(step_open=True),
        WORKING,
        step(
            Turn(),
            CutCalls("crashed 3 times"),
            CloseTurn(TurnEnd("crashed", "crashed 3 times"), "nothing"),
            SupersedeDriver(AT),
            TellCrashed(3, CRASHED),
        ),
    ),
    (
        "in an aside the wait stands",
        Turn(Driven(CRASHED), ALL),
        TurnLost(step_open=True),
        COMPLETION,
        step(
            Turn(Idle(), ALL),
            CutCalls("crashed 3 times"),
            CloseTurn(TurnEnd("crashed", "crashed 3 times"), "earlier"),
            SupersedeDriver(AT),
            TellCrashed(3, CRASHED),
        ),
    ),
]

ENDED: Final[list[Case]] = [
    ("answered, nothing is left", Turn(Driven(OPEN)), TurnOver(REPLIED), WORKING, step(Turn(), *over(REPLIED))),
    ("answered, more is unread", Turn(Driven(OPEN)), TurnOver(REPLIED), MESSAGE, step(Turn(Due()), *over(REPLIED))),
    (
        "answered, more is being collected",
        Turn(Driven(OPEN)),
        TurnOver(REPLIED),
        facts("at work", "a completion later"),
        step(Turn(Due(LATER)), *over(REPLIED)),
    ),
    (
        "answered, quiet rows are left",
        Turn(Driven(OPEN)),
        TurnOver(REPLIED),
        QUIET,
        step(Turn(), *over(REPLIED), WishHeartbeat()),
    ),
    ("answered, a heartbeat waits", Turn(Driven(OPEN)), TurnOver(REPLIED), WISH, step(Turn(Due()), *over(REPLIED))),
    (
        "an aside leaves the wait, and what was read before it is still owed",
        Turn(Driven(OPEN), ALL),
        TurnOver(REPLIED),
        COMPLETION,
        step(Turn(Idle(), ALL), *over(REPLIED, "earlier")),
    ),
    (
        "the wait is over at the end of the aside, whatever came meanwhile",
        Turn(Driven(OPEN), ALL),
        TurnOver(REPLIED),
        facts("all settled", "a message"),
        step(Turn(Due(), SETTLED), *over(REPLIED, "earlier")),
    ),
    (
        "a time that passed in the aside counts at its end",
        Turn(Driven(OPEN), PAST),
        TurnOver(REPLIED),
        MESSAGE,
        step(Turn(Due(), PAST), *over(REPLIED, "earlier")),
    ),
    (
        "in a wait only messages are collected",
        Turn(Driven(OPEN), ALL),
        TurnOver(REPLIED),
        facts("at work", "a completion now, a message later"),
        step(Turn(Due(LATER), ALL), *over(REPLIED, "earlier")),
    ),
    (
        "it yields: what it has read is owed",
        Turn(Driven(OPEN)),
        TurnYielded(ALL),
        WORKING,
        step(Turn(Idle(), ALL), *over(YIELDED, "all")),
    ),
    (
        "it yields, a message is unread",
        Turn(Driven(OPEN)),
        TurnYielded(ALL),
        MESSAGE,
        step(Turn(Due(), ALL), *over(YIELDED, "all")),
    ),
    (
        "an aside yields: its wait takes the place of the old one",
        Turn(Driven(OPEN), PAST),
        TurnYielded(ALL),
        WORKING,
        step(Turn(Idle(), ALL), *over(YIELDED, "all")),
    ),
    (
        "it yields in vain: all have settled",
        Turn(Driven(OPEN), TWO),
        TurnYielded(ALL),
        facts("all settled", "a message"),
        step(Turn(Due(), SETTLED), *over(YIELDED, "all")),
    ),
]

STOPS: Final[list[Case]] = [
    (
        "nothing is open: what was owed has ended",
        Turn(),
        TurnStopped(STOPPED),
        WORKING,
        step(Turn(), CloseTurn(STOPPED, "nothing")),
    ),
    ("driven", Turn(Driven(OPEN)), TurnStopped(STOPPED), WORKING, step(Turn(), *cut(STOPPED))),
    ("asking", Turn(AskingPerson(1500.0, OPEN)), TurnStopped(STOPPED), WORKING, step(Turn(), *cut(STOPPED))),
    ("due again", Turn(Due(1060.0, OPEN)), TurnStopped(STOPPED), WORKING, step(Turn(), *cut(STOPPED))),
    (
        "the wait is dropped",
        Turn(Idle(), ALL),
        TurnStopped(STOPPED),
        WORKING,
        step(Turn(), CloseTurn(STOPPED, "nothing")),
    ),
    (
        "a wake that was due is taken back",
        Turn(Due(), SETTLED),
        TurnStopped(STOPPED),
        WORKING,
        step(Turn(), CloseTurn(STOPPED, "nothing")),
    ),
    (
        "in an aside both end",
        Turn(Driven(OPEN), ALL),
        TurnStopped(STOPPED),
        facts("all settled"),
        step(Turn(), *cut(STOPPED)),
    ),
    (
        "what the wait held has its turn",
        Turn(Idle(), ALL),
        TurnStopped(STOPPED),
        COMPLETION,
        step(Turn(Due()), CloseTurn(STOPPED, "nothing")),
    ),
    (
        "quiet rows have a heartbeat",
        Turn(Idle(), ALL),
        TurnStopped(STOPPED),
        QUIET,
        step(Turn(), CloseTurn(STOPPED, "nothing"), WishHeartbeat()),
    ),
    (
        "one that collects goes on collecting",
        Turn(Due(1001.0)),
        TurnStopped(STOPPED),
        facts(rows="a completion later"),
        step(Turn(Due(LATER)), CloseTurn(STOPPED, "nothing")),
    ),
    (
        "after an open turn, what is unread is collected",
        Turn(Driven(OPEN)),
        TurnStopped(STOPPED),
        facts(rows="a completion later"),
        step(Turn(Due(LATER)), *cut(STOPPED)),
    ),
    (
        "quiet rows that a stopped turn left have a heartbeat",
        Turn(Driven(OPEN)),
        TurnStopped(STOPPED),
        QUIET,
        step(Turn(), *cut(STOPPED), WishHeartbeat()),
    ),
    (
        "the time of a request is over: in an aside the wait stands",
        Turn(Driven(OPEN), ALL),
        TurnStopped(TIMEOUT, keeps_wait=True),
        COMPLETION,
        step(Turn(Idle(), ALL), *cut(TIMEOUT, "earlier")),
    ),
    (
        "without a wait nothing is owed any longer",
        Turn(Driven(OPEN)),
        TurnStopped(TIMEOUT, keeps_wait=True),
        WORKING,
        step(Turn(), *cut(TIMEOUT)),
    ),
]

ANSWERED: Final[list[Case]] = [
    (
        "every question is answered: due at once",
        Turn(AskingPerson(1500.0, CRASHED), ALL),
        TurnAnswered(),
        WORKING,
        step(Turn(Due(None, CRASHED), ALL)),
    ),
    ("it asks no more", Turn(Driven(OPEN)), TurnAnswered(), WORKING, step(Turn(Driven(OPEN)))),
    (
        "it is due when its question would expire: at once",
        Turn(Due(1500.0, OPEN), ALL),
        TurnAnswered(),
        WORKING,
        step(Turn(Due(None, OPEN), ALL)),
    ),
    ("no turn is open", Turn(Due(LATER)), TurnAnswered(), WORKING, step(Turn(Due(LATER)))),
]

CASES = [*ARRIVED, *LOOKED, *WAIT_PASSED, *CLAIMED, *DRIVEN, *ENDED, *STOPS, *ANSWERED]


@pytest.mark.parametrize(
    ("turn", "event", "around", "after"),
    [pytest.param(*case, id=f"{type(case[1]).__name__}: {name}") for name, *case in CASES],
)
def test_the_event_moves_the_turn_exactly_so(turn: Turn, event: TurnInput, around: TurnFacts, after: TurnStep) -> None:
    assert transition_turn(turn, event, around) == after


def test_a_case_begins_where_a_session_can_be() -> None:
    assert [name for name, turn, *_ in CASES if not is_possible(turn)] == []


def test_what_cannot_happen_names_the_event_and_the_state() -> None:
    with pytest.raises(IllegalTurn, match=r"^TurnOver while Idle$"):
        transition_turn(Turn(), TurnOver(REPLIED), WORKING)
    with pytest.raises(IllegalTurn, match=r"^TurnClaimed while Driven$"):
        transition_turn(Turn(Driven(OPEN)), TurnClaimed(NEXT), WORKING)


def test_an_end_is_described_by_its_reason_or_else_by_its_kind() -> None:
    assert TurnEnd("failed", "the budget is spent").description == "the budget is spent"
    assert STOPPED.description == "stopped"


def test_the_open_turn_is_that_of_the_state() -> None:
    assert [Turn(at).open for at in (Idle(), Due(), Due(None, OPEN), Driven(OPEN), AskingPerson(AT, OPEN))] == [
        None,
        None,
        OPEN,
        OPEN,
        OPEN,
    ]


# ---- what holds of every transition ----------------------------------------------------------------------------------


def steps() -> Iterator[tuple[Turn, TurnInput, TurnFacts, TurnStep]]:
    for turn, event, around in product(TURNS.values(), SAMPLE_TURN_EVENTS, FACTS.values()):
        try:
            yield turn, event, around, transition_turn(turn, event, around)
        except IllegalTurn:
            continue


STEPS = list(steps())


def reads_at(turn: Turn, around: TurnFacts) -> float | None:
    """When a turn may begin for what may be read; None: there is nothing."""
    return around.rows_at if turn.wait is None else around.messages_at


_FARED: Final[dict[str, Any]] = {"failures": 0, "crashes": 0, "failed": None}
"""How an open turn fares."""


def test_a_turn_stays_open_until_an_effect_closes_it() -> None:
    for turn, event, _, after in STEPS:
        closed = any(isinstance(effect, CloseTurn) for effect in after.effects)
        if turn.open is not None:
            assert closed == (after.turn.open is None), event
        if turn.open is not None and after.turn.open is not None:
            assert replace(after.turn.open, **_FARED) == replace(turn.open, **_FARED), event


def test_a_turn_opens_only_by_a_claim() -> None:
    for turn, event, _, after in STEPS:
        if turn.open is None and after.turn.open is not None:
            assert isinstance(event, TurnClaimed)
            assert isinstance(after.turn.at, Driven)


def test_a_driver_is_let_go_exactly_when_the_turn_is_driven_no_more() -> None:
    for turn, event, around, after in STEPS:
        let_go = [effect for effect in after.effects if isinstance(effect, FreeDriver | SupersedeDriver)]
        if isinstance(event, TurnClaimed):
            assert len(let_go) == (after.turn.open is None)
        elif isinstance(turn.at, Driven):
            assert len(let_go) == (not isinstance(after.turn.at, Driven)), event
        else:
            # A turn that was driven before may have a driver that does not know yet.
            assert let_go == ([SupersedeDriver(around.at + 5.0)] if turn.open and not after.turn.open else []), event


def test_a_wait_is_kept_by_all_but_a_yield_a_wake_and_a_stop() -> None:
    for turn, event, _, after in STEPS:
        kept: Wait | None = turn.wait
        match event:
            case TurnYielded(wait=wait):
                kept = wait
            case TurnStopped(keeps_wait=False):
                kept = None
            case TurnClaimed() if turn.open is None and turn.wait is not None and turn.wait.over:
                kept = None
                assert after.effects == (PostWake(turn.wait),)
            case _:
                pass
        was = after.turn.wait
        assert (was if was is None or kept is None else replace(was, over=kept.over)) == kept, event
        if kept is not None and kept.over:
            assert after.turn.wait == kept, "why it is over is said once"


def test_a_wait_that_holds_is_over_and_due_whenever_no_turn_is_open() -> None:
    for turn, event, around, after in STEPS:
        wait = after.turn.wait
        looks = not isinstance(event, TurnClaimed | TurnAnswered | WaitPassed) and not getattr(event, "quiet", False)
        if wait is None or after.turn.open is not None:
            continue
        assert isinstance(after.turn.at, Due) or not wait.over, event
        if looks and not (turn.wait or wait).over:
            holds = policy.holds(wait.until_settled, around.unsettled, around.settled)
            assert wait.over == ("settled" if holds else ""), event


def test_nothing_but_messages_counts_while_a_wait_stands() -> None:
    for turn, event, around, after in STEPS:
        if after.turn.wait is not None and not isinstance(event, TurnStopped):
            blind = replace(around, rows_at=None, wish=False, quiet=False)
            assert transition_turn(turn, event, blind) == after, event


def test_one_that_is_idle_has_nothing_to_do() -> None:
    for _, event, around, after in STEPS:
        looks = not isinstance(event, TurnClaimed | TurnAnswered | WaitPassed) and not getattr(event, "quiet", False)
        if isinstance(after.turn.at, Idle) and looks:
            assert reads_at(after.turn, around) is None, event
            assert after.turn.wait is not None or not around.wish, event


def test_one_that_is_due_without_an_open_turn_has_something_to_do() -> None:
    for turn, event, around, after in STEPS:
        if isinstance(after.turn.at, Due) and after.turn.open is None and after.turn != turn:
            is_over = after.turn.wait is not None and bool(after.turn.wait.over)
            wished = after.turn.wait is None and around.wish
            assert is_over or wished or reads_at(after.turn, around) is not None, event


def test_quiet_rows_that_nothing_else_reads_have_a_heartbeat_after_each_end() -> None:
    ends = (TurnOver, TurnLost, TurnStopped, RowsLeft)
    for _, event, around, after in STEPS:
        if isinstance(event, ends) and after.turn == Turn():
            assert (WishHeartbeat() in after.effects) == around.quiet, event


def test_a_message_to_one_that_asks_a_person_changes_nothing() -> None:
    for turn, event, _, after in STEPS:
        if isinstance(turn.at, AskingPerson) and isinstance(event, Arrived | RowsLeft | Looked):
            assert after == TurnStep(turn)


def test_what_is_owed_is_what_a_wait_answers() -> None:
    for _, event, _, after in STEPS:
        for effect in after.effects:
            if isinstance(effect, CloseTurn):
                waits = "nothing" if after.turn.wait is None else "earlier"
                assert effect.owes == ("all" if isinstance(event, TurnYielded) else waits), event


def test_calls_are_cut_before_their_turn_is_closed_by_others() -> None:
    for turn, event, _, after in STEPS:
        kinds = [type(effect) for effect in after.effects if not isinstance(effect, TellGivenUp)]
        is_cut = isinstance(event, TurnStopped | TurnLost | TurnFailed)
        by_others = turn.open is not None and is_cut and after.turn.open is None
        assert (kinds[:2] == [CutCalls, CloseTurn]) == by_others, event
        assert kinds.count(CutCalls) == by_others, event


def test_failures_are_counted_and_three_crashes_end_the_turn() -> None:
    turn = Turn(Driven(OPEN), ALL)
    for failures in (1, 2, 3):
        failed = transition_turn(turn, TurnFailed("HTTP 529", 2.0), WORKING).turn
        assert failed.open is not None
        assert (failed.open.failures, failed.open.crashes) == (failures, 0)
        turn = transition_turn(failed, TurnClaimed(NEXT), WORKING).turn
    for crashes in (1, 2):
        lost = transition_turn(turn, TurnLost(step_open=True), WORKING).turn
        assert lost.open is not None
        assert lost.open.crashes == crashes
        turn = transition_turn(lost, TurnClaimed(NEXT), WORKING).turn
    assert transition_turn(turn, TurnLost(step_open=True), WORKING).turn == Turn(Idle(), ALL)


def test_only_possible_states_follow() -> None:
    assert [(turn, event) for turn, event, _, after in STEPS if not is_possible(after.turn)] == []


def test_transition_is_a_function_of_its_arguments() -> None:
    for turn, event, around, after in STEPS:
        assert transition_turn(turn, event, around) == after
