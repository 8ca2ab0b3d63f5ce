"""`sessions_spawn` as a model calls it, on the whole program: what a parameter says is what the child gets."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import fledge
from fledge.commands.gateway_state import GatewayState
from fledge.commands.methods import call
from fledge.core.hook import SubagentSpawning
from fledge.hooks import Hooks
from fledge.models.base import Request, ToolMessage, Usage, UserMessage
from fledge.models.scripted import Answer, ScriptedReply, use
from fledge.orchestrator.spawn_params import SpawnParams
from fledge.runtime.base import Work
from fledge.testing import ScriptedModel
from tests.api.scene import Place
from tests.left_out import requires
from tests.statements import proves
from tests.test_hooks import Wall

SECRET = "sk-proj-abcdef123456"


class Requester:
    """Main spawns once with these parameters; its child answers `says`.

    `answer` is what main was answered, `child` what its child was asked, `told` what main read of it.
    """

    def __init__(self, says: Answer = "found it", **spawn: Any) -> None:
        self.says, self.spawn = says, {"task": "look around"} | spawn
        self.answer: dict[str, Any] = {}
        self.child: list[Request] = []
        self.told = ""

    def __call__(self, request: Request) -> Answer:
        if "# Subagent Context" in request.system:
            self.child.append(request)
            return self.says
        said = request.messages[-1]
        if isinstance(said, ToolMessage):
            self.answer = msgspec.json.decode(said.text)
            return "spawned"
        if not self.answer:
            return use("sessions_spawn", **self.spawn)
        self.told = said.text
        return "heard"

    def play(self, folder: Path, words: str = "go", **options: Any) -> list[str]:
        """Say something to main; answers what its child was told."""

        async def body(fl: fledge.Fledge) -> None:
            await fl.session("main").send(words)
            assert await fl.session("main").settled(timeout=600)

        Place(folder).act(body, ScriptedModel(self), **options)
        messages = self.child[0].messages if self.child else ()
        return [message.text for message in messages if isinstance(message, UserMessage)]


@proves("3.params.15")
@proves("3.params.16")
def test_a_child_that_a_model_forks_is_told_what_was_said_before(tmp_path: Path) -> None:
    told = Requester(context="fork").play(tmp_path, f"The colour is blue, the key is {SECRET}.")
    assert len(told) == 2
    assert "The colour is blue, the key is [redacted]" in told[0]
    assert "look around" in told[1]


@proves("3.params.15")
def test_a_child_is_told_nothing_of_what_was_said_before_unless_it_is_forked(tmp_path: Path) -> None:
    told = Requester(context="isolated").play(tmp_path, "The colour is blue.")
    assert len(told) == 1
    assert "blue" not in told[0]


@proves("3.params.16")
def test_a_model_cannot_fork_into_another_agent(tmp_path: Path) -> None:
    requester = Requester(context="fork", agentId="helper")
    config = {"agents": {"list": [{"id": "main", "subagents": {"allowAgents": ["helper"]}}, {"id": "helper"}]}}
    assert requester.play(tmp_path, config=config) == []
    assert requester.answer == {
        "status": "error",
        "error": 'context: fork is for the same agent: "helper" is not "main"',
    }


async def echoes(work: Work) -> str:
    return f"ran {work.task}"


OFF = {"agents": {"defaults": {"sandbox": {"mode": "off"}}}, "tools": {"exec": {"approval": "never"}}}


@proves("8.exec.7")
def test_a_model_cannot_start_a_runtime_and_require_a_sandbox(tmp_path: Path) -> None:
    requester = Requester(runtime="echo", sandbox="require")
    requester.play(tmp_path, config=OFF, runtimes={"echo": echoes})
    assert requester.answer == {
        "status": "forbidden",
        "error": "sandbox: require, but runtime echo runs outside any sandbox",
    }


@proves("8.exec.7")
def test_a_sandboxed_model_cannot_start_a_runtime(tmp_path: Path) -> None:
    requires("bubblewrap")
    requester = Requester(runtime="echo")
    requester.play(tmp_path, runtimes={"echo": echoes})
    assert requester.answer["status"] == "forbidden"
    assert requester.answer["error"] == (
        "agent:main:main is sandboxed (agents.defaults.sandbox.mode), but runtime echo runs outside any sandbox"
    )


@proves("8.exec.7")
def test_a_model_without_a_sandbox_starts_a_runtime(tmp_path: Path) -> None:
    requester = Requester(runtime="echo")
    requester.play(tmp_path, config=OFF, runtimes={"echo": echoes})
    assert requester.answer["status"] == "accepted"


@proves("3.params.27", "An unknown name in `tools` is refused with the names there are, and nothing is made")
def test_a_model_that_names_an_unknown_tool_reads_which_there_are(tmp_path: Path) -> None:
    requester = Requester(tools=["read", "reed"])
    requester.play(tmp_path)
    assert requester.answer["status"] == "error"
    error = requester.answer["error"]
    assert error.startswith("tools: must be names of tools: did you mean read? there are agents_list, edit, exec, ")
    assert error.endswith("(got 'reed')")
    assert requester.child == []


HEAD = "[Subagent] Depth 1/1. Results are announced by themselves; do not poll for them."


@proves("3.prompt.17", "A child's first message tells its depth and that results are announced, then the task")
def test_the_first_message_of_a_child_is_a_line_of_context_and_the_task(tmp_path: Path) -> None:
    task = "look around\n\n  and report"
    requester = Requester(task=task)
    assert requester.play(tmp_path) == [f"{HEAD}\n\n{task}"]
    assert "4. Be ephemeral: you may be gone once you have answered." in requester.child[0].system


@proves("3.prompt.17")
def test_a_forked_child_reads_its_context_line_after_what_was_said_before(tmp_path: Path) -> None:
    told = Requester(context="fork").play(tmp_path)
    assert told[1] == f"{HEAD}\n\nlook around"


@proves("3.prompt.18", "The prompt of a child in session mode says that it stays open, and never that it is ephemeral")
def test_a_child_that_stays_open_in_a_thread_is_told_so(tmp_path: Path) -> None:
    hooks = Hooks()

    @hooks.on("subagent_spawning")
    async def bind(event: SubagentSpawning) -> dict[str, object]:
        return {"threadBindingReady": True, "channel": "wall", "to": "ann", "thread": "t-1"}

    requester = Requester(thread=True)
    (told,) = requester.play(tmp_path, hooks=hooks, channels={"wall": Wall()})
    assert told == (
        f"{HEAD}\n[Subagent] This session stays open after the task: later messages in its thread continue it.\n\n"
        "look around"
    )
    assert "ephemeral" not in requester.child[0].system
    assert "4. Stay available: your session stays open" in requester.child[0].system


@proves("3.prompt.17")
def test_people_see_the_task_as_it_was_given(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> list[str]:
        run = await fl.spawn("look around")
        await run
        return [message.text for message in await fl.session(run.session_key).history()]

    assert Place(tmp_path).act(body, ScriptedModel(lambda _: "found it")) == ["look around", "found it"]


@proves("2.announce.26", "Tokens that the cache served or stored are shown apart: `/ cached 196.0k`")
def test_a_requester_is_told_cached_tokens_apart_from_input(tmp_path: Path) -> None:
    requester = Requester(says=ScriptedReply("found it", usage=Usage(12, 1000, 190_000, 6_000)))
    requester.play(tmp_path)
    assert "tokens 197.0k (in 12 / out 1.0k / cached 196.0k)" in requester.told


@proves("3.params.25")
def test_a_model_that_uses_the_old_name_of_the_timeout_is_warned(tmp_path: Path) -> None:
    requester = Requester(timeoutSeconds=30)
    requester.play(tmp_path)
    assert requester.answer["status"] == "accepted"
    assert requester.answer["warning"] == "timeoutSeconds is the old name of runTimeoutSeconds"


@proves("3.params.26", "A part of a second of `runTimeoutSeconds` counts as a whole one: only 0 means no limit")
@pytest.mark.parametrize(("asked", "limit_s"), [(0.5, 1.0), (1, 1.0), (59.2, 60.0), (0, 0.0), (None, 0.0)])
def test_half_a_second_is_no_missing_limit(tmp_path: Path, asked: float | None, limit_s: float) -> None:
    async def by_code(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello", timeout=asked)  # type: ignore[arg-type]
        assert await limit_of(fl, run.session_key) == limit_s

    async def by_gateway(fl: fledge.Fledge) -> None:
        given = {"task": "Say hello", "program": "p", "runTimeoutSeconds": asked}
        answer: Any = await call(GatewayState(fl), "runs.spawn", given)
        assert await limit_of(fl, answer["childSessionKey"]) == limit_s

    async def by_tool(fl: fledge.Fledge) -> None:
        await fl.session("main").send("go")
        assert await limit_of(fl, requester.answer["childSessionKey"]) == limit_s

    async def limit_of(fl: fledge.Fledge, key: str) -> float:
        return await fl.engine.store.read(lambda tx: tx.runs.load(key).terms.timeout_s)

    place = Place(tmp_path)
    place.act(by_code)
    place.act(by_gateway)
    requester = Requester(runTimeoutSeconds=asked)
    place.act(by_tool, ScriptedModel(requester))


@proves("3.params.28", "`lightContext`: the child's prompt has no documents of the workspace")
@pytest.mark.parametrize("is_light", [False, True])
def test_a_child_with_a_light_context_reads_no_documents_of_the_workspace(tmp_path: Path, is_light: bool) -> None:
    (tmp_path / "AGENTS.md").write_text("Speak like a pirate.")
    requester = Requester(lightContext=is_light)
    requester.play(tmp_path)
    assert ("Speak like a pirate." in requester.child[0].system) is not is_light


@proves("3.params.29", "`attachAs.mountPath` tells the child what its task calls the folder of its files")
def test_a_child_is_told_what_its_task_calls_the_folder_of_its_files(tmp_path: Path) -> None:
    requester = Requester(attachments=[{"name": "a.csv", "content": "1"}], attachAs={"mountPath": "/in"})
    requester.play(tmp_path, config={"tools": {"sessions_spawn": {"attachments": {"enabled": True}}}})
    assert '- The task may call that folder "/in".' in requester.child[0].system


def test_a_runtime_has_no_light_context_to_give(tmp_path: Path) -> None:
    requester = Requester(runtime="echo", lightContext=True)
    requester.play(tmp_path, config=OFF, runtimes={"echo": echoes})
    assert requester.answer["error"].startswith("lightContext: cannot be applied to runtime echo")


@proves("3.params.30", "A parameter of OpenClaw that is not there is refused with what to write instead")
@pytest.mark.parametrize("name", SpawnParams.INSTEAD)
def test_a_model_that_writes_a_parameter_of_openclaw_reads_what_to_write_instead(tmp_path: Path, name: str) -> None:
    requester = Requester(**{name: "x"})
    requester.play(tmp_path)
    assert requester.answer["status"] == "error"
    told = f"{name}: is not a parameter: {SpawnParams.INSTEAD[name]}. It takes: task"
    assert requester.answer["error"].startswith(told)


@proves("7.input.32")
def test_a_model_may_give_null_for_everything_but_the_task(tmp_path: Path) -> None:
    given: Any = dict.fromkeys(set(SpawnParams.__struct_encode_fields__) - {"task"})
    requester = Requester(**given)
    requester.play(tmp_path)
    assert requester.answer["status"] == "accepted"


@proves("7.input.33")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"task": 5}, "task: must be text (got 5). It takes: task (text, required), "),
        ({"planMode": "yes"}, "planMode: must be true or false (got 'yes'). It takes: "),
        ({"plan_mode": True}, "plan_mode: is not a parameter (did you mean planMode?). It takes: "),
        ({"mode": "session"}, 'mode: session needs "thread": true'),
    ],
)
def test_a_model_is_refused_in_one_shape_whatever_is_wrong(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    requester = Requester(**given)
    requester.play(tmp_path)
    assert set(requester.answer) == {"status", "error"}
    assert requester.answer["status"] == "error"
    assert requester.answer["error"].startswith(told)


def test_an_agent_may_be_named_by_the_gateways_word(tmp_path: Path) -> None:
    requester = Requester(agent="nobody")
    requester.play(tmp_path)
    assert requester.answer["status"] == "error"
    assert 'there is no agent "nobody"' in requester.answer["error"]


@proves("3.limits.28", "A subagent that may not spawn and tries gets an error that names its depth and the setting")
def test_a_leaf_that_tries_to_spawn_is_told_that_its_depth_forbids_it(tmp_path: Path) -> None:
    heard: list[str] = []
    requester = Requester()

    def answer(request: Request) -> Answer:
        said = request.messages[-1]
        if "# Subagent Context" not in request.system:
            return requester(request)
        if isinstance(said, ToolMessage):
            heard.append(said.text)
            return "I could not"
        return use("sessions_spawn", task="dig deeper")

    async def body(fl: fledge.Fledge) -> None:
        await fl.session("main").send("go")
        assert await fl.session("main").settled(timeout=600)

    Place(tmp_path).act(body, ScriptedModel(answer))
    assert [msgspec.json.decode(text) for text in heard] == [
        {
            "status": "forbidden",
            "error": 'tool "sessions_spawn" is denied to a subagent at the deepest level, which may not spawn:'
            " agents.defaults.subagents.maxSpawnDepth",
        }
    ]


REVIEWER = {"reviewer": {"description": "reads code", "prompt": "You review."}}


@proves("3.limits.19")
def test_a_model_spawns_another_agent_only_if_a_setting_names_it(tmp_path: Path) -> None:
    requester = Requester(agentId="reviewer")
    requester.play(tmp_path, config={"agents": {"list": [{"id": "reviewer"}]}})
    assert requester.answer["status"] == "forbidden"
    assert 'add "reviewer" to subagents.allowAgents of agent "main"' in requester.answer["error"]
    assert requester.child == []


@proves("3.limits.29")
def test_a_model_is_told_that_an_agent_is_unknown(tmp_path: Path) -> None:
    requester = Requester(agentId="reviewr")
    requester.play(tmp_path, agents=REVIEWER)
    assert requester.answer["status"] == "error"
    assert requester.answer["error"].startswith('agentId: there is no agent "reviewr" (did you mean reviewer?)')


@proves("3.limits.30", "The model of main may spawn agents given to `open(agents=…)`, unless `allowAgents` is set")
def test_the_model_of_main_may_spawn_agents_that_the_program_gave(tmp_path: Path) -> None:
    requester = Requester(agentId="reviewer")
    requester.play(tmp_path, agents=REVIEWER)
    assert requester.answer["status"] == "accepted"
    assert requester.child[0].system.startswith("You review.")


@proves("3.limits.30")
@pytest.mark.parametrize("at", ["defaults", "main"])
def test_allow_agents_that_are_set_bind_agents_that_the_program_gave(tmp_path: Path, at: str) -> None:
    rule = {"subagents": {"allowAgents": ["critic"]}}
    config = {"agents": {"defaults": rule} if at == "defaults" else {"list": [{"id": "main", **rule}]}}
    requester = Requester(agentId="reviewer")
    requester.play(tmp_path, config=config, agents=[{"id": "reviewer"}])
    assert requester.answer["status"] == "forbidden"
