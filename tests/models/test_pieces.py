"""The small parts the adapters stand on: event lines, addresses, keys, ids and arguments."""

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.errors import BadInput
from fledge.models.base import AssistantMessage, Broke, Call, ModelMessage, ToolMessage, UserMessage
from fledge.models.http import BrokenReply, EventLines, checked_url
from fledge.models.keys import SecretKey, read_key, without_keys
from fledge.models.provider_errors import MOST_SHOWN, ErrorBody, retry_after, shown, trouble_of
from fledge.models.transcript import encoded, is_object, object_text, with_clean_calls
from tests.statements import proves


def fed(stream: bytes, cuts: list[int]) -> list[bytes]:
    """The events of the stream, fed in pieces."""
    lines, found, at = EventLines(10_000), list[bytes](), 0
    for cut in [*sorted(cuts), len(stream)]:
        found += lines.feed(stream[at:cut])
        at = max(at, cut)
    return found


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [b" a"]),
        (b"data:a\n\ndata:b\n\n", [b"a", b"b"]),
        (b"data: a\r\n\r\n", [b" a\r"]),
        (b"event: x\nid: 1\ndata: a\nretry: 3\n\n", [b" a"]),
        (b": a comment\n\n\n\ndata: a\n\n", [b" a"]),
        (b"data: a\ndata: b\n\n", [b" a\n b"]),
        (b"data: a\n", []),
        (b"data: a", []),
        (b"", []),
        ("data: é東\n\n".encode(), [" é東".encode()]),
    ],
)
def test_whole_events_come_out(stream: bytes, events: list[bytes]) -> None:
    assert fed(stream, []) == events
    assert fed(stream, list(range(len(stream)))) == events


@given(
    st.lists(st.text(st.characters(blacklist_characters="\r\n", blacklist_categories=["Cs"]), max_size=20)),
    st.lists(st.integers(0, 400)),
    st.sampled_from([b"\n", b"\r\n"]),
)
def test_where_bytes_are_cut_makes_no_difference(texts: list[str], cuts: list[int], end: bytes) -> None:
    stream = b"".join(b"data: " + text.encode() + end + end for text in texts)
    found = fed(stream, [min(cut, len(stream)) for cut in cuts])
    assert [event.removesuffix(b"\r") for event in found] == [b" " + text.encode() for text in texts]


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_the_largest_event_passes_and_one_byte_more_does_not(piece: int) -> None:
    def feed(size: int) -> list[bytes]:
        lines, stream, found = EventLines(100), b"data: 1\n\ndata:" + b"x" * (size - 5), list[bytes]()
        for at in range(0, len(stream), piece):
            found += lines.feed(stream[at : at + piece])
        return found + lines.feed(b"\n\n")

    assert len(feed(100)) == 2
    with pytest.raises(BrokenReply) as refused:
        feed(101)
    assert refused.value.event == Broke("interrupted", "one event of the reply has more than 100 bytes")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://a.b/v1/", "https://a.b/v1"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1"),
        ("http://[::1]/", "http://[::1]"),
    ],
)
def test_an_address_is_kept_without_its_last_slash(given: str, kept: str) -> None:
    assert checked_url(given) == kept


@pytest.mark.parametrize(
    "given",
    ["", "a.b/v1", "ftp://a.b", "file:///etc", "http://", "http://a b", "http://a:99999", "http://a\n.b", "http://["],
)
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(BadInput, match="base_url: must be an address like"):
        checked_url(given)


@pytest.mark.parametrize("given", ["https://u:secret@a.b", "https://a.b/?key=secret", "https://a.b/#secret"])
def test_secrets_in_an_address_are_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(BadInput) as refused:
        checked_url(given)
    assert "secret" not in str(refused.value)


def test_importing_the_adapters_does_not_import_aiohttp() -> None:
    code = "import sys, fledge.models.names; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- keys ------------------------------------------------------------------------------------------------------------


@proves("8.child.5", "Keys are never stored, logged or shown")
def test_a_key_shows_itself_to_nobody() -> None:
    key = SecretKey("sk-secret-1")
    assert repr(key) == str(key) == f"{key}" == "Key([key])"
    assert key.reveal() == "sk-secret-1"
    with pytest.raises(TypeError):
        pickle.dumps(key)


@proves("8.child.4", "Keys come from the environment or a 0600 file")
def test_a_key_comes_from_the_environment_or_a_private_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("from-file\n")
    path.chmod(0o600)
    file = {"K_FILE": str(path)}
    assert read_key("K", {}) is None
    for env, text in [({"K": " from-env\n"}, "from-env"), (file, "from-file"), ({"K": "a", **file}, "a")]:
        key = read_key("K", env)
        assert key is not None
        assert key.reveal() == text


@proves("8.child.4")
@pytest.mark.parametrize("mode", [0o604, 0o640, 0o610, 0o777])
def test_a_key_file_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    path.write_text("hidden")
    path.chmod(mode)
    with pytest.raises(BadInput) as refused:
        read_key("K", {"K_FILE": str(path)})
    assert f"chmod 600 {path}" in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_what_is_no_key_file_is_refused(tmp_path: Path) -> None:
    empty, pipe = tmp_path / "empty", tmp_path / "pipe"
    empty.touch(0o600)
    os.mkfifo(pipe, 0o600)
    for path, words in [(tmp_path / "none", "readable file"), (empty, "empty"), (pipe, "plain"), (tmp_path, "direct")]:
        with pytest.raises(BadInput, match=words):
            read_key("K", {"K_FILE": str(path)})


@pytest.mark.parametrize("text", ["a b", "a\nb", "kéy", "a\x00"])
def test_a_key_that_no_header_carries_is_refused_unseen(text: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_key("K", {"K": text})
    assert text not in str(refused.value)


@proves("8.child.5")
@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("key plain-secret!", "key [key]!"),
        ("sk-proj-abc_DEF*123 is wrong", "[key] is wrong"),
        ("Bearer abc.def, then", "[key], then"),
        ("a risk-free task-manager", "a risk-free task-manager"),
    ],
)
def test_texts_are_cleaned_of_keys(text: str, cleaned: str) -> None:
    assert without_keys(text, SecretKey("plain-secret")) == cleaned


def test_what_is_shown_is_bounded_after_it_was_cleaned() -> None:
    assert shown("x" * MOST_SHOWN) == "x" * MOST_SHOWN
    assert shown("x" * (MOST_SHOWN + 1)) == "x" * (MOST_SHOWN - 1) + "…"
    assert "sk-" not in shown("x" * (MOST_SHOWN - 6) + " sk-abcdefghijkl")
    assert shown("a\x1b[31m\nb\u202ec") == "a [31m b c"


# ---- trouble ---------------------------------------------------------------------------------------------------------


@given(st.one_of(st.none(), st.integers(100, 999)), st.text(), st.one_of(st.text(), st.integers(), st.none()))
def test_every_error_is_some_trouble(status: int | None, words: str, code: str | int | None) -> None:
    kinds = {"retryable", "auth", "quota", "overflow", "refused", "bad_request"}
    assert trouble_of(status, ErrorBody(message=words, code=code)) in kinds


@given(st.text())
def test_no_retry_after_is_a_surprise(text: str) -> None:
    seconds = retry_after({"retry-after": text}, 0.0)
    assert seconds is None or seconds >= 0


# ---- transcripts -----------------------------------------------------------------------------------------------------

ALLOWED = re.compile(r"[a-z0-9_]{1,8}")


def test_ids_are_made_unique_and_results_follow() -> None:
    messages: tuple[ModelMessage, ...] = (
        UserMessage("x"),
        AssistantMessage("", (Call("a", "t", "{}"), Call("a", "t", "{}"), Call("B!", "t", "{}"))),
        ToolMessage("a", "t", "1"),
        ToolMessage("B!", "t", "3"),
        ToolMessage("a", "t", "2"),
        AssistantMessage("", (Call("call_4", "t", "{}"), Call("a", "t", "{}"))),
        ToolMessage("a", "t", "4"),
        ToolMessage("orphan", "t", "5"),
    )
    cleaned = with_clean_calls(messages, ALLOWED)
    ids = [call.id for message in cleaned if isinstance(message, AssistantMessage) for call in message.calls]
    assert ids == ["a", "call_1", "call_2", "call_4", "call_4_"]
    results = [(message.call_id, message.text) for message in cleaned if isinstance(message, ToolMessage)]
    assert results == [("a", "1"), ("call_2", "3"), ("call_1", "2"), ("call_4_", "4"), ("orphan", "5")]


def test_clean_ids_stay_as_they_are() -> None:
    messages: list[ModelMessage] = [AssistantMessage("", (Call("a", "t", "{}"),)), ToolMessage("a", "t", "1")]
    assert with_clean_calls(messages, ALLOWED) == messages


@pytest.mark.parametrize("text", ['{"a":1}', "{}", ' { "a" : [1, {"b": null}] } '])
def test_an_object_stays_as_it_is(text: str) -> None:
    assert is_object(text)
    assert object_text(text) == text


@pytest.mark.parametrize("text", ["", "[]", "1", "null", "{", '{"a":NaN}', "{} {}", "\ud800", '{"a":1,}'])
def test_what_is_no_object_is_told_as_broken(text: str) -> None:
    assert not is_object(text)
    assert json.loads(object_text(text)) == {"invalid_json": text.encode("utf-8", "replace").decode()}


@given(st.text(st.characters(), max_size=20))
def test_any_text_can_be_sent(text: str) -> None:
    clean = text.encode("utf-8", "replace").decode()
    assert json.loads(encoded({"a": [{"b": (text, 1)}]})) == {"a": [{"b": [clean, 1]}]}
