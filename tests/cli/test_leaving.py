"""Commands beside a process that holds the folder, and leaves or is killed at any moment: the answer is printed, or how
to read it; what was asked is done once; nobody sees a traceback."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import Struct

import fledge
from fledge.cli import inspect
from fledge.cli.main import main
from fledge.core.keys import main_key, short_id
from fledge.core.transcript import Replied, Spoken, from_body
from fledge.gateway import people, rpc  # noqa: F401  (`people` fills the table of methods)
from fledge.gateway.client import HATCH, reached
from fledge.gateway.desk import Desk
from fledge.gateway.hatch import hatch
from fledge.gateway.table import call
from fledge.models.base import Model, Request
from fledge.models.scripted import ScriptedModel, echo
from fledge.store.base import Tx
from tests.cli.test_run import MODEL, serving, until, workspace
from tests.cli.test_run import Model as ModelServer
from tests.statements import proves

ECHO = "scripted/echo"
PATIENCE_S = 30.0
Moment = Literal["before", "read", "carried out", "half answered"]
MOMENTS: tuple[Moment, ...] = ("before", "read", "carried out", "half answered")


async def never(request: Request) -> str:
    await asyncio.Event().wait()
    raise AssertionError


Body = Callable[[fledge.Fledge, Callable[[], None]], Awaitable[None]]
"""What a holder does; it calls the function when commands may come."""


class Holder:
    """A process that holds a folder, in a thread of its own, until its body is over."""

    def __init__(self, state: Path, thinks_with: Model, **options: Any) -> None:
        self._state = state
        self._options = {"models": {ECHO: thinks_with}, "model": ECHO, "config": {}, "program": "cli"} | options
        self._ready = threading.Event()
        self._failed: list[BaseException] = []
        self._troubles: list[object] = []
        """What the event loop would have printed to the holder's terminal."""

    @contextlib.contextmanager
    def at_work(self, body: Body) -> Iterator[None]:
        """Hold the folder while `body` is at work; it says when commands may come. It must have left in the end."""

        async def hold() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: self._troubles.append(context))
            async with fledge.open(self._state, **self._options, address=HATCH) as fl:
                await asyncio.wait_for(body(fl, self._ready.set), PATIENCE_S)

        def run() -> None:
            try:
                asyncio.run(hold())
            except BaseException as error:
                self._failed.append(error)
            finally:
                self._ready.set()

        thread = threading.Thread(target=run, name="holder")
        thread.start()
        try:
            assert self._ready.wait(PATIENCE_S)
            yield
        finally:
            thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert (self._failed, self._troubles) == ([], [])


class Done(Struct, frozen=True):
    """What came of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEDGE_STATE", "state")
    monkeypatch.setenv("FLEDGE_CONFIG", str(tmp_path / "config"))
    return tmp_path


def do(capsys: pytest.CaptureFixture[str], *line: str) -> Done:
    code = main(line)
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    return Done(code, told.out, told.err)


def said_to_main(tx: Tx) -> list[str]:
    bodies = [from_body(entry.body) for entry in tx.entries(main_key())]
    return [body.text for body in bodies if isinstance(body, Spoken | Replied)]


def tasks(tx: Tx) -> list[str]:
    return [tx.spec(key).task for root in tx.roots() for key in tx.children(root)]


# ---- killed: the holder ends without another word --------------------------------------------------------------------


def dies(state: Path, request: int, moment: Moment) -> Body:
    """The body of a holder that answers requests as a hatch does, and is gone at this moment of this request."""

    async def body(fl: fledge.Fledge, ready: Callable[[], None]) -> None:
        desk, over, count = Desk(fl, fl.config.gateway), asyncio.Event(), 0

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal count
            raw = await reader.readline()
            if raw:  # else somebody only looked whether we are there
                count += 1
                is_last = count == request
                told = b"" if is_last and moment == "read" else await _told(desk, raw)
                if is_last:
                    told = told[: len(told) // 2] if moment == "half answered" else b""
                if is_last or (moment == "before" and count == request - 1):
                    over.set()
                writer.write(told)
            writer.close()

        with reached(state) as path:
            server = await asyncio.start_unix_server(answer, path)
        if (request, moment) == (1, "before"):
            over.set()
        ready()
        await over.wait()
        server.close()  # its socket stays, as of a process that was killed

    return body


async def _told(desk: Desk, raw: bytes) -> bytes:
    return (await rpc.answer(raw, lambda name, given: call(desk, name, given)) or b"") + b"\n"


ACTING: list[tuple[list[str], int]] = [(["spawn", "dig"], 1), (["send", "main", "dig"], 2), (["run", "dig"], 2)]
"""Commands that wait, and which of their requests starts what they wait for; the next one waits."""


@proves("0.lost.6", "A command that waits beside another process prints the answer, or how to read it, if that leaves")
@proves("0.twice.7", "What a command asks of a process that is killed is done once, whoever does it in the end")
@pytest.mark.parametrize(
    ("later", "moment"), [*((0, moment) for moment in MOMENTS), (1, "before"), (1, "read"), (1, "half answered")]
)
@pytest.mark.parametrize(("line", "acting"), ACTING, ids=lambda one: one[0] if isinstance(one, list) else "")
def test_a_command_that_waits_goes_on_when_the_holder_is_killed(
    folder: Path, capsys: pytest.CaptureFixture[str], line: list[str], acting: int, later: int, moment: Moment
) -> None:
    state = folder / "state"
    with Holder(state, ScriptedModel(never)).at_work(dies(state, acting + later, moment)):
        done = do(capsys, *line, "--model", ECHO)
    if (done.code, line[0]) == (1, "run"):
        assert done.err.endswith("has left; nothing is lost: `fledge run --continue` goes on\n")
        assert do(capsys, "run", "--continue", "--model", ECHO).code == 0
    else:
        assert done == Done(0, "dig\n", "")
    if line[0] == "spawn":
        assert inspect.look(state, tasks) == ["dig"]
        assert inspect.look(state, lambda tx: tx.undelivered()) == []
    else:
        assert inspect.look(state, said_to_main) == ["dig", "dig"]


@pytest.mark.parametrize("moment", ["read", "half answered"])
@pytest.mark.parametrize(
    "line", [["tree"], ["info", "digger"], ["log", "digger"], ["ps"], ["sessions"], ["undelivered"]]
)
def test_a_command_that_looks_goes_on_when_the_holder_is_killed(
    folder: Path, capsys: pytest.CaptureFixture[str], line: list[str], moment: Moment
) -> None:
    state = folder / "state"
    do(capsys, "spawn", "dig", "--label", "digger", "--model", ECHO)
    expected = do(capsys, *line)
    with Holder(state, ScriptedModel(never)).at_work(dies(state, 1, moment)):
        assert do(capsys, *line) == expected


@proves("7.input.13", "A decision whose holder was killed before it answered is not made again: the command says so")
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("line", "done"), [(["kill", "digger"], "killed 1"), (["steer", "digger", "left"], "attempt 2")]
)
def test_a_decision_is_made_once_when_the_holder_is_killed(
    folder: Path, capsys: pytest.CaptureFixture[str], line: list[str], done: str, moment: Moment
) -> None:
    state = folder / "state"
    fledge.run_sync(_spawn_digger, state, models={ECHO: ScriptedModel(never)}, model=ECHO, config={})
    with Holder(state, ScriptedModel(never)).at_work(dies(state, 1, moment)):
        told = do(capsys, *line)
    events = inspect.look(state, lambda tx: [type(event).__name__ for event in tx.events(inspect.find(tx, "digger"))])
    times = events.count("KillOrdered" if line[0] == "kill" else "Steered")
    if moment == "before":
        assert (told.code, times) == (0, 1)
        assert done in told.out
    else:
        assert told.code == 1
        assert "it may have done this or not; `fledge ps` and `fledge info` show it" in told.err
        assert times == (0 if moment == "read" else 1)


async def _spawn_digger(fl: fledge.Fledge) -> None:
    await fl.spawn("dig", label="digger")


# ---- leaving in order ------------------------------------------------------------------------------------------------


async def leaves_once_answered(fl: fledge.Fledge, ready: Callable[[], None]) -> None:
    """The body of a holder that closes in order in the moment in which the answer is there, as `fledge run` does."""
    async with hatch(fl):
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
        async with hatch(fl):
            ready()
            await self._asked.wait()


def is_answered(tx: Tx) -> bool:
    runs = [tx.load_run(key) for root in tx.roots() for key in tx.children(root)]
    return any(run.ended is not None for run in runs) or said_to_main(tx)[1:] == ["dig"]


@proves("0.lost.6")
@pytest.mark.parametrize("line", [line for line, _ in ACTING], ids=lambda line: line[0])
def test_a_command_has_its_answer_when_the_holder_leaves_in_the_moment_it_is_there(
    folder: Path, capsys: pytest.CaptureFixture[str], line: list[str]
) -> None:
    with Holder(folder / "state", ScriptedModel(echo)).at_work(leaves_once_answered):
        assert do(capsys, *line, "--model", ECHO) == Done(0, "dig\n", "")


@proves("0.lost.6")
@pytest.mark.parametrize("line", [line for line, _ in ACTING], ids=lambda line: line[0])
def test_a_command_goes_on_when_the_holder_leaves_before_the_answer_is_there(
    folder: Path, capsys: pytest.CaptureFixture[str], line: list[str]
) -> None:
    holder = LeavesOnceAsked(folder / "state")
    with holder.at_work(holder.body):
        done = do(capsys, *line, "--model", ECHO)
    if line[0] == "run":
        assert (done.code, done.out) == (1, "")
        assert done.err.endswith("`fledge run --continue` goes on\n")
    else:
        assert done == Done(0, "dig\n", "")


def test_without_a_model_here_the_run_is_named_and_how_to_go_on_with_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = folder / "state"
    holder = LeavesOnceAsked(state)
    with holder.at_work(holder.body):
        done = do(capsys, "spawn", "dig")
    (key,) = inspect.look(state, lambda tx: [key for root in tx.roots() for key in tx.children(root)])
    short = short_id(inspect.look(state, lambda tx: tx.load_run(key).run_id))
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith(f"run {short} is unfinished: the process at work on it has left")
    assert f"then `fledge info {short}` shows what came of it" in done.out
    with Holder(state, ScriptedModel(echo)).at_work(leaves_once_answered):
        pass
    assert "dig" in do(capsys, "info", short).out


def stays(over: threading.Event) -> Body:
    """The body of a holder that stays until it is told to leave."""

    async def body(fl: fledge.Fledge, ready: Callable[[], None]) -> None:
        async with hatch(fl):
            ready()
            await asyncio.to_thread(over.wait, PATIENCE_S)

    return body


def test_settings_cannot_count_beside_a_process_that_has_its_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    over = threading.Event()
    setting = ("--set", "tools.exec.approval=ask")
    with Holder(folder / "state", ScriptedModel(echo)).at_work(stays(over)):
        for line in (["run", "dig"], ["spawn", "dig"], ["send", "main", "dig"], ["chat"]):
            refused = do(capsys, *line, *setting)
            assert (refused.code, refused.out) == (1, "")
            assert refused.err.startswith("fledge: --set: cannot count here: process ")
        over.set()
    assert inspect.look(folder / "state", tasks) == []


# ---- the same with processes -----------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Iterator[ModelServer]:
    with serving(tmp_path, "tests.cli.chat_server") as model:
        yield model


def start(model: ModelServer, work: Path, *line: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "fledge.cli.main", "--state", "../state", *line, *MODEL]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=work, env=model.env, stdout=pipe, stderr=pipe, text=True)


@proves("0.lost.6")
@pytest.mark.parametrize("end", ["leaves", "is killed", "is told to end"])
def test_spawn_prints_its_answer_whatever_becomes_of_the_process_beside_it(
    model: ModelServer, tmp_path: Path, end: str
) -> None:
    work = workspace(tmp_path)
    holds = ("serve", "--port", "0") if end == "is told to end" else ("run", "hello")
    model.hold.touch()
    with start(model, work, *holds) as holder, contextlib.ExitStack() as stack:
        until(holder, (tmp_path / "state" / HATCH).exists)
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
