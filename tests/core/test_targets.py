"""Which child a word means, in every way it can be said."""

import pytest

from fledge.core.prompts import ChildRow, RunStatus
from fledge.core.targets import is_everybody, is_own, number_in, pick, unknown_number
from fledge.errors import NotFound
from tests.statements import proves


def row(name: str, label: str, run_id: str, status: RunStatus = "running", number: int = 0) -> ChildRow:
    return ChildRow(key=f"agent:main:subagent:{name}", run_id=run_id, status=status, label=label, number=number)


ROWS = [
    row("a", "Survey", "550e8400", "done", 2),
    row("b", "Survey tests", "660e8400", "running", 5),
    row("c", "draft", "770e8400", "running", 7),
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
        ("550e", "a"),
        ("770E8", "c"),
    ],
)
def test_a_word_means_one_child(word: str, name: str) -> None:
    assert pick(word, ROWS).key == f"agent:main:subagent:{name}"


@proves("4.tools.26")
@pytest.mark.parametrize(
    ("word", "spawned", "number"),
    [
        *[("2", 3, 2), (" #2 ", 3, 2), ("0", 3, 0), ("4", 3, 4), ("12345", 3, 12345), ("#1234", 3, 1234)],
        *[("two", 3, None), ("", 3, None), ("#", 3, None), ("-1", 3, None), ("last", 3, None)],
        *[("123456", 3, None), ("#12345", 3, None), ("123456", 123456, 123456), ("#12345", 12345, 12345)],
        *[("99999999", 10**9, 99999999), ("999999999", 10**9, None), ("9" * 5000, 3, None)],
    ],
)
def test_digits_are_a_number_unless_they_may_begin_a_run_id(word: str, spawned: int, number: int | None) -> None:
    assert number_in(word, spawned) == number


@pytest.mark.parametrize(
    ("number", "spawned", "words"),
    [
        (1, 0, "there are no subagents here"),
        (0, 3, "no subagent #0: the last one is #3"),
        (1, 3, "subagent #1 is gone"),
        (3, 3, "subagent #3 is gone"),
        (4, 3, "no subagent #4: the last one is #3"),
    ],
)
def test_a_number_that_no_run_has_is_refused(number: int, spawned: int, words: str) -> None:
    assert unknown_number(number, spawned).reason == words


@proves("4.tools.27", "Ambiguous and unknown targets each say so")
@pytest.mark.parametrize(
    ("word", "rows", "words"),
    [
        ("", ROWS, "name a subagent: its number, label, run id or session key"),
        ("  ", ROWS, "name a subagent: its number, label, run id or session key"),
        ("x", [], "there are no subagents here"),
        ("nobody", ROWS, "no subagent 'nobody'"),
        ("agent:main:subagent:z", ROWS, "no session 'agent:main:subagent:z'"),
        ("agent:main:subagent:z", [], "no session 'agent:main:subagent:z'"),
        (
            "sur",
            ROWS,
            "'sur' is ambiguous: #2 Survey, #5 Survey tests: give its number",
        ),
        (
            "twin",
            [row(str(n), "twin", f"{n}", number=8 - n) for n in range(7)],
            "'twin' is ambiguous: #2 twin, #3 twin, #4 twin, #5 twin, #6 twin, …: give its number",
        ),
        (
            "550e",
            [row("a", "", "550e8400", number=1), row("b", "two\nlines", "550e8401", number=2)],
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


def test_a_session_without_children_finds_what_lies_below_by_name_and_last() -> None:
    assert pick("deeper", (), BELOW).key[-1] == "d"
    assert pick("last", (), BELOW).key[-1] == "e"


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
def test_numbers_and_last_mean_a_run_of_the_session_alone(word: str, is_place: bool) -> None:
    assert is_own(word) == is_place
