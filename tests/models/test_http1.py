"""HTTP/1.1 read strictly: cut anywhere it says the same, and whatever else comes is refused by name."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fledge.errors import BadInput
from fledge.models.http1 import MOST_HEAD_BYTES, BadAnswer, Head, HeadReader, body_after, request_head

CHUNKED = (
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n1;name=value\r\n \r\n0006 \r\nworld!\r\n0\r\nX-Sum: 12\r\nX-Other:\r\n\r\n"
)
COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello world!"
WORDS = b"hello world!"


class Read:
    """What is read of an answer that arrives in these pieces and is then closed."""

    def __init__(self, pieces: list[bytes]) -> None:
        reader, self.words, self.head = HeadReader(), b"", Head("1.0", 0, {})
        body = None
        for piece in pieces:
            if body is None:
                found = reader.feed(piece)
                if found is None:
                    continue
                self.head, piece = found
                body = body_after(self.head)
            self.words += body.feed(piece)
        if body is None:
            raise BadAnswer("no head")
        self.over, self.beyond = body.over, body.beyond
        body.closed()


@pytest.mark.parametrize("raw", [CHUNKED, COUNTED])
def test_an_answer_cut_at_any_byte_says_the_same(raw: bytes) -> None:
    for cut in range(len(raw) + 1):
        read = Read([raw[:cut], raw[cut:]])
        assert (read.words, read.over, read.beyond, read.head.status) == (WORDS, True, False, 200), cut
    read = Read([bytes([byte]) for byte in raw])
    assert (read.words, read.over, read.beyond) == (WORDS, True, False)


@pytest.mark.parametrize("raw", [CHUNKED, COUNTED])
def test_an_answer_that_stops_at_any_byte_is_not_whole(raw: bytes) -> None:
    for end in range(len(raw)):
        with pytest.raises(BadAnswer):
            Read([raw[:end]])


@pytest.mark.parametrize("raw", [CHUNKED, COUNTED])
def test_what_comes_after_an_answer_is_noticed_and_not_part_of_it(raw: bytes) -> None:
    for cut in range(len(raw) + 2):
        read = Read([(raw + b"x")[:cut], (raw + b"x")[cut:]])
        assert (read.words, read.beyond) == (WORDS, True)


@given(st.lists(st.binary(min_size=1, max_size=40)), st.lists(st.integers(0, 600)))
def test_any_chunks_cut_anyhow_make_the_same_body(chunks: list[bytes], cuts: list[int]) -> None:
    raw = b"HTTP/1.1 200\r\ntransfer-encoding: Chunked\r\n\r\n"
    raw += b"".join(b"%X\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    ends = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    read = Read([raw[first:end] for first, end in itertools.pairwise(ends)])
    assert (read.words, read.over, read.beyond) == (b"".join(chunks), True, False)


@settings(max_examples=300)
@given(st.data())
def test_a_damaged_answer_is_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from([CHUNKED, COUNTED])))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        how = data.draw(st.sampled_from(["change", "drop", "repeat", "insert"]))
        if how == "change":
            raw[at] = data.draw(st.integers(0, 255))
        elif how == "drop":
            del raw[at : at + data.draw(st.integers(1, 8))]
            raw = raw or bytearray(b"\n")
        elif how == "repeat":
            raw[at:at] = raw[at : at + 20]
        else:
            raw[at:at] = data.draw(st.sampled_from([b"\r\n", b"\n", b"\r", b"\0", b"0\r\n\r\n", b": ", b"-1", b"0x"]))
    cut = data.draw(st.integers(0, len(raw)))
    outcomes: set[bytes | None] = set()
    for pieces in ([bytes(raw)], [bytes(raw[:cut]), bytes(raw[cut:])]):
        try:
            outcomes.add(Read(pieces).words)
        except BadAnswer:
            outcomes.add(None)
    assert len(outcomes) == 1, "where it was cut made a difference"


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_noise_is_refused(noise: list[bytes]) -> None:
    with pytest.raises(BadAnswer):
        Read(noise)


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"HTTP/2 200 OK\r\n\r\n", id="another version"),
        pytest.param(b"HTTP/1.2 200 OK\r\n\r\n", id="a version that is not"),
        pytest.param(b"HTTP/1.1 20 OK\r\n\r\n", id="a short status"),
        pytest.param(b"HTTP/1.1 600 OK\r\n\r\n", id="a status out of range"),
        pytest.param(b"HTTP/1.1  200 OK\r\n\r\n", id="two blanks"),
        pytest.param(b"http/1.1 200 OK\r\n\r\n", id="lower case"),
        pytest.param(b"HTTP/1.1 200 O\0K\r\n\r\n", id="a control character in the reason"),
        pytest.param(b"SSH-2.0-OpenSSH_9.6\r\n", id="not HTTP at all, and waiting"),
        pytest.param(b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", id="bare line feeds"),
        pytest.param(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n", id="an upgrade"),
        pytest.param(OK + b"no colon\r\n\r\n", id="a header without a colon"),
        pytest.param(OK + b": nameless\r\n\r\n", id="a header without a name"),
        pytest.param(OK + b"Name : value\r\n\r\n", id="a blank before the colon"),
        pytest.param(OK + b"A: b\r\n folded\r\n\r\n", id="a folded header"),
        pytest.param(OK + b"A: b\rc\r\n\r\n", id="a carriage return in a value"),
        pytest.param(OK + b"A: b\0c\r\n\r\n", id="a zero in a value"),
        pytest.param(OK + b"A: " + b"x" * 20_000 + b"\r\n\r\n", id="a long line"),
        pytest.param(OK + b"A: " + b"x" * 70_000, id="a longer line without an end"),
        pytest.param(OK + b"A: 12345678\r\n" * 6000 + b"\r\n", id="many lines"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" * 5000, id="interim answers without end"),
        pytest.param(OK + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", id="two lengths"),
        pytest.param(OK + b"Content-Length: 5, 6\r\n\r\n", id="two lengths in one"),
        pytest.param(OK + b"Content-Length: -5\r\n\r\n", id="a negative length"),
        pytest.param(OK + b"Content-Length: +5\r\n\r\n", id="a signed length"),
        pytest.param(OK + b"Content-Length: 5_0\r\n\r\n", id="a length as Python would read it"),
        pytest.param(OK + b"Content-Length: \r\n\r\n", id="no length"),
        pytest.param(OK + b"Content-Length: 99999999999999999999\r\n\r\n", id="a huge length"),
        pytest.param(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", id="a coding we do not know"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="twice"),
        pytest.param(OK + b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n", id="both"),
        pytest.param(b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="chunks in 1.0"),
    ],
)
def test_a_head_that_can_be_misread_is_refused(raw: bytes) -> None:
    with pytest.raises(BadAnswer, match=r"answer|service"):
        Read([raw])


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param(b"zz\r\n", id="no number"),
        pytest.param(b"\r\n", id="nothing"),
        pytest.param(b" 5\r\nhello\r\n", id="a blank before"),
        pytest.param(b"-5\r\n", id="negative"),
        pytest.param(b"+5\r\nhello\r\n", id="signed"),
        pytest.param(b"0x5\r\nhello\r\n", id="as Python would write it"),
        pytest.param(b"1_0\r\n", id="as Python would read it"),
        pytest.param(b"5\nhello\r\n", id="a bare line feed"),
        pytest.param(b"5;a\nb\r\nhello\r\n", id="a line feed in an extension"),
        pytest.param(b"5;" + b"x" * 2000, id="a long extension"),
        pytest.param(b"1" * 16 + b"\r\n", id="a huge number"),
        pytest.param(b"5\r\nhello!\r\n", id="longer than it said"),
        pytest.param(b"5\r\nhello\n", id="a bare line feed after it"),
        pytest.param(b"0\r\nno colon\r\n\r\n", id="a trailer that is no header"),
        pytest.param(b"0\r\nA: b\n\n", id="a trailer with bare line feeds"),
        pytest.param(b"0\r\nA: " + b"x" * 70_000, id="a long trailer"),
    ],
)
def test_chunks_that_can_be_misread_are_refused_as_soon_as_they_are_seen(chunks: bytes) -> None:
    body = body_after(Head("1.1", 200, {"transfer-encoding": "chunked"}))
    with pytest.raises(BadAnswer, match=r"chunk|trailer"):
        body.feed(chunks)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    with pytest.raises(BadAnswer, match=r"chunk|trailer"):
        Read([head, *(bytes([byte]) for byte in chunks)])


def test_part_of_a_chunk_is_given_before_the_rest_has_come() -> None:
    body = body_after(Head("1.1", 200, {"transfer-encoding": "chunked"}))
    assert [body.feed(b"a\r\nabc"), body.feed(b"def"), body.feed(b"ghij\r"), body.feed(b"\n")] == [
        b"abc",
        b"def",
        b"ghij",
        b"",
    ]


def test_without_a_length_the_body_ends_with_the_connection() -> None:
    read = Read([OK + b"\r\nhello ", b"world!"])
    assert (read.words, read.over) == (WORDS, False)


def test_a_long_head_that_comes_byte_by_byte_is_read_in_one_go() -> None:
    head = OK + (b"A: " + b"x" * 995 + b"\r\n") * 65 + b"\r\n"
    assert Read([bytes([byte]) for byte in head]).head.status == 200


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(status: int) -> None:
    read = Read([b"HTTP/1.1 %d x\r\nContent-Length: 5\r\n\r\n" % status])
    assert (read.words, read.over) == (b"", True)


def test_a_head_of_the_largest_size_passes() -> None:
    filler = b"A: " + b"x" * 997 + b"\r\n"
    head = OK + filler * 65
    head += b"B: " + b"y" * (MOST_HEAD_BYTES - len(head) - 3)
    assert len(head) == MOST_HEAD_BYTES
    assert Read([head + b"\r\n\r\n"]).head.status == 200
    with pytest.raises(BadAnswer, match="the head of the answer has more than 65536 bytes"):
        Read([head + b"y\r\n\r\n"])


@pytest.mark.parametrize(
    ("head", "lasting"),
    [
        (b"HTTP/1.1 200 OK", True),
        (b"HTTP/1.1 200 OK\r\nConnection: keep-alive", True),
        (b"HTTP/1.1 200 OK\r\nConnection: Close", False),
        (b"HTTP/1.1 200 OK\r\nConnection: upgrade\r\nCONNECTION: close", False),
        (b"HTTP/1.0 200 OK", False),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive", False),
    ],
)
def test_a_connection_lasts_unless_the_service_says_otherwise(head: bytes, lasting: bool) -> None:
    assert Read([head + b"\r\n\r\n"]).head.lasting is lasting


def test_repeated_headers_are_joined_and_names_have_no_case() -> None:
    head = Read([OK + b"X-A: 1 \r\nx-a:\t2\r\nX-B: caf\xe9\r\n\r\n"]).head
    assert head.fields == {"x-a": "1, 2", "x-b": "café"}


# ---- what is sent ----------------------------------------------------------------------------------------------------


def test_a_request_is_written_as_it_is_given() -> None:
    head = request_head("/v1/x", {"Host": "a.b", "X-Name": "café\t!"}, 12)
    assert head == b"POST /v1/x HTTP/1.1\r\nHost: a.b\r\nX-Name: caf\xe9\t!\r\nContent-Length: 12\r\n\r\n"


@pytest.mark.parametrize("value", ["a\r\nEvil: 1", "a\nb", "a\rb", "a\0b", "\x7f", "日本"])
def test_a_value_cannot_smuggle_a_header_and_is_not_repeated(value: str) -> None:
    with pytest.raises(BadInput, match="no header can carry what was given for 'X-Key'") as refused:
        request_head("/", {"X-Key": f"secret{value}"}, 0)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "é"])
def test_a_name_cannot_smuggle_a_header(name: str) -> None:
    with pytest.raises(BadInput, match="no header can carry"):
        request_head("/", {name: "x"}, 0)
