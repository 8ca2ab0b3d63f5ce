"""`#2` means one run for the life of its conversation, at every door that takes a number."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import fledge
from fledge.commands.dispatch import value_of
from fledge.commands.gateway_state import GatewayState
from fledge.commands.methods import METHODS
from fledge.commands.slash import USAGES, parted
from fledge.core.policy import Limits
from fledge.core.run import Terms
from fledge.errors import FledgeError
from fledge.models.base import Request
from fledge.models.scripted import Answer, last_text
from fledge.orchestrator import spawn
from fledge.store.base import Spec, Tx
from fledge.testing import ScriptedModel
from fledge.tools.base import ToolContext
from fledge.tools.observe import observing_tools
from fledge.tools.send import send_tool
from fledge.tools.sessions import remove_tool
from fledge.tools.subagents import subagents_tool
from tests.api.scene import Place
from tests.cli import command
from tests.commands.slashing import run_command
from tests.model.world import MAIN
from tests.statements import proves

GONE = "subagent #2 is gone"


async def world(request: Request) -> Answer:
    """`alpha` and the conversation end at once, every other run works for long."""
    if "# Subagent Context" in request.system and "alpha" not in last_text(request):
        await asyncio.sleep(1000)
    return "NO_REPLY" if "# Subagent Context" not in request.system else "done"


class Family(NamedTuple):
    """The runs of the conversation: `alpha` (#1) has left the lists, #2 is gone, `gamma` (#3) and `delta` (#4) work."""

    alpha: str
    gamma: str
    delta: str


async def family(fl: fledge.Fledge) -> Family:
    def request(name: str, binds: bool = False) -> spawn.SpawnRequest:
        return spawn.SpawnRequest(
            spec=Spec(task=f"work of {name}", label=name),
            terms=Terms(parent=MAIN),
            limits=Limits(max_children=9),
            binds_thread=binds,
        )

    async def begin(name: str) -> str:
        return (await fl.engine.commit(lambda c: spawn.spawn(c, request(name)))).key

    await fl.engine.commit(lambda c: spawn.open_conversation(c, MAIN))
    alpha = await begin("alpha")
    await fl.session("main").settled()
    await (await fl.run(alpha)).remove()
    reserved = await fl.engine.commit(lambda c: spawn.reserve(c, request("beta", binds=True)))
    await fl.engine.commit(lambda c: spawn.failed(c, reserved.key, "the test withdraws it"))
    runs = Family(alpha, await begin("gamma"), await begin("delta"))
    await fl.engine.clock.wait_until(fl.engine.clock.now() + 1.0, asyncio.Event())
    return runs


def act(folder: Path, body: Callable[[fledge.Fledge, Family], Awaitable[None]]) -> None:
    async def acting(fl: fledge.Fledge) -> None:
        await body(fl, await family(fl))

    Place(folder).act(acting, ScriptedModel(world))


# ---- the number --------------------------------------------------------------------------------------------------


@proves(
    "4.tools.64", "A number means the same run for the life of its conversation, whatever ends and leaves the lists"
)
def test_runs_are_numbered_in_the_order_of_their_spawn_and_no_number_is_given_again(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge, runs: Family) -> None:
        def numbers(tx: Tx) -> list[int]:
            return [tx.runs.number(key) for key in tx.runs.children(MAIN)]

        assert await fl.engine.store.read(numbers) == [1, 3, 4]
        assert [run.number for run in await fl.runs(requester=MAIN)] == [3, 4]
        listed = (await run_command(fl, MAIN, "/subagents list")).text.splitlines()[2:]
        assert [line.split(" · ")[0].split()[0] for line in listed] == ["3)", "4)"]
        await (await fl.run(runs.delta)).kill()
        listed = (await run_command(fl, MAIN, "/subagents list")).text.splitlines()[2:]
        assert [line.split(")")[0] for line in listed] == ["3", "4"]

    act(tmp_path, body)


# ---- the doors -----------------------------------------------------------------------------------------------------

Say = Callable[[str], Awaitable[str]]


def check_door(tmp_path: Path, door: Callable[[fledge.Fledge], Say]) -> None:
    """Each word is said in a folder of its own, in which everything happens at the same times under the same ids: a
    number answers and does what the session key of its run does."""

    def stand(tx: Tx) -> list[object]:
        """The runs of the conversation, and how many messages wait for each."""
        keys = tx.runs.children(MAIN)
        return [(tx.runs.spec(key).label, tx.runs.load(key).phase, len(tx.inbox.unread(key))) for key in keys]

    def answer(word: Callable[[Family], str]) -> str:
        heard: list[str] = []

        async def body(fl: fledge.Fledge, runs: Family) -> None:
            heard.append(await door(fl)(word(runs)))
            heard.append(str(await fl.engine.store.read(stand)))

        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        act(folder, body)
        return "\n".join(heard).replace(str(folder), "")

    for word in ("#2", "2"):
        assert GONE in answer(lambda runs: word)  # noqa: B023
    assert "no subagent #9: the last one is #4" in answer(lambda runs: "9")
    assert answer(lambda runs: "#1") == answer(lambda runs: runs.alpha)
    of_gamma = answer(lambda runs: runs.gamma)
    assert answer(lambda runs: "3") == answer(lambda runs: "#3") == of_gamma != answer(lambda runs: runs.delta)


@proves("4.tools.64")
@pytest.mark.parametrize("form", [usage.form for usage in USAGES if "id|#" in usage.form])
def test_a_number_in_a_slash_command_means_its_run_or_none(tmp_path: Path, form: str) -> None:
    name, parts = parted(form)
    words = " words" if "<message>" in parts or "<reason>" in parts else ""

    def door(fl: fledge.Fledge) -> Say:
        async def say(word: str) -> str:
            return (await run_command(fl, MAIN, f"{name} {word}{words}")).text

        return say

    check_door(tmp_path, door)


@pytest.mark.parametrize("form", [usage.form for usage in USAGES if "id|#" in usage.form])
def test_a_command_names_a_run_by_its_label(tmp_path: Path, form: str) -> None:
    name, parts = parted(form)
    words = " words" if "<message>" in parts or "<reason>" in parts else ""

    async def body(fl: fledge.Fledge, runs: Family) -> None:
        for word in ("1", "3", "#2"):
            said = (await run_command(fl, MAIN, f"{name} {word}{words}")).text
            # The info and the status of a run show its session key beside its name.
            assert ":subagent:" not in said or name in ("/subagents info", "/status")

    act(tmp_path, body)


GIVEN: dict[str, Any] = {"message": "words", "reason": "why", "approve": True, "words": "why"}
"""Values for the other parameters of verbs that take a target."""


def fields(verb: str) -> dict[str, bool]:
    """The parameters of a verb, each with whether it must be given."""
    return {one.encode_name: one.required for one in msgspec.structs.fields(METHODS[verb].params)}


@proves("4.tools.64")
@pytest.mark.parametrize("verb", sorted(verb for verb in METHODS if {"requester", "target"} <= fields(verb).keys()))
def test_a_number_in_a_call_of_a_verb_means_its_run_or_none(tmp_path: Path, verb: str) -> None:
    given = {name: GIVEN[name] for name, is_required in fields(verb).items() if is_required and name != "target"}
    if verb == "runs.tell":
        given["timeoutSeconds"] = 0

    def door(fl: fledge.Fledge) -> Say:
        async def say(word: str) -> str:
            try:
                return msgspec.json.encode(await value_of(GatewayState(fl), verb, {"target": word, **given})).decode()
            except FledgeError as error:
                return str(error)

        return say

    check_door(tmp_path, door)


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("subagents", {"action": "kill", "target": "*"}),
    ("subagents", {"action": "steer", "target": "*", "message": "words"}),
    ("subagents", {"action": "approve", "target": "*"}),
    ("subagents", {"action": "reject", "target": "*", "message": "why"}),
    ("sessions_subagent_remove", {"target": "*"}),
    ("sessions_history", {"sessionKey": "*"}),
    ("sessions_send", {"sessionKey": "*", "message": "words", "timeoutSeconds": 0}),
    ("session_status", {"sessionKey": "*"}),
]
"""What a model can say about one of its subagents; `*` stands for the word."""


@proves("4.tools.64")
@pytest.mark.parametrize(
    ("name", "arguments"), CALLS, ids=[" ".join([name, given.get("action", "")]) for name, given in CALLS]
)
def test_a_number_in_a_models_call_means_its_run_or_none(tmp_path: Path, name: str, arguments: dict[str, Any]) -> None:
    def door(fl: fledge.Fledge) -> Say:
        tools = [
            subagents_tool(fl.engine),
            remove_tool(fl.engine),
            send_tool(fl.messenger),
            *observing_tools(fl.engine, fl.config, lambda model: None, fl.check_model),
        ]
        tool = next(tool for tool in tools if tool.name == name)

        async def say(word: str) -> str:
            given = {field: word if value == "*" else value for field, value in arguments.items()}
            context = ToolContext(session=MAIN, entry=1, index=1, workspace=tmp_path)
            return (await tool.call(json.dumps(given), context)).text

        return say

    check_door(tmp_path, door)


OTHERS = {"steer": ["words"], "reject": ["why"], "send": ["words"]}
"""What commands take besides a run."""
COMMANDS = [
    *("info", "log", "kill", "steer", "resume", "again", "remove", "approve", "reject", "send"),
    *("ps --session", "tree --session", "undelivered retry", "undelivered dismiss"),
]


@proves("4.tools.64")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_number_in_a_command_means_its_run_or_none(tmp_path: Path, name: str) -> None:
    seen: list[Family] = []

    async def body(fl: fledge.Fledge, runs: Family) -> None:
        seen.append(runs)

    act(tmp_path / "state", body)
    env = {"FLEDGE_STATE": str(tmp_path / "state")}

    def say(word: str) -> str:
        done = command.fledge(*name.split(), word, *OTHERS.get(name, []), "--json", cwd=tmp_path, env=env)
        return done.stdout + done.stderr

    assert GONE in say("#2")
    assert GONE in say("2")
    assert "no subagent #9: the last one is #4" in say("9")
    (runs,) = seen
    if name not in ("ps --session", "tree --session", "again", "send"):  # these name other sessions or none
        archived, working = say("#1"), say("3")
        assert "alpha" in archived or runs.alpha in archived
        assert "gamma" in working or runs.gamma in working
        assert "delta" not in archived + working
        assert runs.delta not in archived + working
