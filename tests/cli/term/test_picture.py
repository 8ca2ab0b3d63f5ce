"""Pictures on a terminal: whatever follows what, each row that stays is there once, and the region stands below."""

from hypothesis import given
from hypothesis import strategies as st

from fledge.cli.term.picture import Painter, ScreenCursor
from tests.cli.term.scene import Glass

WIDTH, HEIGHT = 20, 12
ROWS = st.lists(
    st.sampled_from(("", "row", "another row", "日本語", "\x1b[1mbold\x1b[0m", "x" * (WIDTH - 1))), max_size=6
)
LONG = st.sampled_from(("x" * 19, "x" * 20, "x" * 21, "日" * 10, "y" + "日" * 15, "z" * 60, "tab\tbed"))


class Told:
    """A terminal, its painter, and what must stand there."""

    def __init__(self) -> None:
        self.glass, self.painter = Glass(WIDTH, HEIGHT), Painter(folds=False)
        self.above: list[str] = []
        self.folded = ""

    def paint(self, above: list[str], rows: list[str], *, is_parked: bool = False) -> str:
        """Draw a picture."""
        self.above += above
        cursor = None if is_parked else ScreenCursor(0, len(rows) - 1)
        data = self.painter.paint(above, rows, cursor, WIDTH)
        self.glass.feed(data)
        return data


def bare(row: str) -> str:
    return row.replace("\x1b[1m", "").replace("\x1b[0m", "")


@given(st.lists(st.tuples(ROWS, ROWS, st.booleans()), max_size=12))
def test_rows_that_stay_are_written_once_and_the_region_stands_below_them(
    pictures: list[tuple[list[str], list[str], bool]],
) -> None:
    told = Told()
    for above, rows, is_parked in pictures:
        shown = [*rows, "›"]
        told.paint(above, shown, is_parked=is_parked)
        assert told.glass.all() == [bare(row) for row in (*told.above, *shown)]
        assert told.glass.cursor[1] == len(told.glass.rows()) - (len(shown) if is_parked else 1)


@given(st.lists(st.tuples(st.lists(LONG, max_size=3), ROWS), max_size=8))
def test_a_row_wider_than_the_terminal_is_folded_by_it_and_nothing_of_the_region_shows_through(
    pictures: list[tuple[list[str], list[str]]],
) -> None:
    told = Told()
    for above, rows in pictures:
        told.paint(above, [*rows, "›"])
    expected = "".join(bare(row).expandtabs(8) for row in told.above)
    last = [*pictures[-1][1], "›"] if pictures else []
    assert "".join(told.glass.all()).replace(" ", "") == (expected + "".join(map(bare, last))).replace(" ", "")


def test_the_same_picture_again_writes_nothing_and_one_changed_row_writes_that_row() -> None:
    told = Told()
    told.paint([], ["one", "two", "three"])
    assert told.paint([], ["one", "two", "three"]) == ""
    changed = told.paint([], ["one", "TWO", "three"])
    assert "TWO" in changed
    assert "one" not in changed
    assert "three" not in changed


def test_the_region_is_taken_away_and_what_follows_begins_where_it_stood() -> None:
    told = Told()
    told.paint(["stays"], ["one", "two", "›"])
    told.glass.feed(told.painter.paint([], [], ScreenCursor(0, 0), WIDTH))
    told.glass.feed("next")
    assert told.glass.all() == ["stays", "next"]


def test_a_narrower_terminal_that_folds_rows_is_reckoned_with() -> None:
    painter = Painter(folds=True)
    painter.paint([], ["x" * 18, "y" * 5, "› words"], ScreenCursor(7, 2), 20)
    assert (
        painter.paint([], ["x", "y", "›"], ScreenCursor(2, 2), 10).count("\x1b[3A") == 1
    )  # the first row takes two now
    assert Painter(folds=False).paint([], ["x"], ScreenCursor(0, 0), 10)
