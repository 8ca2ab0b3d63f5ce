"""Completion signals: what each means in each situation, verdict by verdict; how runs move by them stands elsewhere."""

import pytest
from msgspec.structs import replace

from fledge.core import reconcile as rc
from fledge.core.events import Errored, Finished, RanOut, Signal
from fledge.core.run import ENDED, Archived, Ending, Grace, Running
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
ON = rc.Ignore("killed, and stopping")
ALONE = rc.Ignore("the grace goes on without its driver")
OVER = rc.Ignore("already ended")

LIVE: list[tuple[str, Signal, rc.Verdict]] = [
    # running: an end decides, a provisional error holds, a lost driver is replaced
    ("running", finished(), rc.Complete(TEXT, WORKING)),
    ("running", finished("skip"), rc.Complete(Finished("skip"), WORKING)),
    ("running", broke(NO_MODEL), rc.BreakOff(NO_MODEL)),
    ("running", broke(SPENT), rc.BreakOff(SPENT)),
    ("running", broke(RanOut("t-partial")), rc.BreakOff(RanOut("t-partial"))),
    ("running", faltered(at=1000.0), rc.Hold(1015.0, Grace("overloaded", False, WORKING))),
    ("running", faltered("cut off", aborted=True, at=7.5), rc.Hold(22.5, Grace("cut off", True, WORKING))),
    ("running, serving", faltered(), rc.Hold(1015.0, Grace("overloaded", False, SERVING))),
    ("running", started(), rc.Ignore("already running")),
    ("running", stopped(), rc.Requeue(WORKING)),
    ("running, serving", lost(), rc.Requeue(SERVING)),
    # a grace: a start or an end cancels it, nothing else does
    ("ending, grace", finished(), rc.Complete(TEXT, WORKING)),
    ("ending, grace while serving", finished(), rc.Complete(TEXT, Running(1200.0, YIELD_WAIT))),
    ("ending, grace", broke(NO_MODEL), rc.BreakOff(NO_MODEL)),
    ("ending, grace", started(), rc.Resume(WORKING)),
    ("ending, grace while serving", started(), rc.Resume(Running(1200.0, YIELD_WAIT))),
    ("ending, grace", faltered(), rc.Ignore("already in its grace")),
    ("ending, grace", stopped(), ALONE),
    ("ending, grace", lost(), ALONE),
    # stopping: one complete end may win, if the kill named this very run
    ("ending, stopping named", finished(), rc.LateWin(TEXT)),
    ("ending, stopping named", finished("silent"), rc.LateWin(Finished("silent"))),
    ("ending, stopping named", broke(NO_MODEL), rc.DecideKilled(True)),
    ("ending, stopping named", broke(RanOut()), rc.DecideKilled(True)),
    ("ending, stopping named", started(), ON),
    ("ending, stopping named", faltered(), ON),
    ("ending, stopping named", stopped(), rc.DecideKilled(True)),
    ("ending, stopping named", lost(), rc.DecideKilled(True)),
    ("ending, stopping below", finished(), rc.DecideKilled(False)),
    ("ending, stopping below", stopped(), rc.DecideKilled(False)),
    ("ending, stopping below", lost(), rc.DecideKilled(False)),
    ("ending, stopping below", started(), ON),
    ("ending, stopping planner", finished(), rc.DecideKilled(True)),
]


@proves("2.signals.1", "An authoritative end decides at once")
@proves("2.signals.6", "A lost lease and a settle check are signals, judged in the same place")
@pytest.mark.parametrize(("name", "signal", "verdict"), LIVE)
def test_a_signal_of_a_live_attempt_is_judged_by_its_situation(name: str, signal: Signal, verdict: rc.Verdict) -> None:
    assert rc.judge(RUNS[name], signal) == verdict


def test_a_complete_wins_late_only_if_it_may() -> None:
    assert rc.judge(RUNS["ending, stopping named"], finished()) == rc.LateWin(TEXT)
    assert rc.judge(RUNS["ending, stopping planner"], finished()) == rc.DecideKilled(named=True)


LATE: list[tuple[str, Signal, rc.Verdict]] = [
    ("announcing", finished(), rc.Late(TEXT)),
    ("announcing", finished(text="t-result"), rc.Ignore("a known end, repeated")),
    ("announcing", finished("empty"), rc.Ignore("a late end without words")),
    ("announcing", finished("silent"), rc.Ignore("a late end without words")),
    ("announcing", finished("skip"), rc.Ignore("a late end without words")),
    ("announcing", broke(NO_MODEL), OVER),
    ("announcing an error", finished(), rc.Late(TEXT)),
    ("announcing a timeout", finished(), rc.Late(TEXT)),
    ("announcing a timeout", finished(text="t-partial"), rc.Ignore("a known end, repeated")),
    ("announcing the unknown", finished(), rc.Late(TEXT)),
    ("deferred, missing-requester", finished(), rc.Late(TEXT)),
    ("cleanup, delivered", finished(), OVER),
    ("cleanup, delivered", finished("silent"), rc.Ignore("a late end without words")),
    ("cleanup, failed and delivered", finished(), rc.Late(TEXT)),
    ("cleanup, killed by name", finished(), rc.Late(TEXT)),
    ("cleanup, killed from above", finished(), rc.Ignore("suppressed: below a kill")),
    ("cleanup, killed from above", finished("empty"), rc.Ignore("a late end without words")),
    ("completed", finished(), OVER),
    ("completed", finished(text="t-result"), rc.Ignore("a known end, repeated")),
    ("completed, timed out", finished(), rc.Late(TEXT)),
    ("completed_giveup", finished(), OVER),
    ("archived", finished(), OVER),
    ("archived, failed", finished(), OVER),
]


@proves("2.signals.9", "A repeated known end changes nothing")
@pytest.mark.parametrize(("name", "signal", "verdict"), LATE)
def test_an_end_after_the_outcome_was_fixed_is_judged_by_what_is_known(
    name: str, signal: Signal, verdict: rc.Verdict
) -> None:
    assert rc.judge(RUNS[name], signal) == verdict


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if isinstance(run.phase, ENDED)])
@pytest.mark.parametrize("signal", ["started", "faltered", "stopped", "lost", "errored"])
def test_after_the_end_only_a_finished_attempt_is_heard(name: str, signal: str) -> None:
    assert rc.judge(RUNS[name], SIGNALS[signal]) == OVER


@pytest.mark.parametrize("name", ["spawning", "queued", "waiting, yielded", "awaiting approval", "gone"])
@pytest.mark.parametrize("signal", list(SIGNALS))
def test_without_an_attempt_no_signal_counts(name: str, signal: str) -> None:
    run = RUNS[name]
    assert rc.judge(run, SIGNALS[signal]) == rc.Ignore(f"no attempt is running ({run.phase.name})")


@proves("2.signals.8", "Signals of older attempts are ignored")
@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("signal", list(SIGNALS))
@pytest.mark.parametrize("attempt", [2, 4])
def test_what_belongs_to_another_attempt_never_counts(name: str, signal: str, attempt: int) -> None:
    run = replace(RUNS[name], attempt=3)
    verdict = rc.judge(run, replace(SIGNALS[signal], attempt=attempt))
    assert verdict == rc.Ignore(f"attempt {attempt}, now 3")


@proves("2.signals.2")
def test_the_limits_are_those_of_the_contract() -> None:
    assert (rc.GRACE_S, rc.STOP_S) == (15.0, 5.0)


@pytest.mark.parametrize("name", [name for name, run in RUNS.items() if isinstance(run.phase, Ending | Archived)])
@pytest.mark.parametrize("signal", list(SIGNALS))
def test_neither_a_grace_nor_a_stop_nor_the_archive_is_restarted_by_a_signal(name: str, signal: str) -> None:
    assert not isinstance(rc.judge(RUNS[name], SIGNALS[signal]), rc.Hold | rc.Requeue)
