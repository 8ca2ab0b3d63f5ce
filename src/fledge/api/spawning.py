"""A spawn asked for by a program, as the one reading of spawns takes it.

A program is not a model that may run wild: it decides itself how many it starts, and the lane decides how many run.
So the depth and the retention limits hold for it, the number of active children does not.
"""

import math
import re
import sys
from collections.abc import Sequence
from typing import Any, Literal, TypedDict, get_args, get_type_hints

import msgspec
from msgspec.structs import replace

from fledge.core.attachments import Attachment
from fledge.core.policy import Budget
from fledge.errors import BadInput
from fledge.orchestrator.asked import SpawnParams
from fledge.orchestrator.spawn import Request

_PLACE = re.compile(r" - at `\$\.?(\w*)(.*)`")


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


def params(task: str, options: SpawnOptions, result_type: type[Any] | None = None) -> SpawnParams:
    """The parameters of a spawn. Refused: what there is none of, and a value that does not fit, by its name."""
    if result_type is not None:
        options = {**options, "output_schema": _schema(result_type)}
    wire = dict(zip(SpawnParams.__struct_fields__, SpawnParams.__struct_encode_fields__, strict=True))
    given: dict[str, Any] = {"task": task}
    for name, value in options.items():
        if name not in SpawnOptions.__annotations__:
            raise BadInput(name, f"is no parameter of spawn; there are: {', '.join(SpawnOptions.__annotations__)}")
        field = "run_timeout_seconds" if name == "timeout" else name
        given[wire[field]] = _plain(name, value)
    try:
        return msgspec.convert(given, SpawnParams)
    except msgspec.ValidationError as error:
        raise _misfit(str(error), {camel: own for own, camel in wire.items()}) from None


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
    if name == "timeout" and isinstance(value, float) and math.isfinite(value):
        return math.ceil(value)  # whole seconds are kept; a fraction must not become "no limit"
    return value


def _misfit(words: str, own: dict[str, str]) -> BadInput:
    place = _PLACE.search(words)
    field = own.get(place[1], place[1]) if place else ""
    field = "timeout" if field == "run_timeout_seconds" else field or "spawn"
    what = _PLACE.sub("", words).replace("`", "")
    choices = _choices(get_type_hints(SpawnParams).get(field))
    if choices and "enum" in what:
        what = f"must be one of {', '.join(choices)}"
    return BadInput(f"{field}{place[2] if place else ''}", f"{what[:1].lower()}{what[1:]}")


def _choices(kind: object) -> list[str]:
    """The words among which a field chooses; empty if it does not."""
    found: list[str] = []
    for one in get_args(kind):
        found += [one] if isinstance(one, str) else _choices(one)
    return found


def for_program(request: Request) -> Request:
    """The same, without a limit on the number of children: a program decides that itself."""
    return replace(request, limits=replace(request.limits, max_children=sys.maxsize))
