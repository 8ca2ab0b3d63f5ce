"""The commands that look at a state folder or decide something in it: `ps`, `tree`, `info`, `log`, `undelivered`,
`sessions`, `agents`, `steer`, `kill`, `approve`, `reject`, `event`, `heartbeat`, `spawn`, `send`.

Each is a function of rows; `act` does it with the folder itself, or lets the process that holds the folder do it. What
is decided in a folder nobody drives goes on when somebody does: `fledge run --continue`, or chat. Each answers `Shown`:
lines for people, and the same as a value for `--json`.
"""

import asyncio
import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

import fledge
from fledge.api import views as api
from fledge.api.spawning import SpawnOptions
from fledge.api.spawning import params as spawn_params
from fledge.cli import inspect, remote, run
from fledge.cli.inspect import find
from fledge.cli.settings import confirm_workspace
from fledge.commands.lines import info_lines, log_lines, tree_lines, undelivered_lines
from fledge.config import Config, spawnable, with_default_model
from fledge.config.places import discover
from fledge.core.access import AgentToAgent
from fledge.core.freeze import one_line
from fledge.core.keys import is_called, main_key, short_id
from fledge.errors import BadInput, FledgeError, HolderLeft, StoreError
from fledge.ids import RandomIds
from fledge.orchestrator import control, documents, steps, system_events, views
from fledge.orchestrator.commit import Commit
from fledge.runtime.model_choice import settled_model
from fledge.store.base import Tx
from fledge.store.files import DATABASE
from fledge.store.ways import HATCH
from fledge.workspaces.documents import versions_in

MAIN = main_key()
PROGRAM = "cli"
"""The program that is told of what `fledge spawn` started."""
GOES_ON = "`fledge run --continue` goes on with it"
FAILED, AWAITS_A_PERSON = 1, 3
ALL = 1_000_000


class Shown(Struct, frozen=True):
    """What a command has to say: to people, and to programs; and its exit code."""

    lines: list[str]
    value: Any
    code: int = 0


def wire(value: object) -> object:
    """A value as it stands on the wire: plain, with names in camelCase."""
    return _camel(msgspec.to_builtins(value))


def _camel(value: object) -> object:
    if isinstance(value, dict):
        return {re.sub(r"_([a-z])", lambda m: m[1].upper(), str(key)): _camel(one) for key, one in value.items()}
    return [_camel(one) for one in value] if isinstance(value, list | tuple) else value


def act(folder: Path, verb: str, **given: Any) -> Shown:
    """Look or decide, in the folder itself or through the process that holds it."""

    def here() -> Shown:
        if verb in LOOKS:
            return inspect.look(folder, lambda tx: LOOKS[verb](tx, **given))
        return inspect.change(folder, lambda c: DEEDS[verb](c, **given))

    def there(client: remote.Remote) -> Shown:
        told = msgspec.convert(client.call("cli.act", verb=verb, given=given), Shown)
        return Shown([line.replace(f"; {GOES_ON}", "") for line in told.lines], told.value, told.code)

    try:
        return remote.here_or_there(folder, here, there, may_repeat=verb in LOOKS)
    except HolderLeft as left:
        raise StoreError(f"{left}: it may have done this or not; `fledge ps` and `fledge info` show it") from None


# ---- looking ---------------------------------------------------------------------------------------------------------


def ps(folder: Path) -> Shown:
    """The conversation, its runs, and what waits for a person."""
    return act(folder, "ps")


def _ps(tx: Tx) -> Shown:
    lines = run.ps(tx)
    return Shown(lines, lines)


def tree(folder: Path) -> Shown:
    """Every run, below the main conversation and below programs."""
    return act(folder, "tree")


def _tree(tx: Tx) -> Shown:
    now = time.time()
    lines: list[str] = []
    roots = tx.roots()
    for root in roots:
        below = tree_lines(tx, root, now)
        if below:
            lines += below if root == MAIN else [root, *below]
    value = api.forest(tx, roots, ALL).runs
    return Shown(lines or ["no runs"], wire(value))


def info(folder: Path, name: str) -> Shown:
    """One run in full."""
    return act(folder, "info", name=name)


def _info(tx: Tx, name: str) -> Shown:
    key = find(tx, name)
    value = {**msgspec.to_builtins(api.run_info(tx, key)), "timeline": api.timeline(tx.events(key))}
    return Shown(info_lines(tx, key, time.time()), wire(value))


def log(folder: Path, name: str, last: int, tools: bool) -> Shown:
    """The newest of a transcript."""
    return act(folder, "log", name=name, last=last, tools=tools)


def _log(tx: Tx, name: str, last: int, tools: bool) -> Shown:
    key = MAIN if name == "main" else find(tx, name)
    entries = [entry for entry in tx.entries(key, limit=1_000_000) if tools or entry.kind != "tool"][-last:]
    return Shown(log_lines(tx, key, last, tools), wire(api.shown(entries)))


def undelivered(folder: Path) -> Shown:
    """Results and messages that found nobody."""
    return act(folder, "undelivered")


def _undelivered(tx: Tx) -> Shown:
    value = [api.given_up(tx, row) for row in tx.undelivered()]
    return Shown(undelivered_lines(tx), wire(value))


def sessions(folder: Path, limit: int) -> Shown:
    """Every session, the latest active first."""
    if limit < 1:
        raise BadInput("-n", "must be 1 or more", limit)
    return act(folder, "sessions", limit=limit)


def _sessions(tx: Tx, limit: int) -> Shown:
    everyone = views.Looker(session=MAIN, seen="all", agents=AgentToAgent(enabled=True))
    found = views.list_sessions(tx, everyone, views.Wanted(limit=limit))
    lines = [
        f"{one.key}  {one_line(one.label, 40) or one.kind}{'  ' + one.status if one.status else ''}" for one in found
    ]
    return Shown(lines or ["no sessions"], wire(found))


def agents(project: Path, model: str | None, settings: tuple[str, ...]) -> Shown:
    """The configured agents, and what each may spawn."""
    config = _config(project, settings)
    config = config if model is None else with_default_model(config, model)
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
    return act(folder, "steer", name=name, message=message)


def _steer(c: Commit, name: str, message: str) -> Shown:
    run = control.steer(c, find(c.tx, name), message)
    value = {"sessionKey": run.key, "runId": run.run_id, "attempt": run.attempt}
    return Shown([f"steered: attempt {run.attempt}; {GOES_ON}"], value)


def kill(folder: Path, name: str) -> Shown:
    """End a run and everything below it; `all` ends every one."""
    return act(folder, "kill", name=name)


def _kill(c: Commit, name: str) -> Shown:
    done = control.kill_below(c, MAIN) if name.lower() == "all" else control.kill(c, find(c.tx, name))
    words = f"killed {len(done.killed)}" + (f", {len(done.stopping)} stopping" if done.stopping else "")
    return Shown([words], {"killed": list(done.killed), "stopping": list(done.stopping)})


def answer(folder: Path, name: str, words: str, yes: bool) -> Shown:
    """Answer a question about a tool call, by the beginning of its id, or a plan."""
    return act(folder, "answer", name=name, words=words, yes=yes)


def _answer(c: Commit, name: str, words: str, yes: bool) -> Shown:
    asked = [one for one in c.tx.open_approvals() if name and is_called(one.id, name)]
    if len(asked) != 1:
        return _answer_plan(c, name, words, yes)
    steps.answer(c, asked[0].id, yes, "user", asked[0].digest)
    may = "may be run, this once" if yes else "is not run; the model is told so"
    return Shown([f"{asked[0].tool} {may}; {GOES_ON}"], {"tool": asked[0].tool, "allowed": yes})


def _answer_plan(c: Commit, name: str, words: str, approve: bool) -> Shown:
    if not approve and not words.strip():
        raise BadInput("reason", "must say why the plan is rejected")
    run = control.answer_plan(c, find(c.tx, name), approve, words or "APPROVED: proceed")
    word = "approved" if approve else "rejected"
    return Shown([f"{word}; {GOES_ON}"], {"sessionKey": run.key, "runId": run.run_id})


def take_up(folder: Path, action: str, name: str) -> Shown:
    """Retry or dismiss an undelivered result, or a message by its key."""
    return act(folder, "take_up", action=action, name=name)


def _take_up(c: Commit, action: str, name: str) -> Shown:
    key = name if c.tx.find_post(name) is not None else find(c.tx, name)
    control.take_up(c, "retry" if action == "retry" else "dismiss", key)
    words = f"{key} is offered again; {GOES_ON}" if action == "retry" else f"{key} is dismissed"
    return Shown([words], {"key": key, "action": action})


def event(folder: Path, name: str, text: str) -> Shown:
    """Post a system event to a session."""
    return act(folder, "event", name=name, text=text)


def _event(c: Commit, name: str, text: str) -> Shown:
    key = session_named(c.tx, name)
    posted = system_events.post(c, key, text)
    words = f"posted to {key}; {GOES_ON}" if posted else f"the last event that waits for {key} says the same"
    return Shown([words], {"sessionKey": key, "posted": posted})


def heartbeat(folder: Path, name: str, reason: str) -> Shown:
    """Ask for a heartbeat of a session."""
    return act(folder, "heartbeat", name=name, reason=reason)


def _heartbeat(c: Commit, name: str, reason: str) -> Shown:
    key = system_events.request_heartbeat(c, session_named(c.tx, name), reason)
    return Shown([f"a heartbeat of {key} is asked for; {GOES_ON}"], {"sessionKey": key})


def take_in(folder: Path, workspace: Path, is_named: bool) -> list[str]:
    """Take in the documents of a workspace that were left out, as they are now; answers what was done, in lines. A
    state folder that nobody named need not be there."""
    place, digests = versions_in(workspace)
    if not is_named and not (folder / DATABASE).exists():
        return []
    if not act(folder, "left_out", workspace=place).value:
        return []
    return act(folder, "take_in", workspace=place, digests=msgspec.json.encode(digests).decode()).lines


def _left_out(tx: Tx, workspace: str) -> Shown:
    names = documents.left_out(tx, workspace)
    return Shown(names, names)


def _take_in(c: Commit, workspace: str, digests: str) -> Shown:
    taken = documents.accept(c, workspace, msgspec.json.decode(digests, type=dict[str, str]))
    return Shown([f"taken in: {', '.join(taken)}"] if taken else [], taken)


LOOKS: Final[Mapping[str, Callable[..., Shown]]] = {
    "ps": _ps,
    "tree": _tree,
    "info": _info,
    "log": _log,
    "undelivered": _undelivered,
    "sessions": _sessions,
    "left_out": _left_out,
}
DEEDS: Final[Mapping[str, Callable[..., Shown]]] = {
    "steer": _steer,
    "kill": _kill,
    "answer": _answer,
    "take_up": _take_up,
    "event": _event,
    "heartbeat": _heartbeat,
    "take_in": _take_in,
}


# ---- doing: these drive the folder while they wait -------------------------------------------------------------------


class Task(Struct, frozen=True, kw_only=True):
    """What `fledge spawn` was asked."""

    task: str
    label: str = ""
    agent_id: str = "main"
    timeout: float = 0.0
    plan: bool = False
    runtime: str = "subagent"

    def options(self, key: str) -> SpawnOptions:
        """The same as the library takes it. Asked again under the same key it is the same run."""
        options: SpawnOptions = {"label": self.label, "plan_mode": self.plan, "runtime": self.runtime}
        if self.agent_id != "main":
            options["agent_id"] = self.agent_id
        if self.timeout:
            options["timeout"] = self.timeout
        return {**options, "idempotency_key": key}


def spawn(folder: Path, model: str | None, settings: tuple[str, ...], asked: Task) -> Shown:
    """Start a run and wait for what comes of it, whoever holds the folder meanwhile."""
    options = asked.options(RandomIds().unique())
    open_here = _opener(folder, model, settings)
    run_id = ""

    async def drive(opened: fledge.Fledge) -> Shown:
        from fledge.commands.hatch import hatch

        async with opened as fl, hatch(fl):
            handle = await (fl.run(run_id) if run_id else fl.spawn(asked.task, **options))
            return await _waited(handle, asked.plan)

    def here() -> Shown:
        opened = open_here()
        try:
            opened.check(asked.agent_id)
        except FledgeError as error:
            if run_id:
                return _left_behind(folder, run_id, str(error))
        return asyncio.run(drive(opened))

    def there(client: remote.Remote) -> Shown:
        nonlocal run_id
        remote.refuse_settings(folder, settings)
        if not run_id:
            params = msgspec.to_builtins(spawn_params(asked.task, options))
            told = client.call("subagents.spawn", program=PROGRAM, params=params, defaultModel=model or "")
            run_id = told["runId"]
        return _waited_there(client, run_id)

    return remote.here_or_there(folder, here, there)


async def _waited(handle: fledge.Handle[Any], plans: bool) -> Shown:
    plan = await handle.plan() if plans else None
    if plan is not None:
        return _planned(plan.text, handle.run_id, wire(plan))
    result = await handle
    return _came_of(result.ok, result.status, result.text, result.error, wire(result))


def _waited_there(client: remote.Remote, run_id: str) -> Shown:
    while True:
        result: dict[str, Any] = client.call("subagents.result", runId=run_id, timeoutMs=2000)
        if result["status"] != "pending":
            ok = result["status"] == "ok" and result["valueError"] is None
            return _came_of(ok, result["status"], result["text"], result["error"], result)
        plans = client.call("plans.list") if result["phase"] == "awaiting_approval" else ()
        for plan in plans:
            if plan["sessionKey"] == result["sessionKey"]:
                return _planned(plan["text"], plan["runId"], plan)


def _left_behind(folder: Path, run_id: str, error: str) -> Shown:
    """The run of a process that has left, where this one cannot drive it: its answer if it has one, else how to go
    on."""
    result: fledge.Result[Any] = inspect.look(folder, lambda tx: api.result(tx, api.named(tx, run_id)))
    if result.done:
        return _came_of(result.ok, result.status, result.text, result.error, wire(result))
    short = short_id(run_id)
    words = f"run {short} is unfinished: the process at work on it has left, and it cannot go on here: {error}"
    how = f"`fledge run --continue --model NAME` goes on with it, then `fledge info {short}` shows what came of it"
    return Shown([words, how], wire(result), FAILED)


def _planned(text: str, run_id: str, value: object) -> Shown:
    return Shown([text, "", f"approve it with: fledge approve {short_id(run_id)}"], value, AWAITS_A_PERSON)


def _came_of(ok: bool, status: str, text: str, error: str | None, value: object) -> Shown:
    lines = [text] if ok else [f"{status}: {error or text or 'no output'}"]
    return Shown(lines, value, 0 if ok else FAILED)


def send(folder: Path, model: str | None, settings: tuple[str, ...], name: str, message: str) -> Shown:
    """Say something to a conversation or a run, and wait for the answer, whoever holds the folder meanwhile."""
    key = RandomIds().unique()
    open_here = _opener(folder, model, settings)
    session, run_id = "", ""

    async def here() -> Shown:
        from fledge.commands.hatch import hatch

        async with open_here() as fl, hatch(fl):
            said = await fl.engine.store.read(lambda tx: tx.commission_keyed(key))
            if said is None:
                meant = await fl.engine.store.read(lambda tx: session_named(tx, name))
                reply = await fl.session(meant).send(message)
            else:
                reply = await fl.session(said.session).reply(said.run_id)
        return _answered(reply.status, reply.text, reply.error, wire(reply))

    def there(client: remote.Remote) -> Shown:
        nonlocal session, run_id
        remote.refuse_settings(folder, settings)
        if not run_id:
            session = client.call("cli.act", verb="session", given={"name": name})["value"]
            given = {"message": message, "defaultModel": model or "", "idempotencyKey": key}
            run_id = client.call("agent", sessionKey=session, **given)["runId"]
        while True:
            reply: dict[str, Any] = client.call("reply", sessionKey=session, runId=run_id, timeoutMs=2000)
            if reply["status"] != "pending" or reply["questions"]:
                return _answered(reply["status"], reply["text"], reply["error"], reply)

    return remote.here_or_there(folder, lambda: asyncio.run(here()), there)


def _answered(status: str, text: str, error: str | None, value: object) -> Shown:
    lines = [text or "(nothing to say)"] if status == "ok" else [f"{status}: {error or 'a person is asked'}"]
    return Shown(lines, value, 0 if status == "ok" else AWAITS_A_PERSON if status == "pending" else FAILED)


def session_named(tx: Tx, name: str) -> str:
    """The session that a word of the command line means."""
    if name.strip().lower() == "main" or name.startswith("agent:"):
        return api.session_key(name, "session")
    return find(tx, name)


def _config(folder: Path, settings: tuple[str, ...]) -> Config:
    """The settings that apply there; what is odd about them is told."""
    loaded = discover(folder, settings).loaded
    for warning in loaded.warnings:
        print(f"fledge: {warning}", file=sys.stderr)
    return loaded.config


def _opener(folder: Path, model: str | None, settings: tuple[str, ...]) -> Callable[[], fledge.Fledge]:
    """Opens the folder for a command that drives it while it waits; the settings are read once."""

    @cache
    def config() -> Config:
        found = _config(Path.cwd(), settings)
        confirm_workspace(found)
        return found

    def opened() -> fledge.Fledge:
        settled = settled_model(config(), os.environ, model)
        named = None if settled is None or settled.by == "settings" else settled.model
        return fledge.open(folder, model=named, config=config(), program=PROGRAM, address=HATCH)

    return opened
