"""A provider that is down, overloaded or at its rate limit: a run waits for it without a driver, then ends in words."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from fledge.api.views import forest, run_info
from fledge.commands import lines
from fledge.commands.params import One
from fledge.commands.queries import subagents_info
from fledge.commands.table import Moment
from fledge.core.prompts import list_text
from fledge.core.run import Failing, Queued, Retry, Terms
from fledge.core.transcript import Spoken
from fledge.models.base import Broke, Request
from fledge.models.retry import Retrying
from fledge.models.scripted import Answer, ModelScript, ScriptedModel, ScriptedReply
from fledge.orchestrator import spawn, views
from fledge.orchestrator.commit import Rules
from fledge.store.base import Spec
from tests.orchestrator.stage import LIMITS
from tests.runtime.desk import MAIN, PROGRAM, Desk, Kit, Office, asked, cast, in_turn, use, worker
from tests.runtime.test_cut_replies import result
from tests.statements import proves

DOWN = Broke("retryable", "HTTP 503: down", status=503)
STEP = ScriptedReply("I look. ", (use("look"),))


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


class Provider:
    """Answers by a script, except between two moments after it was first asked. Remembers when it was asked."""

    def __init__(self, script: ModelScript, seconds: float, trouble: Broke = DOWN, after_s: float = 0.0) -> None:
        self._script, self._from_s, self._until_s, self._trouble = script, after_s, after_s + seconds, trouble
        self.asked_s: list[float] = []
        self._first_at: float | None = None

    def __call__(self, request: Request) -> Answer:
        now = asyncio.get_running_loop().time()
        self._first_at = now if self._first_at is None else self._first_at
        at_s = now - self._first_at
        self.asked_s.append(at_s)
        answer = self._trouble if self._from_s <= at_s < self._until_s else self._script(request)
        assert not asyncio.iscoroutine(answer)
        return answer  # type: ignore[return-value]


async def work(desk: Desk, **terms: Any) -> str:
    """Spawn a run and wait, in steps of a second, until its outcome is fixed."""
    key = await desk.spawn("worker", **terms)
    await ended(desk, key)
    return key


async def ended(desk: Desk, key: str) -> None:
    while (await desk.run(key)).ended is None:
        await desk.clock.sleep(1.0)


async def _outcome(desk: Desk) -> tuple[str, str | None, float]:
    return await desk.outcome(await work(desk))


async def paused(desk: Desk, key: str) -> Retry:
    """The pause of a run, as soon as it is in one."""

    await desk.until(lambda tx: isinstance(tx.runs.load(key).phase, Queued) and tx.runs.load(key).failing is not None)
    phase = (await desk.run(key)).phase
    assert isinstance(phase, Queued)
    assert phase.retry is not None
    return phase.retry


@proves("2.asking.6", "A provider that is down is waited for, with pauses of 8 to 30 s, up to `models.patienceSeconds`")
@pytest.mark.parametrize(("seconds", "within_s"), [(5.0, 12.0), (300.0, 334.0)])
def test_a_provider_that_is_down_for_a_while_is_waited_for(office: Office, seconds: float, within_s: float) -> None:
    provider = Provider(in_turn("done"), seconds)
    status, error, elapsed_s = office.act(_outcome, Retrying(ScriptedModel(cast(worker=provider))))
    assert (status, error) == ("ok", None)
    assert seconds <= elapsed_s <= within_s
    gaps = [after - before for before, after in zip(provider.asked_s, provider.asked_s[1:], strict=False)]
    assert max(gaps) <= 30.0


@proves("2.asking.7", "When patience is over, a provisional error waits 15 s, then it is the error, with partial work")
def test_a_provider_that_is_down_for_good_ends_the_run_with_partial_work(office: Office) -> None:
    provider = Provider(in_turn(STEP), 1e9, after_s=1.0)
    kit = Kit()

    async def body(desk: Desk) -> tuple[str, str | None, float, str]:
        key = await work(desk)
        return *await desk.outcome(key), await result(desk, key)

    found = office.act(body, ScriptedModel(cast(worker=provider)), kit.tool("look", takes_s=2.0))
    error = "the model could not answer (retryable): HTTP 503: down (waited 600 s: models.patienceSeconds)"
    assert found[:2] == ("error", error)
    assert found[2] == pytest.approx(2.0 + 600.0 + 15.0, abs=0.1)
    assert found[3] == "(partial progress: 1 tool call, no final answer)\n- I look."


def test_a_reply_within_the_grace_takes_the_provisional_error_back(office: Office) -> None:
    provider = Provider(in_turn("done"), 64.0)

    async def body(desk: Desk) -> tuple[str, list[str]]:
        key = await work(desk)
        names = [type(event).__name__ for event in await desk.look(lambda tx: tx.events.of(key))]
        return (await desk.outcome(key))[0], names[-6:-2]

    found = office.act(body, ScriptedModel(cast(worker=provider)), patience_s=60.0)
    assert found == ("ok", ["Claimed", "AttemptFaltered", "AttemptStarted", "AttemptEnded"])


@proves("2.asking.8", "Retry-After is honoured; beyond the patience that is left it is not waited for")
def test_a_pause_that_the_provider_asks_for_is_waited_out(office: Office) -> None:
    provider = Provider(in_turn("done"), 30.0, Broke("retryable", "HTTP 429: slow down", 45.0, 429))
    status, _, elapsed_s = office.act(_outcome, Retrying(ScriptedModel(cast(worker=provider))))
    assert (status, provider.asked_s) == ("ok", [0.0, 45.0])
    assert elapsed_s == 45.0


def test_a_pause_beyond_all_patience_is_not_waited_for(office: Office) -> None:
    slow = Broke("retryable", "HTTP 429: tomorrow", 86400.0, 429)
    _, error, elapsed_s = office.act(_outcome, ScriptedModel(cast(worker=Provider(in_turn("never"), 1e9, slow))))
    wish = "its provider asks to wait 86400 s, 600 s of models.patienceSeconds are left"
    assert (error, elapsed_s) == (f"the model could not answer (retryable): HTTP 429: tomorrow ({wish})", 15.0)


def test_a_fallback_that_works_is_asked_before_anything_is_waited_for(office: Office) -> None:
    down, other = ScriptedModel(lambda request: DOWN), ScriptedModel(lambda request: "from the other")

    async def body(desk: Desk) -> tuple[str, float]:
        key = await work(desk)
        return await result(desk, key), (await desk.outcome(key))[2]

    text, elapsed_s = office.act(body, Retrying(down, [(other, "other")]))
    assert text == "from the other"
    assert elapsed_s <= 3.5


@proves("2.asking.9", "A committed step starts patience anew")
def test_patience_counts_from_the_first_failure_of_a_step(office: Office) -> None:
    first, then = Provider(in_turn(STEP), 400.0), Provider(in_turn(STEP, "done"), 400.0)
    model = ScriptedModel(cast(worker=lambda request: (first if len(request.messages) == 1 else then)(request)))
    status, error, elapsed_s = office.act(_outcome, model, Kit().tool("look"))
    assert (status, error) == ("ok", None)
    assert elapsed_s >= 800.0


@proves("2.asking.10", "Patience ends with the run's own deadline")
def test_the_deadline_of_a_run_ends_a_pause(office: Office) -> None:
    async def body(desk: Desk) -> tuple[str, str | None, float]:
        return await desk.outcome(await work(desk, timeout_s=60.0))

    model = ScriptedModel(cast(worker=Provider(in_turn("never"), 1e9)))
    assert office.act(body, model) == ("timeout", None, 60.0)


@proves("2.asking.11", "A pause holds no driver, no slot and no open step, and costs no budget seconds")
def test_a_pause_holds_nothing_and_costs_no_seconds_of_a_budget(office: Office) -> None:
    async def body(desk: Desk) -> tuple[object, float, str]:
        await desk.give(MAIN, seconds=10.0)
        key = await desk.spawn("worker")
        await paused(desk, key)
        driver = await desk.look(lambda tx: tx.drivers.get(key))
        await ended(desk, key)
        return driver, await desk.worked_s(MAIN), (await desk.outcome(key))[0]

    model = ScriptedModel(cast(worker=Provider(in_turn("done"), 300.0)))
    assert office.act(body, model, is_budgeted=True) == (None, 0.0, "ok")


@proves("2.asking.11")
def test_a_thousand_children_that_pause_leave_the_lane_to_others(office: Office) -> None:
    count = 1000
    down = Broke("retryable", "HTTP 529: overloaded", status=529)

    async def body(desk: Desk) -> tuple[int, int]:
        request = spawn.SpawnRequest(
            spec=Spec(task="worker", label="worker"),
            terms=Terms(parent=MAIN),
            limits=replace(LIMITS, max_children=2 * count),
        )
        spawned = [(await desk.engine.commit(lambda c: spawn.spawn(c, request))).key for _ in range(count)]
        await desk.until(lambda tx: all(tx.runs.load(key).failing is not None for key in spawned))
        drivers = len(await desk.look(lambda tx: tx.drivers.all()))
        key = await desk.spawn("healthy", parent=PROGRAM)
        await ended(desk, key)
        return drivers, round((await desk.outcome(key))[2])

    model = ScriptedModel(cast(worker=Provider(in_turn("never"), 1e9, down)))
    assert office.act(body, model, rules=Rules(widths={"main": 4, "subagent": 8, "nested": 1})) == (0, 0)


@proves("2.asking.12", "A crash during a pause counts as none, and the pause and its patience go on")
def test_a_crash_during_a_pause_counts_as_none_and_patience_goes_on(office: Office) -> None:
    model = worker(*["never"], failures=dict.fromkeys(range(1, 100), DOWN))

    async def first(desk: Desk) -> tuple[str, Retry, Failing | None]:
        key = await desk.spawn("worker")
        await desk.until(lambda tx: (tx.runs.load(key).failing or Failing(0.0, 0)).pauses == 3)
        return key, await paused(desk, key), (await desk.run(key)).failing

    key, retry, failing = office.act(first, model, ends="crashed")

    async def then(desk: Desk) -> tuple[Retry, Failing | None, int, tuple[str, str | None, float]]:
        run, again = await desk.run(key), await paused(desk, key)
        await ended(desk, key)
        return again, run.failing, run.crashes, await desk.outcome(key)

    again, kept, crashes, (status, _, elapsed_s) = office.act(then, model)
    assert (again, kept, crashes, status) == (retry, failing, 0, "error")
    assert elapsed_s == pytest.approx(615.0, abs=0.1)


@proves("2.asking.13", "Steer, kill and send act at once on a run that pauses")
def test_a_steer_during_a_pause_acts_at_once(office: Office) -> None:
    provider = Provider(in_turn("done"), 1.0)

    async def body(desk: Desk) -> tuple[float, int]:
        key = await desk.spawn("worker")
        await paused(desk, key)
        await desk.sleep_until(3.0)
        await desk.steer(key)
        await ended(desk, key)
        return (await desk.outcome(key))[2], (await desk.run(key)).attempt

    assert office.act(body, ScriptedModel(cast(worker=provider))) == (3.0, 2)


@proves("2.asking.13")
def test_a_kill_during_a_pause_acts_at_once(office: Office) -> None:
    async def body(desk: Desk) -> tuple[str, float]:
        key = await desk.spawn("worker")
        await paused(desk, key)
        await desk.sleep_until(3.0)
        await desk.kill(key)
        status, _, elapsed_s = await desk.outcome(key)
        return status, elapsed_s

    model = ScriptedModel(cast(worker=Provider(in_turn("never"), 1e9)))
    assert office.act(body, model) == ("killed", 3.0)


@proves("2.asking.13")
def test_a_message_during_a_pause_is_read_at_once(office: Office) -> None:
    provider = Provider(in_turn("done"), 1.0)

    async def body(desk: Desk) -> tuple[float, list[str]]:
        key = await desk.spawn("worker")
        await paused(desk, key)
        await desk.sleep_until(3.0)
        await desk.send("by the way", key)
        await ended(desk, key)
        said = [entry.text for entry in await desk.bodies(key) if isinstance(entry, Spoken)]
        return (await desk.outcome(key))[2], said

    assert office.act(body, ScriptedModel(cast(worker=provider))) == (3.0, ["worker", "by the way"])


@proves("2.asking.14", "A pause is shown as `retrying in 8 s: …` and is never told as stuck")
def test_a_pause_is_shown_with_its_time_and_reason_and_is_not_stuck(office: Office) -> None:
    slow = Broke("retryable", "HTTP 429: slow down", 400.0, 429)

    async def body(desk: Desk) -> tuple[str, str, list[str]]:
        key = await desk.spawn("worker")
        retry = await paused(desk, key)
        now = desk.clock.now()
        at_once = await desk.look(lambda tx: list_text(views.child_rows(tx, MAIN), now))
        [line] = await desk.look(lambda tx: lines.tree(forest(tx, [MAIN], 10).runs, now))
        assert line == "└─ worker · retrying in 400 s: HTTP 429: slow down"
        story = lines.story(await desk.look(lambda tx: subagents_info(Moment(tx, now, True), One(target=key))))
        assert "status    retrying in 400 s: HTTP 429: slow down" in story
        assert story[-1].endswith("paused             → queued  (retrying in 400 s: HTTP 429: slow down)")
        info = await desk.look(lambda tx: run_info(tx, key))
        assert (info.status, info.retry_at, info.retry_reason) == ("queued", retry.at, "HTTP 429: slow down")
        status = await desk.look(lambda tx: views.session_status(tx, key, desk.engine.rules, now))
        assert status.run_status == "retrying in 400 s: HTTP 429: slow down"
        await desk.clock.sleep(390.0)
        [row] = await desk.look(lambda tx: views.child_rows(tx, MAIN))
        return at_once.splitlines()[2], row.status_text(desk.clock.now()), await desk.heard()

    listed, later, told = office.act(body, ScriptedModel(cast(worker=Provider(in_turn("never"), 1e9, slow))))
    assert listed.startswith("1) retrying in 400 s: HTTP 429: slow down · worker · ")
    assert later == "retrying in 10 s: HTTP 429: slow down"
    assert told == []


def test_a_conversation_comes_back_after_the_pause_that_its_provider_asks_for(office: Office) -> None:
    provider = Provider(in_turn("hello"), 5.0, Broke("retryable", "HTTP 429: slow down", 20.0, 429))
    model = ScriptedModel(cast(main=provider))

    async def body(desk: Desk) -> list[str]:
        await desk.send("go")
        await desk.until(lambda tx: tx.turns.get(MAIN) is None and bool(tx.transcripts.entries(MAIN)))
        return await desk.heard(kind="assistant")

    assert office.act(body, Retrying(model)) == ["hello"]
    assert provider.asked_s == [0.0, 20.0]
    assert len(asked(model, "main")) == 2
