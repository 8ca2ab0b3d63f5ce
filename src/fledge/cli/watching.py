"""`fledge tree --watch` and `fledge ps --watch`: the same lines, redrawn in place while something happens; in a pipe a
line for each run whose state has changed.

It ends when everything has settled and nothing waits for a person. A folder that no process drives is looked at again
and again, because one may begin to drive it.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Final

from fledge.cancellation import end_tasks
from fledge.cli import rendering, verbs
from fledge.cli.ending import until_ended
from fledge.cli.term.outputs import Outputs, draws_on, opened_outputs, stray_lines
from fledge.cli.verbs import RunsPage, RunsWanted, What
from fledge.cli.where import Where
from fledge.client.folder import Client
from fledge.clock import wait_for_event
from fledge.commands import lines
from fledge.commands.reading import from_wire
from fledge.commands.values import Overview, RunPage
from fledge.core.printable import printable
from fledge.errors import Refused

LOOK_S: Final = 1.0
"""How long after a look the next one follows, if nothing happens: the times in the lines have changed by then."""
PAUSE_S: Final = 0.1
"""The least time between two looks."""
INTERRUPTED: Final = 130


Looks = AsyncGenerator[RunsPage, None]


def watch(where: Where, what: What, wanted: RunsWanted, *, draws: bool = True) -> int:
    """Show the runs until everything has settled, or Ctrl-C. Without `draws` nothing is redrawn in place: a log is
    written to the terminal, too."""
    try:
        return asyncio.run(until_ended(_watch(where, what, wanted, draws)))
    except KeyboardInterrupt:
        return INTERRUPTED  # the runs go on


async def _watch(where: Where, what: What, wanted: RunsWanted, draws: bool) -> int:
    async with verbs.looking_client(where) as client:
        again = partial(verbs.look, client, where, what, wanted)
        first = await again()  # a refusal comes before anything is drawn
        async with opened_outputs() as outputs:
            looks = _follow(first, again, client)
            if draws and draws_on(sys.stdout):
                with suppress(ImportError):
                    await _in_place(outputs, looks, what)
                    return 0
            await _in_lines(outputs, looks)
            return 0


async def _follow(seen: RunsPage, again: Callable[[], Awaitable[RunsPage]], client: Client) -> Looks:
    """The state of the runs, read again whenever something has happened, and at least every `LOOK_S`, until it is
    over."""
    changed = asyncio.Event()
    listening = asyncio.ensure_future(_listen(client, changed))
    try:
        yield seen
        while not _is_over(seen):
            await wait_for_event(changed, LOOK_S)
            if listening.done():
                listening.result()
            changed.clear()
            seen = await again()
            yield seen
            await asyncio.sleep(PAUSE_S)
    finally:
        await end_tasks([listening])


def _is_over(seen: RunsPage) -> bool:
    """True if nothing is left to do and nothing waits for a person."""
    around = from_wire(Overview, seen.around)
    return not (around.is_unfinished or around.questions or around.plans)


async def _listen(client: Client, changed: asyncio.Event) -> None:
    while True:
        try:
            async with aclosing(client.events(live=False)) as feed:
                async for _ in feed:
                    changed.set()
        except Refused:
            await asyncio.sleep(LOOK_S)  # no process drives the folder; one may by then


# ---- in a terminal ---------------------------------------------------------------------------------------------------


def picture(lines: Sequence[str], width: int, room: int) -> list[str]:
    """Lines as rows of a live region: as many as there is room for, cut at the terminal's edge."""
    from fledge.cli.term.cells import chop

    shown = lines if len(lines) <= room else lines[: max(0, room - 1)]
    rows = []
    for line in shown:
        first, *more = chop(printable(line), width)
        rows.append(f"{chop(first, width - 1)[0]}…" if more else first)
    left_out = len(lines) - len(shown)
    return [*rows, f"… {left_out} more"][:room] if left_out else rows


async def _in_place(outputs: Outputs, looks: Looks, what: What) -> None:
    """Redraw the lines at each look; the last ones stay. ImportError: the extra `chat` is not installed."""
    from fledge.cli.term.inplace import in_place

    shown: list[str] = []
    async with in_place(outputs.out, sys.stdout.fileno()) as place:
        try:
            async with stray_lines(lambda line: place.above([printable(line)])), aclosing(looks):
                async for seen in looks:
                    shown = rendering.runs(what, seen)
                    place.rows = partial(picture, shown)
                    place.change()
        finally:
            place.above([printable(line) for line in shown])


# ---- in a pipe -------------------------------------------------------------------------------------------------------


async def _in_lines(outputs: Outputs, looks: Looks) -> None:
    """A line for each run whose state has changed."""
    known: set[tuple[str, str]] = set()
    async with aclosing(looks):
        async for seen in looks:
            rows = from_wire(RunPage, seen.page).rows
            stands = [(run.session_key, f"{lines.row_name(run)} · {lines.row_status(run)}") for run in rows]
            for key, state in stands:
                if (key, state) not in known:
                    outputs.out.print(f"{printable(state)}\n")
            known = set(stands)
