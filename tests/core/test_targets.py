"""Which child a word means, in every way it can be said."""

import pytest

from fledge.core.prompts import ChildRow, RunStatus
from fledge.core.targets import is_everybody, is_position, pick
from fledge.errors import NotFound
from tests.statements import proves


def row(name: str, label: str, run_id: str, status: RunStatus = "running", at: float = 0.0) -> ChildRow:
    return ChildRow(key=f"agent:main:subagent:{name}", run_id=run_id, status=status, label=label, started_at=at)


ROWS = [
    row("a", "Survey", "550e8400", "done", 1.0),
    row("b", "Survey tests", "660e8400", "running", 2.0),
    row("c", "draft", "770e8400", "running", 3.0),
]


@proves("4.tools.26", "A target is a number, `last`, a label or its prefix, a run id prefix, a session key")
@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("last", "c"),
        (" LAST ", "c"),
        ("agent:main:subagent:b", "b"),
        ("AGENT:main:subagent:B", "b"),
        ("survey", "a"),
        ("Survey t", "b"),
        ("dr", "c"),
        ("55", None),
        ("550e", "a"),
        ("770E8", "c"),
    ],
)
def test_a_word_means_one_child(word: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(NotFound, match="no subagent number 55: there are 3"):
            pick(word, ROWS)
    else:
        assert pick(word, ROWS).key == f"agent:main:subagent:{name}"


def test_numbers_count_as_lists_show_them_active_ones_first() -> None:
    shown = [pick(str(number), ROWS).key[-1] for number in (1, 2, 3)]
    assert sorted(shown) == ["a", "b", "c"]
    assert shown[-1] == "a", "the one that is done comes last"
    assert pick("#1", ROWS) == pick("1", ROWS)


@proves("4.tools.27", "Ambiguous and unknown targets each say so")
@pytest.mark.parametrize(
    ("word", "rows", "words"),
    [
        ("", ROWS, "name a subagent: its number, label, run id or session key"),
        ("  ", ROWS, "name a subagent: its number, label, run id or session key"),
        ("x", [], "there are no subagents here"),
        ("0", ROWS, "no subagent number 0: there are 3"),
        ("4", ROWS, "no subagent number 4: there are 3"),
        ("nobody", ROWS, "no subagent 'nobody'"),
        ("agent:main:subagent:z", ROWS, "no session 'agent:main:subagent:z'"),
        (
            "sur",
            ROWS,
            "'sur' is ambiguous: #1 Survey tests, #3 Survey: give its number",
        ),
        (
            "twin",
            [row(str(n), "twin", f"{n}") for n in range(7)],
            "'twin' is ambiguous: #1 twin, #2 twin, #3 twin, #4 twin, #5 twin, …: give its number",
        ),
        (
            "550",
            [row("a", "", "550e8400"), row("b", "two\nlines", "550e8401"), *ROWS[1:]],
            "no subagent number 550: there are 4",
        ),
        (
            "550e",
            [row("a", "", "550e8400"), row("b", "two\nlines", "550e8401")],
            "'550e' is ambiguous: #1, #2 two lines: give its number",
        ),
        ("one\nline", ROWS, "no subagent 'one line'"),
    ],
)
def test_unknown_and_ambiguous_words_each_say_so(word: str, rows: list[ChildRow], words: str) -> None:
    with pytest.raises(NotFound) as refused:
        pick(word, rows)
    assert refused.value.reason == words


@pytest.mark.parametrize("mark", ["", "#"])
def test_more_digits_than_python_reads_are_no_number(mark: str) -> None:
    with pytest.raises(NotFound, match=f"no subagent '{mark}9999"):
        pick(mark + "9" * 5000, ROWS)


def test_exactly_five_candidates_are_all_named() -> None:
    with pytest.raises(NotFound) as refused:
        pick("twin", [row(str(n), "twin", f"{n}") for n in range(5)])
    assert "…" not in refused.value.reason


def test_digits_that_number_nothing_may_begin_a_run_id() -> None:
    rows = [row("a", "one", "55084001-aa"), row("b", "two", "55084002-bb")]
    assert pick("55084001", rows).key[-1] == "a"
    with pytest.raises(NotFound, match="ambiguous"):
        pick("550840", rows)
    with pytest.raises(NotFound, match="no subagent number 55084: there are 2"):
        pick("55084", rows)


BELOW = [row("d", "deeper", "880e8400"), row("e", "Survey", "990e8400")]


@pytest.mark.parametrize(
    ("word", "name"),
    [("deeper", "d"), ("990e", "e"), ("agent:main:subagent:e", "e"), ("survey", "a"), ("last", "c"), ("Survey t", "b")],
)
def test_what_lies_below_is_found_by_its_names_after_the_children_themselves(word: str, name: str) -> None:
    assert pick(word, ROWS, BELOW).key[-1] == name


def test_what_lies_below_has_no_number_so_its_run_id_is_named() -> None:
    below = [row("d", "deeper", "880e8400-aaaa"), row("e", "deeper", "990e8400-bbbb"), row("f", "", "990e8400-cccc")]
    with pytest.raises(NotFound) as refused:
        pick("deeper", ROWS, below)
    assert refused.value.reason == (
        "'deeper' is ambiguous: deeper (run 880e8400), deeper (run 990e8400): give its run id"
    )
    with pytest.raises(NotFound) as refused:
        pick("990e", ROWS, below)
    assert refused.value.reason.startswith("'990e' is ambiguous: (run 990e8400), deeper (run 990e8400)")


def test_a_session_without_children_finds_what_lies_below_by_name_and_last_but_by_no_number() -> None:
    assert pick("deeper", (), BELOW).key[-1] == "d"
    assert pick("last", (), BELOW).key[-1] == "e"
    with pytest.raises(NotFound, match="no subagent number 1: there are 0"):
        pick("1", (), BELOW)


def test_numbers_are_of_the_children_alone() -> None:
    with pytest.raises(NotFound, match="no subagent number 4: there are 3"):
        pick("4", ROWS, BELOW)


@pytest.mark.parametrize(
    ("word", "is_all"), [("all", True), (" ALL ", True), ("*", True), ("alle", False), ("", False)]
)
def test_two_words_mean_every_run(word: str, is_all: bool) -> None:
    assert is_everybody(word) == is_all


@pytest.mark.parametrize(
    ("word", "is_place"),
    [
        *[("last", True), (" LAST ", True), ("2", True), ("#2", True), ("12345", True)],
        *[("lasting", False), ("", False), ("123456", False), ("#12345", False), ("12345678", False)],
    ],
)
def test_numbers_and_last_mean_a_place_in_a_list(word: str, is_place: bool) -> None:
    assert is_position(word) == is_place
