"""A transcript as typed values: each kind of entry, calls with their results, what is cut, and the lines between."""

import pytest

from fledge.core import events as ev
from fledge.core.entries import (
    LINES,
    OUTPUT_BYTES,
    WORDS_BYTES,
    CallAsked,
    CallValue,
    CompletionsEntry,
    CompletionValue,
    EntryPlace,
    EntryUsage,
    HistoryEntry,
    ImageShown,
    LineEntry,
    MessageEntry,
    NoteEntry,
    ReplyEntry,
    ResultEntry,
    cut,
    entries,
    lines,
    merged,
)
from fledge.core.file_change import ChangeLine, FileChange
from fledge.core.freeze import Stats
from fledge.core.handover import Artifact
from fledge.core.images import ImageEntry
from fledge.core.transcript import (
    CONTINUE,
    Body,
    CallEntry,
    CompletionRead,
    Noted,
    Replied,
    Resulted,
    Spoken,
    Told,
    from_body,
)
from tests.core.samples import AT

CHILD = "agent:main:subagent:1"


def shown(
    *bodies: Body, asked: dict[tuple[int, int], CallAsked] | None = None, whole: bool = False
) -> list[HistoryEntry]:
    """These bodies, numbered from 1, a second apart."""
    known = [(EntryPlace(seq, float(seq)), body) for seq, body in enumerate(bodies, 1)]
    return entries(known, 1, len(known), asked or {}, whole)


@pytest.mark.parametrize(
    ("spoken", "value"),
    [
        (
            Spoken("hi", "row:run-1", "send"),
            MessageEntry(seq=1, at=1.0, kind="send", by="person", text="hi", run_id="run-1"),
        ),
        (Spoken("go", "row", "task"), MessageEntry(seq=1, at=1.0, kind="task", by="person", text="go")),
        (
            Spoken("left", "row", "steer", "agent:main:main"),
            MessageEntry(seq=1, at=1.0, kind="steer", by="session", text="left", source="agent:main:main"),
        ),
        (Spoken("[wake]", "row", "wake"), MessageEntry(seq=1, at=1.0, kind="wake", by="fledge", text="[wake]")),
        (
            Spoken("see", "r:1", "send", images=(ImageEntry("ab", "png", 9, 2, 3, "cat.png"),)),
            MessageEntry(
                seq=1,
                at=1.0,
                kind="send",
                by="person",
                text="see",
                run_id="1",
                images=(ImageShown(name="cat.png", media_type="image/png", bytes=9, width=2, height=3),),
            ),
        ),
    ],
)
def test_a_message_says_who_spoke(spoken: Spoken, value: MessageEntry) -> None:
    assert shown(spoken) == [value]


def test_a_reply_has_its_calls_with_their_results_its_model_and_what_it_used() -> None:
    reply = Replied(
        "look",
        (CallEntry("c1", "read", '{"path": "a"}'), CallEntry("c2", "exec", "{}"), CallEntry("c3", "exec", "{}")),
        model="m",
        usage={"input": 5, "output": 2, "cacheRead": 3, "cacheWrite": 1, "reasoning": 1},
        cost_usd=0.5,
        aside=True,
    )
    failed, died = Resulted(1, 1, "c2", "exec", "no", is_error=True), Resulted(1, 2, "c3", "exec", "?", unknown=True)
    told = shown(reply, Resulted(1, 0, "c1", "read", "text"), failed, died)
    assert told[0] == ReplyEntry(
        seq=1,
        at=1.0,
        text="look",
        calls=(
            CallValue(
                id="c1", name="read", arguments='{"path": "a"}', status="ok", started_at=1.0, ended_at=2.0, result_seq=2
            ),
            CallValue(id="c2", name="exec", arguments="{}", status="error", started_at=1.0, ended_at=3.0, result_seq=3),
            CallValue(
                id="c3", name="exec", arguments="{}", status="unknown", started_at=1.0, ended_at=4.0, result_seq=4
            ),
        ),
        model="m",
        usage=EntryUsage(tokens_in=5, tokens_out=2, tokens_cached=4, tokens_reasoning=1),
        cost_usd=0.5,
        is_aside=True,
    )
    assert told[2] == ResultEntry(seq=3, at=3.0, call_id="c2", call_seq=1, name="exec", text="no", is_error=True)
    assert told[3] == ResultEntry(seq=4, at=4.0, call_id="c3", call_seq=1, name="exec", text="?", is_unknown=True)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (None, "running"),
        (CallAsked(id="q", state="waiting"), "asked"),
        (CallAsked(id="q", state="allowed", answered_by="anna"), "running"),
    ],
)
def test_a_call_without_a_result_runs_or_waits_for_a_person(asked: CallAsked | None, status: str) -> None:
    (reply,) = shown(Replied(calls=(CallEntry("c", "exec", "{}"),)), asked={} if asked is None else {(1, 0): asked})
    assert isinstance(reply, ReplyEntry)
    assert (reply.calls[0].status, reply.calls[0].question) == (status, asked)


def test_a_call_shows_the_change_of_its_file_and_of_a_long_one_the_beginning() -> None:
    short = FileChange(path="a", lines=(ChangeLine("added", "a" * 1000),))
    long = FileChange(path="a", lines=tuple(ChangeLine("added", f"{n}" * 1000) for n in range(5)))
    calls = (CallEntry("c", "write", "{}"), CallEntry("d", "write", "{}", "asked", short))
    (reply,) = shown(Replied(calls=(*calls, CallEntry("e", "write", "{}", "asked", long))))
    assert isinstance(reply, ReplyEntry)
    changes = [call.change for call in reply.calls]
    assert changes[:2] == [None, short]
    assert changes[2] is not None
    assert changes[2].lines == (*long.lines[:2], ChangeLine("gap", "3 more lines of the change"))


@pytest.mark.parametrize(
    ("answer", "is_error", "child"),
    [
        (f'{{"status":"accepted","runId":"r1","childSessionKey":"{CHILD}"}}', False, ("r1", CHILD)),
        ('{"status":"forbidden","error":"no"}', True, ("", "")),
        ("no JSON", False, ("", "")),
        ("\ud800", False, ("", "")),
    ],
)
def test_a_spawn_names_the_run_it_started(answer: str, is_error: bool, child: tuple[str, str]) -> None:
    spawn = Replied(calls=(CallEntry("c", "sessions_spawn", '{"task":"x"}'),))
    reply = shown(spawn, Resulted(1, 0, "c", "sessions_spawn", answer, is_error))[0]
    assert isinstance(reply, ReplyEntry)
    assert (reply.calls[0].child_run_id, reply.calls[0].child_session_key) == child


READ = CompletionRead(
    row="announce:v1:k:r",
    run=CHILD,
    status="error",
    run_id="r",
    label="digger",
    error="broke",
    summary="half done",
    stats=Stats(1.5, 10, 2, 0.1),
    artifacts=(Artifact("a.txt", 3),),
    more_artifacts=1,
    text="ab12",
    text_bytes=9,
)


def test_completions_are_values_and_those_of_older_entries_have_what_is_known() -> None:
    old = '{"type":"event","text":"t","completions":[{"row":"k","run":"s","status":"ok"}]}'
    told = Told("text", (READ, READ), summarised=(1,))
    value = CompletionValue(
        kind="outcome",
        session_key=CHILD,
        run_id="r",
        label="digger",
        status="error",
        error="broke",
        summary="half done",
        stats=Stats(1.5, 10, 2, 0.1),
        artifacts=(Artifact("a.txt", 3),),
        more_artifacts=1,
        result_id="ab12",
        result_bytes=9,
    )
    first, second = shown(told, from_body(old))
    assert isinstance(first, CompletionsEntry)
    assert isinstance(second, CompletionsEntry)
    assert [one.in_one_line for one in first.completions] == [False, True]
    assert first.completions[0] == value
    assert first.text == "text"
    assert second.completions == (CompletionValue(kind="outcome", session_key="s", status="ok"),)


def test_outputs_over_two_kilobytes_are_cut_with_their_size_and_one_entry_can_be_had_whole() -> None:
    long, longer = "é" * OUTPUT_BYTES, "x" * (WORDS_BYTES + 1)
    bodies: tuple[Body, ...] = (
        Spoken(longer, kind="send"),
        Replied(longer, (CallEntry("c", "write", long),)),
        Resulted(2, 0, "c", "write", long),
        Told(long),
        Noted(long, covers=1),
    )
    said, reply, result, told, note = shown(*bodies)
    assert isinstance(said, MessageEntry)
    assert isinstance(reply, ReplyEntry)
    assert isinstance(result, ResultEntry)
    assert isinstance(told, CompletionsEntry)
    assert isinstance(note, NoteEntry)
    assert (len(said.text), said.size) == (len(reply.text), reply.size) == (WORDS_BYTES, WORDS_BYTES + 1)
    half = ("é" * (OUTPUT_BYTES // 2), 2 * OUTPUT_BYTES)
    assert (reply.calls[0].arguments, reply.calls[0].size) == half
    assert (result.text, result.size) == (told.text, told.size) == (note.text, note.size) == half
    assert note.covers == 1
    whole = shown(*bodies, whole=True)
    assert [one.size for one in whole if not isinstance(one, LineEntry)] == [0] * 5
    assert isinstance(whole[2], ResultEntry)
    assert whole[2].text == long


@pytest.mark.parametrize(("text", "told"), [("é", ("é", 0)), ("aé", ("a", 3)), ("", ("", 0))])
def test_a_cut_never_falls_inside_a_character(text: str, told: tuple[str, int]) -> None:
    assert cut(text, 2) == told


def test_a_reply_that_was_cut_and_its_rest_are_one_on_whichever_side_of_a_page_they_stand() -> None:
    bodies: list[Body] = [
        Replied("be", cut=True),
        Spoken("go on", kind=CONTINUE),
        Replied("gin"),
        Spoken("hi", kind="send"),
    ]
    known = [(EntryPlace(seq, float(seq)), body) for seq, body in enumerate(bodies, 1)]
    assert [one.seq for one in entries(known, 1, 2, {})] == []
    (reply, _) = entries(known, 3, 4, {})
    assert isinstance(reply, ReplyEntry)
    assert (reply.seq, reply.text) == (3, "begin")


# ---- lines -----------------------------------------------------------------------------------------------------------

KILLED = ev.KillOrdered(at=AT, named=True, driven=False, unsettled=0)
LOST = ev.LeaseLost(at=AT, attempt=1, next_run_id="r", step_open=False)
RESUMED = ev.Resumed(at=AT, next_run_id="r", unsettled=0)


@pytest.mark.parametrize(
    ("timeline", "kinds"),
    [
        ([ev.Prepared(at=AT), ev.Steered(at=AT, next_run_id="r")], ["steered"]),
        ([KILLED, LOST], ["killed"]),
        ([KILLED, RESUMED, LOST], ["killed", "resumed", "restarted"]),
        ([ev.KillOrdered(at=AT, named=False, driven=False, unsettled=0)], []),
        ([ev.LeaseLost(at=AT, attempt=1, next_run_id="r", step_open=True)], ["crashed"]),
        ([ev.PlanRejected(at=AT, next_run_id="r")], ["plan_rejected"]),
        ([ev.PlanApproved(at=AT, next_run_id="r")], ["plan_approved"]),
    ],
)
def test_what_is_done_to_a_run_makes_lines(timeline: list[ev.Event], kinds: list[str]) -> None:
    made = lines(timeline, CHILD, "digger")
    assert [one.kind for one in made] == kinds
    assert all((one.session_key, one.label, one.at) == (CHILD, "digger", AT) for one in made)
    assert {type(event).__name__ for event in timeline} - set(LINES) <= {"Prepared"}


def test_a_line_stands_behind_the_last_entry_that_is_not_younger() -> None:
    notes = [NoteEntry(seq=seq, at=float(seq), text="") for seq in (5, 6)]
    between = [LineEntry(seq=0, at=at, kind="killed", session_key=CHILD) for at in (1.0, 5.0, 5.5, 6.0)]
    told = merged(notes, between)
    assert [(type(one).__name__, one.seq, one.at) for one in told] == [
        ("LineEntry", 0, 1.0),
        ("NoteEntry", 5, 5.0),
        ("LineEntry", 5, 5.0),
        ("LineEntry", 5, 5.5),
        ("NoteEntry", 6, 6.0),
        ("LineEntry", 6, 6.0),
    ]
