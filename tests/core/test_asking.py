"""What follows a model's reply or error, as tables."""

import pytest

from fledge.core.asking import (
    CONTINUE_WORDS,
    AskAgain,
    Fail,
    Failure,
    FallBack,
    Falter,
    Follows,
    GiveUp,
    GoOn,
    Heard,
    Keep,
    Pause,
    ProviderErrorKind,
    Report,
    Retries,
    RetryNow,
    after_failure,
    after_reply,
    after_try,
    dropped_words,
    is_worth_waiting,
    program_pause_s,
    retry_text,
)
from fledge.core.run import Failing

THINKING_ONLY = "cut at the token limit: all {} tokens went into thinking, and no words came"


@pytest.mark.parametrize(
    ("heard", "was_cut", "follows"),
    [
        (Heard(stop="end", text="a"), False, Keep()),
        (Heard(stop="end"), False, Keep()),
        (Heard(stop="tools", calls=1), True, Keep()),
        (Heard(stop="length", text="a"), False, GoOn(CONTINUE_WORDS, "continue")),
        (Heard(stop="length", text="b"), True, Keep(is_cut=True)),
        (Heard(stop="length", text=" "), True, Keep(is_cut=True)),
        (Heard(stop="length", text="a", calls=1), False, Keep()),
        (Heard(stop="length", calls=1, dropped="write"), True, Keep(notice=dropped_words("write"))),
        (Heard(stop="length", text="a", dropped="write"), False, GoOn(dropped_words("write"), "dropped")),
        (
            Heard(stop="length", text="a", dropped="write"),
            True,
            GiveUp("cut at the token limit twice, the second time inside a call of write"),
        ),
        (Heard(stop="length", text=" \n"), False, AskAgain(200)),
        (Heard(stop="refused", text="I will\nnot."), False, GiveUp("the model refused to answer: I will not.")),
        (Heard(stop="refused", calls=1), False, GiveUp("the model refused to answer: no reason given")),
    ],
)
def test_what_follows_a_reply(heard: Heard, was_cut: bool, follows: Follows) -> None:
    assert after_reply(heard, was_cut, 100, 100, 0) == follows


@pytest.mark.parametrize(
    ("limit", "first", "most", "follows"),
    [
        (100, 100, 0, AskAgain(200)),
        (100, 100, 150, AskAgain(150)),
        (100, 100, 100, GiveUp(THINKING_ONLY.format(100))),
        (200, 100, 0, GiveUp(THINKING_ONLY.format(200))),
    ],
)
def test_a_reply_that_only_thinks_is_asked_for_once_more_with_a_higher_limit(
    limit: int, first: int, most: int, follows: Follows
) -> None:
    assert after_reply(Heard(stop="length"), False, limit, first, most) == follows


@pytest.mark.parametrize(
    ("trouble", "asked_s", "tries", "has_next", "follows"),
    [
        ("retryable", None, 1, False, RetryNow(0.5)),
        ("interrupted", None, 3, True, RetryNow(2.0)),
        ("retryable", 3.0, 1, False, RetryNow(3.0)),
        ("retryable", 5.0, 1, False, RetryNow(5.0)),
        ("retryable", 5.1, 1, False, Report()),
        ("retryable", 5.1, 1, True, FallBack()),
        ("retryable", None, 4, False, Report()),
        ("retryable", None, 4, True, FallBack()),
        ("auth", None, 1, True, FallBack()),
        ("quota", None, 1, True, FallBack()),
        ("auth", None, 1, False, Report()),
        ("overflow", None, 1, True, Report()),
        ("refused", None, 1, True, Report()),
        ("bad_request", None, 1, True, Report()),
    ],
)
def test_what_follows_one_try(
    trouble: ProviderErrorKind, asked_s: float | None, tries: int, has_next: bool, follows: RetryNow | FallBack | Report
) -> None:
    assert after_try(trouble, asked_s, tries, has_next, Retries(), 1.0) == follows


def failure(trouble: ProviderErrorKind = "retryable", retry_after_s: float | None = None) -> Failure:
    return Failure(trouble=trouble, message="HTTP 429: slow\ndown", first_at=990.0, retry_after_s=retry_after_s)


def pause_s(failing: Failing | None, retry_after_s: float | None = None, patience_s: float = 600.0) -> float:
    follows = after_failure(failure(retry_after_s=retry_after_s), failing, 1000.0, patience_s, "agent:a:subagent:b")
    assert isinstance(follows, Pause)
    assert (follows.since_at, follows.reason) == (
        990.0 if failing is None else failing.since_at,
        "HTTP 429: slow down",
    )
    return follows.until_at - 1000.0


@pytest.mark.parametrize(
    ("pauses", "least", "most"), [(0, 6.0, 8.0), (1, 12.0, 16.0), (2, 22.5, 30.0), (99, 22.5, 30.0)]
)
def test_pauses_grow_up_to_a_limit_and_differ_between_sessions(pauses: int, least: float, most: float) -> None:
    assert least < pause_s(Failing(990.0, pauses)) <= most


def test_sessions_that_failed_together_come_back_apart() -> None:
    ends = {after_failure(failure(), None, 1000.0, 600.0, f"agent:a:subagent:{n}") for n in range(100)}
    assert len(ends) == 100


@pytest.mark.parametrize(
    ("pauses", "expected"), [(None, 8.0), (0, 8.0), (1, 16.0), (4, 128.0), (6, 300.0), (99, 300.0)]
)
def test_a_run_looks_for_its_program_more_and_more_seldom_and_never_gives_up(
    pauses: int | None, expected: float
) -> None:
    assert program_pause_s(None if pauses is None else Failing(0.0, pauses)) == expected


def test_the_first_pause_counts_from_the_first_failure_of_the_step() -> None:
    assert 6.0 < pause_s(None) <= 8.0


@pytest.mark.parametrize(("asked_s", "expected"), [(45.0, 45.0), (590.0, 590.0)])
def test_a_pause_is_as_long_as_the_provider_asks(asked_s: float, expected: float) -> None:
    assert pause_s(None, asked_s) == expected


def test_the_last_pause_ends_with_the_patience() -> None:
    assert pause_s(Failing(402.0, 5)) == 2.0


@pytest.mark.parametrize(
    ("trouble", "failing", "asked_s", "follows"),
    [
        (trouble, None, None, Fail(f"the model could not answer ({trouble}): HTTP 429: slow\ndown"))
        for trouble in ("auth", "quota", "overflow", "refused", "bad_request")
    ]
    + [
        (
            "interrupted",
            Failing(400.0, 9),
            None,
            Falter(
                "the model could not answer (interrupted): HTTP 429: slow\ndown (waited 600 s: models.patienceSeconds)"
            ),
        ),
        (
            "retryable",
            None,
            590.1,
            Falter(
                "the model could not answer (retryable): HTTP 429: slow\ndown (its provider asks to wait 590 s, "
                "590 s of models.patienceSeconds are left)"
            ),
        ),
    ],
)
def test_what_is_not_waited_for(
    trouble: ProviderErrorKind, failing: Failing | None, asked_s: float | None, follows: Fail | Falter
) -> None:
    assert after_failure(failure(trouble, asked_s), failing, 1000.0, 600.0, "s") == follows


@pytest.mark.parametrize(("now", "seconds"), [(1000.0, 8), (1009.0, 0)])
def test_a_pause_is_shown_with_its_time_and_reason(now: float, seconds: int) -> None:
    assert retry_text(1008.0, "HTTP 429", now) == f"retrying in {seconds} s: HTTP 429"


@pytest.mark.parametrize(
    ("may_pass", "failed_s", "patience_s", "waits"),
    [
        (True, 0.0, 600.0, True),
        (True, 599.0, 600.0, True),
        (True, 600.0, 600.0, False),
        (True, 0.0, 0.0, False),
        (False, 0.0, 600.0, False),
    ],
)
def test_whoever_waits_for_an_answer_is_as_patient_as_a_run(
    may_pass: bool, failed_s: float, patience_s: float, waits: bool
) -> None:
    assert is_worth_waiting(may_pass, 1000.0, 1000.0 + failed_s, patience_s) is waits
