"""What every runtime must do, our own loop, a program and a Python function alike; and what only foreign ones do.

Processes are real, time is virtual: it stands still while a process works, except where one hangs for a deadline.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from fledge.core.handover import Artifact, Handover
from fledge.core.run import Failed, Killed, Ok, Run, Terms, TimedOut
from fledge.core.transcript import Replied, Told, from_body
from fledge.models.base import Request, UserMessage
from fledge.models.scripted import ScriptedModel, ScriptedReply, use
from fledge.orchestrator import control, spawn
from fledge.orchestrator.engine import Changes, Engine
from fledge.orchestrator.spawn_params import NATIVE
from fledge.orchestrator.turns import Drive
from fledge.runtime.agent import AgentLoop
from fledge.runtime.base import Faltered, Runtime, Work
from fledge.runtime.callable import CallableRuntime
from fledge.runtime.command import CommandRuntime
from fledge.runtime.profile import Profile
from fledge.store.base import OutboxPost, Session, Spec, Tx
from fledge.store.entry_files import EntryFiles
from fledge.testing import START, InlineStore, SeededIds, VirtualClock, run_virtual, threads_ignored
from fledge.tools.base import tool
from fledge.tools.registry import ToolSet
from tests.statements import proves

T = TypeVar("T")
MAIN = "agent:main:main"
KINDS = (NATIVE, "command", "python")
FOREIGN = ("command", "python")
PATIENCE_S = 3600.0


# ---- the same play for every runtime: the task says what happens -----------------------------------------------------

SCRIPT = """
prompt=$(cat)
echo begun >> begun
case "$prompt" in
  *redirected*) echo "redirected it is" ;;
  *again*) echo "heard: again" ;;
  answer*) echo "looking" >&2; echo "the answer" ;;
  fail*) echo "half"; echo "no such thing" >&2; exit 3 ;;
  hang*) echo $$ > pid; while :; do sleep 0.05; done ;;
  flaky*) if [ -e tried ]; then echo "second time lucky"; else touch tried; exit 1; fi ;;
  huge*) head -c 300000 /dev/zero | tr '\\0' x ;;
  odd*) printf 'a\\377\\033[31mb' ;;
esac
"""


async def played(work: Work) -> str:
    with (work.workspace / "begun").open("a") as file:
        file.write("begun\n")
    match work.prompt:
        case prompt if "redirected" in prompt:
            return "redirected it is"
        case prompt if "again" in prompt:
            return "heard: again"
        case "answer":
            work.say("looking")
            return "the answer"
        case "hang":
            await asyncio.Event().wait()
        case "flaky" if (work.workspace / "tried").exists():
            return "second time lucky"
        case "flaky":
            (work.workspace / "tried").touch()
            raise Faltered("exit code 1")
        case "huge":
            return "x" * 300_000
        case "odd":
            return "a\ufffd\x1b[31mb"
    raise Faltered("no such thing")


def thought(request: Request) -> ScriptedReply:
    heard = [message.text for message in request.messages if isinstance(message, UserMessage)]
    if request.system == "main" or any("completed" in text for text in heard[-1:]):
        return ScriptedReply("noted")
    match heard[-1]:
        case text if "redirected" in text:
            return ScriptedReply("redirected it is")
        case text if "again" in text:
            return ScriptedReply("heard: again")
        case "answer":
            return ScriptedReply("the answer")
        case "hang":
            return ScriptedReply(calls=(use("wait"),))
        case "huge":
            return ScriptedReply("x" * 300_000)
        case "odd":
            return ScriptedReply("a\ufffd\x1b[31mb")
    raise AssertionError(heard)


@tool(repeatable=True)
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return ""


class House:
    """One folder, engine after engine; every runtime works in it."""

    def __init__(self, folder: Path, kind: str, repeatable: bool = False, retries: int = 0) -> None:
        self.folder, self.kind = folder, kind
        command = ["/bin/sh", "-c", SCRIPT]
        self.runtimes: dict[str, Runtime] = {
            "command": CommandRuntime(command=command, repeatable=repeatable, retries=retries),
            "python": CallableRuntime(function=played, repeatable=repeatable, retries=retries),
        }
        self.now = START
        self.acts = 0
        self.handed_over: Handover | None = None

    def runtime(self, name: str) -> Runtime | None:
        return self.runtimes.get(name)

    def check_needs(self, spec: Spec) -> None:
        """Nothing is missing: every runtime here is in the settings."""

    def work_place(self, session: Session) -> tuple[Path, Mapping[str, str]]:
        return self.folder, {"PATH": os.environ["PATH"]}

    def handover(self, session: Session, run: Run | None) -> Callable[[bool], Handover] | None:
        return None if self.handed_over is None else lambda thorough: self.handed_over or Handover()

    async def profile(self, engine: Engine, drive: Drive) -> Profile:
        return Profile(
            model=ScriptedModel(thought),
            model_name="scripted-1",
            system="main" if drive.session == MAIN else "child",
            tools=ToolSet([wait]),
            workspace=self.folder,
            images=EntryFiles(self.folder / "state"),
        )

    async def remove(self, leaves: tuple[str, ...]) -> None:
        raise AssertionError(leaves)

    async def call(self, post: OutboxPost) -> None:
        raise AssertionError(post)

    @asynccontextmanager
    async def opened(self, crash: bool = False) -> AsyncIterator["Room"]:
        self.acts += 1
        store = InlineStore(self.folder / "state")
        agent, clock = AgentLoop(self), VirtualClock(self.now)
        engine = Engine(store, agent, clock=clock, ids=SeededIds(self.acts))
        await engine.__aenter__()
        await engine.commit(lambda c: spawn.open_conversation(c, MAIN))
        room = Room(engine, self.kind, agent, self)
        try:
            yield room
        finally:
            self.now = clock.now()
            if crash:
                store.close_now()
            else:
                await engine.__aexit__()
                store.close_now()


class Room:
    def __init__(self, engine: Engine, kind: str, agent: AgentLoop, house: House) -> None:
        self.engine, self.kind, self.agent, self.house = engine, kind, agent, house
        self._changes = Changes(engine)

    async def spawn(self, task: str, **terms: Any) -> str:
        request = spawn.SpawnRequest(
            spec=Spec(task=task, label=task, runtime=self.kind),
            terms=Terms(parent=MAIN, wakeable=self.kind == NATIVE, **terms),
        )
        return (await self.engine.commit(lambda c: spawn.spawn(c, request))).key

    async def until(self, view: Callable[[Tx], T | None]) -> T:
        """What a view shows, as soon as it shows something."""
        async with asyncio.timeout(PATIENCE_S):
            found = await self._changes.until(view, None)
        assert found is not None
        return found

    async def hangs(self, key: str, times: int = 1) -> None:
        """Wait until the work was begun so many times and hangs."""
        if self.kind == "command":
            await asyncio.to_thread(wait_for, lambda: begun(self.house) == times and _pid(self.house) is not None)
        while not await self.engine.store.read(
            lambda tx: tx.drivers.get(key) is not None and len(tx.transcripts.entries(key)) > 1
        ):
            await self.engine.clock.wait_until(self.engine.clock.now() + 0.1, asyncio.Event())

    async def ended(self, key: str) -> Run:
        return await self.until(lambda tx: run if (run := tx.runs.load(key)).phase.name == "completed" else None)

    async def result(self, key: str) -> str:
        run = await self.ended(key)
        assert run.ended is not None
        text = run.ended.result
        return "" if text is None else await self.engine.store.read(lambda tx: tx.texts.get(text))

    async def told(self) -> list[str]:
        entries = await self.engine.store.read(lambda tx: tx.transcripts.entries(MAIN))
        return [body.text for entry in entries if isinstance(body := from_body(entry.body), Told)]


def play(body: Coroutine[Any, Any, T]) -> T:
    return run_virtual(body)


def wait_for(holds: Callable[[], bool]) -> None:
    """Look, in a thread, until a real process has done something."""
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.fixture(params=KINDS)
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    return House(tmp_path, request.param)


@pytest.fixture(params=FOREIGN)
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    return House(tmp_path, request.param)


def begun(house: House) -> int:
    path = house.folder / "begun"
    return path.read_text().count("begun") if path.exists() else 0


# ---- every runtime ---------------------------------------------------------------------------------------------------


@proves("3.params.12")
def test_an_answer_arrives_in_the_requesters_transcript_once(house: House) -> None:
    async def scene() -> None:
        async with house.opened() as room:
            key = await room.spawn("answer")
            assert await room.result(key) == "the answer"
            run = await room.ended(key)
            assert run.ended is not None
            assert run.ended.outcome == Ok()
            assert sum("the answer" in text for text in await room.told()) == 1

    play(scene())


def test_a_run_that_outlives_its_time_is_stopped_and_nothing_of_it_is_left(house: House) -> None:
    async def scene() -> None:
        async with house.opened() as room:
            key = await room.spawn("hang", timeout_s=10.0)
            await room.hangs(key)
            with threads_ignored():
                run = await room.ended(key)
            assert run.ended is not None
            assert run.ended.outcome == TimedOut()

    play(scene())
    assert not _lives(house)


def test_a_killed_run_is_stopped_silent_and_nothing_of_it_is_left(house: House) -> None:
    async def scene() -> None:
        async with house.opened() as room:
            key = await room.spawn("hang")
            await room.hangs(key)
            await room.engine.commit(lambda c: control.kill(c, key))
            run = await room.ended(key)
            assert run.ended is not None
            assert run.ended.outcome == Killed(named=True)
            assert await room.told() == []

    play(scene())
    assert not _lives(house)


def test_a_steered_run_goes_on_with_the_message(house: House) -> None:
    async def scene() -> None:
        async with house.opened() as room:
            key = await room.spawn("hang")
            await room.hangs(key)
            await room.engine.commit(lambda c: control.steer(c, key, "you are redirected"))
            assert await room.result(key) == "redirected it is"
            assert (await room.ended(key)).attempt == 2

    play(scene())
    assert not _lives(house)


def test_a_message_after_the_end_is_answered_without_an_announce(house: House) -> None:
    async def scene() -> None:
        async with house.opened() as room:
            key = await room.spawn("answer")
            await room.ended(key)
            told = await room.told()
            await room.engine.commit(lambda c: control.send(c, key, "and again?"))

            def answer(tx: Tx) -> str | None:
                bodies = [from_body(entry.body) for entry in tx.transcripts.entries(key)]
                return next((b.text for b in bodies if isinstance(b, Replied) and "heard" in b.text), None)

            assert await room.until(answer) == "heard: again"
            assert await room.told() == told

    play(scene())


@pytest.mark.parametrize("task", ["huge", "odd"])
def test_whatever_it_says_is_frozen_whole_or_bounded(house: House, task: str) -> None:
    async def scene() -> str:
        async with house.opened() as room:
            return await room.result(await room.spawn(task))

    text = play(scene())
    if task == "huge":
        assert len(text.encode()) <= 100 * 1024
        assert "truncated" in text
    else:
        assert text.startswith("a\ufffd")


def test_a_crash_in_the_middle_ends_readably_or_goes_on(house: House) -> None:
    async def first() -> str:
        async with house.opened(crash=True) as room:
            key = await room.spawn("hang", timeout_s=20.0)
            await room.hangs(key)
            return key

    async def second(key: str) -> None:
        async with house.opened() as room:
            run = await room.ended(key)
            assert run.ended is not None
            if house.kind == NATIVE:
                assert run.ended.outcome == TimedOut()
            else:
                assert isinstance(run.ended.outcome, Failed)
                assert "interrupted by a restart" in run.ended.outcome.error

    key = play(first())
    _end(house)
    play(second(key))
    assert begun(house) <= 1


# ---- foreign ones ----------------------------------------------------------------------------------------------------


def test_files_of_foreign_work_are_handed_over_too(foreign: House) -> None:
    foreign.handed_over = Handover("/w/artifacts", (Artifact("a.txt", 3, "ab12"),))

    async def body() -> None:
        async with foreign.opened() as room:
            await room.ended(await room.spawn("answer"))
            (told,) = await room.told()
            assert "Artifacts: a.txt (3 bytes, sha256 ab12) in /w/artifacts" in told

    play(body())


@proves("2.signals.7", "A foreign runtime's `error` and aborted `end` are provisional")
def test_an_error_of_a_foreign_runtime_waits_out_its_grace_and_is_told(foreign: House) -> None:
    async def scene() -> None:
        async with foreign.opened() as room:
            key = await room.spawn("fail")
            run = await room.ended(key)
            events = await room.engine.store.read(lambda tx: tx.events.of(key))
            names = [type(event).__name__ for event in events]
            assert names.index("AttemptFaltered") < names.index("CameDue")
            assert run.ended is not None
            assert isinstance(run.ended.outcome, Failed)
            assert "no such thing" in run.ended.outcome.error
            assert len(await room.told()) == 1

    play(scene())


@proves("2.signals.7")
@pytest.mark.parametrize("kind", FOREIGN)
def test_a_retry_within_the_grace_is_the_same_attempt(kind: str, tmp_path: Path) -> None:
    house = House(tmp_path, kind, retries=1)

    async def scene() -> None:
        async with house.opened() as room:
            key = await room.spawn("flaky")
            assert await room.result(key) == "second time lucky"
            assert (await room.ended(key)).attempt == 1

    play(scene())


@pytest.mark.parametrize("kind", FOREIGN)
def test_work_that_may_be_repeated_is_done_again_after_a_crash(kind: str, tmp_path: Path) -> None:
    house = House(tmp_path, kind, repeatable=True)

    async def first() -> str:
        async with house.opened(crash=True) as room:
            key = await room.spawn("hang", timeout_s=20.0)
            await room.hangs(key)
            return key

    async def second(key: str) -> None:
        async with house.opened() as room:
            await room.hangs(key, times=2)
            with threads_ignored():
                await room.ended(key)

    key = play(first())
    _end(house)
    play(second(key))
    assert begun(house) == 2
    assert not _lives(house)


def test_progress_of_a_foreign_runtime_is_heard_by_whoever_watches(foreign: House) -> None:
    async def scene() -> None:
        async with foreign.opened() as room:
            watching = room.agent.feed.listen()
            key = await room.spawn("answer")
            await room.ended(key)
            said = [
                event.text for event in watching.waiting() if event.session == key and event.kind == "assistant:text"
            ]
            assert said == ["looking"]

    play(scene())


def test_a_runtime_that_is_not_configured_any_more_is_an_error_that_says_so(foreign: House) -> None:
    async def scene() -> None:
        foreign.runtimes = {}
        async with foreign.opened() as room:
            run = await room.ended(await room.spawn("answer"))
            assert run.ended is not None
            assert isinstance(run.ended.outcome, Failed)
            assert "not configured any more" in run.ended.outcome.error

    play(scene())


@proves("2.kill.14")
def test_a_complete_that_comes_after_the_timeout_is_told_as_late(tmp_path: Path) -> None:
    house = House(tmp_path, "python")

    async def stubborn(work: Work) -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await room_read.wait()
        return "better late"

    house.runtimes["python"] = CallableRuntime(function=stubborn)
    room_read = asyncio.Event()

    async def scene() -> None:
        async with house.opened() as room:
            key = await room.spawn("stubborn", timeout_s=5.0)
            await room.ended(key)
            room_read.set()
            await room.until(
                lambda tx: True if any("better late" in e.body for e in tx.transcripts.entries(MAIN)) else None
            )
            run = await room.ended(key)
            assert run.ended is not None
            assert run.ended.outcome == TimedOut()

    play(scene())


def test_a_function_that_answers_no_text_is_an_error(tmp_path: Path) -> None:
    house = House(tmp_path, "python")

    async def number(work: Work) -> Any:
        return 42

    house.runtimes["python"] = CallableRuntime(function=number)

    async def scene() -> None:
        async with house.opened() as room:
            run = await room.ended(await room.spawn("number"))
            assert run.ended is not None
            assert isinstance(run.ended.outcome, Failed)
            assert "must answer text" in run.ended.outcome.error

    play(scene())


@pytest.mark.parametrize(
    ("command", "says"),
    [(["/no/such/program"], "could not be started"), (["echo", "{task}"], "the task itself")],
)
def test_a_task_is_an_argument_where_the_command_says_so(tmp_path: Path, command: list[str], says: str) -> None:
    house = House(tmp_path, "command")
    house.runtimes["command"] = CommandRuntime(command=command)

    async def scene() -> str:
        async with house.opened() as room:
            run = await room.ended(key := await room.spawn("the task itself; $(rm -rf /)"))
            assert run.ended is not None
            return str(run.ended.outcome.error or await room.result(key))

    assert says in play(scene())


def _pid(house: House) -> int | None:
    path = house.folder / "pid"
    return int(path.read_text()) if path.exists() and path.read_text().strip() else None


def _lives(house: House) -> bool:
    pid = _pid(house)
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _end(house: House) -> None:
    """What a crashed program left running is ended by the test that started it."""
    pid = _pid(house)
    if pid is not None and _lives(house):
        os.killpg(pid, 9)
    (house.folder / "pid").unlink(missing_ok=True)
