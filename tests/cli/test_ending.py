"""A command that waits is called off by a signal, and ends in order however many follow."""

import asyncio
import signal

import pytest

from fledge.cli.ending import TERMINATED, until_ended


async def called_off(by: signal.Signals, ended: list[str]) -> int:
    try:
        signal.raise_signal(by)
        await asyncio.Event().wait()
        return 0
    finally:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        for _ in range(3):
            await asyncio.sleep(0)
        ended.append("in order")


def test_ctrl_c_again_does_not_cut_the_end_short() -> None:
    ended: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(until_ended(called_off(signal.SIGINT, ended)))
    assert ended == ["in order"]


def test_a_process_that_is_asked_to_end_answers_143_whatever_follows() -> None:
    ended: list[str] = []
    assert asyncio.run(until_ended(called_off(signal.SIGTERM, ended))) == TERMINATED == 143
    assert ended == ["in order"]


def test_what_a_command_comes_to_is_answered() -> None:
    async def three() -> int:
        return 3

    assert asyncio.run(until_ended(three())) == 3
