"""The live region is a function of what goes on, the size of the terminal and the time."""

from hypothesis import given
from hypothesis import strategies as st

from fledge.cli.term.cells import Theme, columns_of_row
from fledge.cli.term.region import CHILD_ROWS, TAIL_ROWS, View, always_key, menu_rows, region_rows
from fledge.cli.term.shown import CallQuestion, OpenQuestion, PlanQuestion, TurnShown, WorkingChild

PLAIN = Theme(colour=False)
WORDS = st.text(st.sampled_from("abc 你好🚀\x1b\n·"), max_size=60)
CHILDREN = st.builds(
    WorkingChild,
    label=WORDS,
    doing=WORDS,
    since=st.floats(0, 1e6),
    tokens=st.integers(0, 10**9),
    waits=st.booleans(),
)
QUESTIONS: st.SearchStrategy[OpenQuestion] = st.one_of(
    st.builds(CallQuestion, id=st.just("q"), who=WORDS, text=WORDS, place=WORDS, always=WORDS),
    st.builds(PlanQuestion, id=st.just("p"), who=WORDS, text=WORDS),
)
VIEWS = st.builds(
    View,
    tail=st.lists(st.just("tail"), max_size=12).map(tuple),
    turn=st.none()
    | st.builds(
        TurnShown, st.sampled_from(("thinking", "answering", "tool", "retrying", "waiting")), st.just(0.0), WORDS
    ),
    children=st.lists(CHILDREN, max_size=9).map(tuple),
    shows_all=st.booleans(),
    asked=st.lists(QUESTIONS, max_size=2).map(tuple),
    answering=st.sampled_from(("waits", "keys", "reason")),
    queued=st.lists(WORDS, max_size=5).map(tuple),
    notes=st.lists(WORDS, max_size=2).map(tuple),
)


@given(VIEWS, st.integers(20, 120), st.integers(1, 40), st.floats(0, 1e6))
def test_no_row_is_too_wide_there_are_never_too_many_and_none_acts_on_the_terminal(
    view: View, width: int, room: int, now: float
) -> None:
    rows = region_rows(view, width, room, now, PLAIN)
    assert len(rows) <= room
    assert all(columns_of_row(row) <= width for row in rows)
    assert not any(sign in row.replace("\x1b[", "") for row in rows for sign in "\x1b\n\r")


@given(VIEWS, st.integers(24, 120), st.integers(26, 40))
def test_a_terminal_that_is_high_enough_shows_the_end_of_the_answer_and_some_children(
    view: View, width: int, room: int
) -> None:
    rows = region_rows(view, width, room, 0.0, PLAIN)
    assert rows.count("tail") == min(len(view.tail), TAIL_ROWS)
    if not view.shows_all:
        shown = sum(row.startswith(("  ├", "  └")) for row in rows)
        assert shown == min(len(view.children), CHILD_ROWS)


def test_a_turn_is_shown_with_what_it_does() -> None:
    def shown(turn: TurnShown, now: float = 12.3, width: int = 60) -> str:
        return region_rows(View(turn=turn), width, 5, now, PLAIN)[0][1:]

    assert shown(TurnShown("thinking", 0)) == " thinking · 12s · esc stops"
    assert shown(TurnShown("answering", 0, tokens=999_999)) == " answering · 12s · ↓ 1.0m tok · esc stops"
    assert shown(TurnShown("tool", 0, "exec pytest -q")) == " exec pytest -q · 12s · esc stops"
    assert shown(TurnShown("tool", 0, "exec " + "x" * 90), width=40) == " exec xxxxxxxxxxxxxx… · 12s · esc stops"
    assert shown(TurnShown("answering", 0, tokens=9), width=29) == " answering · 12s · esc stops"
    assert shown(TurnShown("thinking", 0), 4000) == " thinking · 1h06m · esc stops"
    assert (
        shown(TurnShown("retrying", 0, "model: 429", attempt=2, retry_at=5)) == " model: 429 · try 2 in 0s · esc stops"
    )


def test_the_keys_that_answer_are_never_divided() -> None:
    view = View(asked=(CallQuestion("q", "scout", "make", always="make"),), answering="keys")
    assert region_rows(view, 36, 10, 0, PLAIN) == [
        "? scout wants to run",
        "    make",
        "  y once · a always for `make` here",
        "  n no · e say why",
    ]


def test_queued_words_are_shown_as_queued_and_many_are_counted() -> None:
    rows = region_rows(View(queued=("a", "b")), 40, 10, 0, PLAIN)
    assert [row.replace("\x1b[2m", "").replace("\x1b[0m", "") for row in rows] == ["  queued › a", "  queued › b"]
    rows = region_rows(View(queued=("a", "b", "c", "d")), 40, 10, 0, PLAIN)
    assert [row.replace("\x1b[2m", "").replace("\x1b[0m", "") for row in rows] == [
        "  queued: 2 earlier",
        "  queued › c",
        "  queued › d",
    ]


def test_the_menu_shows_the_choices_near_the_chosen_one() -> None:
    choices = [(f"/c{number}", "meaning") for number in range(20)]
    rows = menu_rows(choices, 10, 30, Theme(colour=False))
    assert [row.split("/")[1][:3] for row in rows] == ["c7 ", "c8 ", "c9 ", "c10", "c11", "c12"]
    assert [row[0] for row in rows] == list("   ›  ")
    assert menu_rows([], None, 30, PLAIN) == []


def test_a_turn_that_waits_for_the_person_or_for_an_unknown_time_says_so() -> None:
    waits, fails = TurnShown("waiting", 0.0), TurnShown("retrying", 0.0, "model: HTTP 401", attempt=2)
    assert region_rows(View(turn=waits), 60, 5, 12.0, PLAIN) == ["· waits for you · 12s · esc stops"]
    assert region_rows(View(turn=fails), 60, 5, 12.0, PLAIN) == ["✖ model: HTTP 401 · try 2 follows · esc stops"]


def test_a_rule_is_offered_whole_or_not_at_all() -> None:
    question = CallQuestion("q", "scout", "git push", always="git push", for_subagents=True)
    view = View(asked=(question,), answering="keys")
    assert "  a always for `git push` here, subagents too" in region_rows(view, 48, 9, 0.0, PLAIN)
    assert not any("always" in row for row in region_rows(view, 44, 9, 0.0, PLAIN))
    assert (bool(always_key(question, 48)), always_key(question, 44)) == (True, "")
