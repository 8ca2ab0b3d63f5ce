"""Completion signals: what comes of each in each situation; how runs move by them in all detail stands elsewhere."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from fledge.core import closing
from fledge.core import effects as fx
from fledge.core import reconcile as rc
from fledge.core.effects import Step, ignore, move
from fledge.core.events import DriverStopped, Errored, Finished, LeaseLost, RanOut, Signal
from fledge.core.lifecycle import transition
from fledge.core.run import ENDED, Archived, Ending, Grace, Queued, Run, Running
from tests.core.samples import RUNS, SERVING, WORKING, YIELD_WAIT, broke, faltered, finished, lost, started, stopped
from tests.statements import proves

TEXT = Finished("text", "t-new")
NO_MODEL = Errored("no model", partial="t-partial")
SPENT = Errored("tokens 9 of 9", cause="budget")
SIGNALS: dict[str, Signal] = {
    "started": started(),
    "finished": finished(),
    "errored": broke(NO_MODEL),
    "faltered": faltered(),
    "stopped": stopped(),
    "lost": lost(),
}
Follows = Callable[[Run, Signal], Step]
"""What comes of a signal."""


def _ignored(reason: str) -> Follows:
    return lambda run, signal: ignore(run, reason)


def _complete(end: Finished, running: Running) -> Follows:
    def follows(run: Run, signal: Signal) -> Step:
        if running.serving is not None:  # all children have settled, so the wait that goes on is over
            return rc.woken(run, signal.next_run_id, "wake", fx.ReleaseDriver("earlier"))
        ended = closing.result_of(run, end, signal.at)
        return closing.finish(run, ended, end.said, 0, fx.ReleaseDriver(), fx.HandOver())

    return follows


def _break_off(end: Errored | RanOut) -> Follows:
    return lambda run, signal: closing.break_off(run, signal.at, end, 0, fx.ReleaseDriver())


def _hold(until_at: float, grace: Grace) -> Follows:
    return lambda run, signal: move(run, Ending(until_at, grace))


def _resume(running: Running) -> Follows:
    return lambda run, signal: move(run, replace(running, due_at=signal.at + run.terms.stuck_after_s))


def _requeue(running: Running) -> Follows:
    def follows(run: Run, signal: Signal) -> Step:
        run = replace(run, crashes=1 if isinstance(signal, LeaseLost) else 0)
        return move(run, Queued(serving=running.serving), fx.SupersedeDriver(signal.at), fx.Enqueue())

    return follows


def _decide_killed(named: bool) -> Follows:
    def follows(run: Run, signal: Signal) -> Step:
        match signal:
            case LeaseLost():
                gone: fx.Effect = fx.SupersedeDriver(signal.at)
            case DriverStopped():
                gone = fx.FreeDriver()
            case _:
                gone = fx.ReleaseDriver()
        return closing.kill_now(run, signal.at, named, 0, gone)

    return follows


def _late_win(end: Finished) -> Follows:
    def follows(run: Run, signal: Signal) -> Step:
        ended = closing.result_of(run, end, signal.at)
        return closing.fix(run, ended, end.said, 0, fx.ReleaseDriver(), fx.SuppressInbox())

    return follows


def _late(end: Finished) -> Follows:
    return lambda run, signal: closing.complete_late(run, signal.at, end)


ON = _ignored("killed, and stopping")
ALONE = _ignored("the grace goes on without its driver")
OVER = _ignored("already ended")

LIVE: list[tuple[str, Signal, Follows]] = [
    # running: an end decides, a provisional error holds, a lost driver is replaced
    ("running", finished(), _complete(TEXT, WORKING)),
    ("running", finished("skip"), _complete(Finished("skip"), WORKING)),
    ("running", broke(NO_MODEL), _break_off(NO_MODEL)),
    ("running", broke(SPENT), _break_off(SPENT)),
    ("running", broke(RanOut("t-partial")), _break_off(RanOut("t-partial"))),
    ("running", faltered(at=1000.0), _hold(1015.0, Grace("overloaded", False, WORKING))),
    ("running", faltered("cut off", aborted=True, at=7.5), _hold(22.5, Grace("cut off", True, WORKING))),
    ("running, serving", faltered(), _hold(1015.0, Grace("overloaded", False, SERVING))),
    ("running", started(), _ignored("already running")),
    ("running", stopped(), _requeue(WORKING)),
    ("running, serving", lost(), _requeue(SERVING)),
    # a grace: a start or an end cancels it, nothing else does
    ("ending, grace", finished(), _complete(TEXT, WORKING)),
    ("ending, grace while serving", finished(), _complete(TEXT, Running(1200.0, YIELD_WAIT))),
    ("ending, grace", broke(NO_MODEL), _break_off(NO_MODEL)),
    ("ending, grace", started(), _resume(WORKING)),
    ("ending, grace while serving", started(), _resume(Running(1200.0, YIELD_WAIT))),
    ("ending, grace", faltered(), _ignored("already in its grace")),
    ("ending, grace", stopped(), ALONE),
    ("ending, grace", lost(), ALONE),
    # stopping: one complete end may win, if the kill named this very run
    ("ending, stopping named", finished(), _late_win(TEXT)),
    ("ending, stopping named", finished("silent"), _late_win(Finished("silent"))),
    ("ending, stopping named", broke(NO_MODEL), _decide_killed(True)),
    ("ending, stopping named", broke(RanOut()), _decide_killed(True)),
    ("ending, stopping named", started(), ON),
    ("ending, stopping named", faltered(), ON),
    ("ending, stopping named", stopped(), _decide_killed(True)),
    ("ending, stopping named", lost(), _decide_killed(True)),
    ("ending, stopping below", finished(), _decide_killed(False)),
    ("ending, stopping below", stopped(), _decide_killed(False)),
    ("ending, stopping below", lost(), _decide_killed(False)),
    ("ending, stopping below", started(), ON),
    ("ending, stopping planner", finished(), _decide_killed(True)),
]


@proves("2.signals.1", "An authoritative end decides at once")
@proves("2.signals.6", "A lost lease and a settle check are signals, judged in the same place")
@pytest.mark.parametrize(("name", "signal", "follows"), LIVE)
def test_a_signal_of_a_live_attempt_is_judged_by_its_situation(name: str, signal: Signal, follows: Follows) -> None:
    assert transition(RUNS[name], signal) == follows(RUNS[name], signal)


def test_a_complete_wins_late_only_if_it_may() -> None:
    named, planner = RUNS["ending, stopping named"], RUNS["ending, stopping planner"]
    assert transition(named, finished()) == _late_win(TEXT)(named, finished())
    assert transition(planner, finished()) == _decide_killed(named=True)(planner, finished())


LATE: list[tuple[str, Signal, Follows]] = [
    ("announcing", finished(), _late(TEXT)),
    ("announcing", finished(text="t-result"), _ignored("a known end, repeated")),
    ("announcing", finished("empty"), _ignored("a late end without words")),
    ("announcing", finished("silent"), _ignored("a late end without words")),
    ("announcing", finished("skip"), _ignored("a late end without words")),
    ("announcing", broke(NO_MODEL), OVER),
    ("announcing an error", finished(), _late(TEXT)),
    ("announcing a timeout", finished(), _late(TEXT)),
    ("announcing a timeout", finished(text="t-partial"), _ignored("a known end, repeated")),
    ("announcing the unknown", finished(), _late(TEXT)),
    ("deferred, missing-requester", finished(), _late(TEXT)),
    ("cleanup, delivered", finished(), OVER),
    ("cleanup, delivered", finished("silent"), _ignored("a late end without words")),
    ("cleanup, failed and delivered", finished(), _late(TEXT)),
    ("cleanup, killed by name", finished(), _late(TEXT)),
    ("cleanup, killed from above", finished(), _ignored("suppressed: below a kill")),
    ("cleanup, killed from above", finished("empty"), _ignored("a late end without words")),
    ("completed", finished(), OVER),
    ("completed", finished(text="t-result"), _ignored("a known end, repeated")),
    ("completed, timed out", finished(), _late(TEXT)),
    ("completed_giveup", finished(), OVER),
    ("archived", finished(), OVER),
    ("archived, failed", finished(), OVER),
]


@proves("2.signals.9", "A repeated known end changes nothing")
@pytest.mark.parametrize(("name", "signal", "follows"), LATE)
def test_an_end_after_the_outcome_was_fixed_is_judged_by_what_is_known(
    name: str, signal: Signal, follows: Follows
) -> None:
    assert transition(RUNS[name], signal) == follows(RUNS[name], signal)


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if isinstance(run.phase, ENDED)])
@pytest.mark.parametrize("signal", ["started", "faltered", "stopped", "lost", "errored"])
def test_after_the_end_only_a_finished_attempt_is_heard(name: str, signal: str) -> None:
    assert transition(RUNS[name], SIGNALS[signal]) == ignore(RUNS[name], "already ended")


@pytest.mark.parametrize("name", ["spawning", "queued", "waiting, yielded", "awaiting approval", "gone"])
@pytest.mark.parametrize("signal", list(SIGNALS))
def test_without_an_attempt_no_signal_counts(name: str, signal: str) -> None:
    run = RUNS[name]
    assert transition(run, SIGNALS[signal]) == ignore(run, f"no attempt is running ({run.phase.name})")


@proves("2.signals.8", "Signals of older attempts are ignored")
@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("signal", list(SIGNALS))
@pytest.mark.parametrize("attempt", [2, 4])
def test_what_belongs_to_another_attempt_never_counts(name: str, signal: str, attempt: int) -> None:
    run = replace(RUNS[name], attempt=3)
    step = transition(run, replace(SIGNALS[signal], attempt=attempt))
    assert step == ignore(run, f"attempt {attempt}, now 3")


@proves("2.signals.2")
def test_the_limits_are_those_of_the_contract() -> None:
    assert (rc.GRACE_S, rc.STOP_S) == (15.0, 5.0)


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if isinstance(run.phase, Ending | Archived)])
@pytest.mark.parametrize("signal", list(SIGNALS))
def test_neither_a_grace_nor_a_stop_nor_the_archive_is_restarted_by_a_signal(name: str, signal: str) -> None:
    run = RUNS[name]
    step = transition(run, SIGNALS[signal])
    assert step.ignored or not isinstance(step.run.phase, Ending)
    assert not isinstance(step.run.phase, Queued) or step.run.attempt == run.attempt + 1
