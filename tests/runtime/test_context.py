"""From a transcript to what a model sees, how long that is, and where it may be cut."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fledge.core.images import REQUEST_BYTES, ImageEntry
from fledge.core.transcript import Body, CallEntry, Line, Noted, Replied, Resulted, Spoken, Told, in_order, open_calls
from fledge.models.base import AssistantMessage, Call, ModelMessage, ToolMessage, UserMessage
from fledge.runtime import context
from tests.statements import proves


def numbered(*bodies: Body) -> list[Line]:
    return [Line(seq, body) for seq, body in enumerate(bodies, 1)]


def call(name: str = "look") -> CallEntry:
    return CallEntry("id", name, "{}")


def result(entry: int, index: int = 0, text: str = "found") -> Resulted:
    return Resulted(entry, index, "id", "look", text)


# ---- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bodies", "seen"),
    [
        ((), ()),
        ((Spoken("hello"),), (UserMessage("hello"),)),
        ((Told("a child is done"),), (UserMessage("a child is done"),)),
        ((Noted("for the record"),), ()),
        ((Noted("all so far", covers=2),), (UserMessage("[Notes on the conversation so far]\nall so far"),)),
        (
            (Replied("hm", thinking="t", opaque="s", model="m", usage={"input": 1}),),
            (AssistantMessage("hm", (), "t", "s"),),
        ),
        (
            (Replied("hm", (call(),)), Resulted(3, 0, "id", "look", "no", is_error=True)),
            (AssistantMessage("hm", (Call("id", "look", "{}"),)), ToolMessage("id", "look", "no", True)),
        ),
    ],
)
def test_each_entry_is_one_message_and_what_is_only_for_the_record_is_none(
    bodies: tuple[Body, ...], seen: tuple[ModelMessage, ...]
) -> None:
    # The first two entries are not there any more.
    lines = [Line(seq, body) for seq, body in enumerate(bodies, 3)]
    assert context.messages(lines) == seen


def test_results_stand_behind_their_calls_in_the_order_of_the_calls() -> None:
    lines = numbered(
        Spoken("go"),
        Replied("", (call(), call(), call())),
        result(2, 2, "c"),
        result(2, 0, "a"),
        result(2, 1, "b"),
        Spoken("by the way"),
    )
    assert [message.text for message in context.messages(lines)] == ["go", "", "a", "b", "c", "by the way"]


def test_a_message_that_was_written_between_results_stands_behind_them() -> None:
    lines = numbered(Replied("", (call(), call())), result(1, 1, "b"), Spoken("by the way"), result(1, 0, "a"))
    assert [message.text for message in context.messages(lines)] == ["", "a", "b", "by the way"]


def test_a_note_comes_first_and_replaces_what_it_covers() -> None:
    lines = numbered(Spoken("one"), Replied("two"), Spoken("three"), Replied("four"), Noted("1 and 2", covers=2))
    assert [message.text.rpartition("\n")[2] for message in context.messages(lines)] == ["1 and 2", "three", "four"]


def test_a_later_note_replaces_an_earlier_one() -> None:
    lines = numbered(
        Spoken("one"), Replied("two"), Noted("1", covers=1), Spoken("four"), Noted("all but the last", covers=2)
    )
    texts = [message.text.rpartition("\n")[2] for message in context.messages(lines)]
    assert texts == ["all but the last", "four"]


# ---- lengths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "tokens"), [("", 1), ("abc", 1), ("abcd", 2), ("x" * 400, 101)])
def test_four_characters_are_about_a_token(text: str, tokens: int) -> None:
    assert context.tokens_of(text) == tokens
    assert context.length("", [UserMessage(text)]) == 1 + tokens
    assert context.length(text, []) == tokens
    assert context.length("", [ToolMessage("id", "look", text)]) == 1 + tokens
    assert context.length("", [AssistantMessage(text)]) == 1 + tokens + 1
    assert context.length("", [AssistantMessage("", thinking=text)]) == 1 + 1 + tokens
    assert context.length("", [AssistantMessage("", (Call("id", "", text),) * 2)]) == 1 + 1 + 1 + 2 * tokens


# ---- where to cut ----------------------------------------------------------------------------------------------------

BIG = "x" * 400
"""101 tokens."""


@pytest.mark.parametrize(
    "bodies",
    [
        (),
        (Spoken(BIG),),
        (Spoken(BIG), Spoken(BIG), Told(BIG)),
        (Spoken("go"), Replied(BIG, (call(),))),
        (Spoken("go"), Replied(BIG, (call(), call())), result(2, 1, BIG)),
        (Spoken("go"), Replied("small"), Spoken("and")),
    ],
    ids=["nothing", "no reply", "no reply but much", "open call", "half open", "all fits"],
)
def test_there_is_no_cut_where_nothing_can_be_left_out(bodies: tuple[Body, ...]) -> None:
    assert context.cut(numbered(*bodies), 100) is None


@pytest.mark.parametrize(
    ("window", "covers"),
    [(3000, None), (1357, None), (1356, 3), (681, 3), (679, 5), (10, 5)],
)
def test_the_newest_part_up_to_a_share_of_the_window_stays(window: int, covers: int | None) -> None:
    # Tokens from the end: 1, 102 with the result, 204 with its reply, 305, 407 with the first reply, 408 with all.
    lines = numbered(
        Spoken("go"),
        Replied("", (call("a" * 395),)),
        result(2, text=BIG),
        Replied("", (call("a" * 395),)),
        result(4, text=BIG),
        Spoken("and"),
    )
    cut = context.cut(lines, window)
    assert (None if cut is None else cut.covers) == covers


@pytest.mark.parametrize("results", [0, 1])
def test_a_reply_with_open_calls_stays_with_what_it_has(results: int) -> None:
    lines = numbered(Spoken("go"), Replied(BIG), Spoken(BIG), Replied(BIG, (call(), call())), *[result(4)] * results)
    cut = context.cut(lines, 10)
    assert cut is not None
    assert cut.covers == 3


def test_what_was_read_since_the_last_reply_stays_however_long_it_is() -> None:
    lines = numbered(Spoken("go"), Replied("hm"), Told(BIG), Spoken(BIG))
    cut = context.cut(lines, 10)
    assert cut is not None
    assert cut.covers == 2
    assert cut.old == (UserMessage("go"), AssistantMessage("hm"))


def test_an_earlier_note_is_summarised_with_what_follows_it_and_nothing_else_goes() -> None:
    lines = [
        Line(3, Spoken("three")),
        Line(4, Replied(BIG)),
        Line(5, Spoken("five")),
        Line(6, Replied("six")),
        Line(7, Noted("one and two", covers=2)),
        Line(8, Spoken("eight")),
        Line(9, Replied("nine")),
    ]
    cut = context.cut(lines, 60)
    assert cut is not None
    assert [message.text.rpartition("\n")[2] for message in cut.old] == ["one and two", "three", BIG]
    assert cut.covers == 4
    after = [*lines, Line(10, Noted("one to four", cut.covers))]
    texts = [message.text.rpartition("\n")[2] for message in context.messages(after)]
    assert texts == ["one to four", "five", "six", "eight", "nine"]


# ---- however it grows ------------------------------------------------------------------------------------------------

Step = tuple[int, int, int, bool, tuple[int, ...]]
SIZES = st.integers(0, 300)
STEPS = st.lists(
    st.tuples(st.integers(0, 3), SIZES, SIZES, st.booleans(), st.permutations(range(3)).map(tuple)), max_size=25
)


def texts_of(lines: Sequence[Line]) -> set[int]:
    """The numbers of the entries a model sees, notes aside."""
    return {line.seq for line in in_order(lines) if not isinstance(line.body, Noted)}


def is_whole(messages: Sequence[ModelMessage], open_ones: int) -> bool:
    """True if each call has its result right behind it; only the last reply may lack some."""
    missing = 0
    for message in messages:
        if isinstance(message, ToolMessage):
            if not missing:
                return False
            missing -= 1
        elif isinstance(message, AssistantMessage):
            if missing:
                return False
            missing = len(message.calls)
    return missing == open_ones


@given(STEPS, st.integers(20, 2000))
def test_however_a_transcript_grows_and_is_cut_nothing_is_lost_and_no_call_torn_from_its_result(
    steps: list[Step], window: int
) -> None:
    lines: list[Line] = []

    def add(body: Body) -> int:
        seq = lines[-1].seq + 1 if lines else 1
        lines.append(Line(seq, body))
        return seq

    def cut_if_long() -> None:
        if context.length("", context.messages(lines)) <= context.COMPACT_AT * window:
            return
        cut = context.cut(lines, window)
        if cut is None:
            return
        before, unanswered = texts_of(lines), len(open_calls(lines))
        add(Noted("so far", cut.covers))
        after = texts_of(lines)
        assert after < before
        # What the model no longer sees is exactly as much as what it was shown to summarise.
        had_note = any(message.text.startswith("[Notes") for message in cut.old)
        assert len(before - after) == len(cut.old) - had_note
        assert max(before - after) == cut.covers
        assert len(open_calls(lines)) == unanswered
        # As it is read again from the store.
        lines[:] = [line for line in lines if line.seq > cut.covers]
        assert texts_of(lines) == after

    for calls, size, more, speaks, order in steps:
        if speaks:
            add(Spoken("s" * size))
        cut_if_long()
        seq = add(Replied("r" * size, tuple(call() for _ in range(calls))))
        for index in order:
            if index < calls:
                add(result(seq, index, "t" * more))
        assert is_whole(context.messages(lines), 0)
        cut_if_long()
        assert is_whole(context.messages(lines), 0)


# ---- images ----------------------------------------------------------------------------------------------------------


def image(name: str, bytes: int = 100) -> ImageEntry:
    return ImageEntry(name * 64, "png", bytes, 1024, 1024, name)


def test_messages_and_results_carry_their_images() -> None:
    lines = numbered(
        Spoken("look", images=(image("a"),)),
        Replied("", (call(),)),
        Resulted(2, 0, "id", "look", "found", images=(image("b"),)),
        Spoken("task", kind="task", images=(image("c"),)),
    )
    assert context.images_in(context.messages(lines)) == [image("a"), image("b"), image("c")]


@proves("3.images.17", "Images, and data that goes back to a provider, count in the estimate of a request")
def test_images_and_opaque_data_count_in_the_length_of_a_request() -> None:
    def length(message: ModelMessage) -> int:
        return context.length("", [message])

    plain = length(UserMessage("x"))
    assert length(UserMessage("x", (image("a"), image("b")))) == plain + 2 * image("a").tokens
    assert length(ToolMessage("id", "look", "x", images=(image("a"),))) == plain + image("a").tokens
    assert length(AssistantMessage("x", opaque="o" * 4000)) >= length(AssistantMessage("x")) + 1000
    assert length(AssistantMessage("x", thinking="t" * 8000, opaque="o" * 4000)) < plain + 3000


@proves("3.images.18", "A summary of old entries is made from words: images are named in it, not sent")
def test_what_is_summarised_has_no_images() -> None:
    lines = numbered(Spoken("look", images=(image("a"),)), Replied("a cat"), Spoken("and?"), Replied("no"), Spoken("x"))
    cut = context.cut(lines, 10)
    assert cut is not None
    assert context.images_in(cut.old) == []


def test_the_newest_images_stay_and_the_text_tells_of_the_others() -> None:
    old = UserMessage("old", tuple(image(name, REQUEST_BYTES // 2) for name in "ab"))
    new = ToolMessage("id", "look", "new", images=(image("c", REQUEST_BYTES // 2),))
    kept = context.with_newest_images([old, AssistantMessage("hm"), new])
    assert kept == (
        UserMessage(f"old\n{image('a').unsent_words}", (image("b", REQUEST_BYTES // 2),)),
        AssistantMessage("hm"),
        new,
    )
    assert context.with_newest_images([new]) == (new,)


def test_the_text_tells_of_images_that_are_lost() -> None:
    message = UserMessage("look", (image("a"), image("b")))
    told = context.without_lost_images([message, AssistantMessage("hm")], {image("b").sha256})
    assert told == (UserMessage(f"look\n{image('a').lost_words}", (image("b"),)), AssistantMessage("hm"))
    assert context.without_lost_images([message], {image("a").sha256, image("b").sha256}) == (message,)


def test_a_request_in_words_has_no_images() -> None:
    reply = AssistantMessage("hm")
    assert context.in_words([UserMessage("a", (image("a"),)), reply]) == (UserMessage("a"), reply)
