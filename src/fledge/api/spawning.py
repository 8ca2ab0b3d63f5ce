"""A spawn asked for by a program, as the one reading of spawns takes it.

A program is not a model that may run wild: it decides itself how many it starts, and the lane decides how many run.
So the depth and the retention limits hold for it, the number of active children does not.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, TypedDict

import msgspec

from fledge.core.attachments import Attachment
from fledge.core.params import read_params
from fledge.core.policy import Budget
from fledge.errors import BadInput
from fledge.orchestrator.asked import SpawnParams


class SpawnOptions(TypedDict, total=False):
    """What `fl.spawn` takes besides the task; all of it may be left out."""

    label: str
    """A few words to tell it from others."""
    agent_id: str
    """The agent that does it; `main` if none is named."""
    model: str
    thinking: str
    timeout: float
    """Seconds of work after which it ends with what it has; 0 for no limit."""
    cleanup: Literal["keep", "delete"]
    mode: Literal["run", "session"]
    """One task; or, with `thread`, a session that stays open."""
    context: Literal["isolated", "fork"]
    """What it is told besides the task: nothing, or, of a conversation's child, what was said there so far."""
    expects_completion_message: bool
    """False: nobody waits for the answer."""
    plan_mode: bool
    """First only plan, and wait until the plan is approved."""
    sandbox: Literal["inherit", "require"]
    output_schema: dict[str, Any]
    """A JSON Schema that the answer must meet; `result_type` makes one."""
    thread: bool
    """Its session stays open in a thread outside, which a `subagent_spawning` hook makes ready."""
    budget: Budget
    workspace: Literal["inherit", "dir", "worktree"]
    """The folder agents work in, an empty folder of its own, or a git worktree on a branch of its own."""
    cwd: str
    """A folder in the workspace to start in."""
    attachments: Sequence[Attachment]
    """Files it is given to read, if the settings allow that."""
    runtime: str
    """A configured runtime, or one given to `open`; without one, our own loop over a model."""
    idempotency_key: str
    """Spawning again with the same key finds the same run."""


SPELLED: Final = {
    "timeout" if name == "run_timeout_seconds" else name: wire
    for name, wire in zip(SpawnParams.__struct_fields__, SpawnParams.__struct_encode_fields__, strict=True)
    if name != "timeout_seconds"
}
"""The parameters of a spawn as a program writes them, each with its name in `SpawnParams`."""
WRITTEN: Final = {wire: name for name, wire in SPELLED.items()}


def params(task: str, options: SpawnOptions, result_type: type[Any] | None = None) -> SpawnParams:
    """The parameters of a spawn; None means "not given". Raises BadInput that names the parameter as it was written."""
    if result_type is not None:
        options = {**options, "output_schema": _schema(result_type)}
    given = {"task": task} | {name: _plain(name, value) for name, value in options.items()}
    return read_params(SpawnParams, given, "spawn", SPELLED).params


def on_wire(params: SpawnParams) -> dict[str, Any]:
    """The parameters of `runs.spawn`, as far as they were given."""
    names = zip(SpawnParams.__struct_fields__, SpawnParams.__struct_encode_fields__, strict=True)
    unset = SpawnParams(task="")
    given = {wire: getattr(params, name) for name, wire in names if getattr(params, name) != getattr(unset, name)}
    agent = {"agent": given.pop("agentId")} if "agentId" in given else {}
    return {"task": params.task, **msgspec.to_builtins(given), **agent}


def _schema(result_type: type[Any]) -> dict[str, Any]:
    try:
        return msgspec.json.schema(result_type)
    except TypeError as error:
        raise BadInput(
            "result_type", f"must be a type that msgspec can read from JSON ({error})", result_type
        ) from None


def _plain(name: str, value: object) -> object:
    if isinstance(value, Budget):
        return {key: ceiling for key, ceiling in msgspec.structs.asdict(value).items() if ceiling is not None}
    if name == "attachments" and isinstance(value, Sequence):
        return msgspec.to_builtins(value)
    return value
