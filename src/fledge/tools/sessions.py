"""`sessions_spawn`, `sessions_subagent_remove`, `sessions_yield`: a model starts a subagent, takes a finished one off
its list, and waits for its subagents.

A spawn returns at once; the answer comes through the inbox. Limits are checked in one commit with the reservation, so
they hold however many calls race. The call's own place in the transcript is its idempotency key, so a call that is
repeated after a crash finds the child that it made before.
"""

import asyncio
import base64
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from fledge.confine import Confined
from fledge.core.attachments import SpawnFile, too_large
from fledge.core.params import also_called
from fledge.core.policy import YieldTerms
from fledge.core.schema import JsonObject
from fledge.core.transcript import SPAWN, YIELD
from fledge.errors import BadInput, Refused
from fledge.orchestrator import control
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawn_params import Caller, SpawnParams
from fledge.orchestrator.spawner import Spawner
from fledge.orchestrator.views import find_child
from fledge.tools.base import Tool, ToolContext, answering_json, named_arguments, tool, tool_taking
from fledge.tools.subagents import answered, controlled, lease_of


def spawn_tool(spawner: Spawner) -> Tool:
    """The tool `sessions_spawn`, with the parameters of `SpawnParams`; the caller is the session whose turn it is."""

    async def sessions_spawn(context: ToolContext, params: SpawnParams) -> str:
        if any(one.path for one in params.attachments):
            params = await asyncio.to_thread(_with_contents, params, context, spawner.attachment_limits.max_file_bytes)
        answer = await spawner.answer(params, caller_of(context))
        return msgspec.json.encode(answer).decode()

    return tool_taking(
        SpawnParams,
        sessions_spawn,
        name=SPAWN,
        description="Start a subagent that works in the background. Returns at once; its answer is pushed to you when"
        " done.",
    )


def _with_contents(params: SpawnParams, context: ToolContext, most: int) -> SpawnParams:
    """The parameters with the contents of files that are named by path. BadInput: a path outside the folders that the
    caller may read besides its workspace, a content beside it, or a file that is too large."""
    files = [_with_content(one, context, most, f"attachments[{at}]") for at, one in enumerate(params.attachments)]
    return replace(params, attachments=tuple(files))


def _with_content(file: SpawnFile, context: ToolContext, most: int, field: str) -> SpawnFile:
    if not file.path:
        return file
    if file.content is not None:
        raise BadInput(f"{field}.path", "must not be given beside content", file.path)
    for folder in context.readable:
        if file.path.startswith(f"{folder}/"):
            with Confined(folder) as confined:
                data, _ = confined.read(file.path, most + 1)
            if len(data) > most:
                raise too_large(f"{field}.path", most)
            return SpawnFile(file.name, base64.b64encode(data).decode(), "base64")
    raise BadInput(f"{field}.path", "must be the path of a file that came with a message", file.path)


def caller_of(context: ToolContext) -> Caller:
    """The session of this tool call, as a caller. The call's place is its key, so that repeating it is harmless."""
    return Caller(
        session=context.session,
        key=context.call_key,
        generations=context.generations,
        lease=lease_of(context),
        tools=context.tools,
        boxed=context.boxed,
        offline=context.offline,
        workspace=str(context.workspace),
    )


def remove_tool(engine: Engine) -> Tool:
    """The tool `sessions_subagent_remove`: it makes room in a session that may retain only so many subagents."""

    @tool(name="sessions_subagent_remove")
    async def sessions_subagent_remove(
        context: ToolContext,
        target: Annotated[
            str, Meta(description="which: number, label, run id or session key"), also_called("sessionKey")
        ],
    ) -> str:
        """Take a finished subagent off your list. One that still works, or has something to tell, stays."""
        return await answered(engine, context, lambda c: _remove(c, context.session, target))

    return answering_json(sessions_subagent_remove)


def _remove(c: Commit, session: str, target: str) -> JsonObject:
    key = controlled(c, session, "remove", find_child(c.tx, session, target))
    return {"status": "ok", "removed": control.remove(c, key).key}


YieldFor = Annotated[
    Literal["all", "any"] | Annotated[int, Meta(ge=1)],
    Meta(description="wait for all children (the default), for any one, or for so many; not in a conversation"),
]
YieldSeconds = Annotated[
    float,
    Meta(gt=0, le=86_400, description="go on after so many seconds in any case (default 1800); not in a conversation"),
]


def yield_tool() -> Tool:
    """The tool `sessions_yield`. The turn itself carries the call out, after all others of its step (`steps.wait`)."""

    @tool(name=YIELD, repeatable=True, read_only=True)
    async def sessions_yield(
        for_: YieldFor | None = None,
        deadline_seconds: YieldSeconds | None = None,
        message: Annotated[str, Meta(description="a line about what you wait for")] = "",
    ) -> str:
        """End this turn and wait for your subagents without using anything up; you go on with their results."""
        raise Refused("error", "only a turn can yield")

    return sessions_yield


def yield_terms(yielding: Tool, arguments: str) -> YieldTerms | None:
    """The terms of a call of `sessions_yield`; None if its arguments do not fit."""
    try:
        given = named_arguments(yielding.read_arguments(arguments))
    except BadInput:
        return None
    return YieldTerms(given["for_"], given["deadline_seconds"], given["message"])
