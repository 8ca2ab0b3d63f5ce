"""Which model answers: the spawn's parameter, the settings, `model=` of `open`, `--model`, `/model`."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.models.base import Request
from fledge.models.scripted import Answer, echo, last_text, use
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.cli.holding import ECHO, Holder, do, stays
from tests.commands.slashing import run_command
from tests.statements import proves

HELPER = {"id": "helper"}
OTHER = "agent:main:other"
ENDS = "/model default ends that"


def named(name: str) -> ScriptedModel:
    """A model that says its own name; told to spawn, it does."""

    async def answer(request: Request) -> Answer:
        return use("sessions_spawn", task="who are you?") if last_text(request) == "spawn" else name

    return ScriptedModel(answer)


MODELS = {
    name: named(name) for name in ("m/given", "m/all", "m/children", "m/own", "m/own-children", "m/asked", "m/set")
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def settings(defaults: dict[str, Any], helper: dict[str, Any]) -> dict[str, Any]:
    """Settings under which the program may spawn an agent `helper`; its conversation is `agent:helper:main`."""
    children = {"allowAgents": ["helper"], **defaults.pop("subagents", {})}
    return {"agents": {"defaults": {**defaults, "subagents": children}, "list": [HELPER | helper]}}


ORDER: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {}, {}, "m/given", "m/given"),
    ({"model": {"primary": "m/all", "fallbacks": ["m/children"]}}, {}, {}, "m/given", "m/given"),
    ({"model": "m/all"}, {"model": "m/own"}, {}, "m/own", "m/own"),
    ({"subagents": {"model": "m/children"}}, {"model": "m/own"}, {}, "m/own", "m/children"),
    (
        {"subagents": {"model": "m/children"}},
        {"subagents": {"model": "m/own-children"}},
        {},
        "m/given",
        "m/own-children",
    ),
    ({"subagents": {"model": "m/children"}}, {}, {"model": "m/asked"}, "m/given", "m/asked"),
]
"""Settings for all, settings of the agent, parameters of the spawn; the models of its conversation and of its child."""


@proves("3.limits.27", "`model=` of `open` and `--model` replace `agents.defaults.model`, the last of the order")
@pytest.mark.parametrize(("defaults", "helper", "params", "conversation", "child"), ORDER)
@pytest.mark.parametrize("given", ["m/given", MODELS["m/given"]], ids=["by name", "as an object"])
def test_the_model_given_to_open_replaces_the_default_and_nothing_closer(
    place: Place, defaults: Any, helper: Any, params: Any, conversation: str, child: str, given: Any
) -> None:
    async def body(fl: fledge.Fledge) -> tuple[str, str]:
        reply = await fl.session("agent:helper:main").send("who are you?")
        run = await fl.spawn("who are you?", agent_id="helper", **params)
        return reply.text, (await run).text

    config = settings(dict(defaults), helper)
    assert place.act(body, given, models=MODELS, config=config) == (conversation, child)


def test_a_blank_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(fledge.BadInput, match="model: must be a model's name"):
        fledge.open(tmp_path, model=" ", config={})


# ---- the command line ------------------------------------------------------------------------------------------------


def with_settings(**given: object) -> list[str]:
    """These settings, by their last but one and last key of `agents.defaults`, as options."""
    return [word for key, value in given.items() for word in ("--set", f"agents.{key.replace('_', '.')}={value}")]


CHILD = with_settings(defaults_subagents_model="scripted/echo")
OWN = with_settings(list='[{id: "main", model: "scripted/echo"}]')


@proves("3.limits.27")
@pytest.mark.parametrize(
    ("line", "code", "told"),
    [
        (["run", "hello"], 1, "nowhere"),
        (["run", "hello", *OWN], 0, "hello\n"),
        (["run", "hello", *CHILD], 1, "nowhere"),
        (["spawn", "hello"], 1, "nowhere"),
        (["spawn", "hello", *OWN], 0, "hello\n"),
        (["spawn", "hello", *CHILD], 0, "hello\n"),
        (["send", "main", "hello", *OWN], 0, "hello\n"),
        (["agents"], 0, "main · nowhere/model\n"),
        (["agents", *CHILD], 0, "main · scripted/echo\n"),
        (["agents", *OWN], 0, "main · scripted/echo\n"),
    ],
)
def test_the_model_option_replaces_the_default_and_nothing_closer(
    tmp_path: Path, line: list[str], code: int, told: str
) -> None:
    ended, out, err = do(tmp_path, *line, "--model", "nowhere/model")
    assert ended == code
    assert told == out if code == 0 else told in err


CHILDREN_ECHO = {"agents": {"defaults": {"subagents": {"model": ECHO}}}}
MAIN_ECHOES = {"agents": {"list": [{"id": "main", "model": ECHO}]}}


@proves("3.limits.27")
@pytest.mark.parametrize(
    ("line", "config", "code", "told"),
    [
        (["run", "hello"], {}, 1, "nowhere"),
        (["run", "hello"], MAIN_ECHOES, 0, "hello\n"),
        (["run", "hello"], CHILDREN_ECHO, 1, "nowhere"),
        (["spawn", "hello"], {}, 1, "nowhere"),
        (["spawn", "hello"], MAIN_ECHOES, 0, "hello\n"),
        (["spawn", "hello"], CHILDREN_ECHO, 0, "hello\n"),
        (["send", "main", "hello"], {}, 1, "nowhere"),
        (["send", "main", "hello"], MAIN_ECHOES, 0, "hello\n"),
    ],
)
def test_the_model_option_means_the_same_beside_a_process_that_holds_the_folder(
    tmp_path: Path, line: list[str], config: Any, code: int, told: str
) -> None:
    over = threading.Event()
    with Holder(tmp_path / "state", ScriptedModel(echo), config=config, model=None).at_work(stays(over)):
        try:
            ended, out, err = do(tmp_path, *line, "--model", "nowhere/model")
        finally:
            over.set()
    assert ended == code
    assert told == out if code == 0 else told in err


def test_the_model_option_gives_a_run_beside_its_model_for_good(tmp_path: Path) -> None:
    over = threading.Event()
    with Holder(tmp_path / "state", ScriptedModel(echo), config={}, model=None).at_work(stays(over)):
        try:
            assert do(tmp_path, "spawn", "hello", "--model", ECHO) == (0, "hello\n", "")
            assert do(tmp_path, "run", "hello", "--model", ECHO) == (0, "hello\n", "")
        finally:
            over.set()


# ---- the conversation ------------------------------------------------------------------------------------------------


@proves("4.tools.34", "`/model` shows or sets the model of this conversation alone")
def test_a_model_set_in_a_conversation_is_that_conversations_alone(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        main_chat, other = fl.session("main"), fl.session(OTHER)

        async def say(line: str) -> str:
            return (await run_command(fl, main_chat.key, line)).text

        assert (await main_chat.send("who are you?")).text == "m/all"
        assert await say("/model") == "this conversation uses m/all, as the settings say"
        assert await say("/model m/set") == f"this conversation uses m/set from its next turn on; {ENDS}"
        assert await say("/model") == f"this conversation uses m/set; {ENDS}"
        assert (await main_chat.send("who are you?")).text == "m/set"
        assert (await other.send("who are you?")).text == "m/all"
        await main_chat.send("spawn")
        await main_chat.settled()
        (run,) = await fl.runs(requester="main")
        assert (await (await fl.run(run.run_id))).text == "m/children"
        assert "no provider" in await say("/model nowhere/model")
        assert (await main_chat.send("who are you?")).text == "m/set"
        assert await say("/model default") == "this conversation uses m/all, as the settings say"
        assert (await main_chat.send("who are you?")).text == "m/all"

    config = {"agents": {"defaults": {"subagents": {"model": "m/children"}}}}
    place.act(body, "m/all", models=MODELS, config=config)


@proves("5.heartbeat.20", "`heartbeat.model` is the model of heartbeats and of no other turn")
def test_a_heartbeat_has_a_model_of_its_own(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        assert (await chat.send("who are you?")).text == "m/all"
        await run_command(fl, chat.key, "/model m/set")
        await chat.request_heartbeat()
        await asyncio.sleep(5)
        assert (await chat.history())[-1].text == "m/own"
        assert (await chat.send("who are you?")).text == "m/set"

    config = {"agents": {"defaults": {"heartbeat": {"model": "m/own"}}}}
    place.act(body, "m/all", models=MODELS, config=config)


@proves("4.tools.67", "`session_status` with `model` sets the model of the session that calls it, as `/model` does")
def test_a_model_sets_the_model_of_its_own_conversation_alone(place: Place) -> None:
    async def answer(request: Request) -> Answer:
        said = last_text(request)
        return use("session_status", model=said.split()[1]) if said.startswith("set ") else "m/all"

    async def body(fl: fledge.Fledge) -> None:
        main_chat, other = fl.session("main"), fl.session(OTHER)
        await main_chat.send("set m/own")
        assert (await main_chat.send("who are you?")).text == "m/own"
        assert (await other.send("who are you?")).text == "m/all"
        told = (await run_command(fl, main_chat.key, "/model")).text
        assert told == f"this conversation uses m/own; {ENDS}"
        await other.send("set nowhere/model")
        assert (await other.send("who are you?")).text == "m/all"
        await other.send("set m/own")
        await run_command(fl, other.key, "/model default")
        await other.send("set m/own")
        assert (await other.send("who are you?")).text == "m/own"

    models = MODELS | {"m/all": ScriptedModel(answer)}
    place.act(body, "m/all", models=models, config={})
