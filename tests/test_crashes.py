"""`survives_crashes`, for programs of users: it ends processes at commits, and finds programs that do not survive."""

import asyncio
from typing import Any

import pytest

import fledge
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, echo, use
from fledge.testing import ScriptedModel, survives_crashes
from tests.statements import proves


async def spawns_once(fl: fledge.Fledge) -> None:
    run = await fl.spawn("Say hello", idempotency_key="hello")
    assert (await run).text == "Say hello"


async def spawns_each_time(fl: fledge.Fledge) -> None:
    run = await fl.spawn("Say hello")
    assert (await run).text == "Say hello"


async def is_one_run(fl: fledge.Fledge) -> None:
    assert len(await fl.runs()) == 1


@proves("4.code.13", "survives_crashes ends a program at commits, starts it again and checks the end")
def test_a_program_that_asks_once_survives_a_crash_at_every_commit() -> None:
    crashes = survives_crashes(spawns_once, is_one_run, points=None, model=ScriptedModel(echo))
    assert crashes >= 10, "before and after each of its commits"


def test_agents_with_functions_and_pauses_survive_too() -> None:
    @fledge.tool(repeatable=True)
    def count(text: str) -> int:
        """Count letters."""
        return len(text)

    async def script(request: Request) -> Answer:
        await asyncio.sleep(3600)  # virtual: it takes no time
        last = request.messages[-1]
        return f"{last.text} letters" if isinstance(last, ToolMessage) else use("count", text="hello")

    counter = fledge.Agent("counter", tools=[count])

    async def main(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Count", agent=counter, idempotency_key="count")
        assert (await run).unwrap() == "5 letters"

    assert survives_crashes(main, is_one_run, points=8, model=ScriptedModel(script), agents=[counter]) == 8


def test_a_program_that_would_do_it_twice_is_found_out_with_the_commit_and_the_reason() -> None:
    with pytest.raises(AssertionError) as found:
        survives_crashes(spawns_each_time, is_one_run, points=5, model=ScriptedModel(echo))
    told = str(found.value)
    assert "of 5 crashes were not survived. crashed " in told
    assert "assert len(await fl.runs()) == 1" in told


def test_a_program_that_fails_by_itself_is_told_apart_from_one_that_a_crash_breaks() -> None:
    async def fails(fl: fledge.Fledge) -> None:
        raise ValueError("no such luck")

    with pytest.raises(AssertionError, match=r"(?s)it fails without a crash:.*ValueError: no such luck"):
        survives_crashes(fails, model=ScriptedModel(echo))


def test_a_program_that_does_not_end_is_ended() -> None:
    async def hangs(fl: fledge.Fledge) -> None:
        await asyncio.to_thread(__import__("time").sleep, 60)

    with pytest.raises(AssertionError, match=r"it did not end within 0.5 s"):
        survives_crashes(hangs, patience_s=0.5, model=ScriptedModel(echo))


@pytest.mark.parametrize(
    ("field", "given"),
    [("main", {"main": 3}), ("check", {"check": "no"}), ("points", {"points": 0}), ("points", {"points": True})],
)
def test_what_makes_no_sense_is_refused_by_name(field: str, given: dict[str, Any]) -> None:
    with pytest.raises(fledge.BadInput) as refused:
        survives_crashes(**{"main": spawns_once, "model": ScriptedModel(echo), **given})
    assert refused.value.field == field


def test_it_is_refused_inside_a_running_loop() -> None:
    async def main() -> None:
        survives_crashes(spawns_once, model=ScriptedModel(echo))

    with pytest.raises(fledge.Refused, match="inside a running event loop"):
        asyncio.run(main())


def test_the_example_in_its_docstring_is_true() -> None:
    import doctest

    import fledge.testing.crashes as module

    examples = doctest.DocTestFinder().find(
        module.survives_crashes,
        globs={"ScriptedModel": ScriptedModel, "echo": echo, "survives_crashes": survives_crashes},
    )
    assert doctest.DocTestRunner().run(examples[0]) == (0, 3)
