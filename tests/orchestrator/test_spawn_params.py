"""One reading of a spawn's parameters: what the configuration adds, what is refused, and in which order."""

import re
from typing import Any

import pytest

from fledge.config import Config, with_settings
from fledge.core.params import read_params
from fledge.core.policy import Budget
from fledge.errors import BadInput, Refused
from fledge.orchestrator.spawn import SpawnRequest
from fledge.orchestrator.spawn_params import Caller, SpawnParams, names_a_runtime, read_spawn
from tests.model.world import MAIN
from tests.orchestrator.host import MODEL, PLAIN, FakeHost
from tests.statements import proves

SUBAGENTS = "agents.defaults.subagents"


def config(*settings: str) -> Config:
    return with_settings({}, settings).config


def read(
    *settings: str, caller: Caller | None = None, host: FakeHost | None = None, file: Any = None, **params: Any
) -> SpawnRequest:
    wire = read_params(SpawnParams, {"task": "look", **params}).params
    made = with_settings(file or {}, settings).config
    return read_spawn(made, wire, caller or Caller(session=MAIN), host or FakeHost(), "unique-1")


def test_what_is_not_said_comes_from_the_configuration() -> None:
    found = read(
        f"{SUBAGENTS}.runTimeoutSeconds=90",
        f"{SUBAGENTS}.maxChildrenPerAgent=2",
        f"{SUBAGENTS}.archiveAfterMinutes=5",
        "plan.approvalHours=1",
        "announce.maxRetries=7",
    )
    terms = found.terms
    assert (terms.timeout_s, terms.archive_after_s, terms.approval_s, terms.max_retries) == (90.0, 300.0, 3600.0, 7)
    assert (terms.mode, terms.cleanup, terms.expects, terms.plan) == ("run", "keep", True, False)
    assert (found.limits.max_depth, found.limits.max_children) == (1, 2)
    assert (found.spec.agent_id, found.spec.runtime, found.budget, found.objection) == ("main", "subagent", None, None)


@proves("3.params.7", "`runTimeoutSeconds` limits the run")
@proves("3.params.19", "`expectsCompletionMessage` false makes it fire-and-forget")
def test_a_parameter_wins_over_the_configuration() -> None:
    asked: dict[str, Any] = {
        "runTimeoutSeconds": 5.9,
        "cleanup": "delete",
        "label": " eyes ",
        "expectsCompletionMessage": False,
    }
    found = read(f"{SUBAGENTS}.runTimeoutSeconds=90", **asked)
    assert not found.terms.expects
    assert (found.terms.timeout_s, found.terms.cleanup, found.spec.label) == (6.0, "delete", "eyes")
    assert read(f"{SUBAGENTS}.runTimeoutSeconds=90", runTimeoutSeconds=0).terms.timeout_s == 0.0


def test_thinking_is_one_of_seven_levels() -> None:
    levels = ["off", "minimal", "low", "medium", "high", "xhigh", "adaptive"]
    assert [read(thinking=level).spec.thinking for level in levels] == levels
    assert read(f"{SUBAGENTS}.thinking=low").spec.thinking == "low"
    with pytest.raises(BadInput, match=r"^thinking: must be one of adaptive, high, low, medium, minimal, off, xhigh"):
        read(thinking="huge")


MODELS = (
    {"agents": {"list": [{"id": "helper", "subagents": {"model": "a/own-children"}, "model": "a/own"}]}},
    f"{SUBAGENTS}.model=a/children",
    "agents.defaults.model=a/all",
)


@proves("3.limits.20")
@pytest.mark.parametrize(
    ("params", "file", "settings", "model"),
    [
        ({"model": "a/asked"}, MODELS[0], MODELS[1:], "a/asked"),
        ({}, MODELS[0], MODELS[1:], "a/own-children"),
        ({}, {"agents": {"list": [{"id": "helper", "model": "a/own"}]}}, MODELS[1:], "a/children"),
        ({}, {"agents": {"list": [{"id": "helper", "model": "a/own"}]}}, MODELS[2:], "a/own"),
        ({}, {}, MODELS[2:], "a/all"),
        ({}, {}, (), ""),
    ],
)
def test_the_model_is_the_asked_one_then_the_agents_then_the_defaults(
    params: dict[str, Any], file: Any, settings: tuple[str, ...], model: str
) -> None:
    found = read(*settings, file=file, agentId="helper", **params)
    assert found.model == model
    assert found.spec.model == params.get("model", "")


@proves("3.params.12")
@proves("3.answer.5", "Checks are made in the order the contract lists")
@proves("4.session.1", "It needs `thread: true`")
@proves("8.exec.1")
@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"task": " \n"}, "task: must not be empty"),
        ({"agentId": "../etc"}, "agentId: must be 1 to 64"),
        ({"mode": "session"}, 'mode: session needs "thread": true'),
        ({"thread": True, "planMode": True}, "planMode: is for one task"),
        ({"tools": ["reed"]}, "tools: must be names of tools: did you mean read? there are exec, grep, read, write"),
        ({"tools": ["read", "a", "b"]}, 'there are exec, grep, read, write (got ["a","b"])'),
        ({"runtime": "codex"}, "runtime: must be one that is configured: subagent, claude (got 'codex')"),
    ],
)
def test_a_wrong_shape_is_refused_by_name_before_anything_else(params: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=re.escape(words)):
        read(host=FakeHost(runtimes=("claude",)), **params)


def test_a_session_where_threads_are_off_is_refused_once_with_what_works_there() -> None:
    words = "session.threadBindings.enabled is false: use run, and for a follow-up sessions_send"
    with pytest.raises(BadInput, match=re.escape(words)):
        read("session.threadBindings.enabled=false", mode="session")


@pytest.mark.parametrize(
    ("params", "mode"), [({}, "run"), ({"thread": True}, "session"), ({"thread": True, "mode": "run"}, "run")]
)
def test_a_thread_means_a_session_unless_said_otherwise(params: dict[str, Any], mode: str) -> None:
    found = read(**params)
    assert found.terms.mode == mode
    assert found.binds_thread == found.needs_preparing == bool(params)


@proves("3.params.12", "`runtime` is subagent or the name of a configured runtime")
def test_a_configured_runtime_is_taken() -> None:
    assert read(host=FakeHost(runtimes=("claude",)), runtime="claude").spec.runtime == "claude"


@proves("3.params.18")
@proves("3.answer.5")
def test_rules_object_in_order_whom_then_sandbox_then_thinking_and_model() -> None:
    wrong: dict[str, Any] = {"agentId": "stranger", "sandbox": "require", "model": "nope"}
    first = read(**wrong).objection
    assert isinstance(first, Refused)
    assert str(first).startswith('agentId: there is no agent "stranger" (there are: main)')
    allowed = "agents.list=[{id: 'stranger'}]"
    second = read(allowed, **wrong).objection
    assert str(second) == "sandbox: require, but bubblewrap does not work here: install it"
    third = read(allowed, host=FakeHost(has_sandbox=True), **wrong).objection
    assert isinstance(third, BadInput)
    assert str(third) == "model: no such model (got 'nope')"
    assert read(allowed, host=FakeHost(has_sandbox=True), **{**wrong, "model": MODEL}).objection is None


@proves("3.params.6", "`thinking` is off, minimal, low, medium, high, xhigh or adaptive")
def test_a_level_the_model_does_not_have_objects_only_if_it_was_asked_for() -> None:
    asked = read(model=PLAIN, thinking="high").objection
    assert str(asked) == f"thinking: must be off: {PLAIN} has no other level (got 'high')"
    assert read(model=PLAIN, thinking="off").objection is None
    assert read(f"{SUBAGENTS}.thinking=high", model=PLAIN).objection is None


@proves("3.params.18", "`sandbox` is inherit or require")
def test_a_child_of_a_sandboxed_caller_is_sandboxed_or_refused() -> None:
    boxed = Caller(session=MAIN, boxed=True)
    assert read(caller=boxed, host=FakeHost(has_sandbox=True)).facts.boxed
    refused = read(caller=boxed).objection
    assert str(refused) == "its parent is sandboxed, but bubblewrap does not work here: install it"
    assert read(host=FakeHost(has_sandbox=True), sandbox="require").facts.boxed
    assert not read(host=FakeHost(has_sandbox=True)).facts.boxed


@proves("3.prompt.16")
def test_a_subagents_tools_are_the_ceiling_of_its_child_and_its_folder_is_inherited() -> None:
    caller = Caller(session="agent:main:subagent:7", tools=frozenset({"write", "read"}), workspace="/w")
    facts = read(caller=caller).facts
    assert (facts.tools, facts.workspace) == (("read", "write"), "/w")
    assert read().facts.tools is None


def test_a_child_of_a_conversation_keeps_no_tools_of_the_process_that_spawned_it() -> None:
    caller = Caller(session=MAIN, tools=frozenset({"write", "read"}), workspace="/w")
    assert read(caller=caller).facts.tools is None


def test_another_agent_keeps_its_own_folder_if_it_has_one() -> None:
    caller = Caller(session=MAIN, workspace="/w")
    file = {"agents": {"list": [{"id": "helper", "workspace": "/helpers"}]}}
    assert read(caller=caller, file=file, agentId="helper").facts.workspace == ""
    assert read(caller=caller, file=file, agentId="other").facts.workspace == "/w"


@proves("3.params.20", "`budget` limits tokens, usd, turns and seconds")
def test_a_budget_is_what_was_asked_for_but_never_more_than_configured() -> None:
    assert read(budget={"tokens": 10, "seconds": 5}).budget == Budget(tokens=10, seconds=5)
    settings = (f"{SUBAGENTS}.budget.tokens=7", f"{SUBAGENTS}.budget.usd=1")
    assert read(*settings, budget={"tokens": 10, "turns": 3}).budget == Budget(tokens=7, usd=1.0, turns=3)
    assert read(*settings).budget == Budget(tokens=7, usd=1.0)


def test_one_call_is_told_from_another_by_what_was_asked_not_by_what_the_configuration_made_of_it() -> None:
    caller = Caller(session=MAIN, key="call")
    first, second = read(caller=caller), read(f"{SUBAGENTS}.runTimeoutSeconds=90", caller=caller)
    assert first.digest == second.digest
    assert read(caller=caller, label="x").digest != first.digest
    assert (first.key, read(caller=caller, idempotencyKey="mine").key) == ("call", "mine")


CLAUDE = FakeHost(runtimes=("claude",))


def test_a_foreign_child_cannot_be_woken_and_names_no_model() -> None:
    found = read("agents.defaults.model=openai/gpt-5", host=CLAUDE, runtime="claude")
    assert not found.terms.wakeable
    assert found.model == ""


@pytest.mark.parametrize("params", [{"model": MODEL}, {"thinking": "high"}, {"planMode": True}])
def test_what_cannot_be_applied_to_a_foreign_runtime_fails_the_spawn(params: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="cannot be applied to runtime claude"):
        read(host=CLAUDE, runtime="claude", **params)


@proves("8.exec.1", "`runtime` names a configured entry only, and needs the parent's exec right and approval rule")
@pytest.mark.parametrize(("tools", "refused"), [(frozenset({"read"}), True), (frozenset({"exec"}), False)])
def test_a_runtime_needs_the_exec_right_of_its_parent(tools: frozenset[str], refused: bool) -> None:
    caller = Caller(session=MAIN, tools=tools)
    objection = read(host=CLAUDE, caller=caller, runtime="claude").objection
    assert isinstance(objection, Refused) == refused
    if refused:
        assert "has no exec" in str(objection)


OLD = "timeoutSeconds is the old name of runTimeoutSeconds"


@proves("3.params.25", "`timeoutSeconds` is an old name of `runTimeoutSeconds`: it counts, with a warning")
@pytest.mark.parametrize(
    ("params", "timeout_s", "warning"),
    [
        ({"timeoutSeconds": 7}, 7.0, OLD),
        ({"timeoutSeconds": 0}, 0.0, OLD),
        ({"timeoutSeconds": 7, "runTimeoutSeconds": 5}, 5.0, f"{OLD}, which was given too and counts"),
        ({"timeoutSeconds": None}, 90.0, ""),
        ({}, 90.0, ""),
    ],
)
def test_an_old_name_of_the_timeout_counts_with_a_warning(
    params: dict[str, Any], timeout_s: float, warning: str
) -> None:
    found = read(f"{SUBAGENTS}.runTimeoutSeconds=90", **params)
    assert (found.terms.timeout_s, found.warning) == (timeout_s, warning)


OUTSIDE = "but runtime claude runs outside any sandbox"


@proves("8.exec.7", "A runtime is refused where a sandbox is demanded: its program runs on the host")
@pytest.mark.parametrize(
    ("settings", "boxed", "params", "reason"),
    [
        ((), False, {"sandbox": "require"}, "sandbox: require"),
        ((), True, {}, f"{MAIN} is sandboxed (agents.defaults.sandbox.mode)"),
        (
            ("agents.defaults.sandbox.mode=non-main",),
            False,
            {},
            'subagents of agent "main" must be sandboxed (sandbox.mode is non-main)',
        ),
        (
            ("agents.list=[{id:'helper',sandbox:{mode:'all'}}]", f"{SUBAGENTS}.allowAgents=['helper']"),
            False,
            {"agentId": "helper"},
            'subagents of agent "helper" must be sandboxed (sandbox.mode is all)',
        ),
        (("agents.defaults.sandbox.mode=auto",), False, {}, ""),
        (("agents.defaults.sandbox.mode=off",), False, {"sandbox": "inherit"}, ""),
    ],
)
@pytest.mark.parametrize("has_sandbox", [True, False])
def test_a_runtime_is_refused_where_a_sandbox_is_demanded(
    has_sandbox: bool, settings: tuple[str, ...], boxed: bool, params: dict[str, Any], reason: str
) -> None:
    host = FakeHost(runtimes=("claude",), has_sandbox=has_sandbox)
    caller = Caller(session=MAIN, boxed=boxed)
    objection = read(*settings, host=host, caller=caller, runtime="claude", **params).objection
    assert objection is None if not reason else str(objection) == f"{reason}, {OUTSIDE}"
    assert reason == "" or (isinstance(objection, Refused) and objection.status == "forbidden")


@pytest.mark.parametrize(
    ("arguments", "names_one"),
    [('{"runtime": "claude"}', True), ('{"runtime": "subagent"}', False), ("", False), ("{}", False), ("[", False)],
)
def test_a_spawn_that_names_a_runtime_is_told_from_one_that_does_not(arguments: str, names_one: bool) -> None:
    assert names_a_runtime(arguments) == names_one


# ---- where a child works ---------------------------------------------------------------------------------------------

CALLER = Caller(session=MAIN, workspace="/w")
FILES = "tools.sessions_spawn.attachments"


@proves("3.params.13", "`workspace` is inherit, dir or worktree, inherit by default")
@pytest.mark.parametrize(
    ("params", "workspace", "leaves", "artifacts", "source"),
    [
        ({}, "/w", (), "artifacts/unique-1", ""),
        ({"workspace": "inherit"}, "/w", (), "artifacts/unique-1", ""),
        ({"workspace": "dir"}, "/state/work/unique-1", ("work/unique-1",), "artifacts", "/w"),
        ({"workspace": "worktree"}, "/state/worktrees/unique-1", ("worktrees/unique-1",), "artifacts", "/w"),
    ],
)
def test_a_child_works_where_its_caller_does_or_in_a_folder_that_is_made_for_it(
    params: dict[str, Any], workspace: str, leaves: tuple[str, ...], artifacts: str, source: str
) -> None:
    found = read(caller=CALLER, **params)
    assert (found.facts.workspace, found.terms.leaves, found.facts.artifacts) == (workspace, leaves, artifacts)
    assert (found.source, found.unique, found.needs_preparing) == (source, "unique-1", bool(leaves))


def test_a_program_without_a_folder_has_its_agents() -> None:
    assert read(workspace="worktree").source == "/workspace/main"
    found = read(cwd="src")
    assert (found.facts.workspace, found.facts.cwd, found.needs_preparing) == ("/workspace/main", "src", True)


@proves("3.params.14", "`cwd` lies inside the workspace")
@pytest.mark.parametrize("cwd", ["/etc", "..", "a/../..", "../a"])
def test_a_cwd_that_leads_out_is_refused_before_anything_is_looked_at(cwd: str) -> None:
    with pytest.raises(BadInput, match=r"^cwd: must be a folder inside the workspace, relative to it"):
        read(cwd=cwd)


@pytest.mark.parametrize("params", [{"workspace": "dir"}, {"attachments": [{"name": "a", "content": "x"}]}])
def test_where_nothing_can_be_made_that_is_the_objection(params: dict[str, Any]) -> None:
    found = read(f"{FILES}.enabled=true", host=FakeHost(state=None), **params)
    assert str(found.objection) == "nothing can be made here"


@proves("3.files.2")
def test_attachments_are_read_by_the_limits_that_are_set_and_have_a_receipt() -> None:
    given = [{"name": "a", "content": "xyz"}, {"name": "b", "content": "eA==", "encoding": "base64"}]
    settings = (f"{FILES}.enabled=true", f"{FILES}.maxFiles=2", f"{FILES}.retainOnSessionKeep=true")
    found = read(*settings, attachments=given)
    assert [(one.name, one.bytes) for one in found.spec.attachments] == [("a", 3), ("b", 1)]
    assert ([file.data for file in found.files], found.terms.leaves) == ([b"xyz", b"x"], ("attachments/unique-1",))
    assert found.terms.retains
    more = read(*settings, attachments=[*given, {"name": "c", "content": ""}])
    assert str(more.objection) == f"attachments_file_count_exceeded: 3 of 2 files: {FILES}.maxFiles"


@proves("3.files.1", "Attachments are off by default")
def test_attachments_are_off_unless_they_are_switched_on_and_other_rules_come_first() -> None:
    given = [{"name": "a", "content": "xyz"}]
    off = read(attachments=given).objection
    assert isinstance(off, Refused)
    assert (off.status, str(off)) == ("forbidden", f"attachments are switched off: {FILES}.enabled")
    assert "there is no agent" in str(read(attachments=given, agentId="stranger").objection)


def test_another_call_with_other_files_is_another_call() -> None:
    settings = f"{FILES}.enabled=true"
    first = read(settings, attachments=[{"name": "a", "content": "x"}]).digest
    assert read(settings, attachments=[{"name": "a", "content": "y"}]).digest != first


@pytest.mark.parametrize(
    ("params", "field"),
    [({"context": "fork"}, "context"), ({"attachments": [{"name": "a", "content": ""}]}, "attachments")],
)
def test_another_runtime_is_given_neither_history_nor_files(params: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInput, match=f"^{field}: cannot be applied to runtime claude"):
        read(host=FakeHost(runtimes=("claude",)), runtime="claude", **params)


@proves("3.params.15", "`context` is isolated or fork")
def test_a_fork_is_asked_for_with_the_limit_that_is_set() -> None:
    found = read("session.parentForkMaxTokens=7", context="fork")
    assert (found.forks, found.fork_tokens) == (True, 7)
    assert not read().forks
