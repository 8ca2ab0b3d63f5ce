"""kill -9 anywhere: before and after every transaction, twice in a row, and at moments with everything real.

`make test` takes a fixed, evenly spread sample, the same every time: one of n points each, where n is odd, so that
points before and after a transaction take turns. `make soak` takes all points, and other moments each
time. The moments are real: a seed fixes how many milliseconds a process lives, whatever it is doing then; no verdict
depends on it.
"""

import json
import subprocess
import sys

import pytest

from tests.crash.stories import STORIES
from tests.effort import FIRST_SEED, SOAK, seeds
from tests.left_out import requires
from tests.statements import proves

MOMENTS = seeds(4, 20)


def judge(module: str, *arguments: str) -> dict[str, object]:
    """Run a judge in a process of its own; what it found, with the command that finds it again."""
    command = [sys.executable, "-m", f"tests.crash.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.stdout, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert found["wrong"] == {}, f"{command}\n{json.dumps(found['wrong'], indent=1)}\n{done.stderr}"
    return found


def sample(step: int) -> tuple[str, ...]:
    """The middle one of every `step` points; all of them in a soak."""
    assert step % 2, "with an even step all points would be before a transaction, or all after one"
    return () if SOAK else ("--step", str(step), "--offset", str(step // 2))


@proves("0.lost.1", "A result is a durable row before it is announced")
@proves("0.crash.1", "After kill -9 and a restart every run continues or ends readably")
@proves("2.phases.22")
@proves("2.hops.2")
def test_a_crash_before_or_after_any_transaction_loses_nothing_and_doubles_nothing() -> None:
    found = judge("every_commit", *sample(5))
    assert int(str(found["points"])) >= 2 * int(str(found["transactions"])) // (1 if SOAK else 5)


@proves("0.crash.2", "A second crash during the recovery changes nothing")
def test_a_second_crash_during_recovery_changes_nothing_either() -> None:
    judge("every_commit", "--again", *sample(11))


@pytest.mark.parametrize("story", STORIES)
def test_a_story_of_real_agents_ends_the_same_wherever_a_process_is_killed(story: str) -> None:
    step = 7 * STORIES[story].weight
    found = judge("story_every_commit", story, *sample(step))
    assert int(str(found["transactions"])) >= 12
    assert int(str(found["points"])) >= 2 * int(str(found["transactions"])) // (1 if SOAK else step)


@pytest.mark.parametrize("story", STORIES)
def test_a_story_survives_a_second_crash_during_recovery(story: str) -> None:
    judge("story_every_commit", story, "--again", *sample(15 * STORIES[story].weight))


@proves("0.crash.14", "A process killed at any step of the first opening of a folder leaves one that opens")
@pytest.mark.parametrize(("deed", "least"), [("open", 20), ("open-old", 20), ("close", 5)])
def test_a_process_killed_at_any_step_of_opening_or_closing_a_folder_leaves_one_that_opens(
    deed: str, least: int
) -> None:
    requires("ptrace")
    found = judge("store_every_call", deed, *(["--every"] if SOAK else []))
    assert int(str(found["steps"])) >= least


@proves("0.crash.17", "A process killed inside any call or around any order, twice in a row, is taken over by the next")
def test_a_process_killed_inside_any_call_or_around_any_order_twice_in_a_row_is_taken_over_by_the_next() -> None:
    found = judge("at_points")
    assert int(str(found["rounds"])) >= 25
    assert int(str(found["kills"])) >= 40
    if SOAK:
        judge("at_points", "--first", str(FIRST_SEED), "--rounds", str(50 * SOAK))


@proves("0.crash.1")
def test_a_process_killed_at_a_random_moment_is_taken_over_by_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    found = judge("at_random", str(MOMENTS.start), str(len(MOMENTS)))
    with capsys.disabled():
        print(f"\nkilled at random: {found}")
    assert (found["lost"], found["doubled"], found["repeated"]) == (0, 0, 0)
    assert int(str(found["kills"])) >= len(MOMENTS) // 2
