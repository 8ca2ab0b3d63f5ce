"""The commands that act on a state folder nobody is driving: `spawn`, `send`, `steer`, `kill`, `approve`, `reject`, and
lists of sessions and agents. What is decided here goes on when the folder is driven: `fledge run --continue`, or chat.

Each answers `Shown`: lines for people, and the same as a value for `--json`.
"""

import re
import time
from pathlib import Path

import msgspec
from msgspec import Struct

import fledge
from fledge.api import views as api
from fledge.cli import inspect
from fledge.cli.inspect import find
from fledge.cli.render import info_lines, log_lines, tree_lines, undelivered_lines
from fledge.config import spawnable
from fledge.config.places import discover
from fledge.core.access import AgentToAgent
from fledge.core.freeze import one_line
from fledge.core.keys import main_key
from fledge.errors import BadInput
from fledge.orchestrator import control, steps, views
from fledge.orchestrator.commit import Commit
from fledge.store.base import Tx

MAIN = main_key()
GOES_ON = "`fledge run --continue` goes on with it"
FAILED, AWAITS_A_PERSON = 1, 3


class Shown(Struct, frozen=True):
    """What a command has to say: to people, and to programs; and its exit code."""

    lines: list[str]
    value: object
    code: int = 0


def wire(value: object) -> object:
    """A value as it stands on the wire: plain, with names in camelCase."""
    return _camel(msgspec.to_builtins(value))


def _camel(value: object) -> object:
    if isinstance(value, dict):
        return {re.sub(r"_([a-z])", lambda m: m[1].upper(), str(key)): _camel(one) for key, one in value.items()}
    return [_camel(one) for one in value] if isinstance(value, list | tuple) else value


# ---- looking ---------------------------------------------------------------------------------------------------------


def tree(folder: Path) -> Shown:
    """Every run, below the main conversation and below programs."""

    def view(tx: Tx) -> Shown:
        now = time.time()
        lines: list[str] = []
        roots = tx.roots()
        for root in roots:
            below = tree_lines(tx, root, now)
            if below:
                lines += below if root == MAIN else [root, *below]
        value = [api.run_info(tx, key, deep=True) for root in roots for key in tx.children(root)]
        return Shown(lines or ["no runs"], wire(value))

    return inspect.look(folder, view)


def info(folder: Path, name: str) -> Shown:
    """One run in full."""

    def view(tx: Tx) -> Shown:
        key = find(tx, name)
        value = {**msgspec.to_builtins(api.run_info(tx, key)), "timeline": api.timeline(tx.events(key))}
        return Shown(info_lines(tx, key), wire(value))

    return inspect.look(folder, view)


def log(folder: Path, name: str, last: int, tools: bool) -> Shown:
    """The newest of a transcript."""

    def view(tx: Tx) -> Shown:
        key = MAIN if name == "main" else find(tx, name)
        entries = [entry for entry in tx.entries(key, limit=1_000_000) if tools or entry.kind != "tool"][-last:]
        return Shown(log_lines(tx, key, last, tools), wire([api.message(entry) for entry in entries]))

    return inspect.look(folder, view)


def undelivered(folder: Path) -> Shown:
    """Results and messages that found nobody."""

    def view(tx: Tx) -> Shown:
        value = [api.given_up(tx, row) for row in tx.undelivered()]
        return Shown(undelivered_lines(tx), wire(value))

    return inspect.look(folder, view)


def sessions(folder: Path, limit: int) -> Shown:
    """Every session, the latest active first."""
    if limit < 1:
        raise BadInput("-n", "must be 1 or more", limit)

    everyone = views.Looker(session=MAIN, seen="all", agents=AgentToAgent(enabled=True))

    def view(tx: Tx) -> Shown:
        found = views.list_sessions(tx, everyone, views.Wanted(limit=limit))
        lines = [
            f"{one.key}  {one_line(one.label, 40) or one.kind}{'  ' + one.status if one.status else ''}"
            for one in found
        ]
        return Shown(lines or ["no sessions"], wire(found))

    return inspect.look(folder, view)


def agents(project: Path, settings: tuple[str, ...]) -> Shown:
    """The configured agents, and what each may spawn."""
    config = discover(project, settings).loaded.config
    ids = ["main", *(one.id for one in config.agents.list if one.id != "main")]
    found = [{"id": one, "spawns": [other.id for other in spawnable(config, one)]} for one in ids]
    own = {one.id: one for other in ids for one in spawnable(config, other)}
    lines = [
        " · ".join(word for word in (one, own[one].model, own[one].description) if word) if one in own else one
        for one in ids
    ]
    return Shown(lines, found)


# ---- deciding --------------------------------------------------------------------------------------------------------


def steer(folder: Path, name: str, message: str) -> Shown:
    """Redirect a run."""
    run = inspect.change(folder, lambda c: control.steer(c, find(c.tx, name), message))
    value = {"sessionKey": run.key, "runId": run.run_id, "attempt": run.attempt}
    return Shown([f"steered: attempt {run.attempt}; {GOES_ON}"], value)


def kill(folder: Path, name: str) -> Shown:
    """End a run and everything below it; `all` ends every one."""

    def decide(c: Commit) -> control.Killing:
        return control.kill_below(c, MAIN) if name.lower() == "all" else control.kill(c, find(c.tx, name))

    done = inspect.change(folder, decide)
    words = f"killed {len(done.killed)}" + (f", {len(done.stopping)} stopping" if done.stopping else "")
    return Shown([words], {"killed": list(done.killed), "stopping": list(done.stopping)})


def answer(folder: Path, name: str, words: str, yes: bool) -> Shown:
    """Answer a question about a tool call, by the beginning of its id, or a plan."""

    def decide(c: Commit) -> str | None:
        asked = [one for one in c.tx.open_approvals() if one.id.startswith(name)]
        if len(asked) != 1:
            return None
        steps.answer(c, asked[0].id, yes, "user", asked[0].digest)
        return asked[0].tool

    tool = inspect.change(folder, decide) if name else None
    if tool is None:
        return answer_plan(folder, name, words, yes)
    may = "may be run, this once" if yes else "is not run; the model is told so"
    return Shown([f"{tool} {may}; {GOES_ON}"], {"tool": tool, "allowed": yes})


def answer_plan(folder: Path, name: str, words: str, approve: bool) -> Shown:
    """Approve or reject a plan."""
    if not approve and not words.strip():
        raise BadInput("reason", "must say why the plan is rejected")
    said = words or "APPROVED: proceed"
    run = inspect.change(folder, lambda c: control.answer_plan(c, find(c.tx, name), approve, said))
    word = "approved" if approve else "rejected"
    return Shown([f"{word}; {GOES_ON}"], {"sessionKey": run.key, "runId": run.run_id})


# ---- doing: these drive the folder while they wait -------------------------------------------------------------------


class Task(Struct, frozen=True, kw_only=True):
    """What `fledge spawn` was asked."""

    task: str
    label: str = ""
    agent_id: str = "main"
    timeout: float = 0.0
    plan: bool = False
    runtime: str = "subagent"


async def spawn(folder: Path, model: str | None, settings: tuple[str, ...], asked: Task) -> Shown:
    """Start a run and wait for what comes of it."""
    async with _opened(folder, model, settings) as fl:
        run = await fl.spawn(
            asked.task,
            label=asked.label,
            agent_id=asked.agent_id,
            timeout=asked.timeout,
            plan_mode=asked.plan,
            runtime=asked.runtime,
        )
        if asked.plan:
            plan = await run.plan()
            if plan is not None:
                lines = [plan.text, "", f"approve it with: fledge approve {run.run_id[:8]}"]
                return Shown(lines, wire(plan), AWAITS_A_PERSON)
        result = await run
    lines = [result.text] if result.ok else [f"{result.status}: {result.error or result.text or 'no output'}"]
    return Shown(lines, wire(result), 0 if result.ok else FAILED)


async def send(folder: Path, model: str | None, settings: tuple[str, ...], name: str, message: str) -> Shown:
    """Say something to a conversation or a run, and wait for the answer."""
    async with _opened(folder, model, settings) as fl:
        key = await fl.engine.store.read(lambda tx: _session(tx, name))
        reply = await fl.session(key).send(message)
    lines = (
        [reply.text or "(nothing to say)"] if reply.ok else [f"{reply.status}: {reply.error or 'a person is asked'}"]
    )
    code = 0 if reply.ok else AWAITS_A_PERSON if reply.status == "pending" else FAILED
    return Shown(lines, wire(reply), code)


def _session(tx: Tx, name: str) -> str:
    if name.strip().lower() == "main" or name.startswith("agent:"):
        return api.session_key(name, "session")
    return find(tx, name)


def _opened(folder: Path, model: str | None, settings: tuple[str, ...]) -> fledge.Fledge:
    config = discover(Path.cwd(), settings).loaded.config
    return fledge.open(folder, model=model, config=config, program="cli")
