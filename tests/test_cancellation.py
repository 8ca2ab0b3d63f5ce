"""A real stop and what only looks like one: cancellations, signals, closed coroutines; code that raises the same."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fledge.cancellation import Leavable, describe, error_message, is_stop
from tests.statements import proves

PROGRAM = """
import asyncio, signal, sys
import fledge
from fledge.models.scripted import ScriptedModel, use

@fledge.tool
async def spin() -> str:
    print("spinning", flush=True)
    while True:
        pass

async def main():
    model = ScriptedModel(lambda request: use("spin"))
    async with fledge.open(sys.argv[1], model=model, config={}, tools=[spin]) as fl:
        await (await fl.spawn("go"))

# Whoever started the suite in the background has it ignore Ctrl-C, and a child inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.argv[2] == "run":
    asyncio.run(main())
else:
    asyncio.new_event_loop().run_until_complete(main())
"""


@pytest.fixture
def handlers() -> Iterator[None]:
    """Signal handlers are put back after the test."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def caught(act: Callable[[], object]) -> bool:
    """Whether what this raises is a stop."""
    try:
        act()
    except BaseException as error:
        return is_stop(error)
    raise AssertionError("nothing was raised")


def raising(error: BaseException) -> Callable[[], object]:
    def act() -> None:
        raise error

    return act


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    "error", [ValueError(), BaseException(), KeyboardInterrupt(), SystemExit(1), GeneratorExit()], ids=repr
)
def test_what_code_raises_by_itself_is_no_stop(error: BaseException) -> None:
    assert not caught(raising(error))
    assert not caught(lambda: asyncio.run(_awaiting(raising(error))))


async def _awaiting(act: Callable[[], object]) -> bool:
    try:
        act()
    except BaseException as error:
        if is_stop(error):
            raise
        raise ValueError("no stop") from error
    return False


def test_leaving_by_sys_exit_is_no_stop() -> None:
    assert not caught(lambda: sys.exit(3))


@pytest.mark.usefixtures("handlers")
def test_a_signal_without_a_handler_in_python_is_a_stop() -> None:
    assert caught(lambda: signal.raise_signal(signal.SIGINT))

    def spin() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while True:
            pass

    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        assert caught(spin)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), BaseException("terminate")], ids=repr)
def test_what_a_signal_handler_raises_is_a_stop(error: BaseException) -> None:
    def terminate(number: int, frame: FrameType | None) -> None:
        raise error

    signal.signal(signal.SIGTERM, terminate)
    assert caught(lambda: signal.raise_signal(signal.SIGTERM))


@pytest.mark.usefixtures("handlers")
def test_the_second_ctrl_c_of_asyncio_run_is_a_stop_and_the_first_a_cancellation() -> None:
    stops: list[bool] = []

    async def main() -> None:
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.sleep(0)
        except BaseException as error:
            stops.append(is_stop(error))
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException as error:
            stops.append(is_stop(error))

    asyncio.run(main())
    assert stops == [True, True]


def test_a_cancellation_is_a_stop_for_the_task_that_was_cancelled_alone() -> None:
    async def waiting(found: list[bool], inner: "asyncio.Future[None]") -> None:
        try:
            await inner
        except BaseException as error:
            found.append(is_stop(error))

    async def main() -> tuple[list[bool], list[bool]]:
        loop = asyncio.get_running_loop()
        own: list[bool] = []
        others: list[bool] = []
        cancelled = asyncio.ensure_future(waiting(own, loop.create_future()))
        broken = loop.create_future()
        bystander = asyncio.ensure_future(waiting(others, broken))
        await asyncio.sleep(0)
        cancelled.cancel()
        broken.cancel()
        await asyncio.wait([cancelled, bystander])
        return own, others

    assert asyncio.run(main()) == ([True], [False])


def test_a_coroutine_that_is_closed_is_stopped() -> None:
    found: list[bool] = []

    class Once:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def waiting() -> None:
        try:
            await Once()
        except BaseException as error:
            found.append(is_stop(error))
            raise

    coroutine = waiting()
    coroutine.send(None)
    coroutine.close()
    assert found == [True]


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise SystemExit("even this")


@pytest.mark.parametrize(
    ("error", "described", "message"),
    [
        (ValueError("no"), "ValueError: no", "no"),
        (KeyboardInterrupt(), "KeyboardInterrupt", "KeyboardInterrupt"),
        (Unspeakable(), "Unspeakable: (its message cannot be shown)", "(its message cannot be shown)"),
    ],
)
def test_an_error_is_described_by_its_name_and_its_message(error: BaseException, described: str, message: str) -> None:
    assert (describe(error), error_message(error)) == (described, message)


@proves("0.crash.13")
@pytest.mark.parametrize(("runner", "most"), [("run", 100), ("own", 1)], ids=["asyncio.run", "a loop of one's own"])
def test_ctrl_c_ends_a_program_though_one_of_its_tools_spins(tmp_path: Path, runner: str, most: int) -> None:
    environment = os.environ | {"FLEDGE_CONFIG": str(tmp_path / "user")}
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": environment, "text": True}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path / "state"), runner], **options) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "spinning\n"
        for sent in range(most):  # two that come at once are one to a process
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=0.2 if sent < most - 1 else 60)
                break
        _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert said.rstrip().endswith("KeyboardInterrupt")


# ---- a block that others may end -------------------------------------------------------------------------------------


async def left(inside: Callable[[], Any], block: Leavable | None = None) -> list[str]:
    """What a task gets to that waits in a block which is left from outside."""
    block, got = block or Leavable(), []

    async def work() -> None:
        with block:
            got.append("in")
            await inside()
            got.append("through")
        got.append("behind")
        await asyncio.sleep(0)
        got.append("goes on")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    block.leave()
    block.leave()
    await task
    return got


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


async def clean_up_badly() -> None:
    try:
        await wait_for_ever()
    finally:
        raise ValueError("on its way out")


async def keep_the_stop() -> None:
    with suppress(asyncio.CancelledError):
        await wait_for_ever()


@pytest.mark.parametrize("inside", [wait_for_ever, clean_up_badly])
def test_a_block_that_is_left_ends_and_its_task_goes_on(inside: Callable[[], Any]) -> None:
    assert asyncio.run(left(inside)) == ["in", "behind", "goes on"]


def test_a_block_that_keeps_the_news_to_itself_ends_as_it_likes_and_its_task_goes_on() -> None:
    assert asyncio.run(left(keep_the_stop)) == ["in", "through", "behind", "goes on"]


def test_a_block_can_be_entered_and_left_again() -> None:
    async def main() -> list[list[str]]:
        block = Leavable()
        return [await left(wait_for_ever, block) for _ in range(2)]

    assert asyncio.run(main()) == [["in", "behind", "goes on"]] * 2


def test_a_block_that_says_itself_that_it_is_left_and_ends_at_once_leaves_no_cancellation_behind() -> None:
    async def main() -> str:
        block = Leavable()
        with block:
            block.leave()
        block.leave()  # nobody is in it
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "unharmed"

    assert asyncio.run(main()) == "unharmed"


def test_a_task_that_is_cancelled_inside_a_block_that_is_left_too_is_cancelled() -> None:
    async def main() -> bool:
        block = Leavable()

        async def work() -> None:
            with block:
                await wait_for_ever()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        block.leave()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(main())


def test_what_a_block_raises_that_nobody_left_goes_through() -> None:
    async def main() -> None:
        with Leavable():
            raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        asyncio.run(main())
