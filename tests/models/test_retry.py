"""Trying again: how often, how long between, which model next, and what the consumer sees of it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from fledge.core.asking import Retries
from fledge.models.base import (
    Broke,
    ModelEvent,
    ProviderErrorKind,
    ReplyEnded,
    Request,
    Text,
    Usage,
    UserMessage,
)
from fledge.models.retry import Retrying, RetryTold
from fledge.models.scripted import CutReply, ScriptedFailure, ScriptedModel
from tests.models.asking import broke_of, run, text_of, tried

ASKED = Request(model="first", messages=(UserMessage("hi"),))
NINE_TIMES: list[ScriptedFailure] = ["retryable"] * 9


class Pauses:
    """A sleep that only remembers."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)


def failing(*failures: ScriptedFailure) -> ScriptedModel:
    """A model whose first requests fail like this; then it says its name."""
    numbered = dict(enumerate(failures, 1))
    return ScriptedModel(lambda request: f"I am {request.model}", failures=numbered, piece_chars=4)


async def answered(retrying: Retrying, told: list[RetryTold] | None = None) -> list[ModelEvent]:
    """What the last try brought, or what is reported in its place."""
    return await tried(retrying.tries(ASKED), [] if told is None else told)


@pytest.mark.parametrize("tries", [1, 2, 4])
def test_a_model_is_asked_so_often_and_no_more(tries: int) -> None:
    model, pauses = failing(*NINE_TIMES), Pauses()
    retrying = Retrying(model, retries=Retries(tries=tries), sleep=pauses, chance=lambda: 0.0)
    broke = broke_of(run(answered(retrying)))
    assert broke.trouble == "retryable"
    assert len(model.requests) == tries
    assert pauses.slept == [0.25, 0.5, 1.0][: tries - 1]
    expected = "scripted retryable" if tries == 1 else f"first: scripted retryable (tried {tries} times)"
    assert broke.message == expected


@pytest.mark.parametrize("trouble", ["retryable", "interrupted"])
def test_what_may_pass_is_tried_again(trouble: ProviderErrorKind) -> None:
    model, pauses = failing(trouble, trouble), Pauses()
    events = run(answered(Retrying(model, sleep=pauses)))
    assert text_of(events) == "I am first"
    assert len(model.requests) == 3


@pytest.mark.parametrize("trouble", ["auth", "quota", "overflow", "refused", "bad_request"])
def test_what_will_not_pass_is_not_tried_again(trouble: ProviderErrorKind) -> None:
    model, pauses = failing(trouble), Pauses()
    assert run(answered(Retrying(model, sleep=pauses))) == [Broke(trouble, f"scripted {trouble}")]
    assert pauses.slept == []


@pytest.mark.parametrize(
    ("chance", "slept"), [(0.0, [1.0, 2.0, 2.5, 2.5]), (0.5, [1.5, 3.0, 3.75, 3.75]), (1.0, [2.0, 4.0, 5.0, 5.0])]
)
def test_pauses_double_up_to_a_limit_and_half_of_them_is_chance(chance: float, slept: list[float]) -> None:
    pauses = Pauses()
    retries = Retries(tries=5, first_s=2.0)
    run(answered(Retrying(failing(*NINE_TIMES), retries=retries, sleep=pauses, chance=lambda: chance)))
    assert pauses.slept == slept


@pytest.mark.parametrize(("asked", "slept"), [(0.1, 0.5), (3.0, 3.0), (5.0, 5.0)])
def test_a_short_pause_that_a_provider_asks_for_is_waited_out(asked: float, slept: float) -> None:
    pauses = Pauses()
    model = failing(Broke("retryable", "slow down", asked, 429))
    assert text_of(run(answered(Retrying(model, sleep=pauses, chance=lambda: 1.0)))) == "I am first"
    assert pauses.slept == [slept]


def test_a_long_pause_that_a_provider_asks_for_is_not_waited_out_here() -> None:
    slow_down = Broke("retryable", "slow down", 5.1, 429)
    pauses = Pauses()
    assert run(answered(Retrying(failing(slow_down), sleep=pauses))) == [slow_down]
    events = run(answered(Retrying(failing(slow_down), [(failing(), "second")], sleep=pauses)))
    assert (text_of(events), pauses.slept) == ("I am second", [])


@pytest.mark.parametrize(
    ("failures", "asked_first"), [(["auth"], 1), (["quota"], 1), (["retryable"] * 4, 4), (["interrupted"] * 4, 4)]
)
def test_the_next_model_is_asked_when_one_cannot_answer(failures: list[ScriptedFailure], asked_first: int) -> None:
    first, second = failing(*failures), failing()
    events = run(answered(Retrying(first, [(second, "second")], sleep=Pauses())))
    assert text_of(events) == "I am second"
    assert events[-1] == ReplyEnded("end", "second")
    assert (len(first.requests), len(second.requests)) == (asked_first, 1)


@pytest.mark.parametrize("trouble", ["overflow", "refused", "bad_request"])
def test_the_next_model_is_not_asked_when_the_request_is_at_fault(trouble: ProviderErrorKind) -> None:
    second = failing()
    events = run(answered(Retrying(failing(trouble), [(second, "second")], sleep=Pauses())))
    assert events == [Broke(trouble, f"scripted {trouble}")]
    assert second.requests == []


def test_when_all_fail_each_is_named_and_the_last_decides() -> None:
    first, second = failing("auth"), failing("retryable", "retryable")
    retrying = Retrying(first, [(second, "second")], retries=Retries(tries=2), sleep=Pauses())
    words = "first: scripted auth; second: scripted retryable (tried 2 times)"
    assert run(answered(retrying)) == [Broke("retryable", words)]


def test_who_forgets_when_told_gets_every_word_once() -> None:
    async def main() -> None:
        retries: list[RetryTold] = []
        first, second, pauses = failing(CutReply(1), CutReply(2)), failing(CutReply(3)), Pauses()
        retrying = Retrying(first, [(second, "second")], retries=Retries(tries=2), sleep=pauses, chance=lambda: 0.0)
        kept = await answered(retrying, retries)
        assert text_of(kept) == "I am second"
        assert [type(event) for event in kept[-2:]] == [Usage, ReplyEnded]
        assert [(retry.model, retry.pause_s) for retry in retries] == [
            ("first", 0.25),
            ("second", 0.0),
            ("second", 0.25),
        ]
        assert pauses.slept == [0.25, 0.25]
        assert {retry.broke.trouble for retry in retries} == {"interrupted"}

    run(main())


class Odd:
    """A model that breaks its promise: its stream simply stops. It is also no generator, so it cannot be closed."""

    def __init__(self) -> None:
        self.closed = 0

    def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
        class Nothing:
            def __aiter__(self) -> AsyncIterator[ModelEvent]:
                return self

            async def __anext__(self) -> ModelEvent:
                raise StopAsyncIteration

        return Nothing()

    async def close(self) -> None:
        self.closed += 1


def test_a_stream_that_just_stops_is_no_reply() -> None:
    odd = Odd()
    broke = broke_of(run(answered(Retrying(odd, retries=Retries(tries=1)))))
    assert broke == Broke("interrupted", "the model's stream ended without an end")


def test_leaving_early_closes_the_stream_below() -> None:
    left: list[str] = []

    class Long:
        async def stream(self, request: Request) -> AsyncIterator[ModelEvent]:
            try:
                yield Text("a")
                await asyncio.Event().wait()
            finally:
                left.append("closed")

        async def close(self) -> None:
            pass

    async def main() -> None:
        waiting = asyncio.ensure_future(answered(Retrying(Long())))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert left == ["closed"]

    run(main())
