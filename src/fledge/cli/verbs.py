"""The commands that look at a state folder or decide something in it: `ps`, `tree`, `info`, `log`, `undelivered`,
`sessions`, `agents`, `steer`, `kill`, `approve`, `reject`, `event`, `heartbeat`, `spawn`, `send`.

Each calls verbs of `commands` on the folder, through whoever holds it, and answers `Shown`: lines for people, and what
the verb answered for `--json`. What is decided in a folder nobody drives goes on when somebody does: `fledge run
--continue`, or chat. `spawn` and `send` drive the folder themselves while they wait, if nobody else does.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from fledge.api.program import Fledge
from fledge.api.values import GivenUp, Message
from fledge.api.views import Forest
from fledge.cli.printing import note
from fledge.cli.settings import confirm_workspace
from fledge.client.driving import Driving
from fledge.client.folder import Folder
from fledge.client.local import AtRest
from fledge.client.opening import open as open_folder
from fledge.commands import lines
from fledge.commands.reading import from_wire
from fledge.commands.values import Overview, SessionRow, Story
from fledge.config import Config, spawnable, with_default_model
from fledge.config.places import discover
from fledge.core.keys import main_key, short_id
from fledge.errors import BadInput, FledgeError, HolderLeft, StoreError
from fledge.ids import RandomIds
from fledge.runtime.model_choice import settled_model
from fledge.store.files import DATABASE
from fledge.store.ways import HATCH
from fledge.workspaces.documents import versions_in

T = TypeVar("T")

MAIN = main_key()
PROGRAM = "cli"
"""The program that is told of what `fledge spawn` started."""
GOES_ON = "`fledge run --continue` goes on with it"
FAILED, AWAITS_A_PERSON = 1, 3
LOOK_MS = 2000
MOST_RUNS = 1000


class Shown(Struct, frozen=True):
    """What a command has to say: to people, and to programs; and its exit code."""

    lines: list[str]
    value: Any
    code: int = 0


# ---- one call --------------------------------------------------------------------------------------------------------


class Answer(Struct, frozen=True):
    """What a verb answered, as it stands on the wire."""

    value: Any
    is_held: bool
    """Another process answered, which drives the folder."""

    def read(self, kind: type[T]) -> T:
        """The same as a value."""
        return from_wire(kind, self.value)

    @property
    def later(self) -> str:
        """Who goes on with what was decided, where nobody does."""
        return "" if self.is_held else f"; {GOES_ON}"


def ask(state: Path, method: str, /, **params: Any) -> Answer:
    """Call a verb on the folder. What was decided in a folder that nobody drives holds, and its settings count."""

    async def asking(folder: Folder) -> Answer:
        return Answer(await folder.call(method, **params), folder.is_held)

    try:
        return asyncio.run(_with(Folder(state, AtRest(state, lambda: _config(Path.cwd(), ()))), asking))
    except HolderLeft as left:
        raise StoreError(f"{left}: it may have done this or not; `fledge ps` and `fledge info` show it") from None


async def _with(folder: Folder, work: Callable[[Folder], Coroutine[Any, Any, T]]) -> T:
    async with folder:
        return await work(folder)


# ---- looking ---------------------------------------------------------------------------------------------------------


def ps(state: Path) -> Shown:
    """What goes on in the folder, and what waits for a person."""
    told = ask(state, "overview")
    return Shown(lines.overview(told.read(Overview)), told.value)


def tree(state: Path) -> Shown:
    """Every run, below the main conversation and below programs."""
    overview = ask(state, "overview").read(Overview)
    told = ask(state, "runs.tree", limit=MOST_RUNS)
    found = told.read(Forest)
    now = overview.now_at if overview.is_driven else None
    shown: list[str] = []
    for root in dict.fromkeys([MAIN, *(run.requester for run in found.runs)]):
        below = [run for run in found.runs if run.requester == root]
        shown += ([] if root == MAIN or not below else [root]) + lines.tree(below, now)
    if found.left_out:
        shown.append(f"and {found.left_out} more")
    if shown and overview.is_unfinished and not overview.is_driven:
        shown.append(lines.NOBODY_DRIVES)
    return Shown(shown or ["no runs"], told.value["runs"])


def info(state: Path, name: str) -> Shown:
    """One run in full."""
    told = ask(state, "runs.info", target=name)
    story = told.read(Story)
    rest = {name: value for name, value in told.value.items() if name not in ("run", "nowAt")}
    return Shown(lines.story(story, story.now_at), {**told.value["run"], **rest})


def log(state: Path, name: str, last: int, tools: bool) -> Shown:
    """The newest of a transcript."""
    key = ask(state, "sessions.find", target=name).value["sessionKey"]
    told = ask(state, "sessions.history", session=key, limit=min(last, MOST_RUNS), tools=tools)
    return Shown(lines.log(told.read(list[Message])), told.value)


def undelivered(state: Path) -> Shown:
    """Results and messages that found nobody."""
    told = ask(state, "undelivered.list")
    return Shown(lines.undelivered(told.read(list[GivenUp])), told.value)


def sessions(state: Path, limit: int) -> Shown:
    """Every session, the latest active first."""
    if limit < 1:
        raise BadInput("-n", "must be 1 or more", limit)
    told = ask(state, "sessions.list", limit=min(limit, MOST_RUNS))
    return Shown(lines.sessions(told.read(list[SessionRow])), told.value)


def agents(project: Path, model: str | None, settings: tuple[str, ...]) -> Shown:
    """The configured agents, and what each may spawn."""
    config = _config(project, settings)
    config = config if model is None else with_default_model(config, model)
    ids = ["main", *(one.id for one in config.agents.list if one.id != "main")]
    found = [{"id": one, "spawns": [other.id for other in spawnable(config, one)]} for one in ids]
    own = {one.id: one for other in ids for one in spawnable(config, other)}
    shown = [
        " · ".join(word for word in (one, own[one].model, own[one].description) if word) if one in own else one
        for one in ids
    ]
    return Shown(shown, found)


# ---- deciding --------------------------------------------------------------------------------------------------------


def steer(state: Path, name: str, message: str) -> Shown:
    """Redirect a run."""
    told = ask(state, "runs.steer", target=name, message=message)
    return Shown([f"steered: attempt {told.value['attempt']}{told.later}"], told.value)


def kill(state: Path, name: str) -> Shown:
    """End a run and everything below it; `all` ends every one of the main conversation."""
    told = ask(state, "runs.kill", target=name)
    killed, stopping = told.value["killed"], told.value["stopping"]
    return Shown([f"killed {len(killed)}" + (f", {len(stopping)} stopping" if stopping else "")], told.value)


def answer(state: Path, name: str, words: str, yes: bool) -> Shown:
    """Answer a question about a tool call, by the beginning of its id, or a plan."""
    told = ask(state, "answer", target=name, approve=yes, words=words)
    if tool := told.value["tool"]:
        may = "may be run, this once" if yes else "is not run; the model is told so"
        return Shown([f"{tool} {may}{told.later}"], told.value)
    return Shown([f"{'approved' if yes else 'rejected'}{told.later}"], told.value)


def take_up(state: Path, action: str, name: str) -> Shown:
    """Retry or dismiss an undelivered result, or a message by its key."""
    told = ask(state, f"undelivered.{action}", target=name)
    key = told.value["key"]
    return Shown([f"{key} is offered again{told.later}" if action == "retry" else f"{key} is dismissed"], told.value)


def event(state: Path, name: str, text: str) -> Shown:
    """Post a system event to a session."""
    key = ask(state, "sessions.find", target=name).value["sessionKey"]
    told = ask(state, "system.event", session=key, text=text)
    posted = told.value["posted"]
    words = f"posted to {key}{told.later}" if posted else f"the last event that waits for {key} says the same"
    return Shown([words], {"sessionKey": key, **told.value})


def heartbeat(state: Path, name: str, reason: str) -> Shown:
    """Ask for a heartbeat of a session."""
    key = ask(state, "sessions.find", target=name).value["sessionKey"]
    told = ask(state, "heartbeat.request", session=key, reason=reason)
    return Shown([f"a heartbeat of {told.value['sessionKey']} is asked for{told.later}"], told.value)


def take_in(state: Path, workspace: Path, is_named: bool) -> list[str]:
    """Take in the documents of a workspace that were left out, as they are now; answers what was done, in lines. A
    state folder that nobody named need not be there."""
    place, digests = versions_in(workspace)
    if not is_named and not (state / DATABASE).exists():
        return []
    if not ask(state, "documents.pending", workspace=place).value:
        return []
    taken = ask(state, "documents.accept", workspace=place, digests=digests).value
    return [f"taken in: {', '.join(taken)}"] if taken else []


# ---- doing: these drive the folder while they wait, if nobody else does ----------------------------------------------


class Task(Struct, frozen=True, kw_only=True):
    """What `fledge spawn` was asked."""

    task: str
    label: str = ""
    agent_id: str = "main"
    timeout: float = 0.0
    plan: bool = False
    runtime: str = "subagent"


def spawn(state: Path, model: str | None, settings: tuple[str, ...], asked: Task) -> Shown:
    """Start a run and wait for what comes of it, whoever holds the folder meanwhile."""
    # Asked again under the same key it is the same run.
    params: dict[str, object] = {
        "task": asked.task,
        "label": asked.label,
        "planMode": asked.plan,
        "runtime": asked.runtime,
        "idempotencyKey": RandomIds().unique(),
    }
    if asked.agent_id != "main":
        params["agent"] = asked.agent_id
    if asked.timeout:
        params["runTimeoutSeconds"] = asked.timeout
    run_id = ""

    async def spawning(folder: Folder) -> Shown:
        nonlocal run_id
        told = await folder.call("runs.spawn", once=False, program=PROGRAM, defaultModel=model or "", **params)
        run_id = told["runId"]
        while True:
            result = await folder.call("runs.result", run=run_id, timeoutMs=LOOK_MS)
            if result["status"] != "pending":
                return _came_of(result)
            plans = await folder.call("plans.list") if result["phase"] == "awaiting_approval" else ()
            for plan in plans:
                if plan["sessionKey"] == result["sessionKey"]:
                    words = [plan["text"], "", f"approve it with: fledge approve {short_id(plan['runId'])}"]
                    return Shown(words, plan, AWAITS_A_PERSON)

    def check(fl: Fledge) -> None:
        if run_id:  # another process began; whether this one can go on is known at once
            fl.check(asked.agent_id)

    try:
        return asyncio.run(_with(_driven(state, model, settings, check), spawning))
    except FledgeError as error:
        if not run_id:
            raise
        return _left_behind(state, run_id, str(error))


def _left_behind(state: Path, run_id: str, error: str) -> Shown:
    """The run of a process that has left, where this one cannot drive it: its answer if it has one, else how to go
    on."""
    result = ask(state, "runs.result", run=run_id, timeoutMs=0).value
    if result["status"] != "pending":
        return _came_of(result)
    short = short_id(run_id)
    words = f"run {short} is unfinished: the process at work on it has left, and it cannot go on here: {error}"
    how = f"`fledge run --continue --model NAME` goes on with it, then `fledge info {short}` shows what came of it"
    return Shown([words, how], result, FAILED)


def _came_of(result: dict[str, Any]) -> Shown:
    if result["status"] == "ok" and result["valueError"] is None:
        return Shown([result["text"]], result)
    status = "killed" if result["endedReason"] == "killed" else result["status"]
    return Shown([f"{status}: {result['error'] or result['text'] or 'no output'}"], result, FAILED)


def send(state: Path, model: str | None, settings: tuple[str, ...], name: str, message: str) -> Shown:
    """Say something to a conversation or a run, and wait for the answer, whoever holds the folder meanwhile."""
    key = RandomIds().unique()

    async def sending(folder: Folder) -> Shown:
        session = (await folder.call("sessions.find", target=name))["sessionKey"]
        given = {"message": message, "defaultModel": model or "", "idempotencyKey": key}
        run_id = (await folder.call("agent", once=False, session=session, **given))["runId"]
        while True:
            reply = await folder.call("reply", session=session, run=run_id, timeoutMs=LOOK_MS)
            if reply["status"] != "pending" or reply["questions"]:
                return _answered(reply)

    return asyncio.run(_with(_driven(state, model, settings), sending))


def _answered(reply: dict[str, Any]) -> Shown:
    status, words = reply["status"], reply["text"] or "(nothing to say)"
    if status != "ok":
        words = f"{status}: {reply['error'] or 'a person is asked'}"
    return Shown([words], reply, 0 if status == "ok" else AWAITS_A_PERSON if status == "pending" else FAILED)


def _driven(
    state: Path, model: str | None, settings: tuple[str, ...], check: Callable[[Fledge], None] = lambda fl: None
) -> Folder:
    """The folder; driven here if nobody else does and `check` has nothing against it. The settings are read once."""

    @cache
    def config() -> Config:
        found = _config(Path.cwd(), settings)
        confirm_workspace(found)
        return found

    def opened() -> Fledge:
        settled = settled_model(config(), os.environ, model)
        named = None if settled is None or settled.by == "settings" else settled.model
        fl = open_folder(state, model=named, config=config(), program=PROGRAM, address=HATCH)
        check(fl)
        return fl

    return Folder(state, Driving(opened), settings=settings)


def _config(folder: Path, settings: tuple[str, ...]) -> Config:
    """The settings that apply there; what is odd about them is told."""
    loaded = discover(folder, settings).loaded
    for warning in loaded.warnings:
        note(warning)
    return loaded.config
