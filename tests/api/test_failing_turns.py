"""A conversation's turn that fails: each way it can, told with its reason at every door, tried again, and given up
readably after a while, unless no model could answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

import fledge
from fledge.channels.base import Address, Message
from fledge.commands import lines
from fledge.commands.dispatch import value_of
from fledge.commands.gateway_state import GatewayState
from fledge.commands.values import Below, Overview, SessionRow, Story
from fledge.core.standing import FailingTurn
from fledge.errors import Refused
from fledge.models.base import Broke, Request
from fledge.models.scripted import Answer, ScriptedReply, last_text
from fledge.orchestrator.commit import Commit
from fledge.store.base import SessionFacts
from fledge.testing import ScriptedModel, use
from tests.api.scene import Place
from tests.commands.slashing import run_command
from tests.statements import proves

ANN: Final = Address("ops", "ann")
MAIN: Final = "agent:main:main"
SIDE: Final = "agent:main:side"
PATIENCE_S: Final = 600.0


class Wall:
    """A channel that remembers."""

    def __init__(self) -> None:
        self.seen: list[Message] = []

    async def send(self, message: Message) -> None:
        self.seen.append(message)

    async def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "state")


# ---- every way to fail -----------------------------------------------------------------------------------------------

Breaks = Callable[[Place, dict[str, Any]], SessionFacts | None]
"""Makes the turns of `SIDE` fail: changes what the folder is opened with, or answers the facts of the session."""


def unknown_model(place: Place, options: dict[str, Any]) -> SessionFacts:
    return SessionFacts("main", model="nowhere/model")


def home_as_project(place: Place, options: dict[str, Any]) -> SessionFacts:
    return SessionFacts("main", project=str(place.folder.parent))


def no_sandbox(place: Place, options: dict[str, Any]) -> SessionFacts:
    options["env"] = options["env"] | {"PATH": "/nowhere"}
    return SessionFacts("main", boxed=True)


def no_workspace(place: Place, options: dict[str, Any]) -> SessionFacts:
    return SessionFacts("main", workspace="/nowhere/\0")


def no_current_folder(place: Place, options: dict[str, Any]) -> SessionFacts:
    return SessionFacts("main", cwd="\0")


def a_provider_with_a_bug(place: Place, options: dict[str, Any]) -> None:
    def answer(request: Request) -> Answer:
        raise ZeroDivisionError("three lines\nof\ntrouble")

    options["model"] = ScriptedModel(answer)


WAYS: Final[dict[str, tuple[Breaks, str]]] = {
    "its model is unknown": (unknown_model, "nowhere"),
    "its workspace holds the home folder": (home_as_project, "holds your whole home folder"),
    "its sandbox is missing": (no_sandbox, "sandbox"),
    "its workspace cannot be looked at": (no_workspace, "internal error: "),
    "its current folder cannot be looked at": (no_current_folder, "internal error: "),
    "a provider raises": (a_provider_with_a_bug, "internal error: three lines"),
}
OUTAGES: Final = ("retryable", "auth", "quota", "overflow", "refused", "bad_request", "interrupted")


def open_failing(
    place: Place, breaks: Breaks, body: Callable[[fledge.Fledge, Wall], Awaitable[None]], **config: Any
) -> None:
    """Say something to a conversation whose turns fail like this, and play on."""
    place.folder.mkdir(exist_ok=True)
    wall = Wall()
    options: dict[str, Any] = {"env": {"HOME": str(place.folder.parent), "PATH": "/usr/bin:/bin"}}
    facts = breaks(place, options)
    options["config"] = options.get("config", {}) | config

    def begin(c: Commit) -> None:
        c.tx.sessions.open(SIDE, "named", None, 0, facts or SessionFacts("main"), c.at)

    async def acting(fl: fledge.Fledge) -> None:
        await fl.engine.commit(begin)
        await fl.session("side", address=ANN).post("Hello?")
        await body(fl, wall)

    with pytest.MonkeyPatch.context() as process:
        process.setenv("PATH", options["env"]["PATH"])  # programs are looked for in the environment of the process
        place.act(acting, options.pop("model", None), channels={"ops": wall}, **options)


async def ask(fl: fledge.Fledge, verb: str, **params: Any) -> Any:
    return await value_of(GatewayState(fl), verb, params)


async def doors(fl: fledge.Fledge) -> dict[str, str]:
    """The words about the conversation at each door that shows it."""
    below: Below = await ask(fl, "sessions.below", session="side")
    overview: Overview = await ask(fl, "overview", session="side")
    [row] = [one for one in await ask(fl, "sessions.list") if one.key == SIDE]
    health = await ask(fl, "health")
    assert isinstance(row, SessionRow)
    told = {"chat": below.failing, "page": row.failing}
    return {name: "" if one is None else one.words(below.now_at) for name, one in told.items()} | {
        "ps": lines.overview(overview, [])[0],
        "status": (await run_command(fl, SIDE, "/status")).text,
        "health": " ".join(one.words for one in health.errors if one.session_key == SIDE),
    }


@proves("2.hops.40", "A failed try is shown with its reason and the time of the next one, and logged once")
@pytest.mark.parametrize(("breaks", "reason"), WAYS.values(), ids=WAYS)
def test_a_turn_that_fails_says_why_and_when_it_is_tried_again_at_every_door(
    place: Place, caplog: pytest.LogCaptureFixture, breaks: Breaks, reason: str
) -> None:
    async def body(fl: fledge.Fledge, wall: Wall) -> None:
        with closing(fl.listen()) as heard:
            await asyncio.sleep(1)
            found = await doors(fl)
            assert [name for name, words in found.items() if reason not in words] == []
            again = [name for name, words in found.items() if "tried again in 1 s, given up in 599 s" not in words]
            assert again == ["health"], "health lists what went wrong"
            reply = await fl.session("side").send("Are you there?")
            assert (reply.status, reason in (reply.error or "")) == ("error", True)
            await asyncio.sleep(200)
            errors = [event for event in heard.waiting() if event.kind == "error"]
            assert all(reason in event.text and event.retry_in_s >= 2 for event in errors)
            assert [event.may_pass for event in errors] == [False] * len(errors)
        assert len((await ask(fl, "health")).errors) == 1

    with caplog.at_level(logging.WARNING):
        open_failing(place, breaks, body)
    assert len([one for one in caplog.records if one.name == "fledge.turn"]) == 1
    assert len([one for one in caplog.records if one.exc_info or "Traceback" in one.getMessage()]) <= 1


@proves("2.hops.41", "A failure that is not the model's ends the turn after `models.patienceSeconds`")
@pytest.mark.parametrize(("breaks", "reason"), WAYS.values(), ids=WAYS)
def test_a_turn_whose_failures_are_not_the_models_ends_readably_when_its_patience_is_over(
    place: Place, breaks: Breaks, reason: str
) -> None:
    async def body(fl: fledge.Fledge, wall: Wall) -> None:
        await asyncio.sleep(PATIENCE_S - 1)
        assert wall.seen == []
        await asyncio.sleep(2)
        [told] = wall.seen
        assert told.text.startswith("the turn ended: ")
        assert reason in told.text
        assert (await fl.session("side").history(tools=True))[-1].text == told.text
        assert await fl.session("side").settled()
        found = await doors(fl)
        assert [name for name, words in found.items() if reason in words] == ["health"]

    open_failing(place, breaks, body)


@proves("2.hops.42", "An outage of the model is waited out")
@pytest.mark.parametrize("trouble", OUTAGES)
def test_an_outage_of_the_model_is_told_and_waited_out(place: Place, trouble: Any) -> None:
    down = True

    def answer(request: Request) -> Answer:
        return Broke(trouble, "HTTP 5xx: gone fishing") if down else "here I am"

    def breaks(place: Place, options: dict[str, Any]) -> None:
        options["model"] = ScriptedModel(answer)

    async def body(fl: fledge.Fledge, wall: Wall) -> None:
        nonlocal down
        await asyncio.sleep(2 * PATIENCE_S)
        found = await doors(fl)
        assert [name for name, words in found.items() if "gone fishing" not in words] == []
        assert [name for name, words in found.items() if "given up" in words] == []
        down = False
        await asyncio.sleep(61)
        assert [message.text for message in wall.seen] == ["here I am"]

    open_failing(place, breaks, body, models={"patienceSeconds": PATIENCE_S})


@proves("2.hops.41")
def test_the_results_that_such_a_turn_had_read_are_posted_as_the_subagents_words(place: Place) -> None:
    def answer(request: Request) -> Answer:
        if "Subagent Context" in request.system:
            return "it is 42"
        words = last_text(request)
        if words == "Hello?":
            return ScriptedReply("Under way.", (use("sessions_spawn", task="count", label="survey"),))
        if words.startswith('{"status":"accepted"'):
            return "Started."
        raise ZeroDivisionError("no words left")

    def breaks(place: Place, options: dict[str, Any]) -> None:
        options["model"] = ScriptedModel(answer)

    async def body(fl: fledge.Fledge, wall: Wall) -> None:
        await asyncio.sleep(10)
        [run] = await fl.runs(requester=SIDE)
        story: Story = await ask(fl, "runs.info", target=run.session_key)
        assert [type(one) for one in story.failing] == [FailingTurn]
        assert any("no words left" in line for line in lines.story(story))
        await asyncio.sleep(PATIENCE_S + 10)
        assert [message.about for message in wall.seen] == ["reply", "result", "notice"]
        assert "it is 42" in wall.seen[1].text
        assert await fl.session("side").settled()

    open_failing(place, breaks, body)


# ---- the way there ---------------------------------------------------------------------------------------------------


@proves("2.hops.43", "A conversation cannot be opened in a folder that holds the home folder")
@pytest.mark.parametrize("verb", ["sessions.open", "runs.spawn"])
def test_a_folder_that_holds_the_home_folder_is_refused_where_it_is_named(place: Place, verb: str) -> None:
    place.folder.mkdir()
    home = place.folder.parent
    params = {"sessions.open": {"session": "side"}, "runs.spawn": {"task": "count", "program": "script"}}[verb]

    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(Refused, match="holds your whole home folder"):
            await ask(fl, verb, folder=str(home), **params)
        assert SIDE not in [one.key for one in await ask(fl, "sessions.list")]
        assert await fl.runs() == []
        await ask(fl, verb, folder=str(place.folder), **params)

    place.act(body, env={"HOME": str(home), "PATH": "/usr/bin:/bin"})
