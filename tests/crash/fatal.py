"""Calls that end their process whenever they are made: one of each kind, in a run and in a conversation.

    python -m tests.crash.fatal [NAME …]

Processes are started on one folder until one ends by itself. The fatal call must have ended three of them at most; then
its run, or the turn of its conversation, is given up with a reason, everybody beside it has done their work, and the
conversation answers again. Processes are forked from this one and killed with SIGKILL; time is virtual, so one takes
milliseconds. Prints one JSON line: how many processes each call has ended, and what was wrong.
"""

import json
import mmap
import os
import signal
import struct
import sys
import tempfile
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from fledge.core.run import Asking, Failed, Waiting
from fledge.core.transcript import Replied, Spoken, from_body
from fledge.models.base import AssistantMessage, Request, ToolMessage, UserMessage
from fledge.models.scripted import Answer, ScriptedReply, use
from fledge.orchestrator import control, spawn, steps
from fledge.orchestrator.commit import Commit
from fledge.runtime import context
from fledge.store.base import Store, Tx
from fledge.testing import START, InlineStore, SharedClock, run_virtual
from tests.crash.every_commit import in_a_process
from tests.crash.judgement import judge
from tests.crash.players import RUNTIME, TALKING, Mind, Story, perform
from tests.crash.stories import calls, child, runs, said, speak
from tests.empty import MEMORY
from tests.sim.people import BOB, MAIN, NAMES, OTHER, walk

T = TypeVar("T")

MOST_STARTS = 9
"""More than any call may take, its siblings' work included."""
SMALL = 700
"""A window, in tokens, that `LONG` words do not fit into."""
LONG = "so it went on, and on, and on. " * 80
BESIDE = ("left", "right")
AFTER = "and now?"


class Call(Struct, frozen=True, kw_only=True):
    """A kind of call that is fatal."""

    makes: Mind
    """What the doomed session's model says."""
    point: str = ""
    """Where the process dies: a pattern of points that actors pass."""
    commit: Callable[[Tx], bool] = lambda tx: False
    """Where it dies instead: in a commit that would make this true."""
    spawned: dict[str, object] = {}
    """What else its spawn asks for."""
    story: Callable[[Story], Story] = lambda story: story
    deaths: int = 3
    """How many processes it must have ended before it is given up."""
    mortal: int = MOST_STARTS
    """How many it may end, where it would be made again for another reason."""
    reason: str = "it crashed 3 times in the same step and was not tried again"


def host(*made: Answer) -> Mind:
    """Makes these calls when told to go, answers a person afterwards, and takes in the rest without a word."""

    def mind(request: Request) -> Answer:
        last = request.messages[-1]
        if last.text == "go":
            return calls(*made)
        return f"I am here. {last.text}" if last.text == AFTER else "NO_REPLY"

    return mind


def again_and_again(*made: Answer) -> Mind:
    """Makes the same calls whatever came of them, but answers once it hears that they were given up, or a person."""

    def mind(request: Request) -> Answer:
        last = request.messages[-1]
        given_up = isinstance(last, ToolMessage) and "crashed" in last.text
        spoken_to = isinstance(last, UserMessage) and (last.text == AFTER or "crashed" in last.text)
        return f"I am here. {last.text}" if given_up or spoken_to else calls(*made)

    return mind


def compacting(request: Request) -> Answer:
    """Says so much that the next request does not fit."""
    last = request.messages[-1]
    if last == UserMessage(context.COMPACT_PROMPT):
        return "notes"
    if last.text == AFTER or "crashed" in last.text:
        return f"I am here. {last.text[:40]}"
    replies = sum(isinstance(message, AssistantMessage) for message in request.messages)
    return ScriptedReply(LONG, (use("look"),)) if replies == 0 else "SUMMARY: it fits now"


def asking_first(story: Story) -> Story:
    return replace(story, asks=frozenset({"again", "once"}))


def is_in(phase: type[object], tx: Tx) -> bool:
    run = runs(tx).get("doomed")
    return run is not None and isinstance(run.phase, phase)


CALLS: dict[str, Call] = {
    "a model request": Call(makes=again_and_again(), point="model {doomed}: {first}"),
    "a read-only call": Call(makes=again_and_again(use("look")), point="tool look"),
    "a repeatable call": Call(makes=again_and_again(use("again")), point="tool again"),
    "a call that is not repeated, made anew each time": Call(makes=again_and_again(use("once")), point="tool once"),
    "one of two calls at once": Call(makes=again_and_again(use("exec"), use("again")), point="tool again"),
    "a call beside one whose result is in": Call(
        makes=again_and_again(use("missing"), use("again")), point="tool again"
    ),
    "a call that is not repeated, beside one whose result is in": Call(
        makes=again_and_again(use("missing"), use("once")), point="tool once"
    ),
    "a spawn": Call(makes=again_and_again(child("late", thread=True, mode="session")), point="spawn"),
    "a compaction": Call(
        makes=compacting,
        point="compact {doomed}: *",
        mortal=3,
        story=lambda story: replace(story, windows={"doomed": SMALL, "main": SMALL}),
    ),
    "an approved call": Call(makes=again_and_again(use("again")), point="tool again", story=asking_first),
    "an approved call that is not repeated, asked for anew each time": Call(
        makes=again_and_again(use("once")), point="tool once", story=asking_first
    ),
}
"""Fatal for runs and conversations alike."""
OF_RUNS: dict[str, Call] = {
    "the wait for a person": Call(
        makes=again_and_again(use("again")),
        commit=partial(is_in, Asking),
        story=lambda story: replace(asking_first(story), wishes=partial(people, approve=False)),
    ),
    "a yield": Call(
        makes=said(calls(child("below"), use("sessions_yield")), "SUMMARY: never said"), commit=partial(is_in, Waiting)
    ),
    "a foreign runtime that gives signs of life": Call(
        makes=said("never asked"), point="runtime", spawned={"runtime": RUNTIME}
    ),
    "a foreign runtime whose work is not repeated": Call(
        makes=said("never asked"),
        point="runtime",
        spawned={"runtime": RUNTIME},
        story=lambda story: replace(story, repeatable=False),
        deaths=1,
        reason="interrupted by a restart; outcome unknown: it may or may not have taken effect",
    ),
}
OF_AN_AGENT = Call(
    makes=host(use("sessions_send", sessionKey=BOB, message="hello")),
    point="model bob: *hello*",
    story=lambda story: replace(story, config=TALKING),
)
"""Main asks another agent, which dies of the message."""


# ---- the play --------------------------------------------------------------------------------------------------------


def worker(label: str) -> Mind:
    """Two calls that each take longer than the doomed one needs to die."""
    return said(calls(use("slow")), calls(use("slow")), f"SUMMARY: {label} is done")


def in_a_run(call: Call) -> Story:
    """Main spawns the doomed run and two beside it."""
    doomed = child("doomed", **call.spawned)
    below = {"below": said("SUMMARY: below"), "late": said("SUMMARY: late")}
    ends = {"doomed": "error"} | dict.fromkeys(BESIDE, "ok")
    if "sessions_yield" in str(call.makes(_FIRST)):
        ends["below"] = "ok"
    return call.story(
        Story(
            minds={"main": host(doomed, *map(child, BESIDE)), "doomed": call.makes}
            | {label: worker(label) for label in BESIDE}
            | below,
            begin=speak(),
            ends=ends,
            told=dict.fromkeys(ends, "main"),
            wishes=people,
        )
    )


def in_a_conversation(call: Call) -> Story:
    """Main itself is doomed; another conversation has two children at work."""
    return call.story(
        Story(
            minds={"main": call.makes, "other": host(*map(child, BESIDE)), "bob": said("never said")}
            | {label: worker(label) for label in BESIDE}
            | {"late": said("SUMMARY: late")},
            begin=begin_both,
            ends=dict.fromkeys(BESIDE, "ok"),
            told=dict.fromkeys(BESIDE, "other"),
            wishes=people,
        )
    )


_FIRST = Request(model="", system="", messages=(UserMessage("do doomed"),))


def begin_both(c: Commit) -> None:
    if c.tx.sessions.get(BOB) is None:
        spawn.open_conversation(c, BOB)
    for session in (MAIN, OTHER):
        control.send(c, session, "go", row_key=f"go:{session}")


def people(tx: Tx, at: float, approve: bool = True) -> list[Callable[[Commit], object]]:
    """Approve what is asked for; once nothing goes on any more, say something to main."""
    wishes: list[Callable[[Commit], object]] = [
        partial(steps.answer, approval_id=asked.id, allow=True, answered_by="a person")
        for asked in (tx.approvals.open() if approve else ())
    ]
    begun = tx.inbox.get("go:" + MAIN) is not None and tx.inbox.unread(MAIN) == [] and tx.turns.get(MAIN) is None
    ended = all(tx.runs.load(key).ended is not None for key in walk(tx))
    if begun and ended and list(walk(tx)) and tx.inbox.get(AFTER) is None:
        wishes.append(partial(control.send, key=MAIN, message=AFTER, row_key=AFTER))
    return wishes


class FatalCommit:
    """A store that dies in the middle of a commit that would make something true."""

    def __init__(self, store: Store, fatal: Callable[[Tx], bool]) -> None:
        self._store, self._fatal = store, fatal
        self.cluster = store.cluster

    async def transact(self, job: Callable[[Tx], T]) -> T:
        def mortal(tx: Tx) -> T:
            result = job(tx)
            if self._fatal(tx):
                die()
            return result

        return await self._store.transact(mortal)

    async def read(self, job: Callable[[Tx], T]) -> T:
        return await self._store.read(job)

    async def close(self) -> None:
        await self._store.close()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def play(call: Call, story: Story, point: str, folder: Path, memory: mmap.mmap, deaths: int) -> None:
    """One process's part."""

    def fate(passed: str) -> None:
        if deaths < call.mortal and fnmatchcase(passed, point):
            die()

    store = FatalCommit(InlineStore(folder), call.commit)
    run_virtual(perform(replace(story, fate=fate), store, SharedClock(memory), folder))


def kill_all(call: Call, story: Story, doomed: str) -> tuple[int, list[str]]:
    """Start processes until one ends by itself: how many died, and what is wrong with the end."""
    point = call.point.format(doomed=doomed, first="go" if doomed == "main" else "do doomed")
    with tempfile.TemporaryDirectory(dir=MEMORY) as name, mmap.mmap(-1, 8) as memory:
        folder = Path(name)
        memory[:8] = struct.pack("d", START)
        for deaths in range(MOST_STARTS):
            code = in_a_process(partial(play, call, story, point, folder, memory, deaths))
            if code == 0:
                break
            if code != -signal.SIGKILL:
                return deaths, [f"a process ended with {code}"]
        else:
            return MOST_STARTS, [f"after {MOST_STARTS} starts every process still dies"]
        wrong = [] if deaths == call.deaths else [f"{deaths} processes died instead of {call.deaths}"]
        store = InlineStore(folder)
        try:
            return deaths, wrong + store.run(lambda tx: faults(tx, call, story, doomed, folder))
        finally:
            store.close_now()


def faults(tx: Tx, call: Call, story: Story, doomed: str, folder: Path) -> list[str]:
    """What is wrong with the end: of the story, of the doomed one, of the folder."""
    wrong = judge(tx, story, folder, []).wrong
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(MAIN, limit=1000)]
    if doomed == "doomed":
        ended = runs(tx)["doomed"].ended
        if ended is None or ended.outcome != Failed(call.reason):
            wrong.append(f"the doomed run came out {ended}")
    else:
        session = next(key for key, name in NAMES.items() if name == doomed)
        told = [from_body(entry.body) for entry in tx.transcripts.entries(session, limit=1000)]
        if not any(isinstance(body, Spoken) and "crashed 3 times and was given up" in body.text for body in told):
            wrong.append(f"the conversation does not know that its turn was given up: {told}")
    answers = [body.text for body in bodies if isinstance(body, Replied)]
    if f"I am here. {AFTER}" not in answers:
        wrong.append(f"the conversation does not answer any more: {answers}")
    return wrong


PLAYS: dict[str, tuple[Call, Story, str]] = {
    **{f"{name}, in a run": (call, in_a_run(call), "doomed") for name, call in (CALLS | OF_RUNS).items()},
    **{f"{name}, in a conversation": (call, in_a_conversation(call), "main") for name, call in CALLS.items()},
    "a message to another agent": (OF_AN_AGENT, in_a_conversation(OF_AN_AGENT), "bob"),
}


def main(names: list[str]) -> int:
    """Play those that were asked for, or all."""
    deaths: dict[str, int] = {}
    wrong: dict[str, list[str]] = {}
    for name in names or PLAYS:
        deaths[name], found = kill_all(*PLAYS[name])
        if found:
            wrong[name] = found
    print(json.dumps({"deaths": deaths, "wrong": wrong}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
