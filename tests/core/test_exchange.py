"""Messages between sessions: who speaks when, when it is over, and the words that go around them."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fledge.core.exchange import (
    AWAITS_ANSWER,
    REPLY_CHARS,
    Asked,
    Closing,
    Exchange,
    ExchangeKind,
    Over,
    PlanAnswer,
    Talking,
    answered,
    dropped,
    first_words,
    how_answered,
    how_read,
    kind_of,
    plan_answer,
    plan_words,
    refuse_hop,
)
from fledge.core.route import Address, answer_to, joined
from fledge.core.run import PHASES, AwaitingApproval
from fledge.errors import BadInput
from tests.core.samples import KEY, RUNS
from tests.statements import proves

A, B = "agent:a:main", "agent:b:main"


def exchange(kind: ExchangeKind = "talk", max_turns: int = 5, until_at: float | None = 30.0) -> Exchange:
    return Exchange(
        id="x",
        root="x",
        requester=A,
        target=B,
        kind=kind,
        row="send:x",
        path=(A, B),
        max_turns=max_turns,
        until_at=until_at,
    )


def play(first: Exchange, *replies: str) -> list[Exchange]:
    """The exchange after each reply."""
    found = []
    for reply in replies:
        first = answered(first, reply, first.hops).exchange
        found.append(first)
    return found


@pytest.mark.parametrize("kind", ["tell", "ask"])
def test_a_tell_and_an_ask_are_over_with_the_answer(kind: ExchangeKind) -> None:
    asked = exchange(kind)
    assert asked.speaker == B
    move = answered(asked, "here", 1)
    assert (move.say, move.exchange.reply, move.exchange.stage) == ("", "here", Over("answered"))
    assert (move.exchange.speaker, move.exchange.hops) == (None, 1)


def test_a_talk_alternates_from_the_requester_and_closes_at_the_target() -> None:
    after = play(exchange(max_turns=3), "1", "2", "3", "4")
    assert [one.speaker for one in after] == [A, B, A, B]
    assert [one.stage for one in after] == [Talking(0), Talking(1), Talking(2), Closing()]
    assert [one.hops for one in after] == [2, 3, 4, 5]
    assert after[-1].path == (A, B, A, B, A, B)
    assert all(one.reply == "1" for one in after)


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("told them", "announced"),
        ("ANNOUNCE_SKIP", "silent"),
        ("\nANNOUNCE_SKIP ", "silent"),
        ("ANNOUNCE_SKIP!", "announced"),
        ("", "silent"),
        (" ", "silent"),
        ("NO_REPLY", "silent"),
    ],
)
def test_the_closing_reply_is_the_end_whatever_it_says(reply: str, why: str) -> None:
    after = play(exchange(max_turns=0), "1", reply)
    assert [one.stage for one in after] == [Closing(), Over(why)]


@pytest.mark.parametrize("reply", ["REPLY_SKIP", " REPLY_SKIP\n", "ANNOUNCE_SKIP"])
def test_reply_skip_goes_straight_to_the_closing(reply: str) -> None:
    assert play(exchange(), reply)[-1].stage == Closing()
    assert play(exchange(), "1", reply)[-1].stage == Closing()


@pytest.mark.parametrize("reply", ["", "  ", "NO_REPLY"])
def test_silence_ends_a_talk_at_once(reply: str) -> None:
    assert play(exchange(), reply)[-1].stage == Over("answered")
    assert play(exchange(), "1", reply)[-1].stage == Over("answered")


def test_nothing_follows_once_it_is_over() -> None:
    over = play(exchange("ask"), "1")[-1]
    assert answered(over, "2", 0).exchange == over
    assert dropped(over, "killed") == over


def test_a_dropped_exchange_says_why_and_has_no_answer() -> None:
    gone = dropped(exchange(), "killed")
    assert (gone.stage, gone.reply, gone.speaker) == (Over("killed"), None, None)


@proves("4.a2a.6")
def test_the_twenty_first_message_under_one_root_is_not_sent() -> None:
    # What an exchange inherits from the one it came of is not counted again.
    late = replace(exchange(), path=("agent:c:main", A, B), inherited=2)
    assert late.hops == 1
    assert refuse_hop(late, 19) is None
    refusal = refuse_hop(late, 20)
    assert refusal is not None
    assert (refusal.status, refusal.reason) == (
        "forbidden",
        f"hops 20 of 20 (… agent:c:main -> {A} -> {B}): fixed limit of messages that come of one",
    )
    move = answered(late, "1", 20)
    assert (move.exchange.stage, move.say, move.exchange.reply) == (Over(refusal.reason), "", "1")


def test_an_answer_is_kept_only_so_far() -> None:
    assert len(answered(exchange("ask"), "x" * 100_000, 1).exchange.reply or "") == REPLY_CHARS


# ---- words -----------------------------------------------------------------------------------------------------------


def test_only_a_talk_is_framed_and_apart_from_other_messages() -> None:
    assert first_words(exchange("ask"), "hello") == "hello"
    assert (exchange("ask").origin, exchange("tell").origin, exchange().origin) == ("", "", "exchange:x")
    assert first_words(exchange(), "hello\nthere").splitlines() == [
        f"[Agent to agent] {A} says (it is another agent, not your user):",
        "> hello",
        "> there",
        "Your final text is sent back to it as your answer.",
    ]


def test_a_message_that_nobody_hears_the_answer_of_does_not_promise_it() -> None:
    words = first_words(exchange(max_turns=0, until_at=None), "hello")
    assert words.splitlines()[1:] == ["> hello"]


def test_the_words_of_a_turn_say_who_speaks_and_how_to_stop() -> None:
    move = answered(exchange(max_turns=2), "fine", 1)
    assert move.say.splitlines() == [
        f"[Agent to agent] {B} says (it is another agent, not your user):",
        "> fine",
        "This is turn 1 of at most 2. Your final text is sent back to it, not to your user. "
        "Reply REPLY_SKIP alone to end the exchange.",
    ]
    again = answered(move.exchange, "good", 2)
    assert again.say.startswith(f"[Agent to agent] {A} says")
    assert "turn 2 of at most 2" in again.say
    assert "ANNOUNCE_SKIP" in answered(again.exchange, "bye", 3).say


@given(st.text(max_size=300))
def test_no_line_of_the_others_words_passes_for_ours(text: str) -> None:
    lines = first_words(exchange(), text).splitlines()
    assert all(line.startswith(">") for line in lines[1:-1])


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ("APPROVED: proceed", PlanAnswer(True, "proceed")),
        (" APPROVED ", PlanAnswer(True, "")),
        ("approve", PlanAnswer(True, "")),
        ("Approved", PlanAnswer(True, "")),
        ("aPPrOVE it", PlanAnswer(True, "it")),
        ("Approved, go ahead", PlanAnswer(True, "go ahead")),
        ("approved. Mind the tests.", PlanAnswer(True, "Mind the tests.")),
        ("Approved!", PlanAnswer(True, "")),
        ("approved!!! go", PlanAnswer(True, "go")),
        ("approved – go ahead", PlanAnswer(True, "go ahead")),
        ("approved–go ahead", PlanAnswer(True, "go ahead")),
        ("approved - go ahead", PlanAnswer(True, "go ahead")),
        ("approved — go ahead", PlanAnswer(True, "go ahead")),
        ("approved\n- first\n- then", PlanAnswer(True, "- first\n- then")),
        ("approved .env stays out", PlanAnswer(True, ".env stays out")),
        ("approved\tnow", PlanAnswer(True, "now")),
        ("approved\u00a0now", PlanAnswer(True, "now")),
        ("\u2003approved\u3000now", PlanAnswer(True, "now")),
        ("\n\nApproved\n", PlanAnswer(True, "")),
        ("APPROVED by whom?", PlanAnswer(True, "by whom?")),
        ("REJECTED: too\nlong", PlanAnswer(False, "too\nlong")),
        ("REJECTED:", PlanAnswer(False, "")),
        ("REJECTED : no", PlanAnswer(False, "no")),
        ("reject", PlanAnswer(False, "")),
        ("Reject this", PlanAnswer(False, "this")),
        ("Rejected, too long", PlanAnswer(False, "too long")),
        ("approved?", None),
        ("approve's a strong word", None),
        ("approved’s", None),
        ("approved-ish", None),
        ("approved—go", None),
        ("approved; go", None),
        ("approved) go", None),
        ('"approved"', None),
        ("*approved*", None),
        ("approves it", None),
        ("approving", None),
        ("approval: yes", None),
        ("rejects it", None),
        ("rejecte", None),
        ("ok", None),
        ("yes, approved", None),
        ("is it APPROVED: yes", None),
        ("not approved", None),
        ("APPROVEDNESS", None),
        ("approved\u200bnow", None),
        ("ＡＰＰＲＯＶＥＤ", None),
        ("ápproved", None),
        ("a\u0301pproved", None),
        ("approved\u0301", None),
        ("\ufeffapproved", None),
        (":", None),
        ("   ", None),
        ("", None),
    ],
)
def test_the_first_word_of_a_message_decides_whether_it_answers_a_plan(message: str, answer: PlanAnswer | None) -> None:
    assert plan_answer(message) == answer


@pytest.mark.parametrize(
    ("approves", "reason", "words"),
    [
        (True, "", "APPROVED: proceed"),
        (True, " go on\n", "APPROVED: go on"),
        (False, " too long ", "REJECTED: too long"),
    ],
)
def test_an_answer_to_a_plan_is_a_message_that_reads_back_as_that_answer(
    approves: bool, reason: str, words: str
) -> None:
    assert plan_words(approves, reason) == words
    assert plan_answer(words) == PlanAnswer(approves, reason.strip() or "proceed")


def test_words_that_begin_like_an_answer_are_kept_whole_where_the_answer_is_given_apart() -> None:
    assert plan_words(True, "Approve users in batches") == "APPROVED: Approve users in batches"
    assert plan_words(False, "Rejected users are lost") == "REJECTED: Rejected users are lost"


@pytest.mark.parametrize("words", ["APPROVED: go on", "APPROVED: proceed"])
def test_an_answer_that_is_whole_already_is_left_as_it_is(words: str) -> None:
    assert plan_words(True, words) == words
    assert plan_words(False, words) == f"REJECTED: {words}"


def test_a_rejection_without_a_reason_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="message: must say why"):
        plan_words(False, "  ")


def test_an_exchange_begins_asked() -> None:
    assert exchange().stage == Asked()


# ---- what a message is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(RUNS))
@pytest.mark.parametrize("own", [True, False])
def test_only_who_takes_a_turn_for_it_is_waited_for(name: str, own: bool) -> None:
    run = RUNS[name]
    if run.ended is not None:
        kinds = ("ask", "tell") if own else ("talk", "talk")
    elif name.startswith(("waiting", "queued, serving", "running, serving")):
        kinds = ("ask", "tell")
    else:
        kinds = ("tell", "tell")
    assert (kind_of(run, own, True), kind_of(run, own, False)) == kinds


def test_a_conversation_talks_back_unless_it_is_ones_own() -> None:
    assert [kind_of(None, False, waits) for waits in (True, False)] == ["talk", "talk"]
    assert [kind_of(None, True, waits) for waits in (True, False)] == ["ask", "tell"]


def test_only_the_closing_words_of_a_talk_are_for_the_sessions_own_user() -> None:
    after = play(exchange(max_turns=1), "1", "2")
    user = Address("terminal", "me")
    assert [answer_to(one.origin, user) for one in (exchange(), *after)] == [None, None, user]
    assert [joined(one.origin, "", is_first=False) for one in after] == [one.origin for one in after]


# ---- how a message is read -------------------------------------------------------------------------------------------

ANNOUNCED = "; the result is announced as usual"
TURN = "it is read in a turn of its own"
READ: dict[str, str] = {
    "spawning": f"{KEY} is spawning: it takes no messages",
    "queued": f"the run waits for a slot and reads it then{ANNOUNCED}",
    "queued, serving": f"{TURN}, while the run waits for its subagents{ANNOUNCED}",
    "queued, paused": f"the run pauses (HTTP 429) and reads it when it goes on{ANNOUNCED}",
    "running": f"it is read at the next step{ANNOUNCED}",
    "running, serving": f"it is read at the next step{ANNOUNCED}",
    "waiting, final text": f"{TURN}, while the run waits for its subagents{ANNOUNCED}",
    "asking": f"the run waits for a person to allow a tool call, and reads it after that{ANNOUNCED}",
    "ending, grace": "the last step of the run failed: it is read if the run recovers, else in a turn of its own",
    "ending, stopping named": f"{KEY} was killed and is stopping: it takes no messages",
    "announcing": TURN,
    "deferred, missing-requester": TURN,
    "awaiting approval": AWAITS_ANSWER,
    "cleanup, delivered": TURN,
    "completed": TURN,
    "completed, killed": TURN,
    "completed_giveup": TURN,
    "archived": f"{KEY} is archived: it takes no messages",
    "gone": f"{KEY} is gone: it takes no messages",
}


@proves("4.send.12", "The answer to the sender of a message says how it is read in the phase that the run is in")
@pytest.mark.parametrize("name", READ)
def test_the_sender_is_told_how_a_message_is_read_as_the_run_stands(name: str) -> None:
    assert how_read(RUNS[name]) == READ[name]


def test_each_phase_has_its_words_and_a_conversation_answers_in_a_turn() -> None:
    assert {type(RUNS[name].phase) for name in READ} == set(PHASES)
    assert how_read(None) == TURN


@pytest.mark.parametrize("name", RUNS)
def test_only_a_run_whose_plan_awaits_its_answer_asks_for_one(name: str) -> None:
    assert (how_read(RUNS[name]) == AWAITS_ANSWER) is isinstance(RUNS[name].phase, AwaitingApproval)


@pytest.mark.parametrize(("plan", "told"), [("approved", "the plan is approved"), ("planning", "the plan is rejected")])
def test_the_sender_of_an_answer_is_told_what_it_did(plan: Literal["approved", "planning"], told: str) -> None:
    assert how_answered(replace(RUNS["running"], plan=plan)) == told
