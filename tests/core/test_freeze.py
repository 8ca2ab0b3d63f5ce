"""What an attempt leaves behind: tokens, frozen text, partial progress, summary, figures."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.core import freeze as frozen
from fledge.core.freeze import (
    FROZEN_BYTES,
    Stats,
    classify_reply,
    freeze,
    one_line,
    partial,
    stats_line,
    summary,
    to_valid_utf8,
)
from fledge.errors import BadInput
from tests.statements import proves

any_text = st.text(st.characters(codec=None), max_size=300)
LIMIT = 102_400
NOTICE = "\n\n[truncated: frozen completion output exceeded 100KB (101KB)]"


def test_the_tokens_are_spelled_as_every_prompt_spells_them() -> None:
    assert (frozen.NO_REPLY, frozen.ANNOUNCE_SKIP, frozen.REPLY_SKIP, frozen.HEARTBEAT_OK) == (
        "NO_REPLY",
        "ANNOUNCE_SKIP",
        "REPLY_SKIP",
        "HEARTBEAT_OK",
    )


@proves("2.announce.20", "A token counts only as the whole reply")
@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", "empty"),
        (" \n\t\u00a0", "empty"),
        ("NO_REPLY", "silent"),
        ("\n NO_REPLY \n", "silent"),
        ("no_reply", "text"),
        ("NO_REPLY.", "text"),
        ("NO_REPLY NO_REPLY", "text"),
        ("ANNOUNCE_SKIP", "skip"),
        ("  ANNOUNCE_SKIP\r\n", "skip"),
        ("announce_skip", "text"),
        ("done, ANNOUNCE_SKIP", "text"),
        ("REPLY_SKIP", "text"),
        ("HEARTBEAT_OK", "text"),
        ("hello", "text"),
    ],
)
def test_a_token_counts_only_as_the_whole_reply(text: str, meaning: str) -> None:
    assert classify_reply(text) == meaning


@proves("2.frozen.1", "The result is the last assistant text")
@proves("2.frozen.2", "Else it is the last tool output, summarised")
@pytest.mark.parametrize(
    ("assistant_text", "tool_output", "result"),
    [
        ("the answer", "tool", "the answer"),
        ("  spaced \n", None, "  spaced \n"),
        ("NO_REPLY", "tool", "NO_REPLY"),
        (None, None, ""),
        ("", "", ""),
        (" \n", " \t", ""),
        (None, " 42 rows \n", "(no final text) Last tool output:\n42 rows"),
        (" ", "NO_REPLY", "(no final text) Last tool output:\nNO_REPLY"),
        ("a\ud800b", None, "a?b"),
        (None, "\udfff", "(no final text) Last tool output:\n?"),
    ],
)
def test_the_result_is_the_last_text_else_the_last_tool_output(
    assistant_text: str | None, tool_output: str | None, result: str
) -> None:
    assert freeze(assistant_text, tool_output) == result


@proves("2.frozen.2")
def test_a_long_tool_output_is_frozen_as_its_two_ends() -> None:
    head = "(no final text) Last tool output:\n"
    assert freeze(None, "x" * 2000) == head + "x" * 2000
    longer = "a" + "x" * 999 + "!" + "y" * 999 + "z"
    assert freeze(None, longer) == f"{head}a{'x' * 999}\n[… 1 characters left out …]\n{'y' * 999}z"


@proves("2.frozen.6", "The cap is 100 KiB of UTF-8 including the notice with the true size")
def test_text_of_exactly_the_limit_is_untouched_and_one_byte_more_is_cut() -> None:
    assert freeze("x" * LIMIT, None) == "x" * LIMIT
    cut = freeze("x" * (LIMIT + 1), None)
    assert cut == "x" * (LIMIT - len(NOTICE)) + NOTICE
    assert len(cut.encode()) == LIMIT


@proves("2.frozen.6")
@pytest.mark.parametrize(("kib", "shown"), [(101, 101), (250, 250), (250.5, 251)])
def test_the_notice_tells_the_true_size_rounded_up(kib: float, shown: int) -> None:
    assert freeze("x" * int(kib * 1024), None).endswith(f"exceeded 100KB ({shown}KB)]")


@proves("2.frozen.6")
@pytest.mark.parametrize("letter", ["é", "€", "🙂"])
@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_a_cut_never_falls_inside_a_letter(letter: str, shift: int) -> None:
    width = len(letter.encode())
    text = "x" * shift + letter * (LIMIT // width + 10)
    cut = freeze(text, None)
    kept, _, notice = cut.partition("\n\n[truncated")
    assert text.startswith(kept)
    assert "exceeded 100KB" in notice
    assert LIMIT - width < len(cut.encode()) <= LIMIT


def test_a_limit_counts_bytes_not_letters() -> None:
    assert freeze("é" * (LIMIT // 2), None) == "é" * (LIMIT // 2)
    assert "[truncated:" in freeze("é" * (LIMIT // 2) + "x", None)


@given(any_text, any_text)
def test_whatever_was_said_the_frozen_text_can_be_stored(assistant_text: str, tool_output: str) -> None:
    result = freeze(assistant_text, tool_output)
    assert msgspec.json.decode(msgspec.json.encode(result)) == result


@proves("2.frozen.7")
@pytest.mark.parametrize(
    ("tool_calls", "fragments", "note"),
    [
        (0, [], "(partial progress: 0 tool calls, no final answer)"),
        (1, [], "(partial progress: 1 tool call, no final answer)"),
        (2, ["one"], "(partial progress: 2 tool calls, no final answer)\n- one"),
        (7, ["a", "b", "c"], "(partial progress: 7 tool calls, no final answer)\n- a\n- b\n- c"),
        (7, ["a", "b", "c", "d"], "(partial progress: 7 tool calls, no final answer)\n- b\n- c\n- d"),
        (3, ["a\n b\tc", "", "NO_REPLY", " "], "(partial progress: 3 tool calls, no final answer)\n- a b c"),
        (3, ["a", "ANNOUNCE_SKIP"], "(partial progress: 3 tool calls, no final answer)\n- a"),
        (0, ["x" * 400], "(partial progress: 0 tool calls, no final answer)\n- " + "x" * 400),
        (0, ["x" * 401], "(partial progress: 0 tool calls, no final answer)\n- " + "x" * 399 + "…"),
    ],
)
def test_partial_progress_counts_tool_calls_and_keeps_the_last_three_words(
    tool_calls: int, fragments: list[str], note: str
) -> None:
    assert partial(tool_calls, iter(fragments)) == note


def test_a_negative_count_of_tool_calls_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^tool_calls: must be 0 or more \(got -1\)$"):
        partial(-1, [])


@proves("2.announce.12", "The summary is the SUMMARY: line, else the last 200 characters")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ""),
        (" \n ", ""),
        ("work\nSUMMARY: it is done", "it is done"),
        ("SUMMARY: first\nmore\nSUMMARY: second\nbye", "second"),
        ("summary:it is done", "it is done"),
        ("  Summary:   it\tis   done  ", "it is done"),
        ("\u2028SUMMARY: after another line break", "after another line break"),
        ("x\r\nSUMMARY: windows\r\ny", "windows"),
        ("**SUMMARY:** it is done", "it is done"),
        ("**Summary**: it is done", "it is done"),
        ("**SUMMARY: it is done**", "it is done"),
        ("**SUMMARY: it is done** ", "it is done"),
        ("__SUMMARY:__ it is done", "it is done"),
        ("**SUMMARY:** it is **done**", "it is **done**"),
        ("SUMMARY: it is **done**", "it is **done**"),
        ("**SUMMARY__: odd", "**SUMMARY__: odd"),
        ("SUMMARY: kept\n**SUMMARY:**", "kept"),
        ("SUMMARY: kept\nSUMMARY:  ", "kept"),
        ("SUMMARY:\nbelow", "SUMMARY: below"),
        ("my SUMMARY: not at the start", "my SUMMARY: not at the start"),
        ("SUMMARY without a colon", "SUMMARY without a colon"),
        ("a\n\n b\t c", "a b c"),
        ("SUMMARY: " + "x" * 500, "x" * 500),
        ("SUMMARY: " + "x" * 501, "x" * 499 + "…"),
        ("x" * 200, "x" * 200),
        ("a" + "x" * 200, "x" * 200),
        ("a " + "x" * 199, "x" * 199),
        ("a  " + "🙂" * 200, "🙂" * 200),
        ("SUMMARY: a\u202eb\x00c\ud800", "abc?"),
    ],
)
def test_the_summary_is_the_last_marked_line_else_the_end_of_the_text(text: str, line: str) -> None:
    assert summary(text) == line


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("  a \n\t b\x0b\x1cc\u2029d\u0085e ", 50, "a b c d e"),
        ("a\x00\x07\x1b[31mb\x7f\x9f", 50, "a[31mb"),
        ("a\u202e\u2066\u200f\u200b\ufeffb", 50, "ab"),
        ("a \u200b b", 50, "a b"),
        ("👩\u200d💻 नी\u200cम", 50, "👩\u200d💻 नी\u200cम"),
        ("\ud83d", 50, "?"),
        ("x" * 50, 50, "x" * 50),
        ("x" * 51, 50, "x" * 49 + "…"),
        ("", 50, ""),
    ],
)
def test_a_field_is_flattened_to_one_bounded_line(text: str, limit: int, line: str) -> None:
    assert one_line(text, limit) == line


@given(any_text)
def test_one_line_is_one_line_and_stays_what_it_is(text: str) -> None:
    line = one_line(text, 40)
    assert len(line) <= 40
    assert len(line.splitlines()) <= 1
    assert one_line(line, 40) == line


@given(any_text)
def test_sound_text_differs_only_where_there_were_lone_surrogates(text: str) -> None:
    expected = "".join("?" if "\ud800" <= letter <= "\udfff" else letter for letter in text)
    assert to_valid_utf8(text) == expected


@proves("2.announce.6", "Stats read `runtime 2m34s • tokens 15.2k (in 12.1k / out 3.1k) • est $0.42`")
@pytest.mark.parametrize(
    ("stats", "line"),
    [
        (Stats(154, 12_100, 3_100, 0.42), "runtime 2m34s • tokens 15.2k (in 12.1k / out 3.1k) • est $0.42"),
        (Stats(154, 12_100, 3_100, None), "runtime 2m34s • tokens 15.2k (in 12.1k / out 3.1k)"),
        (Stats(9, 12, 1_000, None, 196_000), "runtime 9s • tokens 197.0k (in 12 / out 1.0k / cached 196.0k)"),
        (Stats(9, 12, 1_000, None, 0), "runtime 9s • tokens 1.0k (in 12 / out 1.0k)"),
        (Stats(9, None, 6, None, 7), "runtime 9s • tokens n/a (in n/a / out 6 / cached 7)"),
        (Stats(), "runtime n/a • tokens n/a"),
        (Stats(0, 0, 0, 0), "runtime 0s • tokens 0 (in 0 / out 0) • est $0.00"),
        (Stats(1, 5, None), "runtime 1s • tokens n/a (in 5 / out n/a)"),
        (Stats(1, None, 6), "runtime 1s • tokens n/a (in n/a / out 6)"),
        (Stats(float("nan"), 1, 2, float("nan")), "runtime n/a • tokens 3 (in 1 / out 2)"),
        (Stats(float("inf"), 1, 2, float("inf")), "runtime n/a • tokens 3 (in 1 / out 2)"),
    ],
)
def test_the_figures_read_as_one_line_with_what_is_known(stats: Stats, line: str) -> None:
    assert stats_line(stats) == line


@proves("1.names.1")
def test_figures_are_stored_under_their_wire_names() -> None:
    stats = Stats(1.5, 2, 3, 0.5, 4)
    stored = b'{"runtimeS":1.5,"tokensIn":2,"tokensOut":3,"costUsd":0.5,"tokensCached":4}'
    assert msgspec.json.encode(stats) == stored
    assert msgspec.json.decode(stored, type=Stats) == stats


@proves("2.frozen.19", "A result that is cut keeps the SUMMARY line of the whole reply")
@pytest.mark.parametrize("line", ["SUMMARY: gold was found", "**Summary:** gold was found", "summary: gold was found"])
def test_a_cut_result_keeps_the_summary_line_of_its_lost_end(line: str) -> None:
    whole = f"{'x' * 60 + chr(10)}" * 3000 + line
    frozen = freeze(whole, None)
    assert len(frozen.encode()) <= FROZEN_BYTES
    assert frozen.endswith("KB)]\nSUMMARY: gold was found")
    assert summary(frozen) == summary(whole) == "gold was found"


def test_a_cut_result_without_a_summary_line_ends_with_its_notice() -> None:
    assert freeze("x" * (FROZEN_BYTES + 1), None).endswith("(101KB)]")
