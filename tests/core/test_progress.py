"""Which steps repeat each other, when the model is told, and when a turn ends for it."""

from itertools import cycle, islice

import pytest

from fledge.core.images import ImageEntry
from fledge.core.progress import Progress, StepLimits, advance, is_told, refuse_next_step, step_digest
from fledge.core.transcript import CallEntry, Resulted
from tests.statements import proves


def call(name: str = "read", arguments: str = '{"path": "a", "limit": 5}', id_: str = "1") -> CallEntry:
    return CallEntry(id_, name, arguments)


def got(text: str = "12 lines", is_error: bool = False, index: int = 0, entry: int = 7) -> Resulted:
    return Resulted(entry, index, "id", "read", text, is_error)


# ---- which steps are the same ----------------------------------------------------------------------------------------


@proves("4.progress.2", "Steps are the same by tool names, canonical arguments, and results with their digits masked")
@pytest.mark.parametrize(
    ("other", "result"),
    [
        (call(id_="another"), got(entry=99)),
        (call("Read"), got()),
        (call(arguments='{"limit":5,"path":"a"}'), got()),
        (call(), got("9 lines")),
        (call(), got("120034 lines")),
    ],
    ids=["another place", "letter case", "order of keys", "fewer digits", "more digits"],
)
def test_a_step_is_the_same_as(other: CallEntry, result: Resulted) -> None:
    assert step_digest([other], [result]) == step_digest([call()], [got()])


@proves("4.progress.2")
@pytest.mark.parametrize(
    ("other", "result"),
    [
        (call("write"), got()),
        (call(arguments='{"path": "b", "limit": 5}'), got()),
        (call(arguments='{"path": "a", "limit": 6}'), got()),
        (call(arguments='{"path": "a"'), got()),
        (call(), got("12 words")),
        (call(), got(is_error=True)),
        (call(), got(index=1)),
    ],
    ids=["tool", "argument", "digit of an argument", "no JSON", "result", "error", "place of the result"],
)
def test_a_step_differs_by_its(other: CallEntry, result: Resulted) -> None:
    assert step_digest([other], [result]) != step_digest([call()], [got()])


@proves("3.images.23", "Steps that bring different images do not repeat each other, whatever the images are called")
def test_images_are_the_same_by_their_bytes() -> None:
    def seen(digest: str) -> str:
        image = ImageEntry(digest, "png", 100, 640, 480, "screen.png")
        result = Resulted(7, 0, "id", "screenshot", image.words, images=(image,))
        return step_digest([call("screenshot")], [result])

    assert seen("a") == seen("a")
    assert seen("a") != seen("b")


def test_the_order_in_which_results_came_in_does_not_matter() -> None:
    calls, results = [call(), call("list")], [got("a"), got("b", index=1)]
    assert step_digest(calls, results) == step_digest(calls, results[::-1])


def test_no_arguments_are_an_empty_object() -> None:
    assert step_digest([call(arguments=" ")], []) == step_digest([call(arguments="{}")], [])


# ---- rows of repeats -------------------------------------------------------------------------------------------------


def after(*digests: str, step_s: float = 1.0, before: Progress | None = None) -> Progress:
    progress = before or Progress()
    for digest in digests:
        at = 100.0 if progress.at is None else progress.at
        progress = advance(progress, digest, 100.0, at + step_s)
    return progress


@proves("4.progress.1", "Steps that repeat those one, two or three before them are counted in a row")
@pytest.mark.parametrize("pattern", ["a", "ab", "abc", "aab"])
def test_a_cycle_of_one_to_three_steps_is_counted_from_its_second_round_on(pattern: str) -> None:
    counted = [after(*islice(cycle(pattern), steps)).repeated for steps in range(40)]
    assert counted[len(pattern) :] == list(range(40 - len(pattern)))


@pytest.mark.parametrize("pattern", ["abcd", "abcde"])
def test_longer_cycles_are_not_noticed(pattern: str) -> None:
    assert max(after(*islice(cycle(pattern), steps)).repeated for steps in range(60)) < 4


@pytest.mark.parametrize("pattern", ["a", "ab", "abc"])
def test_another_step_ends_the_row(pattern: str) -> None:
    spinning = after(*islice(cycle(pattern), 20))
    assert after("x", before=spinning).repeated == 0
    assert after("x", *islice(cycle(pattern), 20), before=spinning).repeated == 20 - len(pattern)


@proves("4.progress.3", "A step of more than 30 s repeats nothing, and ends the row")
def test_a_slow_step_ends_the_row() -> None:
    spinning = after(*"a" * 20)
    slow = after("a", step_s=30.1, before=spinning)
    assert (slow.repeated, slow.steps) == (0, 21)
    assert after("a", before=slow).repeated == 0
    assert after("a", step_s=30.0, before=spinning).repeated == 20
    assert after(*"a" * 200, step_s=31.0).repeated == 0


def test_the_first_step_takes_its_time_from_the_beginning_of_the_turn() -> None:
    assert advance(Progress(), "a", 100.0, 131.0).recent == ()
    assert advance(Progress(), "a", 100.0, 130.0).recent == ("a",)


# ---- what follows ----------------------------------------------------------------------------------------------------


def test_the_model_is_told_once_in_a_row_at_thirty() -> None:
    told = [steps for steps in range(120) if is_told(after(*"a" * steps))]
    assert told == [31]
    again = after("x", *"a" * 31, before=after(*"a" * 60))
    assert is_told(again)


@pytest.mark.parametrize(
    ("progress", "limits", "refusal"),
    [
        (Progress(999, repeats=(99, 0, 0)), StepLimits(), None),
        (
            Progress(500, repeats=(0, 100, 0)),
            StepLimits(),
            "no progress: 100 steps in a row repeated earlier ones (same calls, same results): "
            "agents.defaults.maxRepeatedSteps",
        ),
        (Progress(1000), StepLimits(), "1000 of 1000 steps: agents.defaults.maxSteps"),
        (Progress(3), StepLimits(max_steps=3), "3 of 3 steps: agents.defaults.maxSteps"),
        (Progress(2), StepLimits(max_steps=3), None),
        (Progress(5000, repeats=(5000, 0, 0)), StepLimits(0, 0), None),
    ],
)
def test_a_turn_ends_at_its_limits(progress: Progress, limits: StepLimits, refusal: str | None) -> None:
    assert refuse_next_step(progress, limits) == refusal
