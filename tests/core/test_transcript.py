"""What can be read out of a transcript: the calls that are open, and the order a model must see."""

import pytest

from fledge.core.attachments import FileEntry
from fledge.core.images import ImageEntry
from fledge.core.transcript import (
    CONTINUE,
    DROPPED,
    MOST_ARGUMENT_BYTES,
    MOST_SPAWN_BYTES,
    SPAWN,
    Body,
    CallEntry,
    Carried,
    CompletionRead,
    Line,
    Noted,
    OpenCall,
    Replied,
    Resulted,
    Spoken,
    Told,
    awaits_rest,
    begun_text,
    carried_body,
    files_of,
    follows_cut,
    from_body,
    from_carried_body,
    images_of,
    in_order,
    is_in_doubt,
    joined,
    kept_arguments,
    last_output,
    last_said,
    last_step,
    open_calls,
    shown_arguments,
    to_body,
    why_left_out,
)
from fledge.errors import BadInput
from tests.statements import proves

A, B = CallEntry("a", "read", "{}"), CallEntry("b", "exec", "{}", "started")


def lines(*bodies: Body) -> list[Line]:
    return [Line(seq, body) for seq, body in enumerate(bodies, 1)]


def result(entry: int, index: int, text: str = "ok") -> Resulted:
    return Resulted(entry, index, "id", "read", text)


@pytest.mark.parametrize(
    "body",
    [
        Spoken("hello", "send:1", "send", "agent:main:main"),
        Told("[2 background tasks completed]", (CompletionRead("r", "k", "ok"),), (0,)),
        Replied("yes", (A, B), "hm", "sig", "gpt-5", {"input": 3}, 0.5),
        Replied(),
        result(4, 1),
        Noted("in short", 7),
    ],
)
def test_a_body_is_read_back_as_it_was_written(body: Body) -> None:
    assert from_body(to_body(body)) == body


@pytest.mark.parametrize("text", ["", "{}", '{"type":"user"}', '{"type":"stranger","text":"x"}', "[1"])
def test_what_is_not_ours_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadInput, match=r"^entry: is not a transcript entry"):
        from_body(text)


def test_without_a_reply_nothing_is_open() -> None:
    assert open_calls([]) == []
    assert open_calls(lines(Spoken("hi"))) == []


def test_calls_of_the_last_reply_without_a_result_are_open_in_order() -> None:
    history = lines(Spoken("hi"), Replied(calls=(A, B, A)), result(2, 1))
    assert open_calls(history) == [OpenCall(2, 0, A), OpenCall(2, 2, A)]


def test_a_result_of_another_reply_answers_nothing() -> None:
    history = lines(Replied(calls=(A,)), result(1, 0), Replied(calls=(B,)), result(1, 0))
    assert open_calls(history) == [OpenCall(3, 0, B)]


def test_an_older_reply_is_never_open_again() -> None:
    assert open_calls(lines(Replied(calls=(A,)), Spoken("and?"), Replied("done"))) == []


def unknown(entry: int, index: int) -> Resulted:
    return Resulted(entry, index, "id", "exec", "outcome unknown", is_error=True, unknown=True)


TWO, ONE, WORDS = Replied(calls=(A, B)), Replied(calls=(B,)), Replied("so be it")


@pytest.mark.parametrize(
    ("bodies", "doubt"),
    [
        ((), False),
        ((Spoken("go"), TWO), False),
        ((TWO, result(1, 0), unknown(1, 1)), True),
        ((TWO, unknown(1, 1)), True),
        ((TWO, unknown(1, 1), result(1, 0), ONE), True),
        ((TWO, unknown(1, 1), result(1, 0), TWO, result(4, 0)), True),
        ((TWO, unknown(1, 1), result(1, 0), TWO, result(4, 0), result(4, 1)), False),
        ((ONE, unknown(1, 0), WORDS), False),
        ((ONE, unknown(1, 0), WORDS, Spoken("and?"), ONE), False),
        ((ONE, unknown(1, 0), Spoken("and?")), True),
        ((ONE, result(1, 0), ONE), False),
    ],
)
def test_a_turn_is_in_doubt_from_an_unknown_outcome_until_a_whole_step_has_come_through(
    bodies: tuple[Body, ...], doubt: bool
) -> None:
    assert is_in_doubt(lines(*bodies)) is doubt


def test_each_result_stands_behind_its_call_in_the_order_of_the_calls() -> None:
    history = lines(Spoken("hi"), Replied(calls=(A, B)), result(2, 1, "second"), result(2, 0, "first"), Spoken("ok"))
    assert [line.seq for line in in_order(history)] == [1, 2, 4, 3, 5]


def test_a_note_stands_for_everything_it_covers_and_comes_first() -> None:
    history = lines(Spoken("old"), Replied("older"), Spoken("new"), Noted("in short", covers=2), Replied("now"))
    assert [line.seq for line in in_order(history)] == [4, 3, 5]


def test_only_the_last_covering_note_counts() -> None:
    history = lines(
        Spoken("a"), Replied("b"), Noted("first", covers=2), Spoken("c"), Replied("d"), Noted("second", covers=5)
    )
    assert [line.seq for line in in_order(history)] == [6]


def test_a_note_that_covers_nothing_stays_in_its_place() -> None:
    history = lines(Spoken("a"), Noted("for the record"), Replied("b"))
    assert [line.seq for line in in_order(history)] == [1, 2, 3]


def test_a_note_within_what_is_kept_but_older_than_the_last_is_left_out() -> None:
    history = [Line(3, Noted("first", covers=1)), Line(4, Spoken("x")), Line(5, Noted("second", covers=2))]
    assert [line.seq for line in in_order(history)] == [5, 4]


@pytest.mark.parametrize(
    ("history", "found"),
    [
        ([], (0, Replied(), ())),
        ([Spoken("hi")], (0, Replied(), ())),
        ([Replied("done"), Spoken("and?")], (1, Replied("done"), ())),
        ([Replied(calls=(A, B)), result(1, 1)], (1, Replied(calls=(A, B)), (result(1, 1),))),
        (
            [Replied(calls=(A,)), result(1, 0), Replied(calls=(B,)), result(3, 0), result(1, 0)],
            (3, Replied(calls=(B,)), (result(3, 0),)),
        ),
    ],
)
def test_the_last_step_is_the_last_reply_with_its_own_results(
    history: list[Body], found: tuple[int, Replied, tuple[Resulted, ...]]
) -> None:
    assert last_step(lines(*history)) == found


def came_of(name: str, text: str, is_error: bool = False) -> Resulted:
    return Resulted(1, 0, "id", name, text, is_error)


@proves("2.frozen.2")
@pytest.mark.parametrize(
    ("bodies", "output"),
    [
        ((), ""),
        ((Spoken("go", kind="task"), Replied("", (A,))), ""),
        ((Spoken("go", kind="task"), came_of("read", "one"), came_of("read", "two"), Replied()), "two"),
        ((came_of("read", "one"), came_of("exec", "broke", is_error=True)), "one"),
        ((came_of("read", "one"), Spoken("by the way", kind="send"), Told("[1 background task completed]")), "one"),
        *(((came_of("read", "one"), Spoken("", kind=kind)), "") for kind in ("task", "steer", "wake", "approval")),
        *(
            ((came_of("read", "one"), came_of(name, '{"status":"accepted"}')), "one")
            for name in ("sessions_spawn", "sessions_yield", "session_status", "subagents", "agents_list")
        ),
    ],
)
def test_the_last_output_is_that_of_the_last_tool_of_this_attempt_that_did_some_work(
    bodies: tuple[Body, ...], output: str
) -> None:
    assert last_output(lines(*bodies)) == output


@proves("2.frozen.1")
@pytest.mark.parametrize(
    ("bodies", "words"),
    [
        ((), ""),
        ((Spoken("go", kind="task"), Replied("", (A,)), came_of("read", "one"), Replied()), ""),
        ((Replied("one", (A,)), came_of("read", "x"), Replied("two", (A,)), came_of("read", "y"), Replied(" ")), "two"),
        ((Replied("one", (A,)), Replied("NO_REPLY"), Replied("ANNOUNCE_SKIP")), "one"),
        ((Replied("one", (A,)), Spoken("thanks", kind="send"), Replied("you are welcome", aside=True)), "one"),
        *(((Replied("one"), Spoken("", kind=kind)), "") for kind in ("task", "steer", "wake", "approval")),
    ],
)
def test_the_last_words_are_those_of_this_attempt_silence_and_asides_apart(
    bodies: tuple[Body, ...], words: str
) -> None:
    assert last_said(lines(*bodies)) == words


@pytest.mark.parametrize(
    ("name", "arguments", "shown"),
    [
        ("read", '{"attachments":[{"content":"x"}]}', '{"attachments":[{"content":"x"}]}'),
        ("sessions_spawn", '{"task":"x"}', '{"task":"x"}'),
        ("sessions_spawn", '{"attachments":', '{"attachments":'),
        ("sessions_spawn", '{"attachments":3}', '{"attachments":3}'),
        ("sessions_spawn", '{"attachments":[3,{"content":4}]}', '{"attachments":[3,{"content":4}]}'),
        (
            "sessions_spawn",
            '{"task":"x", "attachments":[{"name":"a","content":"hello"}]}',
            '{"task":"x","attachments":[{"name":"a","content":"[5 characters, not shown again]"}]}',
        ),
    ],
)
def test_contents_of_attached_files_are_not_shown_again(name: str, arguments: str, shown: str) -> None:
    assert shown_arguments(CallEntry("c", name, arguments)) == shown


def test_what_a_note_hides_is_seen_no_more_and_nothing_else_is() -> None:
    bodies: list[Body] = [
        Spoken("before"),
        Spoken("[Heartbeat]", kind="heartbeat"),
        Told("something came in"),
        Replied("HEARTBEAT_OK"),
        Noted("nothing needed attention", hides_from=2),
        Spoken("after"),
        Noted("for the record"),
    ]
    lines = [Line(number, body) for number, body in enumerate(bodies, 1)]
    assert [line.seq for line in in_order(lines)] == [1, 5, 6, 7]
    assert [line.seq for line in in_order(lines[2:])] == [5, 6, 7], "also if a page begins in between"


def test_a_note_that_stands_for_what_was_hidden_still_stands_for_it() -> None:
    bodies: list[Body] = [
        Spoken("a"),
        Replied("HEARTBEAT_OK"),
        Noted("", hides_from=1),
        Spoken("b"),
        Noted("all of it", covers=4),
        Spoken("c"),
    ]
    lines = [Line(number, body) for number, body in enumerate(bodies, 1)]
    assert [line.seq for line in in_order(lines)] == [5, 6]


# ---- images ----------------------------------------------------------------------------------------------------------

IMAGE = ImageEntry("ab" * 32, "png", 7, 640, 480, "cat.png")


def test_words_and_results_carry_images_and_others_none() -> None:
    assert images_of(Spoken("x", images=(IMAGE,))) == (IMAGE,)
    assert images_of(Resulted(1, 0, "id", "read", "x", images=(IMAGE,))) == (IMAGE,)
    assert images_of(Replied("x")) == images_of(Noted("x")) == images_of(Told("x")) == ()


def test_images_are_read_as_they_were_written() -> None:
    for body in (Spoken("x", images=(IMAGE,)), Resulted(1, 0, "id", "read", "x", images=(IMAGE,))):
        assert from_body(to_body(body)) == body
    assert from_carried_body(carried_body(Carried((IMAGE, IMAGE)))) == Carried((IMAGE, IMAGE))
    assert carried_body(Carried()) == ""
    assert from_carried_body("") == Carried()


FILE = FileEntry("report.csv", 8, "ab" * 32, "text/csv")


def test_words_carry_files_and_others_none() -> None:
    assert files_of(Spoken("x", files=(FILE,))) == (FILE,)
    assert files_of(Resulted(1, 0, "id", "read", "x")) == files_of(Replied("x")) == ()
    assert from_body(to_body(Spoken("x", files=(FILE,)))) == Spoken("x", files=(FILE,))


def test_files_are_read_as_they_were_written_with_images_or_without() -> None:
    for carried in (Carried(files=(FILE,)), Carried((IMAGE,), (FILE, FILE))):
        assert from_carried_body(carried_body(carried)) == carried


def test_a_row_of_an_older_version_holds_images_alone() -> None:
    assert carried_body(Carried((IMAGE,))).startswith("[")


# ---- replies that the token limit cut --------------------------------------------------------------------------------

CUT, REST = Replied("half a sen", cut=True), Replied("tence", (A,), model="m")
GO_ON, NOTE, HELLO = Spoken("go on", kind=CONTINUE), Noted("in short", 1), Spoken("hello", "r", "send")


@pytest.mark.parametrize(
    ("bodies", "read"),
    [
        ([HELLO, CUT, GO_ON, REST], [(1, HELLO), (4, Replied("half a sentence", (A,), model="m"))]),
        ([CUT, GO_ON, NOTE, REST], [(3, NOTE), (4, Replied("half a sentence", (A,), model="m"))]),
        ([CUT, GO_ON], [(1, CUT)]),
        ([CUT, GO_ON, HELLO, REST], [(1, CUT), (3, HELLO), (4, REST)]),
        ([CUT, HELLO, REST], [(1, CUT), (2, HELLO), (3, REST)]),
        ([GO_ON, REST], [(2, REST)]),
        ([CUT, Spoken("again", kind=DROPPED), REST], [(1, CUT), (2, Spoken("again", kind=DROPPED)), (3, REST)]),
        ([CUT, GO_ON, CUT], [(3, Replied("half a senhalf a sen", cut=True))]),
    ],
)
def test_a_reply_that_was_cut_and_its_rest_are_read_as_one(bodies: list[Body], read: list[tuple[int, Body]]) -> None:
    assert joined(enumerate(bodies, 1)) == read


@pytest.mark.parametrize(
    ("bodies", "begun", "follows"),
    [
        ([], "", False),
        ([HELLO, CUT], "", False),
        ([HELLO, CUT, GO_ON], "half a sen", True),
        ([HELLO, CUT, GO_ON, NOTE], "half a sen", True),
        ([HELLO, CUT, GO_ON, HELLO], "", False),
        ([HELLO, CUT, Spoken("again", kind=DROPPED)], "", True),
    ],
)
def test_the_next_reply_goes_on_where_the_last_was_cut(bodies: list[Body], begun: str, follows: bool) -> None:
    found = lines(*bodies)
    assert (begun_text(found), follows_cut(found), awaits_rest(found)) == (begun, follows, begun != "")


def test_the_last_words_are_both_parts_of_a_reply_that_was_cut() -> None:
    assert last_said(lines(HELLO, CUT, GO_ON, Replied("tence"))) == "half a sentence"


@pytest.mark.parametrize(
    ("tool", "arguments", "kept"),
    [
        ("read", "x" * MOST_ARGUMENT_BYTES, True),
        ("read", "x" * (MOST_ARGUMENT_BYTES + 1), False),
        ("read", "\N{BIRD}" * (MOST_ARGUMENT_BYTES // 4), True),
        ("read", "\N{BIRD}" * (MOST_ARGUMENT_BYTES // 4 + 1), False),
        ("read", "\ud83d" * (MOST_ARGUMENT_BYTES + 1), False),
        (SPAWN, "x" * MOST_SPAWN_BYTES, True),
        (SPAWN, "x" * (MOST_SPAWN_BYTES + 1), False),
    ],
)
def test_arguments_that_are_too_large_are_replaced_by_their_size(tool: str, arguments: str, kept: bool) -> None:
    found = kept_arguments(tool, arguments)
    assert (found == arguments) is kept
    assert bool(why_left_out(found)) is not kept
    assert kept or len(found) < 100
