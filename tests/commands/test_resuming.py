"""Resume at every door: a run that failed goes on, a refusal names it by its label, a spent budget wants a new one."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.commands.dispatch import value_of
from fledge.commands.gateway_state import GatewayState
from fledge.commands.params import budget_of_words
from fledge.commands.slash import Order, read
from fledge.errors import BadInput, Refused
from fledge.models.base import Request
from fledge.models.scripted import Answer, last_text, use
from fledge.orchestrator.spawn_params import SpawnBudget
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.commands.slashing import run_command
from tests.statements import proves

MAIN = "agent:main:main"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def looks_on(request: Request) -> Answer:
    """Calls a tool until it is told to stop."""
    return "stopped" if "stop" in last_text(request) or "hello" in last_text(request) else use("sessions_list")


Door = Callable[[fledge.Fledge, fledge.Handle[Any], int | None], Awaitable[str]]


async def by_handle(fl: fledge.Fledge, run: fledge.Handle[Any], turns: int | None) -> str:
    try:
        return await run.resume("stop", budget=None if turns is None else fledge.Budget(turns=turns))
    except Refused as error:
        return str(error)


async def by_verb(fl: fledge.Fledge, run: fledge.Handle[Any], turns: int | None) -> str:
    given = {} if turns is None else {"budget": {"turns": turns}}
    try:
        await value_of(GatewayState(fl), "runs.resume", {"target": run.session_key, "words": "stop", **given})
    except Refused as error:
        return str(error)
    return "resumed"


async def by_slash(fl: fledge.Fledge, run: fledge.Handle[Any], turns: int | None) -> str:
    budget = "" if turns is None else f" --budget turns={turns}"
    return (await run_command(fl, MAIN, f"/subagents resume dear stop{budget}")).text


DOORS: dict[str, Door] = {"Handle.resume": by_handle, "runs.resume": by_verb, "/subagents resume": by_slash}


@proves("4.resume.15")
@proves("4.resume.13")
@pytest.mark.parametrize("door", DOORS)
def test_a_run_that_spent_its_budget_goes_on_at_every_door_once_it_has_a_new_one(place: Place, door: str) -> None:
    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").send("hello")
        params = {"requester": "main", "task": "look", "label": "dear", "budget": {"turns": 2}}
        run = await fl.run((await value_of(GatewayState(fl), "runs.spawn", params))["childSessionKey"])
        assert (await run).status == "error"
        assert await fl.session("main").settled(timeout=60)
        await asyncio.sleep(1)
        refused = await DOORS[door](fl, run, None)
        assert refused == "the budget of dear is used up (2 turns): resume it with a new one: budget"
        assert "refused" not in await DOORS[door](fl, run, 2)
        result = await run.result(timeout=60)
        assert (result.status, result.text) == ("ok", "stopped")
        assert "dear has ended (ok): send it a message, or run it again" in await DOORS[door](fl, run, None)

    place.act(body, model=ScriptedModel(looks_on))


@pytest.mark.parametrize(
    ("words", "budget"),
    [
        ("turns=20", SpawnBudget(turns=20)),
        ("tokens=50000, usd=0.5", SpawnBudget(tokens=50000, usd=0.5)),
        ("seconds=1.5", SpawnBudget(seconds=1.5)),
    ],
)
def test_a_budget_is_written_as_its_names_and_numbers(words: str, budget: SpawnBudget) -> None:
    assert budget_of_words(words) == budget


@pytest.mark.parametrize(
    "words", ["", "20", "turns", "turns=", "turns=many", "turns=0", "turns=1.5", "turn=3", "usd=nan"]
)
def test_a_budget_that_is_written_otherwise_is_refused(words: str) -> None:
    with pytest.raises(BadInput, match=r"turn|usd|budget"):
        budget_of_words(words)


def test_the_slash_command_takes_words_and_a_budget() -> None:
    assert read('/subagents resume "AI Research" but quickly --budget turns=3,usd=1') == Order(
        verb="resume", target="AI Research", words="but quickly", budget="turns=3,usd=1"
    )
