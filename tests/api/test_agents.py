"""Agents as values: what they are told and may use, who may spawn them, what a restart without them does."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fledge
from fledge.config.profiles_md import profile
from fledge.models.base import Broke, Request, ToolMessage
from fledge.models.scripted import Answer, last_text, use
from fledge.runtime.base import Work
from fledge.runtime.callable import CallableRuntime
from fledge.runtime.tool_choice import SESSION_TOOLS
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.statements import proves


class Verdict(msgspec.Struct):
    """What a reviewer answers."""

    score: int


@fledge.tool(read_only=True)
def count_letters(text: str) -> int:
    """Count the letters of a text."""
    return len(text)


def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


OTHER_SHOUT = fledge.tool(name="shout")(count_letters.function)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


class Asked:
    """A model that keeps what each agent was asked, by the task, and answers with `say`."""

    def __init__(self, say: str = '{"score": 7}') -> None:
        self.say = say
        self.requests: dict[str, Request] = {}
        self.model = ScriptedModel(self._script)

    def _script(self, request: Request) -> Answer:
        if not isinstance(request.messages[-1], ToolMessage):
            self.requests[last_text(request)] = request
        return self.say

    def tools(self, task: str) -> set[str]:
        return {tool.name for tool in self.requests[task].tools}


# ---- one meaning -----------------------------------------------------------------------------------------------------

REVIEWER = fledge.Agent(
    "reviewer",
    description="reads code and finds faults",
    instructions="You find faults.",
    model="scripted/echo",
    thinking="low",
    tools=["read", "grep"],
    limits=fledge.Budget(tokens=50_000, turns=20),
    max_tokens=1000,
    sandbox="all",
    agents=["scout"],
)


@proves("4.code.6", "A fledge.Agent, a file agents/*.md and an entry of agents.list that say the same mean the same")
def test_a_value_and_a_file_that_say_the_same_are_the_same_settings() -> None:
    written = """---
description: reads code and finds faults
model: scripted/echo
tools: read, grep
maxTokens: 1000
sandbox.mode: all
subagents.model: scripted/echo
subagents.thinking: low
subagents.budget.tokens: 50000
subagents.budget.turns: 20
subagents.allowAgents:
- scout
---
You find faults.
"""
    assert REVIEWER.settings() == profile("reviewer", written, "reviewer.md")


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("name", {"name": "a b"}),
        ("name", {"name": 3}),
        ("instructions", {"instructions": ["You find faults."]}),
        ("tools", {"tools": "read"}),
        ("tools", {"tools": [3]}),
        ("tools", {"tools": [int]}),
        ("output_type", {"output_type": asyncio.Event}),
        ("limits", {"limits": {"usd": 1}}),
        ("agents", {"agents": [3]}),
    ],
)
def test_what_cannot_be_an_agent_is_refused_by_field(field: str, options: dict[str, Any]) -> None:
    with pytest.raises(fledge.BadInput) as refused:
        fledge.Agent(**{"name": "reviewer", **options})
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("field", "agents"),
    [
        ("agents", [fledge.Agent("one"), fledge.Agent("one")]),
        ("agents", [fledge.Agent("one", agents=[fledge.Agent("two"), fledge.Agent("two")])]),
        ("agents.one.tools", [fledge.Agent("one", tools=[fledge.tool(name="read")(shout)])]),
        ("agents.two.tools", [fledge.Agent("one", tools=[shout]), fledge.Agent("two", tools=[OTHER_SHOUT])]),
        ("agents.list.one.maxTokens", [fledge.Agent("one", max_tokens=0)]),
        ("agents.one.model", [fledge.Agent("one", model=3)]),  # type: ignore[call-overload]
    ],
)
def test_agents_that_do_not_go_together_are_refused_by_field(tmp_path: Path, field: str, agents: Any) -> None:
    with pytest.raises(fledge.BadInput) as refused:
        fledge.open(tmp_path / "state", config={}, agents=agents)
    assert refused.value.field == field


# ---- spawning --------------------------------------------------------------------------------------------------------


@proves("4.code.7", "A run of an agent has that agent's instructions, tools, model, limits and type of answer")
def test_a_run_of_an_agent_is_told_and_may_use_what_the_agent_says(place: Place) -> None:
    asked, own = Asked(), Asked('{"score": 3}')
    judge = fledge.Agent(
        "judge", instructions="You judge.", tools=[count_letters, "read"], model=own.model, output_type=Verdict
    )

    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Judge it", agent=judge)
        assert (await run).value == Verdict(3)
        assert (await (await fl.spawn("By name", agent="judge", output_type=Verdict))).value.score == 3
        assert (await fl.runs())[0].model == "judge"
        await (await fl.spawn("Plain"))

    place.act(body, asked.model, agents=[judge])
    assert own.requests["Judge it"].system.startswith("You judge.\n\n")
    assert own.tools("Judge it") == {"count_letters", "read"}
    assert '"score"' in own.requests["Judge it"].system
    assert "count_letters" not in asked.tools("Plain"), "an agent's functions are its own"


def test_an_agents_limits_hold_for_its_runs(place: Place) -> None:
    frugal = fledge.Agent("frugal", limits=fledge.Budget(turns=1), tools=[count_letters])

    async def body(fl: fledge.Fledge) -> None:
        result = await (await fl.spawn("Count", agent=frugal))
        assert result.status == "error"
        assert "budget" in (result.error or "")

    place.act(body, ScriptedModel(lambda _: use("count_letters", text="a")), agents=[frugal])


@proves("4.code.8", "A spawn may add instructions, and narrow the tools or give functions to one run alone")
def test_a_spawn_has_instructions_and_tools_of_its_own(place: Place) -> None:
    asked = Asked("done")
    judge = fledge.Agent("judge", instructions="You judge.", tools=[count_letters, "read", "grep"])

    async def body(fl: fledge.Fledge) -> None:
        await (await fl.spawn("First", agent=judge, instructions="Be kind.", tools=["read", shout]))
        await (await fl.spawn("Second", agent=judge))
        third = await fl.spawn("Third", tools=[])
        await third
        await (await fl.again((await fl.runs())[0].session_key))

    place.act(body, asked.model, agents=[judge])
    assert asked.requests["First"].system.startswith("You judge.\n\nBe kind.\n\n")
    assert asked.tools("First") == {"read", "shout"}, "again has the same"
    assert asked.tools("Second") == {"count_letters", "read", "grep"}
    assert asked.tools("Third") == set()


def test_a_function_of_one_run_works_and_a_name_that_is_taken_is_refused(place: Place) -> None:
    def script(request: Request) -> Answer:
        last = request.messages[-1]
        return last.text if isinstance(last, ToolMessage) else use("shout", text="hello")

    async def body(fl: fledge.Fledge) -> None:
        assert (await (await fl.spawn("Shout", tools=[shout]))).text == "HELLO"
        assert (await (await fl.spawn("Shout", tools=[fledge.tool(shout)]))).text == "HELLO", "the same function"
        with pytest.raises(fledge.BadInput, match="tools: must have a name that no other tool has"):
            await fl.spawn("Shout", tools=[fledge.tool(name="shout")(count_letters.function)])
        assert len(await fl.runs()) == 2

    place.act(body, ScriptedModel(script))


BUILT_IN = sorted(SESSION_TOOLS | {"exec", "bash", "Read", "write", "edit", "list", "grep", "web_fetch"})


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_tool_with_the_name_of_a_built_in_one_is_refused_wherever_it_is_given(name: str, place: Place) -> None:
    mine = fledge.tool(name=name)(count_letters.function)
    refused = re.escape(f"must not have the name of a built-in tool (got '{name}')")

    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(fledge.BadInput, match=f"^tools: {refused}"):
            await fl.spawn("Count", tools=[mine])
        assert await fl.runs() == []

    place.act(body)
    with pytest.raises(fledge.BadInput, match=f"^tools: {refused}"):
        place.act(body, tools=[mine])
    with pytest.raises(fledge.BadInput, match=rf"^agents\.judge\.tools: {refused}"):
        place.act(body, agents=[fledge.Agent("judge", tools=[mine])])


def test_two_tools_of_one_name_are_refused_at_open(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        raise AssertionError("it was opened")

    for second in (shout, fledge.tool(name="Shout")(count_letters.function)):
        with pytest.raises(fledge.BadInput, match=r"^tools: must not have two tools of one name"):
            place.act(body, tools=[shout, second])


def test_the_names_that_no_tool_of_a_program_may_have_are_those_of_all_built_in_tools(place: Place) -> None:
    asked: list[set[str]] = []

    def note(request: Request) -> str:
        asked.append({one.name for one in request.tools})
        return "done"

    async def body(fl: fledge.Fledge) -> None:
        await fl.session().send("Hello")

    place.act(body, ScriptedModel(note))
    assert asked[0] - {name.lower() for name in BUILT_IN} <= {"web_search"}
    assert {"sessions_spawn", "sessions_send", "agents_list", "subagents"} <= asked[0]


def test_an_agent_that_was_not_given_to_open_is_refused(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        with pytest.raises(fledge.BadInput, match=r"agent: must be one that was given to fledge.open\(agents="):
            await fl.spawn("Judge it", agent=fledge.Agent("judge"))
        with pytest.raises(fledge.BadInput, match="agent: must be one that was given"):
            await fl.spawn("Judge it", agent=fledge.Agent("other"))
        assert await fl.runs() == []

    place.act(body, agents=[fledge.Agent("other")])


@pytest.mark.parametrize(
    "agents", [[{"id": "judge", "outputSchema": {"type": "integer"}}], [fledge.Agent("judge", output_type=int)]]
)
def test_what_an_agent_answers_is_checked_however_it_was_written(place: Place, agents: Any) -> None:
    async def body(fl: fledge.Fledge) -> None:
        assert (await (await fl.spawn("Judge it", agent="judge"))).value == 7
        wished = await (await fl.spawn("Judge it", agent="judge", output_schema={"type": "string"}))
        assert not wished.ok, "the spawn's own schema goes before the agent's"

    place.act(body, ScriptedModel(lambda _: "7"), agents=agents)


def test_a_schema_in_the_settings_that_would_not_be_checked_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(fledge.BadInput) as refused:
        fledge.open(tmp_path, config={}, agents={"judge": {"outputSchema": {"oneOf": []}}})
    assert refused.value.field == 'agents.list.judge.outputSchema."oneOf"'


# ---- whom models may spawn -------------------------------------------------------------------------------------------


@proves(
    "4.code.9",
    "Functions of an agent given as a value come with it, whoever may spawn it; other tools keep the ceiling",
)
def test_a_model_spawns_an_agent_with_its_own_functions_and_no_more_than_its_ceiling(place: Place) -> None:
    asked = Asked("done")
    judge = fledge.Agent("judge", tools=[count_letters, "read", "exec"])

    def script(request: Request) -> Answer:
        if "# Subagent Context" in request.system:
            return asked._script(request)
        if last_text(request) == "begin":
            return use("sessions_spawn", task="Judge it", agentId="judge")
        return "NO_REPLY"

    async def body(fl: fledge.Fledge) -> None:
        chat = fl.session("main")
        await chat.send("begin")
        assert await chat.settled(timeout=60)

    place.act(body, ScriptedModel(script), agents=[judge], config={"tools": {"deny": ["exec"]}})
    assert asked.tools("Judge it") == {"count_letters", "read"}


def test_a_model_may_narrow_the_tools_of_its_child_and_never_widen_them(place: Place) -> None:
    asked = Asked("done")

    def script(request: Request) -> Answer:
        if "# Subagent Context" in request.system:
            return asked._script(request)
        if last_text(request) == "begin":
            return use("sessions_spawn", task="Do it", tools=["read", "exec", "shout"], instructions="Be quick.")
        return "NO_REPLY"

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").send("begin")
        assert await fl.session("main").settled(timeout=60)

    loud = fledge.Agent("loud", tools=[shout])
    place.act(body, ScriptedModel(script), agents=[loud], config={"tools": {"deny": ["exec"]}})
    assert asked.tools("Do it") == {"read"}
    assert asked.requests["Do it"].system.startswith("Be quick.\n\n")


def test_a_tool_that_asks_waits_for_a_person_unless_the_settings_say_never(place: Place) -> None:
    done: list[str] = []

    @fledge.tool(approval="ask")
    def deploy(to: str) -> str:
        """Deploy it."""
        done.append(to)
        return f"deployed to {to}"

    def script(request: Request) -> Answer:
        last = request.messages[-1]
        return last.text if isinstance(last, ToolMessage) else use("deploy", to=last_text(request))

    careful = fledge.Agent("careful", tools=[deploy])

    async def asks(fl: fledge.Fledge) -> None:
        run = await fl.spawn("prod", agent=careful)
        assert (await run.result(timeout=60)).status == "pending"
        (question,) = await fl.approvals()
        assert (question.tool, done) == ("deploy", [])
        await fl.approve(question.id)
        assert (await run).text == "deployed to prod"

    async def never(fl: fledge.Fledge) -> None:
        assert (await (await fl.spawn("test", agent=careful))).text == "deployed to test"

    place.act(asks, ScriptedModel(script), agents=[careful])
    config = {"tools": {"deploy": {"approval": "never"}}}
    place.act(never, ScriptedModel(script), agents=[careful], config=config)
    assert done == ["prod", "test"]


@proves("3.params.27")
def test_a_program_that_names_an_unknown_tool_is_refused_and_nothing_is_made(place: Place) -> None:
    async def spawns(fl: fledge.Fledge) -> None:
        with pytest.raises(
            fledge.BadInput, match=r"^tools: must be names of tools: did you mean read\?.*\(got 'reed'\)$"
        ):
            await fl.spawn("Say hello", tools=["reed"])
        assert await fl.runs() == []
        for known in (["read", "shout"], ["sessions_*", "no_such_*"], ["Bash"], []):
            await fl.spawn("Say hello", tools=known)

    place.act(spawns, agents=[fledge.Agent("loud", tools=[shout])])


# ---- restarts --------------------------------------------------------------------------------------------------------


@proves("4.code.10", "A run whose agent or tools only a program has waits for that program, says so, and loses nothing")
def test_a_run_waits_for_the_program_that_has_its_agent(place: Place) -> None:
    async def script(request: Request) -> Answer:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            await asyncio.sleep(60)
            return f"counted {last.text}"
        return use("count_letters", text="hello")

    judge = fledge.Agent("judge", instructions="You judge.", tools=[count_letters])

    async def begins(fl: fledge.Fledge) -> str:
        run = await fl.spawn("Count", agent=judge)
        await run.result(timeout=30)
        return run.run_id

    async def without(fl: fledge.Fledge) -> None:
        run = await fl.run(run_id)
        assert (await run.result(timeout=3600)).status == "pending"
        info = await run.info()
        assert (info.phase, info.stuck) == ("queued", False)
        assert info.retry_reason == (
            "it waits for its program, which has the agent judge and the tool count_letters: open the folder with"
            " fledge.open(agents=[…], tools=[…]) again, or kill it"
        )

    async def again(fl: fledge.Fledge) -> None:
        assert (await (await fl.run(run_id)).result(timeout=3600)).text == "counted 5"

    model = ScriptedModel(script)
    run_id = place.act(begins, model, agents=[judge])
    place.act(without, model)
    assert len(model.requests) == 2, "nothing was asked without the agent"
    place.act(again, model, agents=[judge])
    assert len(model.requests) == 3, "and what was committed was not asked for again"


def test_a_run_waits_for_its_own_function_until_it_is_spawned_again(place: Place) -> None:
    async def script(request: Request) -> Answer:
        last = request.messages[-1]
        if isinstance(last, ToolMessage):
            return last.text
        await asyncio.sleep(60)
        return use("shout", text="hello")

    async def begins(fl: fledge.Fledge) -> None:
        await (await fl.spawn("Shout", tools=[shout], idempotency_key="k")).result(timeout=30)

    async def goes_on(fl: fledge.Fledge) -> None:
        await asyncio.sleep(30)
        assert "the tool shout" in (await fl.runs())[0].retry_reason
        run = await fl.spawn("Shout", tools=[shout], idempotency_key="k")
        assert (await run).text == "HELLO"
        assert len(await fl.runs()) == 1

    place.act(begins, ScriptedModel(script))
    place.act(goes_on, ScriptedModel(script))


def test_a_run_that_waits_for_its_program_can_be_killed(place: Place) -> None:
    judge = fledge.Agent("judge")

    async def begins(fl: fledge.Fledge) -> str:
        return (await fl.spawn("Wait for me", agent=judge)).run_id

    async def kills(fl: fledge.Fledge) -> None:
        run = await fl.run(run_id)
        await run.result(timeout=60)
        await run.kill()
        assert (await run).status == "killed"

    run_id = place.act(begins, agents=[judge])
    place.act(kills)


@proves("4.code.15", "A run that waits for its program goes on as soon as a process brings what it waits for")
def test_a_run_goes_on_at_once_when_its_program_opens_the_folder(place: Place) -> None:
    judge = fledge.Agent("judge", tools=[count_letters])

    async def begins(fl: fledge.Fledge) -> str:
        return (await fl.spawn("Wait for me", agent=judge)).run_id

    async def without(fl: fledge.Fledge) -> None:
        await asyncio.sleep(3600)  # its pauses are as long as they get

    async def again(fl: fledge.Fledge) -> None:
        run = await fl.run(run_id)
        assert (await run.result(timeout=1)).text == "done"
        phases = [event.name async for event in run.events() if event.kind == "phase"]
        assert phases.count("ProgramCame") == 1
        assert phases[phases.index("ProgramCame") :][:3] == ["ProgramCame", "Claimed", "AttemptEnded"]

    run_id = place.act(begins, agents=[judge])
    place.act(without)
    place.act(again, ScriptedModel(lambda request: "done"), agents=[judge])


@proves("4.code.15")
def test_runs_go_on_at_once_when_the_function_they_wait_for_is_registered(place: Place) -> None:
    async def begins(fl: fledge.Fledge) -> list[str]:
        return [(await fl.spawn(task, tools=[shout])).run_id for task in ("Wait for me", "Wait for you")]

    async def registers(fl: fledge.Fledge) -> None:
        await asyncio.sleep(3600)
        await fl.spawn("three", tools=[shout])
        assert [result.text for result in await fl.gather(run_ids, timeout=1)] == ["done", "done"]

    run_ids = place.act(begins)
    place.act(registers, ScriptedModel(lambda request: "done"))


@proves("4.code.15")
def test_a_pause_for_a_model_is_not_ended_by_a_program_that_comes(place: Place) -> None:
    judge = fledge.Agent("judge", tools=[count_letters])

    async def is_down(request: Request) -> Answer:
        return Broke("retryable", "HTTP 503: busy", retry_after_s=100)

    async def begins(fl: fledge.Fledge) -> str:
        run = await fl.spawn("Judge", agent=judge)
        await run.result(timeout=30)
        return run.run_id

    async def again(fl: fledge.Fledge) -> None:
        run = await fl.run(run_id)
        assert (await run.result(timeout=20)).status == "pending"
        assert "HTTP 503" in (await run.info()).retry_reason
        assert (await run.result(timeout=100)).text == "done"

    run_id = place.act(begins, ScriptedModel(is_down), agents=[judge])
    place.act(again, ScriptedModel(lambda request: "done"), agents=[judge])


# ---- runtimes --------------------------------------------------------------------------------------------------------


@proves("4.code.16", "A run whose runtime only a program has waits for that program, as for its agent and tools")
def test_a_run_waits_for_the_program_that_has_its_runtime(place: Place) -> None:
    async def carries(work: Work) -> str:
        if is_first:
            await asyncio.Event().wait()
        return f"carried out {work.task}"

    async def begins(fl: fledge.Fledge) -> str:
        return (await fl.spawn("Dig", runtime="digger")).run_id

    async def without(fl: fledge.Fledge) -> None:
        run = await fl.run(run_id)
        assert (await run.result(timeout=3600)).status == "pending"
        info = await run.info()
        assert (info.phase, info.stuck) == ("queued", False)
        assert info.retry_reason.startswith("it waits for its program, which has the runtime digger: open the folder")

    async def again(fl: fledge.Fledge) -> None:
        assert (await (await fl.run(run_id)).result(timeout=1)).text == "carried out Dig"

    digger = CallableRuntime(function=carries, repeatable=True)
    is_first = True
    run_id = place.act(begins, runtimes={"digger": digger})
    is_first = False
    place.act(without)
    place.act(again, runtimes={"digger": digger})
