"""A live region without an input, on a terminal of pyte's in virtual time: what is drawn, and what stays."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from fledge.cli.progress_region import ProgressRegion
from fledge.cli.term.cells import Theme
from fledge.cli.term.inplace import InPlace, TerminalKeys
from fledge.cli.term.shown import EndedItem, TurnShown, WorkingChild
from fledge.cli.watching import picture
from fledge.testing import run_virtual
from tests.cli.term.scene import Glass, GlassPen


class FakeKeys(TerminalKeys):
    """Keys of a terminal that may be another program's for a while."""

    def __init__(self) -> None:
        super().__init__(-1)
        self.is_ours, self.echoes = True, True

    def hush(self) -> bool:
        """Echo them no more."""
        self.echoes = not self.is_ours
        return self.is_ours

    def give_back(self) -> None:
        """Echo them."""
        self.echoes = True


class Drawn:
    """A region of a run, its terminal and its keys."""

    def __init__(self, columns: int, lines: int, colour: bool) -> None:
        self.glass, self.keys = Glass(columns, lines), FakeKeys()
        self.pen = GlassPen(self.glass)
        self.place = InPlace(self.pen, self._size, self.keys, folds=False)
        self.pen.on_written = self.place.written
        self.region = ProgressRegion(Theme(colour=colour), None, self.place)

    def _size(self) -> os.terminal_size:
        return os.terminal_size((self.glass.size.columns, self.glass.size.rows))

    async def rows(self) -> list[str]:
        """What stands there after a while."""
        await asyncio.sleep(0.2)
        return self.glass.all()


@asynccontextmanager
async def drawn(columns: int = 60, lines: int = 12, *, colour: bool = False) -> AsyncIterator[Drawn]:
    one = Drawn(columns, lines, colour)
    async with one.place:
        yield one


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(story())


def test_the_turn_the_children_and_the_end_of_the_answer_are_drawn_and_then_gone() -> None:
    async def story() -> None:
        async with drawn() as one:
            now = one.region.now()
            one.region.turn(TurnShown("answering", now, tokens=340))
            one.region.children(tuple(WorkingChild(f"child {number}", "thinking", now) for number in range(6)))
            one.region.words("one\ntwo **three**")
            rows = await one.rows()
            assert rows[:2] == ["one", "two **three**"]
            assert rows[2][1:] == " answering · 0s · ↓ 340 tok · ctrl-c leaves"
            assert rows[3:] == [
                "  ├ child 0 · thinking · 0s",
                "  ├ child 1 · thinking · 0s",
                "  ├ child 2 · thinking · 0s",
                "  └ child 3 · thinking · 0s                        (2 more)",
            ]
            assert not one.keys.echoes
            one.region.words("")
            one.region.print("one\ntwo **three**")
            one.region.tell("scout has ended", EndedItem("scout", "done", 41, 8100, 0.01, "found"))
            one.region.tell("one below it has ended")
            one.region.turn(None)
            one.region.children(())
            kept = ["one", "two **three**", "", "✔ scout · done · 41s · 8.1k tok · $0.01", "  found"]
            assert await one.rows() == kept
        assert one.glass.all() == kept
        assert one.keys.echoes
        assert not one.glass.hides_cursor

    play(story)


def test_a_long_line_of_an_answer_is_left_whole_to_the_terminal() -> None:
    async def story() -> None:
        text = "word " * 40
        async with drawn() as one:
            one.region.turn(TurnShown("thinking", one.region.now()))
            await one.rows()
            one.region.print(text.strip())
            rows = await one.rows()
            assert "thinking" in rows[-1]
            assert all("thinking" not in row for row in rows[:-1])
        assert "".join(row.ljust(60) for row in one.glass.all()).split() == text.split()

    play(story)


def test_while_the_terminal_takes_nothing_no_picture_is_made_and_then_one_with_all() -> None:
    async def story() -> None:
        async with drawn() as one:
            one.region.turn(TurnShown("thinking", one.region.now()))
            await one.rows()
            one.pen.is_stalled = True
            await asyncio.sleep(1)
            writes = one.pen.writes
            for number in range(5):
                one.region.print(f"answer {number}")
                await asyncio.sleep(1)
            assert one.pen.writes == writes
            one.pen.go_on()
            rows = await one.rows()
            assert [row for row in rows if row.startswith("answer")] == [f"answer {number}" for number in range(5)]

    play(story)


def test_nothing_is_drawn_while_another_program_has_the_terminal() -> None:
    async def story() -> None:
        async with drawn() as one:
            one.region.turn(TurnShown("thinking", one.region.now()))
            assert "thinking" in (await one.rows())[-1]
            one.keys.is_ours = False
            assert await one.rows() == []
            one.region.print("an answer")
            assert await one.rows() == ["an answer"]
            one.keys.is_ours = True
            assert "thinking" in (await one.rows())[-1]

    play(story)


def test_colours_are_left_out_where_the_person_wants_none() -> None:
    async def story(colour: bool) -> str:
        async with drawn(colour=colour) as one:
            one.region.tell("scout has ended", EndedItem("scout", "done", 1))
            await one.rows()
            return one.pen.last

    async def both() -> None:
        assert "\x1b[32m" in await story(True)
        assert "\x1b[3" not in await story(False)

    play(both)


def test_a_tree_that_is_higher_or_wider_than_the_terminal_is_cut() -> None:
    lines = ["└─ a", "   ├─ 翻訳者", "   └─ long " + "x" * 20, "last"]
    assert picture(lines, 14, 4) == ["└─ a", "   ├─ 翻訳者", "   └─ long xx…", "last"]
    assert picture(lines, 14, 3) == ["└─ a", "   ├─ 翻訳者", "… 2 more"]
    assert picture(lines, 10, 2) == ["└─ a", "… 3 more"]
    assert picture(lines, 10, 0) == []
