"""Turns a spawn as a program asks for it into the parameters that `orchestrator.spawn_params` reads.

A program is not a model that might spawn without end: it decides itself how many runs it starts, and the lane decides
how many work at once. So the limits on depth and on retained runs apply to it, the limit on active children does not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypedDict

import msgspec

from fledge.api.agents import Agent, TextOrTool, given, read_tools
from fledge.api.output_type import schema_for
from fledge.config import Config
from fledge.core.attachments import Attachment
from fledge.core.keys import AGENT_ID, SessionKey
from fledge.core.params import read_params
from fledge.core.policy import Budget
from fledge.core.value import Value
from fledge.errors import BadInput
from fledge.orchestrator.spawn_params import Caller, Host, SpawnBudget, SpawnParams, read_spawn
from fledge.tools.base import Tool


class SpawnOptions(TypedDict, total=False):
    """The options of `fl.spawn`; all are optional."""

    label: str
    """A short name for lists."""
    agent_id: str
    """The agent, by name; the same as `agent`."""
    model: str
    """The model, by name; by default the agent's."""
    thinking: str
    """`off`, `minimal`, `low`, `medium`, `high`, `xhigh`, or `adaptive`: the model decides itself."""
    timeout: float
    """Seconds of work after which the run ends with its partial result; 0 for no limit."""
    cleanup: Literal["keep", "delete"]
    """`delete`: the session and its transcript are deleted after delivery. `keep`: they stay."""
    mode: Literal["run", "session"]
    """`run`: one task. `session` (with `thread`): a session that stays open."""
    context: Literal["isolated", "fork"]
    """`isolated`: it gets only the task. `fork`, the conversation so far too, is refused: a program has no
    conversation."""
    expects_completion_message: bool
    """False: fire and forget; the requester expects no message when the run ends."""
    plan_mode: bool
    """The run first writes a plan and waits for its approval."""
    sandbox: Literal["inherit", "require"]
    """`require`: refuse the run if its commands would run without a sandbox."""
    output_schema: dict[str, Any]
    """A JSON Schema for the answer; `output_type` makes one."""
    thread: bool
    """Bind the run to a thread of a channel, which a `subagent_spawning` hook prepares."""
    budget: Budget
    """Limits for the run and everything below it."""
    workspace: Literal["inherit", "dir", "worktree"]
    """`inherit`: the usual folder of the agent. `dir`: an empty folder. `worktree`: a git worktree on its own
    branch."""
    cwd: str
    """The folder in the workspace to start in."""
    light_context: bool
    """The prompt has no documents of the workspace, such as `AGENTS.md`."""
    attachments: Sequence[Attachment]
    """Files for the run to read, if the settings allow attachments."""
    attach_as: dict[str, str]
    """`{"mountPath": …}`: the folder of these files in the words of the task. They are not moved there."""
    runtime: str
    """Another executor, from the settings or given to `open`; by default the built-in agent loop."""
    instructions: str
    """Additional instructions, after those of its agent."""
    tools: Iterable[TextOrTool]
    """The only tools it may use: names of its agent's tools, and functions for this run alone."""
    idempotency_key: str
    """Spawning again with the same key returns the same run."""


_NAMES: Final = tuple(zip(SpawnParams.__struct_fields__, SpawnParams.__struct_encode_fields__, strict=True))
SPELLED: Final = {
    "timeout" if name == "run_timeout_seconds" else name: wire for name, wire in _NAMES if name != "timeout_seconds"
}
"""The parameters of a spawn by the names that a program uses, each with its name on the wire."""
WRITTEN: Final = {wire: name for name, wire in SPELLED.items()}


class SpawnCall(Value):
    """A spawn as a program asks for it."""

    params: SpawnParams
    functions: tuple[Tool, ...]
    """Functions that are given to this run alone."""
    output_type: Any
    """The type into which the answer is decoded; None: none was given."""
    agent: Agent[Any] | None
    """The agent, if it was given as a value."""
    written: Mapping[str, str]
    """The names of the parameters as the program wrote them, by their names on the wire."""


def read_options(
    task: str, agent: Agent[Any] | str | None, output_type: Any, result_type: Any, options: SpawnOptions
) -> SpawnCall:
    """The parameters of a spawn; None means "not given". Raises BadInput, which names the parameter as the program
    wrote it."""
    asked: dict[str, object] = {"task": task, **options}
    value = agent if isinstance(agent, Agent) else None
    if agent is not None:
        asked["agent"] = agent.name if isinstance(agent, Agent) else agent
    kind = one_type(output_type, result_type)
    if kind is not None:
        field = "output_type" if result_type is None else "result_type"
        if asked.get("output_schema") is not None:
            raise BadInput("output_schema", f"must not be given beside {field}, which makes one")
        asked["output_schema"] = schema_for(kind, field)
    names, functions = read_tools(options.get("tools"))
    if names is not None:
        asked["tools"] = list(names)
    reading = read_params(SpawnParams, {name: _plain(name, one) for name, one in asked.items()}, "spawn", SPELLED)
    written = {**WRITTEN, **reading.written}
    if kind is None and value is not None and options.get("output_schema") is None:
        kind = value.output_type
    return SpawnCall(reading.params, tuple(functions), kind, value, written | {"agent": written["agentId"]})


def read(written: Mapping[str, object], spelled: Mapping[str, str]) -> SpawnParams:
    """Read the parameters of a spawn; `spelled` has the name on the wire for each name that the caller may write.
    Raises BadInput, which names the parameter as it was written."""
    return read_params(SpawnParams, written, "spawn", spelled).params


def check(params: SpawnParams, config: Config, host: Host, program: str, default_model: str = "") -> None:
    """Raise the error with which the spawn itself would be refused, if this program could not make it in any folder."""
    caller = Caller(session=program, is_program=True, default_model=default_model)
    objection = read_spawn(config, params, caller, host, params.idempotency_key).objection
    if objection is not None:
        raise objection


def program_key(program: str) -> str:
    """The session key of a program."""
    if not AGENT_ID.fullmatch(program):
        raise BadInput("program", "must be a word of letters, digits, '-' or '_'", program)
    return str(SessionKey("main", "named", program))


def one_type(output_type: Any, result_type: Any) -> Any:
    """`output_type`, which may also be given as `result_type`. Raises BadInput for both."""
    if output_type is not None and result_type is not None:
        raise BadInput("result_type", "is another name of output_type, which was given too: leave one of them out")
    return result_type if output_type is None else output_type


def budget_given(budget: Budget | None) -> SpawnBudget | None:
    """A budget that a program gives, read. Raises BadInput, naming its field, for one that cannot hold."""
    if budget is None:
        return None
    if not isinstance(budget, Budget):
        raise BadInput("budget", "must be a fledge.Budget", budget)
    return read_params(SpawnBudget, given(msgspec.structs.asdict(budget)), "budget").params


def on_wire(params: SpawnParams) -> dict[str, Any]:
    """The parameters for the verb `runs.spawn`, without those that have their default."""
    unset = SpawnParams(task="")
    told = {wire: getattr(params, name) for name, wire in _NAMES if getattr(params, name) != getattr(unset, name)}
    agent = {"agent": told.pop("agentId")} if "agentId" in told else {}
    return {"task": params.task, **msgspec.to_builtins(told), **agent}


def _plain(name: str, value: object) -> object:
    if isinstance(value, Budget):
        return given(msgspec.structs.asdict(value))
    if name == "attachments" and isinstance(value, Sequence):
        return msgspec.to_builtins(value)
    return value
