"""A transcript as others may see it: what is shown, in which order, and what gives way."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.core.history import CUT, HISTORY_BYTES, TEXT_CHARS, ResultPage, ShownMessage, history, page
from fledge.core.redact import redacted
from fledge.core.transcript import Body, CallEntry, Noted, Replied, Resulted, Spoken, Told
from fledge.errors import BadInput
from tests.statements import proves

SECRET = "sk-proj-abcdef123456"
TALK: list[tuple[float, Body]] = [
    (1.0, Spoken("look around", source="agent:main:main")),
    (2.0, Replied("", (CallEntry("c1", "read", '{"path": "a"}'),), thinking="secretly")),
    (3.0, Resulted(2, 0, "c1", "read", "the file")),
    (4.0, Told("a child is done")),
    (5.0, Noted("notes")),
    (6.5, Replied("found it", thinking="aha", opaque="sig")),
]


def test_words_are_shown_in_order_without_tools_and_thoughts() -> None:
    shown = history(TALK, 50)
    assert shown.messages == (
        ShownMessage("user", "look around", 1000, "agent:main:main"),
        ShownMessage("event", "a child is done", 4000),
        ShownMessage("note", "notes", 5000),
        ShownMessage("assistant", "found it", 6500),
    )
    assert (shown.truncated, shown.dropped_messages, shown.content_redacted) == (False, 0, False)
    assert b"aha" not in msgspec.json.encode(shown)


def test_tools_are_shown_if_asked_for() -> None:
    shown = history(TALK, 50, include_tools=True)
    assert shown.messages[1:3] == (
        ShownMessage("assistant", "", 2000, calls=('read {"path": "a"}',)),
        ShownMessage("tool", "the file", 3000, tool="read"),
    )


def test_the_limit_leaves_the_newest_and_counts_the_rest() -> None:
    shown = history(TALK, 1)
    assert [message.text for message in shown.messages] == ["found it"]
    assert (shown.truncated, shown.dropped_messages, shown.content_truncated) == (True, 3, False)


@proves("4.tools.4")
def test_secrets_are_redacted_in_words_results_and_arguments() -> None:
    talk: list[tuple[float, Body]] = [
        (1.0, Replied(f"use {SECRET}", (CallEntry("c", "exec", f'{{"command": "echo {SECRET}"}}'),))),
        (2.0, Resulted(1, 0, "c", "exec", SECRET)),
    ]
    shown = history(talk, 50, include_tools=True)
    assert shown.content_redacted
    assert SECRET not in msgspec.json.encode(shown).decode()


def test_a_long_text_is_cut_after_it_was_redacted() -> None:
    # Cut first, the secret's beginning would stay: too short to be recognised.
    shown = history([(1.0, Spoken("x" * (TEXT_CHARS - 8) + " " + SECRET))], 50)
    assert shown.messages[0].text == ("x" * (TEXT_CHARS - 8) + " [redacted]")[:TEXT_CHARS] + CUT
    assert (shown.truncated, shown.content_truncated, shown.dropped_messages) == (True, True, 0)


@pytest.mark.parametrize("character", ["x", "\x01", "é", "😀"])
def test_all_together_stay_within_their_bytes_and_the_newest_stays(character: str) -> None:
    talk: list[tuple[float, Body]] = [(float(n), Spoken(f"{n} " + character * TEXT_CHARS)) for n in range(100)]
    shown = history(talk, 100)
    assert shown.bytes <= HISTORY_BYTES
    assert shown.bytes == len(msgspec.json.encode(shown.messages))
    assert shown.messages[-1].text.startswith("99 ")
    assert shown.dropped_messages == 100 - len(shown.messages) > 0


def test_even_the_largest_message_fits() -> None:
    calls = tuple(CallEntry("c", "\x01" * 64, "\x01😀" * 5000) for _ in range(200))
    shown = history([(1.0, Replied("\x01" * 10_000, calls))], 1, include_tools=True)
    assert len(shown.messages) == 1
    assert shown.bytes <= HISTORY_BYTES


@given(st.lists(st.text(max_size=300)), st.integers(1, 10))
def test_what_is_shown_and_what_was_dropped_make_up_all(texts: list[str], limit: int) -> None:
    shown = history([(1.0, Spoken(text)) for text in texts], limit)
    assert len(shown.messages) + shown.dropped_messages == len(texts)
    assert len(shown.messages) <= limit


def test_an_empty_transcript_is_an_empty_history() -> None:
    shown = history([], 10)
    assert (shown.messages, shown.bytes, shown.truncated) == ((), 2, False)


# ---- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "limit", "told"),
    [
        (0, 10, ResultPage("0123456789", 0, 10)),
        (0, 99, ResultPage("0123456789", 0, 10)),
        (0, 4, ResultPage("0123", 0, 10, 4)),
        (4, 4, ResultPage("4567", 4, 10, 8)),
        (8, 4, ResultPage("89", 8, 10)),
        (10, 4, ResultPage("", 10, 10)),
    ],
)
def test_a_page_has_its_part_of_the_result_and_where_the_next_begins(offset: int, limit: int, told: ResultPage) -> None:
    assert page("0123456789", offset, limit) == told


def test_a_page_is_told_without_a_next_at_the_end() -> None:
    assert msgspec.json.decode(msgspec.json.encode(page("ab", 0, 1))) == {
        "text": "a",
        "offset": 0,
        "total": 2,
        "next": 1,
    }
    assert msgspec.json.decode(msgspec.json.encode(page("", 0, 1))) == {"text": "", "offset": 0, "total": 0}


def test_an_offset_beyond_the_result_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^offset: must be at most 3, the length of the result \(got 4\)$"):
        page("abc", 4, 1)


@pytest.mark.parametrize(
    ("offset", "limit", "text", "next_at"),
    [
        (0, 4, "use ", 4),
        (0, 5, "use [redacted]", 24),
        (0, 24, "use [redacted]", 24),
        (0, 25, "use [redacted] ", 25),
        (4, 1, "[redacted]", 24),
        (5, 1, "[redacted]", 24),
        (23, 4, "[redacted] no", None),
        (24, 4, " now", None),
    ],
)
def test_no_page_shows_a_part_of_a_secret(offset: int, limit: int, text: str, next_at: int | None) -> None:
    result = f"use {SECRET} now"
    if next_at is None:
        result = result[: offset + limit]
    assert page(result, offset, limit) == ResultPage(text, offset, len(result), next_at)


@pytest.mark.parametrize("character", ["x", '"', "\x01", "é", "😀"])
def test_a_page_stays_within_its_bytes_and_uses_them(character: str) -> None:
    result = character * 100_000
    first = page(result, 0, 100_000)
    size = len(msgspec.json.encode(first.text))
    assert HISTORY_BYTES - len(msgspec.json.encode(character)) <= size <= HISTORY_BYTES
    assert first.next == len(first.text)


@given(
    st.lists(st.sampled_from([SECRET, "token=abcd1234", "é", "\x01", " ", "word "])).map("".join), st.integers(1, 40)
)
def test_all_pages_together_are_the_redacted_result(result: str, limit: int) -> None:
    told, at = "", 0
    while True:
        one = page(result, at, limit)
        told += one.text
        if one.next is None:
            break
        assert one.next > at
        at = one.next
    assert told == redacted(result)
