"""Virtual time stands still while a thread or a process works for the loop, and passes again when it is done.

Threads are blocked until a real timer releases them: with a loop that does not wait, the deadline has long fired.
"""

import ast
import asyncio
import concurrent.futures
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.clock import hold_time
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, use
from fledge.store.base import SessionFacts, Tx
from fledge.store.sqlite import SqliteStore
from fledge.testing import (
    START,
    InlineStore,
    ScriptedModel,
    SeededIds,
    VirtualClock,
    run_virtual,
    threads_ignored,
    virtual_runner,
)
from fledge.tools.process import GRACE_S, ProcessEnded
from fledge.tools.process import run as run_process

PRODUCT = Path(fledge.__file__).parent
AWHILE_S = 0.1
"""How long a thread works: ages for a loop that jumps, nothing for a reader."""


def now() -> float:
    return asyncio.get_running_loop().time()


class Blocked:
    """Blocks threads until a real moment has passed, counted from the first that comes."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self.left = 0

    def wait(self) -> str:
        threading.Timer(AWHILE_S, self._free.set).start()
        self._free.wait()
        self.left += 1
        return "done"


# ---- threads ---------------------------------------------------------------------------------------------------------


async def by_to_thread(work: Callable[[], str]) -> str:
    return await asyncio.to_thread(work)


async def by_own_executor(work: Callable[[], str]) -> str:
    with concurrent.futures.ThreadPoolExecutor() as executor:
        return await asyncio.get_running_loop().run_in_executor(executor, work)


async def by_tool(work: Callable[[], str]) -> str:
    @fledge.tool(timeout=5)
    def plain() -> str:
        """Work in a thread."""
        return work()

    context = fledge.ToolContext(session="agent:main:main", entry=1, index=0, workspace=Path("/nowhere"))
    return (await plain.call("", context)).text


async def by_store(work: Callable[[], str], folder: Path) -> str:
    store = SqliteStore.open(folder)
    try:
        return await store.transact(lambda tx: work())
    finally:
        await store.close()


async def by_view(work: Callable[[], str], folder: Path) -> str:
    store = SqliteStore.open(folder)
    try:
        return await store.read(lambda tx: work())
    finally:
        await store.close()


@pytest.fixture(params=["to_thread", "an executor", "a plain tool", "a transaction", "a view"])
def through(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Callable[[], str]], Awaitable[str]]:
    """One way in which work gets into a thread."""
    ways: dict[str, Callable[[Callable[[], str]], Awaitable[str]]] = {
        "to_thread": by_to_thread,
        "an executor": by_own_executor,
        "a plain tool": by_tool,
        "a transaction": lambda work: by_store(work, tmp_path),
        "a view": lambda work: by_view(work, tmp_path),
    }
    return ways[request.param]


def test_no_deadline_fires_while_a_thread_works(through: Callable[[Callable[[], str]], Awaitable[str]]) -> None:
    async def main() -> tuple[str, float]:
        async with asyncio.timeout(1):
            said = await through(Blocked().wait)
        return said, now()

    assert run_virtual(main()) == ("done", 0.0)


def test_time_passes_again_once_the_thread_is_done() -> None:
    async def main() -> float:
        await asyncio.to_thread(Blocked().wait)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        return now()

    assert run_virtual(main()) == 5.0


def test_other_coroutines_go_on_while_a_thread_works_and_their_waits_end_after_it() -> None:
    order: list[str] = []

    async def sleeper() -> None:
        order.append("sleeps")
        await asyncio.sleep(0.001)
        order.append("slept")

    async def main() -> None:
        sleeping = asyncio.create_task(sleeper())
        order.append(await asyncio.to_thread(Blocked().wait))
        await sleeping

    run_virtual(main())
    assert order == ["sleeps", "done", "slept"]


def test_a_thread_that_nobody_waits_for_any_more_is_waited_for_by_time() -> None:
    async def main() -> int:
        blocked = Blocked()
        begun = asyncio.Event()
        loop = asyncio.get_running_loop()

        def work() -> None:
            loop.call_soon_threadsafe(begun.set)
            blocked.wait()

        task = asyncio.create_task(asyncio.to_thread(work))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(1)
        return blocked.left

    assert run_virtual(main()) == 1


def test_what_a_thread_raises_arrives_and_time_goes_on() -> None:
    def fail() -> None:
        raise ValueError("mine")

    async def main() -> float:
        with pytest.raises(ValueError, match="mine"):
            await asyncio.to_thread(fail)
        await asyncio.sleep(3)
        return now()

    assert run_virtual(main()) == 3.0


def test_a_job_that_is_cancelled_before_it_begins_holds_nothing() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        with concurrent.futures.ThreadPoolExecutor(max_workers=1) as executor:
            first = loop.run_in_executor(executor, Blocked().wait)
            second = loop.run_in_executor(executor, Blocked().wait)
            second.cancel()
            assert await first == "done"
        await asyncio.sleep(2)
        return now()

    assert run_virtual(main()) == 2.0


def test_threads_are_joined_when_the_loop_closes() -> None:
    blocked = Blocked()

    async def main() -> None:
        asyncio.get_running_loop().run_in_executor(None, blocked.wait)

    run_virtual(main())
    assert blocked.left == 1


def test_a_thread_that_never_ends_is_an_error_and_not_a_test_that_hangs() -> None:
    free = threading.Event()

    async def main() -> None:
        await asyncio.to_thread(free.wait)

    try:
        with pytest.raises(RuntimeError, match="virtual time has stood still"):
            run_virtual(main(), patience_s=0.05)
    finally:
        free.set()


def test_a_deadline_can_be_made_to_fire_while_a_thread_is_stuck() -> None:
    async def main() -> float:
        free = threading.Event()
        with threads_ignored(), pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.to_thread(free.wait)
        free.set()
        await asyncio.to_thread(Blocked().wait)
        return now()

    assert run_virtual(main()) == 5.0


def test_an_ignored_thread_is_waited_for_when_there_is_nothing_else_to_wait_for() -> None:
    async def main() -> tuple[str, float]:
        with threads_ignored():
            return await asyncio.to_thread(Blocked().wait), now()

    assert run_virtual(main()) == ("done", 0.0)


def test_threads_are_ignored_in_virtual_time_only() -> None:
    async def main() -> None:
        with threads_ignored():
            pass

    with pytest.raises(RuntimeError, match="run_virtual"):
        asyncio.run(main())


def test_a_loop_of_the_machines_time_is_not_held() -> None:
    async def main() -> None:
        release = hold_time(asyncio.get_running_loop())
        await asyncio.sleep(0)
        release()

    asyncio.run(main())


def test_a_hold_is_released_once_however_often_it_is_called() -> None:
    order: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        first, second = hold_time(loop), hold_time(loop)

        def release() -> None:
            order.append("released")
            second()

        first()
        first()
        threading.Timer(AWHILE_S, lambda: loop.call_soon_threadsafe(release)).start()
        await asyncio.sleep(1)
        order.append("slept")

    run_virtual(main())
    assert order == ["released", "slept"]


# ---- processes -------------------------------------------------------------------------------------------------------

SLOW = f"import time; time.sleep({AWHILE_S}); print('done')"


async def by_exec() -> str:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SLOW, stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()


async def by_shell() -> str:
    process = await asyncio.create_subprocess_shell(f"sleep {AWHILE_S}; echo done", stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].decode().strip()


async def by_product() -> str:
    ended: ProcessEnded = await run_process([sys.executable, "-c", SLOW], Path("/"), {}, 1)
    return ended.output.strip()


@pytest.mark.parametrize("way", [by_exec, by_shell, by_product])
def test_no_deadline_fires_while_a_process_runs(way: Callable[[], Awaitable[str]]) -> None:
    async def main() -> tuple[str, float]:
        async with asyncio.timeout(1):
            said = await way()
        began = now()
        await asyncio.sleep(7)
        return said, now() - began

    assert run_virtual(main()) == ("done", 7.0)


def test_a_process_that_cannot_be_started_holds_nothing() -> None:
    async def main() -> float:
        with pytest.raises(FileNotFoundError):
            await asyncio.create_subprocess_exec("/nowhere/at/all")
        await asyncio.sleep(2)
        return now()

    assert run_virtual(main()) == 2.0


def test_a_process_that_was_told_to_stop_is_killed_after_its_grace() -> None:
    stubborn = ["/bin/sh", "-c", "trap '' TERM; echo up >&2; while :; do sleep 0.05; done"]

    async def main() -> float:
        up = asyncio.Event()
        task = asyncio.create_task(run_process(stubborn, Path("/"), {}, None, heard=lambda _: up.set()))
        await up.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return now()

    assert run_virtual(main(), patience_s=30) >= GRACE_S


# ---- a user's own test -----------------------------------------------------------------------------------------------

CONFIG: dict[str, Any] = {
    "agents": {"defaults": {"sandbox": {"mode": "off"}}},
    "tools": {"exec": {"approval": "never"}},
}


def steps(*answers: Answer) -> Callable[[Request], Answer]:
    """The first answer to a transcript without tool results, and so on."""

    def script(request: Request) -> Answer:
        return answers[sum(isinstance(message, ToolMessage) for message in request.messages)]

    return script


@pytest.mark.parametrize("store", ["sqlite", "inline"])
def test_the_built_in_tools_work_within_a_runs_timeout_in_a_users_own_test(tmp_path: Path, store: str) -> None:
    model = ScriptedModel(
        steps(
            use("write", path="notes/a.txt", content="one\ntwo\n"),
            use("edit", path="notes/a.txt", old="two", new="three"),
            use("read", path="notes/a.txt"),
            use("list", path="notes"),
            use("grep", pattern="thr"),
            use("exec", command="sleep 0.1; cat notes/a.txt"),
            "finished",
        )
    )

    async def main() -> tuple[str, str, float]:
        clock = VirtualClock()
        opened = fledge.open(
            tmp_path / "state",
            model=model,
            workspace=tmp_path,
            config=CONFIG,
            store=InlineStore(tmp_path / "state") if store == "inline" else None,
            clock=clock,
            ids=SeededIds(),
        )
        async with opened as fl:
            result = await (await fl.spawn("look around", timeout=1))
            return result.status, result.text, clock.now() - START

    status, text, took = run_virtual(main())
    told = [message.text for message in model.requests[-1].messages if isinstance(message, ToolMessage)]
    assert (status, text) == ("ok", "finished"), told
    assert "three" in told[2]
    assert "a.txt" in told[3]
    assert "notes/a.txt:2: three" in told[4]
    assert "three" in told[5]
    assert took < 1


def test_a_child_with_a_folder_of_its_own_is_spawned_within_a_deadline(tmp_path: Path) -> None:
    async def main() -> str:
        opened = fledge.open(
            tmp_path / "state",
            model=ScriptedModel(steps("hello")),
            workspace=tmp_path,
            config=CONFIG,
            clock=VirtualClock(),
        )
        async with opened as fl:
            async with asyncio.timeout(1):
                run = await fl.spawn("say hello", workspace="dir")
            return (await run).text

    assert run_virtual(main()) == "hello"


# ---- nobody forgets it -----------------------------------------------------------------------------------------------

STARTERS = frozenset(
    {"Thread", "Timer", "start_new_thread", "ThreadPoolExecutor", "ProcessPoolExecutor", "Popen", "fork", "forkpty"}
    | {"posix_spawn", "posix_spawnp", "Process"}
)
HOLD = {"cli/term/writer.py", "store/threads.py", "tools/process.py"}
"""Files that start threads or processes of their own, and hold virtual time while those work."""
NEED_NOT = {
    "testing/crashes.py": "forks from a process without a loop; each child has one of its own",
    "store/postgres_cluster.py": "its thread waits for what other processes commit, in the time of the server",
    "cli/term/plain.py": "its thread waits for a person to type",
    "cli/demo.py": "it waits for its process in the loop's own thread, in which no time passes",
    "workspaces/git.py": "it waits for its process in the thread that asks, one of the loop's, which holds time",
}


def starts(path: Path) -> bool:
    """True of a file that starts a thread or process past the event loop."""
    calls = (node.func for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call))
    return any(
        (isinstance(func, ast.Attribute) and func.attr in STARTERS)
        or (isinstance(func, ast.Name) and func.id in STARTERS)
        for func in calls
    )


def holds(path: Path) -> bool:
    return "hold_time(" in path.read_text("utf-8")


def files() -> Iterator[Path]:
    return PRODUCT.rglob("*.py")


def test_whatever_starts_threads_or_processes_past_the_loop_holds_virtual_time() -> None:
    starting = {str(path.relative_to(PRODUCT)) for path in files() if starts(path)} - {"testing/time.py"}
    assert starting == HOLD | set(NEED_NOT)
    assert all(holds(PRODUCT / name) for name in HOLD)


@pytest.mark.parametrize(
    "source",
    [
        "import threading\nthreading.Thread(target=print).start()",
        "from threading import Thread\nThread()",
        "import subprocess\nsubprocess.Popen(['x'])",
        "import os\nos.fork()",
    ],
)
def test_each_way_past_the_loop_is_found(tmp_path: Path, source: str) -> None:
    (tmp_path / "one.py").write_text(source)
    assert starts(tmp_path / "one.py")


@pytest.mark.parametrize("source", ["asyncio.to_thread(print)", "subprocess.run(['x'])", "'Thread()'"])
def test_what_the_loop_knows_of_or_blocks_it_needs_no_hold(tmp_path: Path, source: str) -> None:
    (tmp_path / "one.py").write_text(source)
    assert not starts(tmp_path / "one.py")


def open_main(tx: Tx) -> None:
    tx.sessions.open("agent:main:main", "main", None, 0, SessionFacts(), START)


def test_what_a_cancelled_caller_wrote_is_on_disk_before_time_passes(tmp_path: Path) -> None:
    async def main() -> bool:
        store = SqliteStore.open(tmp_path)
        blocked = Blocked()

        def slow(tx: Tx) -> None:
            blocked.wait()
            open_main(tx)

        task = asyncio.create_task(store.transact(slow))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(1)
        found = await store.read(lambda tx: tx.sessions.get("agent:main:main") is not None)
        await store.close()
        return found and blocked.left == 1

    assert run_virtual(main())


def test_between_two_runs_of_one_runner_nothing_is_held() -> None:
    with virtual_runner() as runner:
        runner.run(by_to_thread(Blocked().wait))
        assert runner.run(by_to_thread(Blocked().wait)) == "done"
        runner.run(asyncio.sleep(5))
