"""The machine's clock: what it waits for, never how long that takes on this machine."""

import asyncio
import time

import pytest

from fledge.clock import Clock, SystemClock
from fledge.testing import run_virtual


def test_now_is_the_machines_time() -> None:
    clock: Clock = SystemClock()
    before = time.time()
    now = clock.now()
    assert before <= now <= time.time()


@pytest.mark.parametrize("ahead", [-3600.0, -0.001, 0.0])
def test_a_time_that_has_come_is_not_waited_for(ahead: float) -> None:
    async def main() -> float:
        clock = SystemClock()
        await clock.wait_until(clock.now() + ahead, asyncio.Event())
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 0.0


def test_a_time_to_come_is_waited_for() -> None:
    async def main() -> float:
        clock = SystemClock()
        await clock.wait_until(clock.now() + 3600, asyncio.Event())
        return asyncio.get_running_loop().time()

    # The machine's time goes on a little between asking for it and waiting.
    assert 3500 < run_virtual(main()) <= 3600


@pytest.mark.parametrize("ahead", [None, 3600.0])
def test_whoever_was_poked_already_does_not_wait(ahead: float | None) -> None:
    async def main() -> tuple[float, bool]:
        clock, poked = SystemClock(), asyncio.Event()
        poked.set()
        await clock.wait_until(None if ahead is None else clock.now() + ahead, poked)
        return asyncio.get_running_loop().time(), poked.is_set()

    assert run_virtual(main()) == (0.0, True)


@pytest.mark.parametrize("ahead", [None, 3600.0])
def test_a_poke_ends_the_wait(ahead: float | None) -> None:
    async def main() -> float:
        clock, poked = SystemClock(), asyncio.Event()
        asyncio.get_running_loop().call_later(5, poked.set)
        await clock.wait_until(None if ahead is None else clock.now() + ahead, poked)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == 5.0


def test_without_a_time_only_a_poke_ends_the_wait() -> None:
    with pytest.raises(RuntimeError, match="everybody waits"):
        run_virtual(SystemClock().wait_until(None, asyncio.Event()))


def test_a_wait_can_be_cancelled() -> None:
    async def main() -> bool:
        clock = SystemClock()
        waiting = asyncio.create_task(clock.wait_until(clock.now() + 3600, asyncio.Event()))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        return waiting.cancelled()

    assert run_virtual(main())
