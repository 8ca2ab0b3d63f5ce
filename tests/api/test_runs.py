"""Runs from code: handles, what reading means, waiting for several, and finding a run again."""

import asyncio
import re
from pathlib import Path
from typing import Any, assert_type

import msgspec
import pytest
from msgspec import Struct

import fledge
from fledge.api import spawn_options
from fledge.api.spawn_options import SpawnOptions
from fledge.channels.terminal import HERE
from fledge.core.policy import UNREAD_PROGRAM_S
from fledge.models.base import Broke
from fledge.orchestrator import bindings
from fledge.runtime.base import Work
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.statements import proves


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def row_states(fl: fledge.Fledge, key: str) -> list[str]:
    rows = await fl.engine.store.read(lambda tx: tx.inbox.of_run(key))
    return [row.state for row in rows]


def test_spawning_returns_at_once_and_awaiting_the_handle_gives_the_result(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("wait 100", label=" survey ")
        assert (await run.peek()).status == "pending"
        assert not (await run.peek()).done
        result = await run
        assert (result.status, result.text, result.label) == ("ok", "echo: wait 100", "survey")
        assert result.ok
        assert result.error is None
        assert (result.run_id, result.session_key) == (run.run_id, run.session_key)
        assert result.stats.runtime_s == 100
        assert result.stats.tokens_out == 4

    place.act(body)


@proves("4.code.1", "`fl.spawn()` has the program itself as requester: no model turn")
def test_no_model_turn_is_taken_for_a_programs_result(place: Place) -> None:
    model = ScriptedModel([])

    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello")
        await run
        assert await fl.session("main").settled(timeout=60)
        assert len(model.requests) == 1

    place.act(body, model)


@proves("4.code.2")
def test_reading_consumes_the_row_and_reading_again_is_free(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("wait 1")
        async with asyncio.timeout(5):
            async for _ in run.events():
                pass
        assert await row_states(fl, run.session_key) == ["unread"]
        assert (await run.peek()).text == "echo: wait 1"
        assert await row_states(fl, run.session_key) == ["unread"]
        first = await run
        assert await row_states(fl, run.session_key) == []
        assert (await run.info()).delivery == "delivered"
        version = (await fl.engine.store.read(lambda tx: tx.runs.load(run.session_key))).version
        again = await (await fl.run(run.run_id))
        assert again.text == first.text
        assert (await fl.engine.store.read(lambda tx: tx.runs.load(run.session_key))).version == version

    place.act(body)


@proves("4.code.4")
def test_a_result_nobody_reads_is_given_up_after_half_an_hour_and_still_readable(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> str:
        run = await fl.spawn("wait 1", label="forgotten")
        await asyncio.sleep(UNREAD_PROGRAM_S)
        assert await fl.undelivered() == []
        await asyncio.sleep(10)
        (given_up,) = await fl.undelivered()
        assert (given_up.session_key, given_up.label, given_up.status) == (run.session_key, "forgotten", "ok")
        assert given_up.text == "echo: wait 1"
        assert (await run.info()).phase == "completed_giveup"
        assert (await (await fl.run(run.run_id))).text == "echo: wait 1"
        assert await fl.undelivered() == [], "reading it is being told"
        return run.run_id

    place.act(body)


def test_a_given_up_result_can_be_retried_and_dismissed(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("wait 1")
        await asyncio.sleep(UNREAD_PROGRAM_S + 10)
        await fl.retry(run)
        assert await fl.undelivered() == []
        with pytest.raises(fledge.Refused):
            await fl.retry(run.session_key)
        await asyncio.sleep(UNREAD_PROGRAM_S + 10)
        await fl.dismiss(run.run_id)
        assert await fl.undelivered() == []
        assert (await run).text == "echo: wait 1"

    place.act(body)


def test_a_timeout_of_the_wait_is_a_value_and_changes_nothing(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("wait 10", label="slow")
        result = await run.result(timeout=4)
        assert (result.status, result.phase, result.label, result.text) == ("pending", "running", "slow", "")
        assert (await run.result(timeout=0)).status == "pending"
        assert (await run.result(timeout=20)).status == "ok"
        assert (await run.result(timeout=0)).status == "ok"

    place.act(body)


def test_cancelling_the_wait_cancels_nothing_of_the_run(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("wait 10")
        waiting = asyncio.ensure_future(run.result())
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert (await run).text == "echo: wait 10"

    place.act(body)


@pytest.mark.parametrize("field", [-1, float("nan"), True, "soon"])
def test_a_wait_of_nonsense_is_refused_by_name(place: Place, field: float) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello")
        with pytest.raises(fledge.BadInput, match=r"^timeout: "):
            await run.result(timeout=field)

    place.act(body)


# ---- directing -------------------------------------------------------------------------------------------------------


def test_steering_makes_a_new_attempt_and_every_id_still_finds_the_run(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Wait for me")
        await asyncio.sleep(1)
        new = await run.steer("Say hello")
        result = await run
        assert (result.text, result.run_id) == ("echo: Say hello", new)
        for name in (run.run_id, new, run.session_key):
            assert (await (await fl.run(name))).text == "echo: Say hello"
        with pytest.raises(fledge.Refused):
            await run.steer("again")

    place.act(body)


def test_a_killed_run_reads_as_killed_and_is_never_undelivered(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Wait for me")
        await asyncio.sleep(1)
        done = await run.kill()
        assert (done.killed, done.stopping) == ((), (run.session_key,))
        result = await run
        assert (result.status, result.error, result.ok) == ("killed", "killed", False)
        await asyncio.sleep(UNREAD_PROGRAM_S * 2)
        assert await fl.undelivered() == []

    place.act(body)


def test_a_failed_run_is_a_value_with_its_error(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        result = await (await fl.spawn("Say hello"))
        assert (result.status, result.ok, result.text) == ("error", False, "")
        assert result.error is not None
        assert "the key is wrong" in result.error

    place.act(body, ScriptedModel(lambda _: Broke("auth", "the key is wrong")))


@proves("3.params.7")
def test_a_run_that_takes_too_long_ends_with_what_it_has(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        result = await (await fl.spawn("Wait for me", timeout=30))
        assert (result.status, result.stats.runtime_s) == ("timeout", 30)

    place.act(body)


@proves("8.exec.7")
@pytest.mark.parametrize(
    ("options", "config", "why"),
    [
        ({"sandbox": "require"}, {}, "sandbox: require"),
        ({}, {"agents": {"defaults": {"sandbox": {"mode": "all"}}}}, 'subagents of agent "main" must be sandboxed'),
    ],
)
def test_a_runtime_is_refused_to_a_program_where_a_sandbox_is_demanded(
    place: Place, options: Any, config: dict[str, Any], why: str
) -> None:
    async def never(work: Work) -> str:
        raise AssertionError("it ran")

    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(fledge.Refused, match=f"^{why}.*, but runtime foreign runs outside any sandbox"):
            await fl.spawn("Say hello", runtime="foreign", **options)
        assert await fl.runs() == []

    place.act(body, config=config, runtimes={"foreign": never})


def test_a_message_to_a_running_run_is_read_at_its_next_step(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("wait 5")
        await asyncio.sleep(1)
        await run.send("And goodbye")
        assert (await run).text == "echo: wait 5"
        assert await fl.session(run.session_key).settled(timeout=60)
        said = await fl.session(run.session_key).history()
        assert [m.text for m in said if m.role == "user"] == ["wait 5", "And goodbye"]

    place.act(body)


# ---- several ---------------------------------------------------------------------------------------------------------


@proves("4.yield.11")
def test_gather_waits_for_all_and_answers_in_order(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        slow, quick = await fl.spawn("wait 9"), await fl.spawn("wait 1")
        done = await fl.gather([slow, quick.run_id, fl.spawn("wait 5")])
        assert [result.text for result in done] == ["echo: wait 9", "echo: wait 1", "echo: wait 5"]

    place.act(body)


@proves("4.yield.11", "`gather` in the API is the same thing")
@pytest.mark.parametrize(
    ("at_least", "timeout", "statuses", "took"),
    [
        ("any", None, "ok pending pending", 1),
        (1, None, "ok pending pending", 1),
        (2, None, "ok ok pending", 5),
        (2, 3, "ok pending pending", 3),
        (99, None, "ok ok ok", 9),
        (0, None, "pending pending pending", 0),
        ("all", 0, "pending pending pending", 0),
    ],
)
def test_gather_returns_partial_results_as_values(
    place: Place, at_least: int, timeout: float | None, statuses: str, took: float
) -> None:
    async def body(fl: fledge.Fledge) -> None:
        runs = [await fl.spawn(f"wait {n}") for n in (1, 5, 9)]
        began = fl.engine.clock.now()
        done = await fl.gather(runs, at_least=at_least, timeout=timeout)
        assert fl.engine.clock.now() - began == pytest.approx(took, abs=0.01)
        assert " ".join(result.status for result in done) == statuses
        assert [result.text for result in await fl.gather(runs)] == ["echo: wait 1", "echo: wait 5", "echo: wait 9"]

    place.act(body)


def test_gathering_what_has_already_ended_or_nothing_returns_at_once(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("wait 1")
        await asyncio.sleep(5)
        assert [result.status for result in await fl.gather([run, run])] == ["ok", "ok"]
        assert await fl.gather([]) == []

    place.act(body)


def test_a_settling_that_falls_between_looking_and_waiting_is_not_missed(place: Place) -> None:
    """The run ends inside the very read that finds it unfinished: the wait that follows must not last for ever."""

    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Wait for me")
        await asyncio.sleep(1)
        store, looked = fl.engine.store, 0
        read = store.read

        async def late(job):  # type: ignore[no-untyped-def]
            nonlocal looked
            found = await read(job)
            looked += 1
            if looked == 1:
                await run.kill()
                await asyncio.sleep(60)
            return found

        store.read = late  # type: ignore[method-assign]
        assert [result.status for result in await fl.gather([run])] == ["killed"]

    place.act(body)


@pytest.mark.parametrize("at_least", [-1, True, "some", 1.5, None])
def test_a_condition_of_nonsense_is_refused_by_name(place: Place, at_least: int) -> None:
    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(fledge.BadInput, match=r"^at_least: "):
            await fl.gather([], at_least=at_least)

    place.act(body)


def test_a_kill_of_an_ended_run_answers_that_there_was_nothing_to_end(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello")
        assert (await run).ok
        assert not await run.kill()
        assert (await run).ok
        slow = await fl.spawn("Wait for me")
        assert await slow.kill()
        assert not await slow.kill()

    place.act(body)


@pytest.mark.parametrize("name", ["text", "value", "status", "ok", "unwrap", "stats"])
def test_a_handle_asked_for_a_part_of_its_result_says_to_await_it(name: str, place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello")
        with pytest.raises(AttributeError, match=rf"its result has: await it, as in `\(await run\)\.{name}`"):
            getattr(run, name)
        assert not hasattr(run, "colour")

    place.act(body)


def test_an_open_fledge_shows_its_folder_and_that_it_is_open(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> fledge.Fledge:
        assert repr(fl) == f"<fledge {str(place.folder)!r}: open>"
        return fl

    assert repr(place.act(body)) == f"<fledge {str(place.folder)!r}: closed>"
    assert repr(fledge.open(place.folder, config={})) == f"<fledge {str(place.folder)!r}: not open yet>"


def test_gathered_runs_of_one_type_and_decorated_tools_keep_their_types(place: Place) -> None:
    """mypy reads the types: `make check` fails if one is lost."""

    @fledge.tool
    async def count(text: str) -> int:
        return len(text)

    @fledge.tool(read_only=True)
    def halve(n: int, *, down: bool = True) -> float:
        return n // 2 if down else n / 2

    async def body(fl: fledge.Fledge) -> None:
        spawned = [await fl.spawn("7", output_type=int), await fl.spawn("7", output_type=int)]
        results = await fl.gather(spawned)
        assert assert_type(results, list[fledge.Result[int]]) == await fl.gather([one.run_id for one in spawned])
        coming = (fl.spawn("7", output_type=int) for _ in range(2))
        assert assert_type([one.unwrap() for one in await fl.gather(coming)], list[int]) == [7, 7]
        assert assert_type(await count("abc"), int) == 3
        assert assert_type(halve(3, down=False), float) == 1.5
        with pytest.raises(TypeError):
            halve("3")  # type: ignore[arg-type]

    place.act(body, ScriptedModel(lambda _: "7"))


def test_gathering_what_is_no_run_is_refused(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(fledge.BadInput, match=r"^runs: "):
            await fl.gather([3])  # type: ignore[arg-type]
        with pytest.raises(fledge.NotFound, match="no run 'nobody'"):
            await fl.gather(["nobody"])

    place.act(body)


# ---- looking ---------------------------------------------------------------------------------------------------------


def test_runs_of_one_instant_stand_in_the_tree_in_the_order_of_their_spawns(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        for label, agent in (("first", "zebra"), ("second", "ant"), ("third", "moth")):
            await fl.spawn("Wait for me", label=label, agent=agent)
        tree = await fl.tree()
        assert len({run.created_at for run in tree}) == 1
        assert [run.label for run in tree] == ["first", "second", "third"]

    place.act(body, agents=[fledge.Agent(name) for name in ("zebra", "ant", "moth")])


def test_runs_are_listed_by_requester_and_status(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        await (await fl.spawn("Say hello", label="quick"))
        slow = await fl.spawn("Wait for me", label="slow")
        await asyncio.sleep(1)

        async def labels(**which: str) -> list[str]:
            return [run.label for run in await fl.runs(**which)]

        assert await labels() == ["quick", "slow"]
        with pytest.raises(fledge.BadInput, match=r"^status: must be one of active, done, spawning, "):
            await labels(status="busy")
        with pytest.raises(fledge.BadInput, match="must be a name of letters, digits"):
            await labels(requester="a b")
        assert await labels(status="active") == ["slow"]
        assert await labels(status="running") == ["slow"]
        assert await labels(status="done") == ["quick"]
        assert await labels(status="ok") == ["quick"]
        assert await labels(requester="main") == []
        assert await labels(requester=fl.program) == ["quick", "slow"]
        assert [(run.label, run.children) for run in await fl.tree()] == [("quick", ()), ("slow", ())]
        await slow.kill()

    place.act(body)


def test_on_end_is_told_once_of_each_run_and_may_read_it(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        told: list[str] = []

        async def read(run: fledge.Handle[str]) -> None:
            told.append((await run).text)

        def fails(run: fledge.Handle[str]) -> None:
            raise RuntimeError("a listener's own trouble")

        fl.on_end(fails)
        fl.on_end(read)
        for n in (2, 1):
            await fl.spawn(f"wait {n}")
        await asyncio.sleep(10)
        assert told == ["echo: wait 1", "echo: wait 2"]
        assert [run.delivery for run in await fl.runs()] == ["delivered", "delivered"]

    place.act(body)


def test_on_end_gives_a_run_by_its_run_id_and_no_turn_of_a_conversation(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        told: list[tuple[str, str]] = []
        fl.on_end(lambda run: told.append((run.run_id, run.label)))
        await fl.session("main").send("wait 1")
        first = await fl.spawn("Wait for me", label="first")
        await fl.engine.clock.wait_until(fl.engine.clock.now() + 1000.0, asyncio.Event())
        second_id = await first.steer("wait 1")
        await first
        await asyncio.sleep(1)
        assert told == [(second_id, "first")]

    place.act(body)


class Point(Struct):
    x: int
    y: int = 0


@pytest.mark.parametrize(
    ("said", "value", "ok"),
    [
        ('{"x": 3}', Point(3), True),
        ('```json\n{"x": 3, "y": 4}\n```', Point(3, 4), True),
        ('{"x": "three"}', None, False),
        ("three", None, False),
    ],
)
def test_a_typed_result_is_read_from_the_text_or_says_why_not(
    place: Place, said: str, value: Point | None, ok: bool
) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Where?", output_type=Point)
        result = await run
        assert result.ok == ok
        assert (result.value_error is None) == ok
        if ok:
            assert result.value == result.unwrap() == value
            assert (await (await fl.run(run.run_id, result_type=Point))).value == value
            assert (await (await fl.run(run.run_id))).value == msgspec.json.decode(result.text)
        else:
            with pytest.raises(
                fledge.RunFailed, match=r"does not fit its output type: .*; `text` has the answer as text"
            ) as failed:
                result.value  # noqa: B018  (it raises)
            assert failed.value.result is result
            assert result.text == said
        assert len(model.requests) == (1 if ok else 2), "one nudge, then the words as they are"

    model = ScriptedModel(lambda _: said)
    place.act(body, model)


def test_an_answer_that_does_not_fit_a_type_says_where(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Where?")
        await run
        typed = await (await fl.run(run.run_id, result_type=Point))
        assert typed.value_error == "x: does not fit the type that was asked for"
        typed = await (await fl.run(run.run_id, result_type=list[int]))
        assert typed.value_error == "answer: does not fit the type that was asked for"

    place.act(body, ScriptedModel(lambda _: '{"x": "three"}'))


@pytest.mark.parametrize("name", ["output_type", "result_type"])
def test_a_type_that_cannot_be_read_from_json_is_refused_by_name(place: Place, name: str) -> None:
    async def body(fl: fledge.Fledge) -> None:
        options: Any = {name: asyncio.Event}
        with pytest.raises(fledge.BadInput, match=rf"^{name}: must be a type that can be read from JSON \(got <class"):
            await fl.spawn("Where?", **options)
        with pytest.raises(fledge.BadInput, match=rf"^output_schema: must not be given beside {name}"):
            await fl.spawn("Where?", **{**options, name: int}, output_schema={"type": "integer"})
        with pytest.raises(fledge.BadInput, match=r"^result_type: is another name of output_type"):
            await fl.spawn("Where?", output_type=int, result_type=int)

    place.act(body)


# ---- after a restart -------------------------------------------------------------------------------------------------


@proves("4.code.3")
def test_a_run_goes_on_after_a_restart_and_is_found_by_its_id(place: Place) -> None:
    async def before(fl: fledge.Fledge) -> tuple[str, str]:
        done, running = await fl.spawn("wait 1"), await fl.spawn("wait 50")
        await asyncio.sleep(10)
        return done.run_id, running.run_id

    done_id, running_id = place.act(before)

    async def after(fl: fledge.Fledge) -> None:
        assert [run.delivery for run in await fl.runs()] == [None, None]
        assert (await (await fl.run(done_id))).text == "echo: wait 1"
        assert (await (await fl.run(running_id))).text == "echo: wait 50"
        assert [run.delivery for run in await fl.runs()] == ["delivered", "delivered"]

    place.act(after)


@proves("7.input.33")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"label": 5}, "label: must be text of at most 200 characters (got 5)"),
        ({"timeout": "soon"}, "timeout: must be a number from 0 to 31536000 (got 'soon')"),
        ({"timeout": float("nan")}, "timeout: must be a number from 0 to 31536000 (got nan)"),
        ({"plan_mode": 1}, "plan_mode: must be true or false (got 1)"),
        ({"plan_mod": True}, "plan_mod: is not a parameter (did you mean plan_mode?)"),
        ({"planMode": True}, "planMode: is not a parameter (did you mean plan_mode?)"),
        ({"timeout_seconds": 5}, "timeout_seconds: is not a parameter"),
        ({"cleanup": "burn"}, "cleanup: must be one of delete, keep (got 'burn')"),
        ({"mode": "session"}, 'mode: session needs "thread": true'),
        ({"mode": "session", "thread": True, "plan_mode": True}, "plan_mode: is for one task"),
        ({"agent_id": "a b"}, "agent_id: must be 1 to 64 letters"),
        ({"output_schema": {"type": 5}}, "output_schema"),
        ({"budget": {"tokens": 0}}, "budget.tokens: must be an integer of at least 1 (got 0)"),
        ({"attachments": [{"name": 5}]}, "attachments[0].name: must be text (got 5)"),
    ],
)
def test_a_wrong_option_of_a_spawn_is_refused_by_the_name_that_was_written(
    place: Place, given: dict[str, Any], told: str
) -> None:
    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(fledge.BadInput, match=f"^{re.escape(told)}"):
            await fl.spawn("Say hello", **given)
        assert await fl.runs() == []

    place.act(body)


@proves("7.input.32")
def test_none_for_any_option_of_a_spawn_means_not_given(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        options: Any = dict.fromkeys(SpawnOptions.__annotations__)
        assert (await (await fl.spawn("Say hello", **options))).text == "echo: Say hello"

    place.act(body)


@proves("4.code.5", "`fl.spawn` takes every parameter of `sessions_spawn`")
def test_a_program_has_every_parameter_of_a_spawn(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello", mode="run", context="isolated", expects_completion_message=False)
        terms = await fl.engine.store.read(lambda tx: tx.runs.load(run.session_key).terms)
        assert (terms.mode, terms.expects) == ("run", False)
        with pytest.raises(fledge.Refused, match="fork"):
            await fl.spawn("Say hello", context="fork")

    place.act(body)
    assert set(SpawnOptions.__annotations__) | {"task"} == set(spawn_options.SPELLED)


def test_an_idempotency_key_finds_the_same_run_again_even_after_a_restart(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> str:
        first = await fl.spawn("Say hello", idempotency_key="today")
        again = await fl.spawn("Say hello", idempotency_key="today")
        assert first.session_key == again.session_key
        with pytest.raises(fledge.Refused, match="other parameters"):
            await fl.spawn("Say goodbye", idempotency_key="today")
        return first.session_key

    assert place.act(body) == place.act(body)


def test_handles_of_a_closed_fledge_say_so(place: Place) -> None:
    handles: list[fledge.Handle[str]] = []

    async def body(fl: fledge.Fledge) -> "asyncio.Task[object]":
        run = await fl.spawn("Wait for me")
        handles.append(run)
        waiting = asyncio.create_task(_wait(run))
        await asyncio.sleep(1)
        return waiting

    async def _wait(run: fledge.Handle[str]) -> str:
        with pytest.raises(fledge.Refused, match="closed"):
            await run
        return "told"

    async def both(fl: fledge.Fledge) -> None:
        waiting = await body(fl)
        await fl.__aexit__()
        assert await waiting == "told"

    place.act(both)


def test_what_was_meant_for_a_terminal_is_not_undelivered_where_nobody_sits_at_one(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").send("Hello")
        await fl.engine.commit(lambda c: bindings.follow(c, "agent:main:main", HERE))
        await fl.session("main").send("Hello again")
        await fl.until(lambda tx: not tx.outbox.count_waiting() or None)
        assert await fl.engine.store.read(lambda tx: tx.outbox.undelivered()) == []

    place.act(body)


@proves("3.limits.33")
@proves("3.limits.29")
def test_a_program_may_spawn_every_agent_there_is_and_no_other(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        for agent_id in ("reviewer", "critic"):
            run = await fl.spawn("Say hello", agent_id=agent_id)
            assert (await run).ok
            assert run.session_key.startswith(f"agent:{agent_id}:")
        with pytest.raises(fledge.Refused, match=r'there is no agent "criti" \(did you mean critic\?\)'):
            await fl.spawn("Say hello", agent_id="criti")

    config = {"agents": {"list": [{"id": "critic"}], "defaults": {"subagents": {"allowAgents": []}}}}
    place.act(body, config=config, agents={"reviewer": {}})


@proves("6.sweep.13", "An archived run has left every list; only the status `archived` lists it")
def test_an_archived_run_has_left_the_list(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello", label="old")
        await run
        assert [one.label for one in await fl.runs()] == ["old"]
        await asyncio.sleep(2 * 3600)
        assert (await run.info()).phase == "archived"
        assert await fl.runs() == await fl.runs(status="done") == await fl.runs(status="ok") == []
        assert await fl.tree() == []
        assert [one.label for one in await fl.runs(status="archived")] == ["old"]

    place.act(body)
