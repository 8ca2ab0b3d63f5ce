"""`fledge spawn` and `fledge send`: start a run, or send a message, and wait for the answer, also if the holder of the
folder changes.

They drive the folder themselves while they wait, if no other process does.
"""

import asyncio
import os
from collections.abc import Callable
from functools import cache
from typing import Final

from fledge.api import spawn_options as spawning_api
from fledge.api.fledge import Fledge
from fledge.cli.ending import AWAITS_A_PERSON, FAILED
from fledge.cli.printing import CommandOutput
from fledge.cli.settings import confirm_workspace, load_settings
from fledge.cli.verbs import ask
from fledge.cli.where import Where
from fledge.client.driving import Driving
from fledge.client.folder import Client
from fledge.client.opening import open as open_folder
from fledge.commands.wire import WireObject
from fledge.config import Config, SingleSettings
from fledge.core.exchange import AWAITS_ANSWER
from fledge.core.keys import short_id
from fledge.core.params import as_written
from fledge.errors import FledgeError
from fledge.ids import RandomIds
from fledge.runtime.model_choice import settled_model
from fledge.store.ways import CONTROL_SOCKET

PROGRAM = "cli"
"""The program that is the requester of the runs of `fledge spawn`."""
LOOK_MS = 2000
OPTIONS: Final = {
    "task": "task",
    "--label": "label",
    "--agent": "agentId",
    "--timeout": "runTimeoutSeconds",
    "--plan": "planMode",
    "--runtime": "runtime",
    "idempotencyKey": "idempotencyKey",
}
"""The options of `fledge spawn`, each with the name of its parameter of a spawn."""
WRITTEN: Final = {name: option for option, name in OPTIONS.items()} | {"agent": "--agent"}


def spawn(
    where: Where,
    model: str | None,
    settings: SingleSettings,
    task: str,
    label: str,
    agent: str,
    timeout: float,
    plan: bool,
    runtime: str,
) -> CommandOutput:
    """Start a run and wait for its result or its plan, also if the holder of the folder changes."""
    asked = {
        "task": task,
        "--label": label,
        "--agent": None if agent == "main" else agent,
        "--timeout": timeout or None,
        "--plan": plan,
        "--runtime": runtime,
        # A request that is repeated with the same key gives the same run.
        "idempotencyKey": RandomIds().unique(),
    }
    params = spawning_api.read(asked, OPTIONS)
    run_id = ""

    async def spawning() -> CommandOutput:
        nonlocal run_id
        async with _driven(where, model, settings, check) as client:
            told = await client.call(
                "runs.spawn",
                program=PROGRAM,
                defaultModel=model or "",
                folder=where.project,
                **spawning_api.on_wire(params),
            )
            run_id = told["runId"]
            while True:
                result = await client.call("runs.result", run=run_id, timeoutMs=LOOK_MS)
                if result["status"] != "pending":
                    return _came_of(result)
                plans = await client.call("plans.list") if result["phase"] == "awaiting_approval" else ()
                for made in plans:
                    if made["sessionKey"] == result["sessionKey"]:
                        words = [made["text"], "", f"approve it with: fledge approve {short_id(made['runId'])}"]
                        return CommandOutput(words, made, AWAITS_A_PERSON)

    def check(fl: Fledge) -> None:
        if run_id:  # another process began the run: refuse at once if this one cannot go on with it
            fl.check(agent)
            return
        spawning_api.check(params, fl.config, fl.profiles, fl.program, model or "")

    try:
        return asyncio.run(spawning())
    except FledgeError as error:
        if run_id:
            return _left_behind(where, run_id, str(error))
        raise as_written(error, WRITTEN) from None


def _left_behind(where: Where, run_id: str, error: str) -> CommandOutput:
    """The output for a run whose process has left, and which this one cannot drive: its result if it has one, else how
    to go on."""
    short = short_id(run_id)
    if where.gateway is not None:
        return CommandOutput([f"run {short} goes on there, `fledge info {short}` shows it: {error}"], None, FAILED)
    result = ask(where, "runs.result", run=run_id, timeoutMs=0).value
    if result["status"] != "pending":
        return _came_of(result)
    words = f"run {short} is unfinished: the process at work on it has left, and it cannot go on here: {error}"
    how = f"`fledge run --continue --model NAME` goes on with it, then `fledge info {short}` shows what came of it"
    return CommandOutput([words, how], result, FAILED)


def _came_of(result: WireObject) -> CommandOutput:
    if result["status"] == "ok" and result["valueError"] is None:
        return CommandOutput([result["text"]], result)
    status = "killed" if result["endedReason"] == "killed" else result["status"]
    return CommandOutput([f"{status}: {result['error'] or result['text'] or 'no output'}"], result, FAILED)


def send(where: Where, model: str | None, settings: SingleSettings, name: str | None, message: str) -> CommandOutput:
    """Send a message to a run, or to a conversation (None: that of this folder), and wait for the answer, also if the
    holder of the folder changes."""

    async def sending() -> CommandOutput:
        async with _driven(where, model, settings, check) as client:
            if name is None:
                found = await where.begin(client)
            else:
                shown = await client.call("overview", session=where.session)
                found = await client.call("sessions.find", target=name, requester=shown["sessionKey"])
            session = found["sessionKey"]
            accepted = await client.call("agent", session=session, message=message, defaultModel=model or "")
            while True:
                reply = await client.call("reply", session=session, run=accepted["runId"], timeoutMs=LOOK_MS)
                if reply["status"] != "pending" or reply["questions"] or reply["delivery"] == AWAITS_ANSWER:
                    return _answered(reply)

    def check(fl: Fledge) -> None:
        if model is not None and name in (None, "main"):  # it is for main; only the folder knows the agent of a run
            fl.check()

    return asyncio.run(sending())


def _answered(reply: WireObject) -> CommandOutput:
    status = reply["status"]
    if status == "ok":
        return CommandOutput([reply["text"] or "(nothing to say)"], reply)
    asks = "a person is asked" if reply["questions"] else reply["delivery"]
    words = f"{status}: {reply['error'] or asks}"
    return CommandOutput([words], reply, AWAITS_A_PERSON if status == "pending" else FAILED)


def _driven(where: Where, model: str | None, settings: SingleSettings, check: Callable[[Fledge], None]) -> Client:
    """A client that drives the folder in this process if no other process does and `check` raises nothing. The settings
    are read once."""

    @cache
    def config() -> Config:
        found = load_settings(settings)
        confirm_workspace(found)
        return found

    def opened() -> Fledge:
        settled = settled_model(config(), os.environ, model)
        fl = open_folder(
            where.state,
            model=None if settled is None else settled.given,
            config=config(),
            program=PROGRAM,
            address=CONTROL_SOCKET,
            store=where.store or None,
        )
        check(fl)
        return fl

    return where.client(Driving(opened, on_server=bool(where.store)), settings)
