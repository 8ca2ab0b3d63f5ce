"""Resume and again from code: a killed run goes on, and a run is started with the parameters of another."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.core.attachments import Attachment
from fledge.core.policy import Budget
from tests.api.scene import Place
from tests.commands.slashing import run_command
from tests.statements import proves

MAIN = "agent:main:main"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def killed(fl: fledge.Fledge, task: str = "Wait for me", **options: Any) -> fledge.Handle[Any]:
    run = await fl.spawn(task, **options)
    await fl.until(lambda tx: tx.transcripts.entries(run.session_key, limit=1) or None, timeout=60)
    await run.kill()
    assert (await run).status == "killed"
    return run


@proves("4.resume.1")
@proves("4.resume.4")
def test_a_killed_run_goes_on_and_its_handle_gives_the_new_result(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await killed(fl, label="waiter")
        new_id = await run.resume("Say hello")
        assert (await run.peek()).status == "pending"
        result = await run
        assert (result.status, result.run_id) == ("ok", new_id)
        assert result.text.endswith("Say hello")
        assert (await (await fl.run(run.run_id))).run_id == new_id
        names = [event.name async for event in run.events() if event.kind == "phase"]
        assert names.index("KillOrdered") < names.index("Resumed") < names.index("AttemptEnded")

    place.act(body)


def test_on_end_hears_of_each_end_of_a_run_that_is_resumed(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        ends: list[str] = []

        async def ended(run: fledge.Handle[Any]) -> None:
            ends.append((await run.peek()).status)

        fl.on_end(ended)
        run = await killed(fl)
        await asyncio.sleep(1)
        await run.resume("Say hello")
        await run
        await asyncio.sleep(1)
        assert ends == ["killed", "ok"]

    place.act(body)


def test_its_runtime_is_that_of_the_attempt_that_answered(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await killed(fl)
        await fl.engine.clock.wait_until(fl.engine.clock.now() + 1000.0, asyncio.Event())
        await run.resume("wait 7")
        assert (await run).stats.runtime_s == 7

    place.act(body)


def test_it_goes_on_after_the_folder_was_opened_anew(place: Place) -> None:
    async def first(fl: fledge.Fledge) -> str:
        return (await killed(fl)).run_id

    run_id = place.act(first)

    async def second(fl: fledge.Fledge) -> str:
        run = await fl.run(run_id)
        await run.resume("Say hello")
        return (await run).status

    assert place.act(second) == "ok"


@proves("4.resume.13")
@proves("4.resume.17")
def test_a_run_that_timed_out_goes_on_and_has_its_time_again(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        slow = await fl.spawn("wait 50", label="slow", timeout=20)
        assert (await slow).status == "timeout"
        await asyncio.sleep(1)
        await slow.resume("Say hello")
        assert (await slow).status == "ok"

    place.act(body)


@proves("4.resume.15")
def test_a_budget_that_cannot_hold_is_refused_by_name(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await killed(fl)
        await asyncio.sleep(1)
        with pytest.raises(fledge.BadInput, match=r"budget: must be a fledge\.Budget"):
            await run.resume(budget={"turns": 3})  # type: ignore[arg-type]
        with pytest.raises(fledge.BadInput, match="turns: must be an integer of at least 1"):
            await run.resume(budget=fledge.Budget(turns=0))
        await run.resume("Say hello", budget=fledge.Budget(turns=3))
        assert (await run).status == "ok"

    place.act(body)


@proves("4.resume.5")
def test_a_resume_is_refused_with_what_to_do_instead(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        done = await fl.spawn("Say hello")
        await done
        with pytest.raises(fledge.Refused, match=r"has ended \(ok\): send it a message, or run it again"):
            await done.resume()
        deleted = await killed(fl, cleanup="delete")
        with pytest.raises(fledge.Refused, match="its transcript is gone: run it again"):
            await deleted.resume()
        archived = await killed(fl)
        await fl.engine.clock.wait_until(fl.engine.clock.now() + 3700.0, asyncio.Event())
        with pytest.raises(fledge.Refused, match="is archived: run it again"):
            await archived.resume()
        long = await killed(fl)
        with pytest.raises(fledge.BadInput, match="words: must be at most 4000 characters"):
            await long.resume("x" * 4001)

    place.act(body)


@proves("4.resume.11", "A run whose folder is gone cannot be resumed")
def test_a_run_whose_folder_is_gone_is_refused(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await killed(fl, workspace="dir")
        session = await fl.engine.store.read(lambda tx: tx.sessions.get(run.session_key))
        assert session is not None
        shutil.rmtree(session.facts.workspace)
        with pytest.raises(fledge.Refused, match="which is gone: run it again"):
            await run.resume()
        assert (await (await fl.again(run)).peek()).status == "pending"

    place.act(body)


# ---- again -----------------------------------------------------------------------------------------------------------


@proves("4.resume.10")
@pytest.mark.parametrize("how", ["ok", "killed", "archived", "deleted"])
def test_again_has_the_parameters_of_the_first_whatever_became_of_that(place: Place, how: str) -> None:
    asked: dict[str, Any] = {
        "label": "survey",
        "thinking": "low",
        "timeout": 30.0,
        "cleanup": "delete" if how == "deleted" else "keep",
        "expects_completion_message": False,
        "output_schema": {"type": "object"},
        "budget": Budget(turns=5),
        "workspace": "dir",
    }

    async def body(fl: fledge.Fledge) -> None:
        first = await fl.spawn("Wait for me" if how == "killed" else "Say hello", **asked)
        if how == "killed":
            await first.kill()
        await first
        if how == "archived":
            await fl.engine.clock.wait_until(fl.engine.clock.now() + 3700.0, asyncio.Event())
        second = await fl.again(first)
        assert second.session_key != first.session_key

        def look(tx: Any) -> list[Any]:
            keys = (first.session_key, second.session_key)
            return [
                (tx.runs.spec(key).asked, tx.runs.load(key).terms, tx.runs.spec(key), tx.budgets.get(key))
                for key in keys
            ]

        (before, terms, spec, purse), (after, terms2, spec2, purse2) = await fl.engine.store.read(look)
        assert after == before
        assert before["budget"] == {"turns": 5}
        assert (spec2.task, spec2.label, spec2.output_schema) == (spec.task, spec.label, spec.output_schema)
        assert (terms2.timeout_s, terms2.cleanup, terms2.expects) == (terms.timeout_s, terms.cleanup, terms.expects)
        assert [leaf.partition("/")[0] for leaf in terms2.leaves] == ["work"]
        assert purse2.budget == Budget(turns=5)
        assert purse is None or purse.budget == purse2.budget

    place.act(body)


def test_again_twice_with_one_key_is_one_run(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        first = await fl.spawn("Say hello")
        runs = [await fl.again(first.run_id, idempotency_key="k") for _ in range(2)]
        assert runs[0].session_key == runs[1].session_key
        assert (await runs[0]).text == "echo: Say hello"
        assert len(await fl.runs()) == 2

    place.act(body)


def test_again_reads_the_answer_into_the_same_type(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        first = await fl.spawn("5", output_type=int)
        assert (await fl.again(first)).output_type is int

    place.act(body)


@proves("4.resume.12", "Again is a spawn for whoever asked for the first, or the nearest above that is still there")
def test_again_is_for_whoever_asked_and_limits_hold(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").send("hello")
        for number in range(2):
            assert (await run_command(fl, MAIN, f"/subagents spawn main Wait for me {number}")).ok
        first, _ = await fl.runs(requester=MAIN)
        with pytest.raises(fledge.Refused, match="active children 2 of 2"):
            await fl.again(first.run_id)
        await (await fl.run(first.run_id)).kill()
        again = await (await fl.again(first.run_id)).info()
        assert (again.requester, again.task) == (MAIN, first.task)

    place.act(body, config={"agents": {"defaults": {"subagents": {"maxChildrenPerAgent": 2}}}})


def test_files_that_a_run_was_given_are_not_kept_for_another(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        given = [Attachment(name="a.txt", content="aGVsbG8=", encoding="base64")]
        run = await fl.spawn("Say hello", attachments=given)
        await run
        with pytest.raises(fledge.Refused, match="it was given a file, and those are not kept: spawn it with them"):
            await fl.again(run)

    place.act(body, config={"tools": {"sessions_spawn": {"attachments": {"enabled": True}}}})
