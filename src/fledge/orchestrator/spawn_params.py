"""The parameters of a spawn, completed by the configuration: the one reading of `sessions_spawn`'s parameters.

The tool, the Python API, the command line and the gateway all fill in `SpawnParams` and say who calls; `read_spawn`
answers the `SpawnRequest` that `spawn` admits. A wrong shape is refused here; a refusal that depends on rules is noted
on the request and raised only after the limits, so that refusals come in a fixed order. Nothing here touches a store or
the world.
"""

import hashlib
import math
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Protocol

import msgspec
from msgspec import Meta, Struct, to_builtins
from msgspec.structs import replace

from fledge.config import (
    DEFAULT_MODEL,
    Config,
    agent,
    budget_for,
    known_agents,
    lane_for,
    model_for_child,
    remembered,
    sandbox_for,
    subagent_limits,
    thinking_for_child,
    with_default_model,
)
from fledge.core import policy
from fledge.core.access import nearest_tools, refuse_target, unknown_tools
from fledge.core.attachments import SETTING as ATTACHMENTS_SETTING
from fledge.core.attachments import (
    AttachmentLimits,
    File,
    SpawnFile,
    images_among,
    read_attachments,
    receipts,
    with_content,
)
from fledge.core.child_files import ATTACHMENTS, WORK, WORKTREES
from fledge.core.handover import artifacts_folder
from fledge.core.keys import agent_of, check_agent_id, is_child_key
from fledge.core.params import also_called
from fledge.core.policy import Budget, Limits, Refusal
from fledge.core.prompts import FOLDER_CHARS
from fledge.core.run import Mode, Terms
from fledge.core.schema import check_schema
from fledge.errors import BadInput, FledgeError, Refused
from fledge.models.base import Thinking
from fledge.orchestrator.commit import Lease
from fledge.orchestrator.spawn import SpawnRequest
from fledge.store.base import SessionFacts, Spec

NATIVE = "subagent"
"""The runtime that is always there: our own loop over a model."""

TaskParam = Annotated[str, Meta(description="what the subagent is to do; it knows nothing else, so say all it needs")]
Label = Annotated[str, Meta(max_length=200, description="a few words to tell it from others")]
MOST_SECONDS = 86_400 * 365
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS, description="end it after so many seconds; 0: no limit")]


class SpawnBudget(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The budget of a child and everything below it; a ceiling that is not given sets no limit here."""

    tokens: Annotated[int, Meta(ge=1)] | None = None
    usd: Annotated[float, Meta(gt=0)] | None = None
    turns: Annotated[int, Meta(ge=1, description="model steps")] | None = None
    seconds: Annotated[float, Meta(gt=0, description="seconds of work, waiting not counted")] | None = None


class AttachAs(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The folder of attached files in the words of a task. They are not moved there."""

    mount_path: Annotated[
        str,
        Meta(max_length=FOLDER_CHARS, description="what your task calls their folder; it is told the real one"),
    ] = ""


_ADVICE = {
    "a subagent answers only you; tell people yourself": "target transport channel to threadId thread_id replyTo "
    "reply_to",
    'write workspace: "worktree"': "worktree worktreeName worktreeBaseRef",
    "the folder is inherited: write workspace and cwd": "workspaceDir",
    "write label": "taskName",
    "write model or thinking": "fastMode",
    "every subagent is visible, and in no group": "visible group groupId",
    "results are collected by the setting messages.queue.mode": "collect",
    "write to an earlier subagent with sessions_send": "resumeSessionId",
    "its result comes when it is done; sessions_history shows how it goes on": "streamTo",
}


class SpawnParams(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The parameters of `sessions_spawn`, as they stand on the wire."""

    INSTEAD: ClassVar[Mapping[str, str]] = {name: advice for advice, names in _ADVICE.items() for name in names.split()}
    """Parameters of OpenClaw that are not there, each with what to write instead."""

    task: TaskParam
    label: Label = ""
    agent_id: Annotated[str, Meta(description="another agent's id, if yours may spawn it"), also_called("agent")] = ""
    model: Annotated[str, Meta(description="another model than the usual one")] = ""
    thinking: Thinking | None = None
    run_timeout_seconds: Seconds | None = None
    timeout_seconds: (
        Annotated[float, Meta(ge=0, le=MOST_SECONDS, description="old name of runTimeoutSeconds")] | None
    ) = None
    cleanup: Annotated[Literal["keep", "delete"], Meta(description="delete: forget its session afterwards")] = "keep"
    mode: (
        Annotated[Mode, Meta(description="run: one task; session: stays open in a thread, with thread true")] | None
    ) = None
    thread: Annotated[bool, Meta(description="bind it to a thread of the channel you are in")] = False
    plan_mode: Annotated[bool, Meta(description="first only plan, and wait for approval")] = False
    runtime: Annotated[str, Meta(description="subagent, or the name of a configured runtime")] = NATIVE
    workspace: Annotated[
        Literal["inherit", "dir", "worktree"],
        Meta(description="inherit: your folder; dir: an empty one of its own; worktree: a git worktree, own branch"),
    ] = "inherit"
    cwd: Annotated[str, Meta(max_length=1000, description="a folder in the workspace to start in")] = ""
    context: Annotated[Literal["isolated", "fork"], Meta(description="fork: it is told what was said here so far")] = (
        "isolated"
    )
    light_context: Annotated[
        bool, Meta(description="true: its prompt has no documents of the workspace, such as AGENTS.md")
    ] = False
    attachments: Annotated[tuple[SpawnFile, ...], Meta(description="files it is given to read")] = ()
    attach_as: AttachAs | None = None
    instructions: Annotated[
        str, Meta(max_length=100_000, description="who it is and how it works, beside the task; for its system prompt")
    ] = ""
    tools: Annotated[tuple[str, ...], Meta(description="only these tools, of those it would have")] | None = None
    sandbox: Annotated[Literal["inherit", "require"], Meta(description="require: only in a sandbox")] = "inherit"
    expects_completion_message: Annotated[bool, Meta(description="false: nobody waits for the answer")] = True
    output_schema: (
        Annotated[dict[str, Any], Meta(description="JSON Schema that the answer must meet; it is JSON then")] | None
    ) = None
    budget: Annotated[SpawnBudget, Meta(description="what it and all below it may use")] | None = None
    idempotency_key: Annotated[str, Meta(max_length=256, description="asking again with it finds the same run")] = ""


class Caller(Struct, frozen=True, kw_only=True):
    """The conversation, run or program that spawns, with what a child of it may not exceed."""

    session: str
    key: str = ""
    """Names this very call where it may be repeated; used where no `idempotencyKey` is given."""
    generations: Mapping[str, int] | None = None
    """Of the calling turn; None for a program or a person, which are never stopped."""
    lease: Lease | None = None
    """Of the driver whose tool call this is; None for a program or a person."""
    tools: frozenset[str] | None = None
    """Names of the tools it really has. None for a program."""
    boxed: bool = False
    """Its commands run in the sandbox, so its children's do."""
    offline: bool = False
    """That sandbox has no network, so its children's have none."""
    workspace: str = ""
    """The folder it works in, which a child inherits; empty: the agent's own."""
    default_model: str = ""
    """The model of its child in place of `agents.defaults.model`; empty: as the settings say."""
    brings: tuple[str, ...] = ()
    """Names of functions that a program gives to this run alone, as tools."""
    is_program: bool = False
    """It decides itself how many it starts: the number of its active children is not limited."""

    @property
    def is_model(self) -> bool:
        """True if a model's tool call asks. People and programs may spawn every agent there is; a model may not."""
        return self.lease is not None


class Host(Protocol):
    """Abilities that this installation offers to children."""

    @property
    def has_sandbox(self) -> bool:
        """True if commands can be run in a sandbox here."""
        ...

    @property
    def runtimes(self) -> tuple[str, ...]:
        """Names of the runtimes that are configured besides `subagent`."""
        ...

    @property
    def program_runtimes(self) -> frozenset[str]:
        """Those of them that a program brought, and no settings name."""
        ...

    @property
    def tool_names(self) -> frozenset[str]:
        """Names of all tools of this installation, for all agents together."""
        ...

    def workspace_of(self, agent_id: str, given: str, project: str = "") -> Path:
        """The folder in which a session of this agent works that was given this one, or none, in a conversation of
        that project, or of none."""
        ...

    def own_folder(self, leaf: str, workspace: Path) -> Path:
        """The folder in which a child of this workspace would work, by the name of what is made for it. Raises Refused
        if nothing can be made here, or not of this workspace."""
        ...

    def check_model(self, name: str, thinking: str | None) -> None:
        """Raise BadInput for a model that cannot be used here, or a thinking level that it does not have."""
        ...

    def functions_of(self, agent_id: str) -> frozenset[str] | None:
        """Names of the functions that this agent alone has as tools; None unless a program gave it as a value."""
        ...


def read_spawn(config: Config, params: SpawnParams, caller: Caller, host: Host, unique: str) -> SpawnRequest:
    """The request as the configuration completes it; the child will be called `unique`.

    Raises BadInput or Refused where the parameters do not fit together. Any other reason against the spawn is on the
    request as its objection.
    """
    if not params.task.strip():
        raise BadInput("task", "must not be empty")
    own = agent_of(caller.session)
    target = check_agent_id(params.agent_id) if params.agent_id else own
    mode = _mode(params, config.session.thread_bindings.enabled)
    if params.output_schema is not None:
        check_schema(params.output_schema)
    _check_runtime(params, host)
    _check_tools(params, caller, host)
    place = _place(config, params, caller, host, unique, own, target)
    limits = subagent_limits(config, own)
    settings = with_default_model(config, caller.default_model) if caller.default_model else config
    chosen = model_for_child(settings, params.model or None, target)
    # The settings of later turns do not know the caller's default, so the run itself keeps it.
    kept = caller.default_model if chosen and chosen.setting == DEFAULT_MODEL else ""
    thinking = thinking_for_child(config, params.thinking, target)
    given = host.functions_of(target) if params.runtime == NATIVE else None
    functions = given or frozenset()
    asked_s = params.timeout_seconds if params.run_timeout_seconds is None else params.run_timeout_seconds
    timeout_s = limits.run_timeout_seconds if asked_s is None else asked_s
    model = chosen.name if chosen and params.runtime == NATIVE else ""
    return SpawnRequest(
        spec=Spec(
            task=params.task,
            label=params.label.strip(),
            agent_id=target,
            model=params.model.strip() or kept,
            thinking=thinking or "",
            runtime=params.runtime,
            output_schema=agent(config, target).output_schema if params.output_schema is None else params.output_schema,
            instructions=params.instructions.strip(),
            tools=params.tools,
            needs=_needs(
                None if given is None else target,
                functions | frozenset(caller.brings),
                params.runtime if params.runtime in host.program_runtimes else None,
            ),
            attachments=receipts(place.files) if place.files else (),
            images=tuple([entry for _, entry in images_among(place.files)]) if place.files else (),
            asked=_besides(params),
        ),
        terms=replace(
            _configured_terms(config, own),
            parent=caller.session,
            mode=mode,
            cleanup=params.cleanup,
            expects=params.expects_completion_message,
            plan=params.plan_mode,
            leaves=place.leaves,
            wakeable=params.runtime == NATIVE,
            timeout_s=float(math.ceil(timeout_s)),  # a fraction must not become 0, which is no limit
        ),
        facts=SessionFacts(
            agent_id=target,
            label=params.label.strip(),
            workspace=place.workspace,
            cwd=params.cwd.strip(),
            artifacts=artifacts_folder(unique, owns_workspace=params.workspace != "inherit"),
            tools=_ceiling(caller, functions),
            boxed=caller.boxed or params.sandbox == "require",
            offline=caller.offline,
        ),
        limits=limits_in(config, own, caller.is_program),
        budget=allowed_budget(params.budget, budget_for(config, target)),
        cap_of=partial(_max_children, config),
        generations=caller.generations,
        lease=caller.lease,
        key=params.idempotency_key or caller.key,
        digest=hashlib.sha256(msgspec.json.encode(params)).hexdigest(),
        binds_thread=params.thread,
        unique=unique,
        files=place.files,
        source=place.source,
        forks=params.context == "fork",
        fork_tokens=config.session.parent_fork_max_tokens,
        objection=_objection(config, params, caller, host, model, own) or place.objection,
        model=model,
        warning=_old_names(params),
    )


def _ceiling(caller: Caller, functions: frozenset[str]) -> tuple[str, ...] | None:
    """The names of the tools that a subagent has: its child gets no others, whichever process drives it. None for a
    conversation and a program: only the settings limit them, and the process that drives the child reads these."""
    if caller.tools is None or not is_child_key(caller.session):
        return None
    # An agent's own functions come with the agent: a caller that may spawn the agent may give it these.
    return tuple(sorted(caller.tools | functions))


@remembered
def _configured_terms(config: Config, own: str) -> Terms:
    """The terms of children that this agent spawns, as far as the settings alone say them."""
    limits = subagent_limits(config, own)
    return Terms(
        parent="",
        lane=lane_for(config, own),
        retains=config.tools.sessions_spawn.attachments.retain_on_session_keep,
        queue_timeout_s=float(limits.queue_timeout_seconds),
        stuck_after_s=float(limits.stuck_after_seconds),
        approval_s=config.plan.approval_hours * 3600.0,
        archive_after_s=limits.archive_after_minutes * 60.0,
        max_retries=config.announce.max_retries,
        undelivered_s=config.undelivered.retention_days * 86400.0,
        kept_s=config.retention.kept_days * 86400.0,
        timeline_s=config.retention.timeline_days * 86400.0,
    )


@remembered
def _configured_limits(config: Config, agent_id: str) -> Limits:
    found = subagent_limits(config, agent_id)
    return Limits(found.max_spawn_depth, found.max_children_per_agent, found.max_retained)


def limits_in(config: Config, agent_id: str, is_program: bool = False) -> Limits:
    """The limits of a session of this agent; a program decides itself how many children it has."""
    limits = _configured_limits(config, agent_id)
    return replace(limits, max_children=sys.maxsize) if is_program else limits


def _max_children(config: Config, agent_id: str) -> int:
    return _configured_limits(config, agent_id).max_children


_IN_SPEC = (
    *("task", "label", "agentId", "model", "runtime", "outputSchema", "instructions", "tools"),
    *("attachments", "idempotencyKey"),
)
"""Parameters that a spec has by itself, or that belong to one call alone."""


def _besides(params: SpawnParams) -> dict[str, Any]:
    given = to_builtins(replace(params, attachments=()) if params.attachments else params)
    return {name: value for name, value in given.items() if name not in _IN_SPEC}


def params_of(spec: Spec, requester: str) -> SpawnParams:
    """The parameters that repeat an earlier spawn, for this requester. Raises Refused if the run was given files: they
    are kept no longer than it needs them."""
    if spec.attachments:
        files = "a file" if len(spec.attachments) == 1 else f"{len(spec.attachments)} files"
        raise Refused("error", f"it was given {files}, and those are not kept: spawn it with them")
    besides = msgspec.convert({"task": spec.task, **spec.asked}, SpawnParams)
    return replace(
        besides,
        label=spec.label,
        agent_id="" if spec.agent_id == agent_of(requester) else spec.agent_id,
        model=spec.model,
        runtime=spec.runtime,
        output_schema=spec.output_schema,
        instructions=spec.instructions,
        tools=spec.tools,
    )


def tools_needed(spec: Spec) -> tuple[str, ...]:
    """The functions of a program that a run was given as tools, by name."""
    if not spec.needs:
        return ()
    return tuple(need.removeprefix("tool:") for need in spec.needs if need.startswith("tool:"))


def _needs(agent_id: str | None, functions: frozenset[str], runtime: str | None) -> tuple[str, ...]:
    """The needs of a run that only a program can meet: its agent, if that was given as a value, these functions, and
    its runtime, if that is in no settings."""
    if agent_id is None and not functions and runtime is None:
        return ()
    agents, runtimes = ([] if one is None else [one] for one in (agent_id, runtime))
    kinds = {"agent": agents, "tool": sorted(functions), "runtime": runtimes}
    return tuple(f"{kind}:{name}" for kind, names in kinds.items() for name in names)


def _old_names(params: SpawnParams) -> str:
    if params.timeout_seconds is None:
        return ""
    ignored = "" if params.run_timeout_seconds is None else ", which was given too and counts"
    return f"timeoutSeconds is the old name of runTimeoutSeconds{ignored}"


def _mode(params: SpawnParams, binds: bool) -> Mode:
    mode: Mode = params.mode or ("session" if params.thread else "run")
    if mode == "session" and not params.thread:
        needs = 'session needs "thread": true, in a conversation whose channel has threads; elsewhere'
        if not binds:
            needs = "session needs a thread, and session.threadBindings.enabled is false:"
        raise BadInput("mode", f"{needs} use run, and for a follow-up sessions_send")
    if mode == "session" and params.plan_mode:
        raise BadInput("planMode", "is for one task: it does not go with mode session")
    return mode


def _check_runtime(params: SpawnParams, host: Host) -> None:
    name = params.runtime
    if name == NATIVE:
        return
    if name not in host.runtimes:
        there_are = ", ".join((NATIVE, *host.runtimes))
        raise BadInput("runtime", f"must be one that is configured: {there_are}", name)
    unfit: dict[str, object] = {"model": params.model, "thinking": params.thinking, "planMode": params.plan_mode}
    unfit |= {"context": params.context == "fork", "attachments": len(params.attachments)}
    unfit |= {"instructions": params.instructions, "tools": params.tools, "lightContext": params.light_context}
    for field, value in unfit.items():
        if value:
            raise BadInput(field, f"cannot be applied to runtime {name}: it is for {NATIVE} only", value)


def _check_tools(params: SpawnParams, caller: Caller, host: Host) -> None:
    if params.tools is None:
        return
    known = host.tool_names | {*caller.brings}
    unknown = unknown_tools(params.tools, known)
    if unknown:
        got = unknown[0] if len(unknown) == 1 else unknown
        raise BadInput("tools", f"must be names of tools: {nearest_tools(unknown, known)}", got)


def names_a_runtime(arguments: str) -> bool:
    """True if these arguments of a spawn ask for another runtime than our own."""
    try:
        asked = msgspec.json.decode(arguments.strip() or "{}", type=_NamedRuntime)
    except msgspec.DecodeError:
        return False  # such a call is refused as a whole
    return asked.runtime != NATIVE


class _NamedRuntime(Struct):
    runtime: str = NATIVE


class _Place(Struct, frozen=True):
    """Where a child works, what is made for it, and the rule that forbids it, if one does."""

    workspace: str
    leaves: tuple[str, ...] = ()
    files: tuple[File, ...] = ()
    source: str = ""
    objection: FledgeError | None = None


def _place(
    config: Config, params: SpawnParams, caller: Caller, host: Host, unique: str, own: str, target: str
) -> _Place:
    if params.cwd and (os.path.isabs(params.cwd) or ".." in params.cwd.split("/")):
        raise BadInput("cwd", "must be a folder inside the workspace, relative to it", params.cwd)
    # The caller's folder, unless another agent is spawned that has one of its own.
    elsewhere = target != own and agent(config, target).workspace is not None
    workspace, source = "" if elsewhere else caller.workspace, ""
    leaves: list[str] = []
    files: tuple[File, ...] = ()
    objection: FledgeError | None = None
    try:
        if params.workspace != "inherit":
            leaves.append(f"{WORK if params.workspace == 'dir' else WORKTREES}/{unique}")
            source = str(host.workspace_of(own, caller.workspace))
            workspace = str(host.own_folder(leaves[0], Path(source)))
        elif params.cwd:
            workspace = str(host.workspace_of(target, workspace))
        if params.attachments:
            files = _files(config, params)
            leaves.append(f"{ATTACHMENTS}/{unique}")
            host.own_folder(leaves[-1], Path(source))
    except (Refused, BadInput) as error:
        objection = error
    return _Place(workspace, tuple(leaves), files, source, objection)


def _files(config: Config, params: SpawnParams) -> tuple[File, ...]:
    settings = config.tools.sessions_spawn.attachments
    if not settings.enabled:
        raise Refused("forbidden", f"attachments are switched off: {ATTACHMENTS_SETTING}.enabled")
    given = [with_content(one, f"attachments[{place}]") for place, one in enumerate(params.attachments)]
    return read_attachments(given, attachment_limits(config))


def attachment_limits(config: Config) -> AttachmentLimits:
    """How many files a spawn or a message may carry, and how large."""
    settings = config.tools.sessions_spawn.attachments
    return AttachmentLimits(settings.max_files, settings.max_file_bytes, settings.max_total_bytes)


def allowed_budget(asked: SpawnBudget | None, configured_one: Budget | None) -> Budget | None:
    """The budget that was asked for, never more than the configured one."""
    if asked is None:
        return configured_one
    wanted = Budget(asked.tokens, asked.usd, asked.turns, asked.seconds)
    return policy.inherit(configured_one or Budget(), wanted)


def _refuse_outside_sandbox(config: Config, params: SpawnParams, caller: Caller) -> Refusal | None:
    """None unless something demands a sandbox of a child whose runtime has none: its program runs on the host."""
    if params.runtime == NATIVE:
        return None
    target = params.agent_id or agent_of(caller.session)
    mode = sandbox_for(config, target).mode
    if params.sandbox == "require":
        why = "sandbox: require"
    elif caller.boxed:
        why = f"{caller.session} is sandboxed (agents.defaults.sandbox.mode)"
    elif mode in ("all", "non-main"):
        why = f'subagents of agent "{target}" must be sandboxed (sandbox.mode is {mode})'
    else:
        return None
    return Refusal("forbidden", f"{why}, but runtime {params.runtime} runs outside any sandbox")


def _objection(
    config: Config, params: SpawnParams, caller: Caller, host: Host, model: str, own: str
) -> FledgeError | None:
    """The first rule besides the limits that forbids the spawn: target agent, sandbox, thinking and model, in this
    order."""
    refusal: Refusal | None = None
    if params.agent_id:
        allowed, target = subagent_limits(config, own).allow_agents, check_agent_id(params.agent_id)
        refusal = refuse_target(own, target, known_agents(config, own), allowed, caller.is_model)
    if refusal is None:
        refusal = _refuse_outside_sandbox(config, params, caller)
    if refusal is None and (params.sandbox == "require" or caller.boxed) and not host.has_sandbox:
        why = "sandbox: require" if params.sandbox == "require" else "its parent is sandboxed"
        refusal = Refusal("forbidden", f"{why}, but bubblewrap does not work here: install it")
    if refusal is None and params.runtime != NATIVE and caller.tools is not None and "exec" not in caller.tools:
        refusal = Refusal("forbidden", f"runtime {params.runtime} starts a program, and {caller.session} has no exec")
    if refusal is not None:
        return Refused(refusal.status, refusal.reason)
    if not model:
        return None
    try:
        host.check_model(model, params.thinking)
    except BadInput as error:
        return error
    return None
