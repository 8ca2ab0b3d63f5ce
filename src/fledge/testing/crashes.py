"""`survives_crashes`: play a program in processes that are ended at chosen commits, start it again, and check the end.

For users' programs; `fledge.testing` exports it. Processes are forked, so everything the program is given (models,
tools, agents) is there in each of them, and time is virtual and goes on from one process to the next. Linux and macOS.
"""

import asyncio
import mmap
import os
import signal
import struct
import sys
import tempfile
import traceback
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from fledge.api.fledge import Fledge
from fledge.client.opening import open as open_folder
from fledge.errors import BadInput, Refused
from fledge.testing import START, CrashPoint, InlineStore, SharedClock, run_virtual

When = Literal["before", "after"]
Acts = Callable[[Fledge], Awaitable[object]]
POINTS: Final = 30
PATIENCE_S: Final = 60.0
_CRASHED: Final = 86
_FAILED: Final = 87


class _Point(Struct, frozen=True):
    """Where a process ends: before or after its n-th commit."""

    nth: int
    when: When


_NOWHERE: Final = _Point(sys.maxsize, "before")


def survives_crashes(
    main: Acts,
    check: Acts | None = None,
    *,
    points: int | None = POINTS,
    patience_s: float = PATIENCE_S,
    **options: Any,
) -> int:
    """Kill your program at many commits, run it again each time, and check the result; return the number of crashes.

    For each crash point: run `main(fl)` on a new folder, end its process before or after a commit as kill -9 would, run
    `main(fl)` again to its end, then run `check(fl)`.

    - `main`: your program. It must be repeatable: spawn with an `idempotency_key`, and send a message with
      `fl.agent(…, idempotency_key=…)`.
    - `check`: asserts what must hold in the end.
    - `points`: how many crash points, spread evenly over all commits; None for every commit.
    - `patience_s`: a process that takes longer, in real seconds, has failed.
    - `options`: those of `fledge.open`. Without them there are no settings, and the workspace is an empty folder.

    Raises `AssertionError` naming the commits at which `main` or `check` failed, and why. Call it outside an event
    loop.

    >>> async def main(fl):
    ...     run = await fl.spawn("Say hello", idempotency_key="hello")
    ...     assert (await run).text == "Say hello"
    >>> async def check(fl):
    ...     assert len(await fl.runs()) == 1
    >>> survives_crashes(main, check, points=6, model=ScriptedModel(echo))
    6
    """
    _check_arguments(main, check, points)
    play = _Play(main, check, patience_s, options)
    failed, total = play.whole()
    if failed:
        raise AssertionError(f"it fails without a crash:\n{failed}")
    all_points = [_Point(nth, when) for nth in range(1, total + 1) for when in ("before", "after")]
    chosen = _spread(all_points, points)
    wrong = [(point, found) for point in chosen if (found := play.whole(point)[0])]
    if wrong:
        shown = "\n".join(f"crashed {point.when} commit {point.nth} of {total}:\n{found}" for point, found in wrong[:3])
        raise AssertionError(f"{len(wrong)} of {len(chosen)} crashes were not survived. {shown}")
    return len(chosen)


def _check_arguments(main: object, check: object, points: object) -> None:
    for name, given in (("main", main), ("check", check)):
        if not callable(given) and (name == "main" or given is not None):
            raise BadInput(name, "must be an async function that takes the opened fledge", given)
    if points is not None and (isinstance(points, bool) or not isinstance(points, int) or points < 1):
        raise BadInput("points", "must be 1 or more, or None for every commit", points)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise Refused("error", "survives_crashes cannot be used inside a running event loop: it forks processes")


def _spread(points: list[_Point], most: int | None) -> list[_Point]:
    """At most `most` of the points, evenly from the first to the last; None for all."""
    if most is None or most >= len(points):
        return points
    last = max(1, most - 1)
    return [points[round(at * (len(points) - 1) / last)] for at in range(most)]


class _Play:
    """Plays one program in processes."""

    def __init__(self, main: Acts, check: Acts | None, patience_s: float, options: dict[str, Any]) -> None:
        self._main, self._check, self._patience_s, self._options = main, check, patience_s, options

    def whole(self, point: _Point | None = None) -> tuple[str, int]:
        """Crash at this point, if any, and play on to the end; returns the fault, empty if there is none, and the
        number of commits of the program's last process."""
        points = [_NOWHERE] if point is None else [point, _NOWHERE]
        with tempfile.TemporaryDirectory() as name, mmap.mmap(-1, 16) as memory:
            memory[:16] = struct.pack("dq", START, 0)
            found = next(filter(None, (self._process(Path(name), memory, self._main, one) for one in points)), "")
            commits = int(struct.unpack("q", memory[8:16])[0])
            if self._check is not None and not found:
                found = self._process(Path(name), memory, self._check, _NOWHERE)
            return found, commits

    def _process(self, folder: Path, memory: mmap.mmap, acts: Acts, point: _Point) -> str:
        """Run this in a process of its own; returns why it failed, empty if it did not fail or crashed as planned."""
        report = folder / "failed"
        with warnings.catch_warnings():
            # A thread that only waits, such as a test runner's, does no harm: the child uses none of its locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            signal.setitimer(signal.ITIMER_REAL, self._patience_s)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            try:
                run_virtual(self._act(folder, memory, acts, point))
                os._exit(0)
            except BaseException:
                report.write_text(traceback.format_exc(), "utf-8")
                os._exit(_FAILED)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0 or (code == _CRASHED and point is not _NOWHERE):
            return ""
        if code == -signal.SIGALRM:
            return f"it did not end within {self._patience_s:g} s"
        return report.read_text("utf-8") if code == _FAILED else f"its process ended with {code}"

    async def _act(self, folder: Path, memory: mmap.mmap, acts: Acts, point: _Point) -> None:
        state, workspace = folder / "state", folder / "workspace"
        workspace.mkdir(exist_ok=True)
        store = CrashPoint(InlineStore(state), point.nth, point.when, _CRASHED)
        given = {"config": {}, "workspace": workspace, **self._options}
        async with open_folder(state, store=store, clock=SharedClock(memory), **given) as fl:
            await acts(fl)
        memory[8:16] = struct.pack("q", store.begun)
