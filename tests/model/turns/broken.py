"""Variants of `transition_turn` that break one rule each: the search must find every one of them."""

from typing import Final

from msgspec.structs import replace

from fledge.core.effects import FreeDriver, SupersedeDriver
from fledge.core.turn import (
    Arrived,
    AskingPerson,
    CloseTurn,
    CutCalls,
    Driven,
    Due,
    Idle,
    Looked,
    PostWake,
    TellCrashed,
    TellGivenUp,
    Turn,
    TurnAnswered,
    TurnAsked,
    TurnClaimed,
    TurnEffect,
    TurnFacts,
    TurnFailed,
    TurnInput,
    TurnLost,
    TurnOver,
    TurnStep,
    TurnStopped,
    TurnYielded,
    WaitPassed,
    WishHeartbeat,
    transition_turn,
)
from tests.model.turns.world import Transition

NOT_YET: Final = 99
"""More children at work than there are: with these no condition holds."""


def _without(step: TurnStep, *kinds: type[TurnEffect]) -> TurnStep:
    return replace(step, effects=tuple(effect for effect in step.effects if not isinstance(effect, kinds)))


def _owing(step: TurnStep, owes: dict[str, str]) -> TurnStep:
    """The step with turns closed as if something else were owed."""
    effects = (
        replace(effect, owes=owes.get(effect.owes, effect.owes)) if isinstance(effect, CloseTurn) else effect
        for effect in step.effects
    )
    return replace(step, effects=tuple(effects))


def messages_before_the_wait(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    if facts.messages_at is not None:
        facts = replace(facts, unsettled=NOT_YET, settled=-NOT_YET)
    return transition_turn(turn, event, facts)


def the_wait_is_not_looked_at_after_an_aside(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    if isinstance(event, TurnOver):
        facts = replace(facts, unsettled=NOT_YET, settled=-NOT_YET)
    return transition_turn(turn, event, facts)


def completions_open_an_aside(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return transition_turn(turn, event, replace(facts, messages_at=facts.rows_at))


def a_yield_owes_nothing(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return _owing(transition_turn(turn, event, facts), {"all": "nothing"})


def an_aside_answers_what_the_wait_owes(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return _owing(transition_turn(turn, event, facts), {"earlier": "nothing"})


def a_yield_in_an_aside_forgets_what_the_turn_read(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    step = transition_turn(turn, event, facts)
    return _owing(step, {"all": "earlier"}) if turn.wait is not None else step


def a_stop_leaves_what_the_wait_held(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    step = transition_turn(turn, event, facts)
    return replace(step, turn=Turn()) if isinstance(event, TurnStopped) and not event.keeps_wait else step


def a_stop_keeps_the_wait(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return transition_turn(turn, replace(event, keeps_wait=True) if isinstance(event, TurnStopped) else event, facts)


def a_stop_leaves_a_wake_that_is_due(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    if isinstance(event, TurnStopped) and turn.open is None and turn.wait is not None and turn.wait.over:
        return TurnStep(turn)
    return transition_turn(turn, event, facts)


def a_stopped_turn_is_due_again(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    step = transition_turn(turn, event, facts)
    if isinstance(event, TurnStopped) and turn.open is not None:
        return replace(step, turn=Turn(Due(None, turn.open), step.turn.wait))
    return step


def a_stop_leaves_calls_open(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return _without(transition_turn(turn, event, facts), CutCalls)


def the_time_of_a_request_ends_the_wait(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return transition_turn(turn, replace(event, keeps_wait=False) if isinstance(event, TurnStopped) else event, facts)


def a_message_makes_one_that_asks_due(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    if isinstance(event, Arrived) and isinstance(turn.at, AskingPerson):
        return TurnStep(replace(turn, at=Due(None, turn.at.open)))
    return transition_turn(turn, event, facts)


def an_answer_waits_until_its_question_would_expire(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    if isinstance(event, TurnAnswered) and isinstance(turn.at, Due):
        return TurnStep(turn)
    return transition_turn(turn, event, facts)


def a_driver_that_asks_keeps_its_lease(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    step = transition_turn(turn, event, facts)
    return _without(step, FreeDriver) if isinstance(event, TurnAsked) else step


def a_time_that_passes_in_an_aside_is_lost(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    if isinstance(event, WaitPassed) and turn.open is not None:
        return TurnStep(turn)
    return transition_turn(turn, event, facts)


def a_failed_aside_drops_the_wait(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return transition_turn(replace(turn, wait=None) if isinstance(event, TurnFailed) else turn, event, facts)


def a_crashed_aside_drops_the_wait(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return transition_turn(replace(turn, wait=None) if isinstance(event, TurnLost) else turn, event, facts)


def a_failed_turn_is_not_kept_open(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    step = transition_turn(turn, event, facts)
    return replace(step, turn=Turn(Idle(), turn.wait)) if isinstance(event, TurnFailed) else step


def patience_begins_anew_with_each_try(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    opened = turn.open
    if isinstance(event, TurnFailed) and isinstance(turn.at, Driven) and opened is not None:
        turn = replace(turn, at=Driven(replace(opened, failed=None)))
    step = transition_turn(turn, event, facts)
    # Failures are counted without end; here that would be a new state each time.
    if isinstance(step.turn.at, Due) and step.turn.at.open is not None:
        step = replace(
            step, turn=replace(step.turn, at=replace(step.turn.at, open=replace(step.turn.at.open, failures=1)))
        )
    return step


def a_turn_that_fails_is_given_up_in_silence(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return _without(transition_turn(turn, event, facts), TellGivenUp)


def completions_are_posted_once_the_turn_is_closed(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    step = transition_turn(turn, event, facts)
    late = tuple(effect for effect in step.effects if isinstance(effect, TellGivenUp))
    return replace(step, effects=(*_without(step, TellGivenUp).effects, *late))


def crashes_are_not_counted(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return transition_turn(turn, TurnLost(step_open=False) if isinstance(event, TurnLost) else event, facts)


def wakes_are_not_counted(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    step = transition_turn(turn, event, facts)
    opened = step.turn.open
    if isinstance(event, TurnClaimed) and turn.open is None and opened is not None:
        return replace(step, turn=replace(step.turn, at=Driven(replace(opened, wakes=0))))
    return step


def a_wake_is_not_posted(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return _without(transition_turn(turn, event, facts), PostWake)


def a_turn_stays_due_for_a_row_that_was_taken_back(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    if isinstance(event, Looked) and isinstance(turn.at, Due) and turn.wait is None:
        return TurnStep(turn)
    return transition_turn(turn, event, facts)


def settling_wakes_only_one_that_is_idle(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    if isinstance(event, Looked | Arrived) and isinstance(turn.at, Due) and turn.wait is not None:
        return TurnStep(turn)
    return transition_turn(turn, event, facts)


def quiet_rows_that_a_turn_leaves_wish_nothing(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    step = transition_turn(turn, event, facts)
    return _without(step, WishHeartbeat) if not isinstance(event, Arrived) else step


def quiet_rows_wish_a_heartbeat_in_a_wait(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    if isinstance(event, Arrived) and event.quiet and isinstance(turn.at, Idle):
        return TurnStep(turn, (WishHeartbeat(),))
    return transition_turn(turn, event, facts)


def an_aside_ends_the_wait(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return transition_turn(replace(turn, wait=None) if isinstance(event, TurnOver) else turn, event, facts)


def a_wake_keeps_the_wait(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    step = transition_turn(turn, event, facts)
    return replace(step, turn=replace(step.turn, wait=turn.wait)) if isinstance(event, TurnClaimed) else step


def a_driver_that_is_lost_keeps_its_lease(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    step = transition_turn(turn, event, facts)
    return _without(step, SupersedeDriver) if isinstance(event, TurnLost) else step


def a_turn_is_given_up_in_silence(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    return _without(transition_turn(turn, event, facts), TellCrashed)


def an_aside_yields_for_the_old_wait(turn: Turn, event: TurnInput, facts: TurnFacts) -> TurnStep:
    if isinstance(event, TurnYielded) and turn.wait is not None:
        event = replace(event, wait=turn.wait)
    return transition_turn(turn, event, facts)


BROKEN: Final[dict[Transition, tuple[str, str]]] = {
    messages_before_the_wait: ("wait for all", "P4: a wait that is over stands"),
    the_wait_is_not_looked_at_after_an_aside: ("wait for all", "P4: a wait that is over stands"),
    settling_wakes_only_one_that_is_idle: ("wait for all", "P4: a wait that is over stands"),
    a_time_that_passes_in_an_aside_is_lost: ("wait for all", "P4: the time of a wait has passed"),
    completions_open_an_aside: ("wait for all", "P6: "),
    a_yield_owes_nothing: ("wait for all", "P2: what was read was answered by a yield"),
    an_aside_answers_what_the_wait_owes: ("wait for all", "P2: what a wait owes"),
    a_yield_in_an_aside_forgets_what_the_turn_read: ("wait for some", "P2: what was read was answered by a yield"),
    a_stop_leaves_what_the_wait_held: ("stop", "P5: a row is unread"),
    a_stop_keeps_the_wait: ("stop", "P10: "),
    a_stop_leaves_a_wake_that_is_due: ("stop", "P10: "),
    a_stopped_turn_is_due_again: ("stop", "P10: "),
    a_stop_leaves_calls_open: ("stop", "P9: a turn was closed with a question open"),
    the_time_of_a_request_ends_the_wait: ("timeout", "P5: a wait did not survive"),
    a_message_makes_one_that_asks_due: ("ask", "P9: a turn asks a person"),
    an_answer_waits_until_its_question_would_expire: ("ask", "P9: every question is answered"),
    a_driver_that_asks_keeps_its_lease: ("ask", "P7: a driver without a turn"),
    a_failed_aside_drops_the_wait: ("fail", "P5: a wait did not survive"),
    a_crashed_aside_drops_the_wait: ("wait for all", "P5: a wait did not survive"),
    a_failed_turn_is_not_kept_open: ("fail", "P2: what was read has no turn"),
    patience_begins_anew_with_each_try: ("break for ever", "P3: system steps can go round"),
    a_turn_that_fails_is_given_up_in_silence: ("break for ever", "P2: a turn was given up in silence"),
    completions_are_posted_once_the_turn_is_closed: ("break for ever", "P2: a turn was given up in silence"),
    crashes_are_not_counted: ("crash for ever", "P3: system steps can go round"),
    wakes_are_not_counted: ("yield for ever", "P3: system steps can go round"),
    a_wake_is_not_posted: ("wait for all", "P6: a turn opened with nothing to read"),
    a_turn_stays_due_for_a_row_that_was_taken_back: ("withdraw", "P6: claimed for nothing"),
    quiet_rows_that_a_turn_leaves_wish_nothing: ("heartbeat", "P3: stuck: a notice is unread"),
    quiet_rows_wish_a_heartbeat_in_a_wait: ("heartbeat", "P6: a heartbeat is wished"),
    an_aside_ends_the_wait: ("wait for all", "P5: a wait did not survive"),
    a_wake_keeps_the_wait: ("wait for all", "P4: a wake left the wait as it was"),
    a_driver_that_is_lost_keeps_its_lease: ("crash", "P7: a driver without a turn"),
    a_turn_is_given_up_in_silence: ("crash", "P2: a turn was given up in silence"),
    an_aside_yields_for_the_old_wait: ("wait for some", "P4: a yield waits for something else"),
}
"""Where each shows, and what is found."""
