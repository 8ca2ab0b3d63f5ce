"""The change of a file as lines: what a person sees, what is hidden from them, and that no text takes long."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.core import diff
from fledge.core.diff import MOST_BYTES, MOST_SHOWN, file_change, replaced
from fledge.core.file_change import FileChange, Replaced, change_lines, refused_change, shown_by

SECRET = "api_key = sk-proj-abc123DEF456"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n\nBBBB\n-----END RSA PRIVATE KEY-----"
LONG = "".join(f"line {n}\n" for n in range(20))


def change(before: str | bytes | None, after: str, own_words: bool = True, size: int | None = None) -> FileChange:
    data = before.encode() if isinstance(before, str) else before
    found = len(data or b"") if size is None else size
    return file_change("a.txt", data, found, after.encode(), own_words)


@pytest.mark.parametrize(
    ("case", "before", "after", "lines"),
    [
        ("a new file", None, "a\n", ["(a new file)"]),
        ("an empty file", "", "a\n", ["(replaces an empty file)", "+a"]),
        ("a file that is emptied", "a\nb\n", "", ["-a", "-b"]),
        ("the same content", "a\n", "a\n", ["(the file holds exactly this already)"]),
        ("one line", "a\nb\nc\n", "a\nB\nc\n", [" a", "-b", "+B", " c"]),
        ("a line more", "a\nc\n", "a\nb\nc\n", [" a", "+b", " c"]),
        ("a line less", "a\nb\nc\n", "a\nc\n", [" a", "-b", " c"]),
        ("all of it", "a\nb\n", "x\n", ["-a", "-b", "+x"]),
        ("the last line break", "a\nb\n", "a\nb", [" a", "-b", "+b (no line break at the end)"]),
        ("a last line break more", "a", "a\n", ["-a (no line break at the end)", "+a"]),
        ("no line break on either side", "a", "b", ["-a", "+b"]),
        ("line ends", "a\r\nb\r\n", "a\nb\n", ["-a␍", "-b␍", "+a", "+b"]),
        ("a line between others of its kind", "a\r\nb\r\n", "a\r\nB\r\n", [" a", "-b␍", "+B␍"]),
        ("lines that change places", "a\nb\n", "b\na\n", ["-a", " b", "+a"]),
        ("lines that stand twice", "x\na\na\ny\n", "p\na\nq\na\nr\n", ["-x", "+p", " a", "+q", " a", "-y", "+r"]),
        ("no line in common", "a\na\nb\nb\n", "c\nc\nd\nd\n", ["-a", "-a", "-b", "-b", "+c", "+c", "+d", "+d"]),
        (
            "two places far from each other",
            LONG,
            LONG.replace("line 2\n", "two\n").replace("line 16\n", "sixteen\n"),
            [
                *(" line 0", " line 1", "-line 2", "+two", " line 3", " line 4", " line 5", "…7 unchanged lines"),
                *(" line 13", " line 14", " line 15", "-line 16", "+sixteen", " line 17", " line 18", " line 19"),
            ],
        ),
        (
            "the middle",
            LONG,
            LONG.replace("line 10\n", "ten\n"),
            [
                *("…7 unchanged lines", " line 7", " line 8", " line 9", "-line 10", "+ten"),
                *(" line 11", " line 12", " line 13", "…6 unchanged lines"),
            ],
        ),
        ("binary", b"\x00\x01", "a\n", ["(replaces a file of 2 bytes that is not shown (binary))"]),
        ("no UTF-8", b"\xff", "a\n", ["(replaces a file of 1 bytes that is not shown (binary))"]),
        ("new binary", "a\n", "\x00", ["(replaces a file of 2 bytes that is not shown (binary))"]),
        (
            "more than is compared",
            b"a" * (MOST_BYTES + 1),
            "a\n",
            ["(replaces a file of 1.0 MB that is not shown (too large to compare))"],
        ),
        (
            "more than is shown",
            "a" * MOST_SHOWN,
            "b\n",
            ["(replaces a file of 262.1 kB that is not shown (too large to compare))"],
        ),
        (
            "more than is written",
            "a\n",
            "a" * (MOST_BYTES + 1),
            ["(replaces a file of 2 bytes that is not shown (too large to compare))"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 50 and value.isprintable() else "",
)
def test_a_change_shows_what_goes_and_what_comes(
    case: str, before: str | bytes | None, after: str, lines: list[str]
) -> None:
    assert change_lines(change(before, after)) == lines


@pytest.mark.parametrize(
    ("case", "before", "after", "own_words", "lines", "hides"),
    [
        ("kept", f"{SECRET}\na\n", f"{SECRET}\nb\n", True, [" api_key = [redacted]", "-a", "+b"], False),
        ("removed", f"{SECRET}\na\n", "a\n", True, ["-api_key = [redacted]", " a"], False),
        ("written by the call", "a\n", f"a\n{SECRET}\n", True, [" a", f"+{SECRET}"], False),
        (
            "in the line of an edit",
            f"{SECRET} x\n",
            f"{SECRET} y\n",
            False,
            ["-api_key = [redacted] x", "+api_key = [redacted] y"],
            True,
        ),
        (
            "of several lines",
            f"{KEY}\na\n",
            f"{KEY}\nb\n",
            False,
            ["…2 unchanged lines", " ", " [redacted]", " [redacted]", "-a", "+b"],
            False,
        ),
        ("of several lines without an end", "-----BEGIN PRIVATE KEY-----\n", "", True, ["-[redacted]"], False),
    ],
)
def test_secrets_of_the_file_are_hidden_and_never_words_of_the_call(
    case: str, before: str, after: str, own_words: bool, lines: list[str], hides: bool
) -> None:
    found = change(before, after, own_words)
    note = [] if change_lines(found) == lines else ["(secrets of the file are not shown)"]
    assert change_lines(found) == [*note, *lines]
    assert found.hides == hides
    assert shown_by(found) == (() if hides else ("content", "old", "new"))


def test_a_change_of_a_hidden_secret_is_another_change() -> None:
    one, other = change(f"{SECRET}\na\n", "a\n"), change(f"{SECRET}7\na\n", "a\n")
    assert change_lines(one) == change_lines(other)
    assert one.digest != other.digest


def test_a_change_stays_the_same_while_only_other_places_of_the_file_change() -> None:
    def edited(text: str) -> FileChange:
        return change(text, text.replace("line 10\n", "ten\n"), own_words=False)

    assert edited(LONG).digest == edited(f"before\n{LONG}after\n").digest
    assert edited(LONG).digest != edited(LONG.replace("line 9\n", "nine\n")).digest


def test_a_refused_change_is_no_change() -> None:
    found = refused_change("path: must stay\ninside")
    assert change_lines(found) == ["(it would be refused now: path: must stay inside)"]
    assert shown_by(found) == ()


@pytest.mark.parametrize(
    ("before", "size", "record", "kept"),
    [
        (None, 0, Replaced(path="a", is_new=True), None),
        (b"a\n", 2, Replaced(path="a", size=2, sha256=hashlib.sha256(b"a\n").hexdigest()), b"a\n"),
        (b"", 0, Replaced(path="a", sha256=hashlib.sha256(b"").hexdigest()), b""),
        (b"\x00", 1, Replaced(path="a", size=1, sha256=hashlib.sha256(b"\x00").hexdigest()), None),
        (b"a", MOST_BYTES + 1, Replaced(path="a", size=MOST_BYTES + 1), None),
    ],
)
def test_a_replaced_content_is_kept_if_it_is_small_text(
    before: bytes | None, size: int, record: Replaced, kept: bytes | None
) -> None:
    assert replaced("a", before, size) == (record, kept)


def test_a_replaced_content_is_kept_without_its_secrets() -> None:
    record, kept = replaced("a", SECRET.encode(), len(SECRET))
    assert kept == b"api_key = [redacted]"
    assert record.sha256 == hashlib.sha256(SECRET.encode()).hexdigest()


TEXTS = st.lists(st.sampled_from(["a", "b", "c", "", "d\r"]), max_size=30).map("\n".join)


@given(TEXTS, TEXTS)
def test_the_lines_of_a_change_rebuild_both_texts(before: str, after: str) -> None:
    old, new = before.split("\n"), after.split("\n")
    rebuilt_old: list[str] = []
    rebuilt_new: list[str] = []
    for mark, place, count in diff._hunks(old, new):
        if mark == "added":
            rebuilt_new.append(new[place])
            continue
        assert place == len(rebuilt_old)
        rebuilt_old += old[place : place + count]
        rebuilt_new += [] if mark == "removed" else old[place : place + count]
    assert (rebuilt_old, rebuilt_new) == (old, new)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\n" * MOST_BYTES, "a" + "\n" * (MOST_BYTES - 1)),
        ("a\nb\n" * 250_000, "b\na\nc\n" * 160_000),
        ("".join(f"{n}\n" for n in range(150_000)), "".join(f"{n}\n" for n in reversed(range(150_000)))),
        ("x" * MOST_BYTES, "y" * MOST_BYTES),
    ],
    ids=["empty lines", "two lines again and again", "all lines in reverse", "one long line"],
)
def test_no_text_takes_more_than_a_bounded_number_of_comparisons(before: str, after: str) -> None:
    found = change(before, after)
    assert found.lines or "too large to compare" in found.note
