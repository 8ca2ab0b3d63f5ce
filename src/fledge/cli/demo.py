"""The demo: a main agent and three subagents at work in this folder, killed with -9 half-way and started again.

A scripted model plays the model's part (`demo_script`); everything else is real: store, tools, steer, plan approval,
processes, kill and recovery. The play runs in a process of its own (`python -m fledge.cli.demo …`), so that it can
really be killed. This file is also an example of the Python API.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from msgspec.structs import replace

import fledge
from fledge.api.views import timeline
from fledge.cli.activity import card_of
from fledge.cli.demo_script import PROMPT, QUESTIONS, TIDY, script
from fledge.cli.live import LiveLines
from fledge.cli.printing import say
from fledge.cli.term.figures import sign_of
from fledge.cli.term.plain import item_lines
from fledge.cli.term.shown import EndedItem
from fledge.commands import lines
from fledge.commands.params import One
from fledge.commands.queries import subagents_info
from fledge.commands.table import Moment
from fledge.core.keys import main_key
from fledge.core.transcript import Told, from_body
from fledge.errors import BadInput
from fledge.models.scripted import ScriptedModel
from fledge.store.base import Tx
from fledge.store.files import DATABASE
from fledge.store.sqlite import SqliteStore

MAIN = main_key()
LOOK_S = 0.1
STEER_AFTER_S = 1.0
STEER = "Only the documents, please: *.md"


# ---- the play: in a process that can be killed -----------------------------------------------------------------------


async def play(state: str, half_way: int) -> None:
    """Go on from the stored state, and return when everything has settled. Writes to the descriptor `half_way` when the
    process is to be killed.

    Without a descriptor (0) this is the second run of the play, in which the plan is approved.
    """
    is_terminal = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    live, is_second = LiveLines(sys.stdout, redraws=is_terminal), not half_way
    async with fledge.open(state, model=ScriptedModel(script), config={}, workspace=Path.cwd(), program="demo") as fl:
        chat = fl.session("main")
        earlier = await chat.history()
        told = [message.seq for message in earlier if message.role == "assistant"]
        if not earlier:
            live.say(f"you    {PROMPT}")
            await chat.post(PROMPT)
        waiting = asyncio.Event()
        ended = {run.run_id for run in await fl.runs(requester=MAIN) if run.ended_at is not None}
        while not await chat.settled(timeout=0):
            live.show(await _tree(fl))
            await _tell_answers(chat, live, told)
            await _tell_ends(fl, live, ended)
            await _direct(fl, chat, live, is_second)
            if half_way and await fl.engine.store.read(_is_half_way):
                os.write(half_way, b"now")
                half_way = 0
            await fl.engine.clock.wait_until(fl.engine.clock.now() + LOOK_S, waiting)
        live.show(await _tree(fl))
        await _tell_ends(fl, live, ended)
        await _tell_answers(chat, live, told)


async def _tree(fl: fledge.Fledge) -> list[str]:
    runs = await fl.tree("main")
    return ["", *(f"  {line}" for line in ["main", *lines.tree(runs, fl.engine.clock.now())])]


async def _tell_answers(chat: fledge.Conversation, live: LiveLines, told: list[int]) -> None:
    """Print the answers of the main agent, each once."""
    for message in await chat.history():
        if message.role == "assistant" and message.seq not in told and message.text:
            told.append(message.seq)
            live.say(f"main   {message.text}")


async def _tell_ends(fl: fledge.Fledge, live: LiveLines, ended: set[str]) -> None:
    """Print the subagents that have ended, each once, as the chat shows them."""
    for run in await fl.runs(requester=MAIN):
        if run.ended_at is not None and run.run_id not in ended:
            ended.add(run.run_id)
            card = await _card(fl, run.session_key)
            live.say(f"{sign_of(card.status)[0]} {item_lines(card)}")


async def _card(fl: fledge.Fledge, key: str) -> EndedItem:
    """The card of a subagent that has ended, with only the last line of its result: the summary."""
    now = fl.engine.clock.now()
    card = card_of(await fl.engine.store.read(lambda tx: subagents_info(Moment(tx, now, True), One(target=key))))
    return replace(card, text="".join(card.text.splitlines()[-1:]))


async def _direct(fl: fledge.Fledge, chat: fledge.Conversation, live: LiveLines, approves: bool) -> None:
    """The person's part: steer one subagent, approve another's plan. Steps that were done before a crash are not
    repeated."""
    now = fl.engine.clock.now()
    for run in await fl.runs(requester=MAIN):
        at_work = run.phase == "running" and run.started_at is not None and now - run.started_at > STEER_AFTER_S
        if run.label == QUESTIONS and run.attempt == 1 and at_work:
            live.say(f'you    steer "{run.label}": {STEER}')
            await (await fl.run(run.run_id)).steer(STEER)
        waits = run.label == TIDY and run.phase == "awaiting_approval"
        if (
            approves
            and waits
            and any(
                said.role == "assistant" and "waits for your approval" in said.text for said in await chat.history()
            )
        ):
            live.say(f'you    approve the plan of "{run.label}"')
            await fl.approve_plan(run.session_key)


def _is_half_way(tx: Tx) -> bool:
    """True if one result is in the conversation, and the steered subagent is at work again."""
    runs = [tx.runs.load(key) for key in tx.runs.children(MAIN)]
    at_work = any(run.attempt == 2 and run.phase.name == "running" for run in runs)
    return at_work and bool(_told(tx))


# ---- the show: what the person sees ----------------------------------------------------------------------------------


def show(state: str | None = None) -> int:
    """Run the play, kill it, run it again, and report the outcome; 0 if every result arrived exactly once, else 1."""
    if state is not None:
        if (Path(state) / DATABASE).exists():
            raise BadInput("--state", "must be a new folder: the demo tells a story from its beginning", state)
        return _show(Path(state), kept=True)
    with tempfile.TemporaryDirectory(prefix="fledge-demo-") as folder:
        return _show(Path(folder), kept=False)


def _show(state: Path, kept: bool) -> int:
    say("A scripted model plays the model's part. Everything else is real: the store, the tools, which work on this")
    say("folder and only read, the steering, the approval, the processes, and the kill -9.\n")
    asyncio.run(SqliteStore.open(state).close())  # reports problems of the folder before the play starts
    pid = _run(state, kill=True)
    say(f"\n*** kill -9 {pid} ***   nothing was saved, closed or told")
    say("*** started again ***     the same program, the same folder: it goes on where it stood\n")
    _run(state, kill=False)
    return asyncio.run(_report(state, kept))


def _run(state: Path, kill: bool) -> int:
    sys.stdout.flush()  # so that the output of the play follows it, in a pipe too
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-m", "fledge.cli.demo", str(state), str(writing if kill else 0)]
    with subprocess.Popen(command, pass_fds=[writing]) as process:
        os.close(writing)
        if os.read(reading, 8):
            os.kill(process.pid, signal.SIGKILL)
        os.close(reading)
    if not kill and process.returncode:
        raise SystemExit(f"the play ended with {process.returncode}")
    return process.pid


async def _report(state: Path, kept: bool) -> int:
    store = SqliteStore.open(state)
    try:
        shown, once = await store.read(_story)
    finally:
        await store.close()
    say("\n".join(shown))
    where = f" --state {state}" if kept else ""

    hidden = shutil.which("fledge") is None and Path(sys.argv[0]).name == "fledge"
    name = sys.argv[0] if hidden else "fledge"
    say("\nNext, with a model of your own (set OPENAI_API_KEY or ANTHROPIC_API_KEY, or OPENAI_BASE_URL):")
    say(f'  {name} run --model openai/gpt-5 "What is in this folder? Use subagents."')
    say(f"  {name} tree{where}    {name} info LABEL{where}    {name} log LABEL{where}    {name} doctor")
    return 0 if once else 1


def _story(tx: Tx) -> tuple[list[str], bool]:
    runs = {tx.runs.spec(key).label: key for key in tx.runs.children(MAIN)}
    shown = ["", f'What happened to "{QUESTIONS}", which was steered and then killed half-way:']
    shown += [f"  {line}" for line in lines.timeline(timeline(tx.events.of(runs[QUESTIONS])))]
    told = Counter(_told(tx))
    once = set(told) == set(runs.values()) and all(count == 1 for count in told.values())
    verdict = "each exactly once" if once else f"not each once: {dict(told)}"
    shown += ["", f"{len(runs)} subagents, {sum(told.values())} answers in the conversation: {verdict}."]
    return shown, once


def _told(tx: Tx) -> list[str]:
    """The ids of the runs whose outcome is in the conversation, each as often as its outcome is there."""
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(MAIN)]
    rows = [item for body in bodies if isinstance(body, Told) for item in body.completions]
    return [item.run or "" for item in rows if not item.row.endswith((":plan", ":expired", ":late"))]


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], int(sys.argv[2])))
