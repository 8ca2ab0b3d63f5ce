"""Which limits hold for a run and which rule cut them; what time does to it next."""

from typing import Any

import pytest
from msgspec.structs import replace

from fledge.core.policy import Budget
from fledge.core.run import Queued, Retry, Run, Running
from fledge.core.standing import Above, FailingTurn, Limit, NextDue, UnansweredTurn, limits, next_due
from tests.core.samples import AT, KEY, RUNS, TERMS
from tests.statements import proves

MAIN = Above(name="main", budget=Budget(tokens=400))


@proves("4.gateway.24", "`runs.info` tells limits asked and applied with the rule that cut them, and what is due next")
@pytest.mark.parametrize(
    ("asked", "timeout_s", "budget", "above", "expected"),
    [
        ({}, 0.0, None, [], []),
        ({"runTimeoutSeconds": 60}, 60.0, None, [], [Limit(name="timeoutSeconds", asked=60, applied=60)]),
        ({"timeoutSeconds": 60}, 60.0, None, [], [Limit(name="timeoutSeconds", asked=60, applied=60)]),
        ({"runTimeoutSeconds": 0}, 0.0, None, [], []),
        ({"runTimeoutSeconds": 0.5}, 1.0, None, [], [Limit(name="timeoutSeconds", asked=0.5, applied=1)]),
        (
            {},
            90.0,
            None,
            [],
            [Limit(name="timeoutSeconds", applied=90, rule="subagents.runTimeoutSeconds of coder")],
        ),
        (
            {"budget": {"tokens": 900, "usd": 1.0}},
            0.0,
            Budget(tokens=500, usd=1.0),
            [],
            [
                Limit(name="tokens", asked=900, applied=500, rule="subagents.budget of coder", is_cut=True),
                Limit(name="usd", asked=1.0, applied=1.0),
            ],
        ),
        (
            {"budget": {"tokens": 900}},
            0.0,
            Budget(tokens=400),
            [Above(name="lead", budget=Budget(usd=1)), MAIN],
            [Limit(name="tokens", asked=900, applied=400, rule="the budget of main", is_cut=True)],
        ),
        ({}, 0.0, Budget(turns=3), [MAIN], [Limit(name="turns", applied=3, rule="subagents.budget of coder")]),
    ],
)
def test_limits_say_what_was_asked_what_holds_and_why(
    asked: dict[str, Any], timeout_s: float, budget: Budget | None, above: list[Above], expected: list[Limit]
) -> None:
    assert list(limits(asked, "coder", timeout_s, budget, above)) == expected


PAUSED = Queued(retry=Retry(AT + 9, "overloaded"))
RUN = Run(key=KEY, terms=TERMS, run_id="r", phase=Running(due_at=AT + 300))


@pytest.mark.parametrize(
    ("run", "due"),
    [
        (RUN, NextDue(at=AT + 300, what="it is reported as stuck if it has not finished a step")),
        (replace(RUN, phase=Running(due_at=None)), None),
        (replace(RUN, deadline_at=AT + 60), NextDue(at=AT + 60, what="its time is up: it ends")),
        (
            replace(RUN, phase=Queued(retry=Retry(AT + 9, "overloaded"))),
            NextDue(at=AT + 9, what="the model is asked again"),
        ),
        (
            replace(RUN, phase=PAUSED, deadline_at=AT + 5),
            NextDue(at=AT + 5, what="its time is up: it ends"),
        ),
    ],
)
def test_what_time_does_next_is_said(run: Run, due: NextDue | None) -> None:
    assert next_due(run) == due


@pytest.mark.parametrize("name", RUNS)
def test_every_phase_has_words_for_its_due_time(name: str) -> None:
    run = RUNS[name]
    due = next_due(run)
    assert run.due_at is None if due is None else due.what != ""


@pytest.mark.parametrize(("tries", "times"), [(1, "once"), (7, "7 times")])
def test_an_unanswered_turn_says_for_how_long_and_how_often_it_was_tried(tries: int, times: str) -> None:
    late = UnansweredTurn(session="s", turn=1, since_at=0.0, tries=tries, rows=())
    assert late.words(1860.0) == f"unanswered for 31 min, tried {times}"


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        (
            FailingTurn(tries=1, reason="no workspace", next_at=1002.0, ends_at=1600.0),
            "failed once: no workspace; tried again in 2 s, given up in 600 s",
        ),
        (
            FailingTurn(tries=9, reason="HTTP 529:\nslow down", next_at=1060.0, ends_at=None),
            "failed 9 times: HTTP 529: slow down; tried again in 60 s",
        ),
        (
            FailingTurn(tries=2, reason="no workspace", next_at=None, ends_at=990.0),
            "failed 2 times: no workspace; tried again now, given up in 0 s",
        ),
    ],
)
def test_a_failing_turn_says_how_often_and_why_and_when_it_is_tried_again(failing: FailingTurn, words: str) -> None:
    assert failing.words(1000.0) == words
