"""Commands beside a process that holds the folder, and leaves or is killed at any moment: the answer is printed, or how
to read it; what was asked is done once; nobody sees a traceback."""

import asyncio
import contextlib
import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

import fledge
from fledge.commands.control_socket import control_socket
from fledge.commands.gateway_state import GatewayState
from fledge.commands.looking import run_meant
from fledge.commands.talk import talk
from fledge.core.keys import main_key, short_id
from fledge.core.transcript import Replied, Spoken, from_body
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, ScriptedModel, echo, last_text, use
from fledge.store.base import Tx
from fledge.store.ways import CONTROL_SOCKET, reached
from tests import rows
from tests.cli import chat_server, command
from tests.cli.command import ageless
from tests.cli.holding import ECHO, PATIENCE_S, Body, Holder, do, never, stays
from tests.cli.model_server import MODEL, serving, until, workspace
from tests.cli.model_server import Model as ModelServer
from tests.statements import proves

Moment = Literal["before", "read", "carried out", "half answered"]
LEFT = "the process that held the folder has left; this one goes on with it"
MOMENTS: tuple[Moment, ...] = ("before", "read", "carried out", "half answered")


def said(tx: Tx) -> list[str]:
    """What was said in all conversations."""
    bodies = [from_body(entry.body) for root in tx.sessions.roots() for entry in tx.transcripts.entries(root)]
    return [body.text for body in bodies if isinstance(body, Spoken | Replied)]


def tasks(tx: Tx) -> list[str]:
    return [tx.runs.spec(key).task for root in tx.sessions.roots() for key in tx.runs.children(root)]


# ---- killed: the holder ends without another word --------------------------------------------------------------------


class Fate:
    """At which moment of which request a holder is gone: the one with this number, or the first of a method."""

    def __init__(self, request: int | str, moment: Moment) -> None:
        self._method = request if isinstance(request, str) else ""
        self.request, self.moment = request if isinstance(request, int) else 0, moment
        self.count = 0
        self.over = asyncio.Event()
        if (request, moment) == (1, "before"):
            self.over.set()

    def counted(self, method: str) -> int:
        """The number of a request that is read."""
        self.count += 1
        if method == self._method and not self.request:
            self.request = self.count
        return self.count


class Doomed:
    """A connection of a holder, by which its fate comes upon it."""

    def __init__(self, fate: Fate, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._fate, self._reader, self._writer = fate, reader, writer
        self._numbers: dict[object, int] = {}

    async def receive(self) -> bytes | None:
        fate, raw = self._fate, await self._reader.readline()
        if raw:
            asked = json.loads(raw)
            self._numbers[asked["id"]] = number = fate.counted(asked["method"])
            if (number, fate.moment) == (fate.request, "read"):
                await self._die()
        return raw or None

    async def send(self, told: bytes) -> None:
        fate, number = self._fate, self._numbers.get(json.loads(told).get("id"))
        if number == fate.request:
            self._writer.write(told[: len(told) // 2] if fate.moment == "half answered" else b"")
            await self._die()
        self._writer.write(told + b"\n")
        if number == fate.request - 1 and fate.moment == "before":
            await self._die()

    async def _die(self) -> None:
        self._fate.over.set()
        await asyncio.Event().wait()


def dies(state: Path, request: int | str, moment: Moment) -> Body:
    """The body of a holder that answers requests as a hatch does, and is gone at this moment of this request."""

    async def body(fl: fledge.Fledge, ready: Callable[[], None]) -> None:
        desk, fate, talks = GatewayState(fl), Fate(request, moment), set[asyncio.Task[None]]()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            talks.add(task)
            try:
                with contextlib.suppress(asyncio.CancelledError):
                    await talk(desk, Doomed(fate, reader, writer))
            finally:
                writer.close()

        with reached(state) as path:
            server = await asyncio.start_unix_server(answer, path)
        if not fate.over.is_set():
            ready()
            await fate.over.wait()
        server.close()  # its socket stays, as of a process that was killed
        ready()
        for task in talks:
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)

    return body


ACTING: list[tuple[list[str], int]] = [(["spawn", "dig"], 1), (["send", "main", "dig"], 2), (["run", "dig"], 3)]
"""Commands that wait, and which of their requests starts what they wait for; the next one waits."""


@proves("0.lost.6", "A command that waits beside another process prints the answer, or how to read it, if that leaves")
@proves("0.twice.7", "What a command asks of a process that is killed is done once, whoever does it in the end")
@pytest.mark.parametrize(
    ("later", "moment"), [*((0, moment) for moment in MOMENTS), (1, "before"), (1, "read"), (1, "half answered")]
)
@pytest.mark.parametrize(("line", "acting"), ACTING, ids=lambda one: one[0] if isinstance(one, list) else "")
def test_a_command_that_waits_goes_on_when_the_holder_is_killed(
    tmp_path: Path, line: list[str], acting: int, later: int, moment: Moment
) -> None:
    state = tmp_path / "state"
    with Holder(state, ScriptedModel(never)).at_work(dies(state, acting + later, moment)):
        code, out, err = do(tmp_path, *line, "--model", ECHO)
    assert (code, out, err) == (0, "dig\n", "")
    if line[0] == "spawn":
        assert rows.look(state, tasks) == ["dig"]
        assert rows.look(state, lambda tx: tx.inbox.undelivered()) == []
    else:
        assert rows.look(state, said) == ["dig", "dig"]


@pytest.mark.parametrize("moment", ["read", "half answered"])
@pytest.mark.parametrize(
    "line", [["tree"], ["info", "digger"], ["log", "digger"], ["ps"], ["sessions"], ["undelivered"]]
)
def test_a_command_that_looks_goes_on_when_the_holder_is_killed(
    tmp_path: Path, line: list[str], moment: Moment
) -> None:
    state = tmp_path / "state"
    do(tmp_path, "spawn", "dig", "--label", "digger", "--model", ECHO)
    code, expected, err = do(tmp_path, *line)
    with Holder(state, ScriptedModel(never)).at_work(dies(state, 1, moment)):
        done = do(tmp_path, *line)
    assert (done[0], ageless(done[1]), done[2]) == (code, ageless(expected), err)


@proves("7.input.13", "A decision whose holder was killed before it answered is not made again: the command says so")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("line", "done"), [(["kill", "digger"], "killed 1"), (["steer", "digger", "left"], "attempt 2")]
)
def test_a_decision_is_made_once_when_the_holder_is_killed(
    tmp_path: Path, line: list[str], done: str, moment: Moment
) -> None:
    state = tmp_path / "state"
    fledge.run_sync(_spawn_digger, state, models={ECHO: ScriptedModel(never)}, model=ECHO, config={})
    with Holder(state, ScriptedModel(never)).at_work(dies(state, 1, moment)):
        code, out, err = do(tmp_path, *line)
    events = rows.look(
        state, lambda tx: [type(event).__name__ for event in tx.events.of(run_meant(tx, "digger", main_key()))]
    )
    times = events.count("KillOrdered" if line[0] == "kill" else "Steered")
    if moment == "before":
        assert (code, times) == (0, 1)
        assert done in out
    else:
        assert code == 1
        assert "it may have done this or not; `fledge ps` and `fledge info` show it" in err
        assert times == (0 if moment == "read" else 1)


async def _spawn_digger(fl: fledge.Fledge) -> None:
    await fl.spawn("dig", label="digger")


@proves("0.lost.6")
@proves("0.twice.7")
@pytest.mark.parametrize(
    ("method", "moment"), [(one, moment) for one in ("agent", "reply") for moment in MOMENTS if moment != "before"]
)
def test_a_sitting_goes_on_when_the_holder_is_killed(tmp_path: Path, method: str, moment: Moment) -> None:
    state = tmp_path / "state"
    fledge.run_sync(_greet, state, model=ScriptedModel(echo), config={})
    with Holder(state, ScriptedModel(never)).at_work(dies(state, method, moment)):
        code, out, err = do(tmp_path, "chat", "--session", "main", "--model", ECHO, given="dig\n")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ["› hello", "hello", LEFT, "dig"]
    assert rows.look(state, said) == ["hello", "hello", "dig", "dig"]


def test_without_a_model_here_a_sitting_says_where_its_words_are(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Holder(state, ScriptedModel(never)).at_work(dies(state, "reply", "read")):
        code, out, _ = do(tmp_path, "chat", given="dig\n")
    assert code == 1
    assert "no model is set" in out
    assert "the part that arrived is kept: `fledge log` shows it, `fledge` continues it" in out
    assert do(tmp_path, "run", "--continue", "--model", ECHO)[0] == 0
    assert rows.look(state, said) == ["dig", "dig"]


async def _greet(fl: fledge.Fledge) -> None:
    await fl.session("main").send("hello")


# ---- leaving in order ------------------------------------------------------------------------------------------------


async def leaves_once_answered(fl: fledge.Fledge, ready: Callable[[], None]) -> None:
    """The body of a holder that closes in order in the moment in which the answer is there, as `fledge run` does."""
    async with control_socket(fl):
        ready()
        await fl.until(lambda tx: is_answered(tx) or None)


class LeavesOnceAsked(Holder):
    """A holder that closes in order while its model is being asked."""

    def __init__(self, state: Path) -> None:
        self._asked = asyncio.Event()
        super().__init__(state, ScriptedModel(self._ask))

    async def _ask(self, request: Request) -> str:
        self._asked.set()
        return await never(request)

    async def body(self, fl: fledge.Fledge, ready: Callable[[], None]) -> None:
        async with control_socket(fl):
            ready()
            await self._asked.wait()


def is_answered(tx: Tx) -> bool:
    runs = [tx.runs.load(key) for root in tx.sessions.roots() for key in tx.runs.children(root)]
    return any(run.ended is not None for run in runs) or said(tx)[1:] == ["dig"]


@proves("0.lost.6")
@pytest.mark.parametrize("line", [line for line, _ in ACTING], ids=lambda line: line[0])
def test_a_command_has_its_answer_when_the_holder_leaves_in_the_moment_it_is_there(
    tmp_path: Path, line: list[str]
) -> None:
    with Holder(tmp_path / "state", ScriptedModel(echo)).at_work(leaves_once_answered):
        assert do(tmp_path, *line, "--model", ECHO) == (0, "dig\n", "")


@proves("0.lost.6")
@pytest.mark.parametrize("line", [line for line, _ in ACTING], ids=lambda line: line[0])
def test_a_command_goes_on_when_the_holder_leaves_before_the_answer_is_there(tmp_path: Path, line: list[str]) -> None:
    holder = LeavesOnceAsked(tmp_path / "state")
    with holder.at_work(holder.body):
        assert do(tmp_path, *line, "--model", ECHO) == (0, "dig\n", "")


def test_without_a_model_here_the_run_is_named_and_how_to_go_on_with_it(tmp_path: Path) -> None:
    state = tmp_path / "state"
    holder = LeavesOnceAsked(state)
    with holder.at_work(holder.body):
        code, out, err = do(tmp_path, "spawn", "dig")
    (key,) = rows.look(state, lambda tx: [key for root in tx.sessions.roots() for key in tx.runs.children(root)])
    short = short_id(rows.look(state, lambda tx: tx.runs.load(key).run_id))
    assert (code, err) == (1, "")
    assert out.startswith(f"run {short} is unfinished: the process at work on it has left")
    assert f"then `fledge info {short}` shows what came of it" in out
    with Holder(state, ScriptedModel(echo)).at_work(leaves_once_answered):
        pass
    assert "dig" in do(tmp_path, "info", short)[1]


@proves("0.lost.6")
def test_without_a_model_here_run_says_how_to_go_on(tmp_path: Path) -> None:
    holder = LeavesOnceAsked(tmp_path / "state")
    with holder.at_work(holder.body):
        code, out, err = do(tmp_path, "run", "dig")
    assert (code, out) == (1, "")
    assert "no model is set" in err.splitlines()[0]
    assert err.splitlines()[1:] == ["fledge: nothing is lost: `fledge run --continue` goes on"]
    assert rows.look(tmp_path / "state", said) == ["dig"]


def test_settings_cannot_count_beside_a_process_that_has_its_own(tmp_path: Path) -> None:
    over = threading.Event()
    setting = ("--set", "tools.exec.approval=ask")
    with Holder(tmp_path / "state", ScriptedModel(echo)).at_work(stays(over)):
        for line in (["run", "dig"], ["spawn", "dig"], ["send", "main", "dig"], ["chat"]):
            code, out, err = do(tmp_path, *line, *setting)
            assert (code, out) == (1, "")
            assert err.startswith("fledge: --set: cannot count here: process ")
        over.set()
    assert rows.look(tmp_path / "state", tasks) == []


# ---- the same with processes -----------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Iterator[ModelServer]:
    with serving(tmp_path, chat_server.talk) as model:
        yield model


def start(model: ModelServer, work: Path, *line: str) -> "subprocess.Popen[str]":
    whole, pipe = [*command.PROGRAM, "--state", "../state", *line, *MODEL], subprocess.PIPE
    return subprocess.Popen(whole, cwd=work, env=model.env, stdout=pipe, stderr=pipe, text=True)


@proves("0.lost.6")
@pytest.mark.parametrize("end", ["leaves", "is killed", "is told to end"])
def test_spawn_prints_its_answer_whatever_becomes_of_the_process_beside_it(
    model: ModelServer, tmp_path: Path, end: str
) -> None:
    work = workspace(tmp_path)
    holds = ("serve", "--port", "0") if end == "is told to end" else ("run", "hello")
    model.hold.touch()
    with start(model, work, *holds) as holder, contextlib.ExitStack() as stack:
        until(holder, (tmp_path / "state" / CONTROL_SOCKET).exists)
        spawn = stack.enter_context(start(model, work, "spawn", "dig deep"))
        asked = 1 if holds[0] == "serve" else 2
        until(spawn, lambda: model.requests >= asked)
        if end == "is killed":
            holder.send_signal(signal.SIGKILL)
        elif end == "is told to end":
            holder.send_signal(signal.SIGTERM)
        if end != "leaves":
            holder.wait(PATIENCE_S)
        model.hold.unlink()
        out, err = spawn.communicate(timeout=PATIENCE_S)
        _, troubles = holder.communicate(timeout=PATIENCE_S)
    assert (spawn.returncode, out, err) == (0, "gold, at the very bottom\n", "")
    assert "Traceback" not in troubles


@proves("3.plan.19")
def test_run_beside_a_holder_says_that_a_plan_waits_and_what_to_type(tmp_path: Path) -> None:
    async def plans(request: Request) -> Answer:
        if "# Subagent Context" in request.system:
            return "first dig, then look"
        if isinstance(request.messages[-1], ToolMessage) or last_text(request) != "plan":
            return "noted"
        return use("sessions_spawn", task="dig", label="deep digger", planMode=True)

    over = threading.Event()
    with Holder(tmp_path / "state", ScriptedModel(plans)).at_work(stays(over)):
        try:
            code, _, err = do(tmp_path, "run", "plan")
        finally:
            over.set()
    assert code == 3, err
    assert "the plan of deep digger waits for your answer: fledge approve " in err
