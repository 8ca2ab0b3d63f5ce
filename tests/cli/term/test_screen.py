"""Scenes in a terminal, row by row: what a person sees while an answer streams, subagents report and they type."""

import re

import pytest

from fledge.cli.term.shown import (
    CallQuestion,
    EndedItem,
    ErrorItem,
    Leave,
    NoticeItem,
    OutputItem,
    PlanQuestion,
    QuestionAnswered,
    SpokenItem,
    StopWanted,
    TurnShown,
    WordsSent,
    WorkingChild,
)
from tests.cli.term.scene import Scene, play, scene

QUESTION = CallQuestion("q1", "scout", "rm -rf build && make", "~/src/fledge", "make")
PLAN = PlanQuestion("p1", "checker", "1. **Read** the docs\n2. Fix them")
RESULT = "Three files hold the rule.\nThe second one is wrong.\nThe third is right.\nAnd more."


def spun(row: str) -> str:
    """A row with its spinner as one sign."""
    return re.sub(r"^[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]", "⠹", row)


def shown(s: Scene) -> list[str]:
    """The terminal's rows, spinners alike."""
    return [spun(row) for row in s.glass.rows()]


def test_an_answer_streams_above_what_is_at_work_and_what_is_typed() -> None:
    async def story() -> None:
        async with scene(72) as s:
            now = s.screen.now()
            s.screen.turn(TurnShown("answering", now - 12, tokens=340))
            s.screen.children(
                (
                    WorkingChild("scout", "exec pytest -q", now - 41, 8100),
                    WorkingChild("翻訳者", "thinking", now - 12, 2000),
                    WorkingChild("checker", "", now - 3, waits=True),
                )
            )
            await s.stream("A child's result is written before its requester is woken, whatever happens, always")
            await s.type("and also check the docs")
            assert shown(s) == [
                "A child's result is written before its requester is woken, whatever",
                "happens, always",
                "⠹ answering · 12s · ↓ 340 tok · esc stops",
                "  ├ scout · exec pytest -q · 41s · 8.1k",
                "  ├ 翻訳者 · thinking · 12s · 2.0k",
                "  └ checker · waits for you · 3s",
                "› and also check the docs               (enter: heard at the next step)",
            ]
            assert s.glass.cursor == (25, 6)

    play(story)


def test_an_approval_shows_the_whole_command_where_it_runs_and_the_keys_that_answer() -> None:
    async def story() -> None:
        async with scene(56) as s:
            s.screen.ask((QUESTION, CallQuestion("q2", "checker", "make docs")))
            await s.pause(1.5)
            assert shown(s) == [
                "? scout wants to run                             1 of 2",
                "    rm -rf build && make                in ~/src/fledge",
                "  y once · a always for `make` here · n no · e say why",
                "›",
            ]

    play(story)


def test_a_plan_stands_in_full_in_the_scrollback_before_it_can_be_answered() -> None:
    async def story() -> None:
        async with scene(60) as s:
            await s.stream("A sentence that")
            s.screen.ask((PLAN,))
            await s.pause(3)
            await s.stream("goes on.")
            await s.pause(1)
            assert shown(s) == [
                "A sentence that",
                "",
                "◇ checker's plan",
                "1. Read the docs",
                "2. Fix them",
                "",
                "goes on.",
                "◇ checker's plan, in full in the scrollback",
                "  y carry out · n reject with a reason · e edit in $EDITOR",
                "›",
            ]

    play(story)


def test_a_command_too_long_for_the_region_stands_whole_in_the_scrollback_first() -> None:
    async def story() -> None:
        async with scene(40, 30) as s:
            command = " && ".join(f"step{number:02d}" for number in range(40))
            s.screen.ask((CallQuestion("q", "scout", command),))
            await s.pause(2)
            assert re.findall(r"step\d\d", "".join(s.glass.all()))[:40] == [f"step{number:02d}" for number in range(40)]
            assert "    … whole in the scrollback" in s.glass.rows()
            assert "  y once · n no · e say why" in s.glass.rows()

    play(story)


def test_a_question_that_a_narrower_terminal_makes_long_stands_whole_in_the_scrollback_then() -> None:
    async def story() -> None:
        async with scene(100, 30) as s:
            command = " && ".join(f"step{number:02d}" for number in range(40))
            await s.stream("Words that are")
            s.screen.ask((CallQuestion("q", "scout", command),))
            await s.pause(2)
            assert "? scout wants to run" in s.glass.rows()
            await s.resize(40, 30)
            await s.pause(2)
            assert re.findall(r"step\d\d", "".join(s.glass.all()))[:40] == [f"step{number:02d}" for number in range(40)]
            assert "  y once · n no · e say why" in s.glass.rows()
            s.screen.clear()
            await s.pause(2)
            assert re.findall(r"step\d\d", "".join(s.glass.all()))[:40] == [f"step{number:02d}" for number in range(40)]

    play(story)


def test_a_card_shows_how_a_child_ended_and_how_to_open_its_result() -> None:
    async def story() -> None:
        async with scene(60) as s:
            s.screen.say(EndedItem("scout", "done", 41, 8100, 0.01, RESULT))
            s.screen.say(EndedItem("checker", "failed", 3725, text="It broke."))
            await s.pause()
            assert shown(s) == [
                "✔ scout · done · 41s · 8.1k tok · $0.01",
                "  Three files hold the rule.",
                "  The second one is wrong.",
                "  The third is right. …                         /open scout",
                "",
                "✖ checker · failed · 1h02m",
                "  It broke.",
                "›",
            ]

    play(story)


def test_a_provider_in_trouble_is_shown_with_the_next_try() -> None:
    async def story() -> None:
        async with scene(60) as s:
            s.screen.turn(TurnShown("retrying", 0, "model: 529 overloaded", attempt=3, retry_at=s.screen.now() + 8))
            await s.pause(0.12)
            assert s.glass.rows() == ["✖ model: 529 overloaded · try 3 in 8s · esc stops", "›"]
            s.screen.say(ErrorItem("model: the account is empty"))
            s.screen.turn(None)
            await s.pause()
            assert s.glass.rows() == ["✖ model: the account is empty", "›"]

    play(story)


def test_a_childs_end_and_the_persons_words_wait_for_the_end_of_the_paragraph() -> None:
    async def story() -> None:
        async with scene(60) as s:
            s.screen.turn(TurnShown("answering", s.screen.now()))
            await s.stream("The delivery lattice keeps every announcement exactly once: a child's result is written")
            s.screen.say(EndedItem("scout", "done", 1))
            await s.type("hello\r")
            assert s.wishes() == [WordsSent("hello", "hello")]
            s.screen.say(SpokenItem("hello"))
            await s.pause()
            assert "scout" not in s.glass.text()
            assert "  queued › hello" in s.glass.rows()
            await s.stream("before its requester is woken.\n\nA second paragraph.")
            s.screen.complete()
            s.screen.turn(None)
            await s.pause()
            assert s.glass.rows() == [
                "The delivery lattice keeps every announcement exactly once:",
                "a child's result is written before its requester is woken.",
                "",
                "✔ scout · done · 1s",
                "",
                "› hello",
                "",
                "A second paragraph.",
                "›",
            ]

    play(story)


@pytest.mark.parametrize("columns", [24, 40, 80, 120])
def test_every_phrase_stands_exactly_once_while_the_terminal_grows(columns: int) -> None:
    async def story() -> None:
        async with scene(columns, 14) as s:
            s.screen.turn(TurnShown("answering", s.screen.now()))
            s.screen.children(
                (WorkingChild("scout", "thinking", s.screen.now()), WorkingChild("翻訳者", "exec make", s.screen.now()))
            )
            for number in range(240):
                s.screen.words(f"w{number:03d}" + ("\n\n" if number % 40 == 39 else " "))
                if number % 3 == 0:
                    await s.pause(0.06)
                if number % 50 == 25:
                    s.screen.say(EndedItem(f"card{number:03d}", "done", 1, text="ended"))
                if number % 60 == 30:
                    await s.resize(columns + number // 10, 14)
            s.screen.complete()
            s.screen.turn(None)
            s.screen.children(())
            await s.pause(1)
            text = s.glass.text()
            assert re.findall(r"w\d{3}", text) == [f"w{number:03d}" for number in range(240)]
            assert re.findall(r"card\d{3}", text) == ["card025", "card075", "card125", "card175", "card225"]
            assert not re.search("answering|thinking|exec make|at work", text)

    play(story)


def test_wide_signs_are_wrapped_by_their_columns() -> None:
    async def story() -> None:
        async with scene(24) as s:
            await s.stream("日本語のテキストも正しく折り返される必要があります。 🚀 done")
            assert s.glass.rows() == ["日本語のテキストも正し", "く折り返される必要があ", "ります。 🚀 done", "›"]

    play(story)


def test_a_long_paste_is_folded_and_sent_whole() -> None:
    async def story() -> None:
        async with scene() as s:
            pasted = "\n".join(f"line {number}" for number in range(201))
            await s.type(f"see \x1b[200~{pasted}\x1b[201~ please")
            assert s.glass.rows() == ["› see [paste 1: 201 lines] please"]
            await s.type("\r")
            assert s.wishes() == [WordsSent(f"see {pasted} please", "see [paste 1: 201 lines] please")]
            assert s.glass.rows() == ["›"]

    play(story)


def test_a_terminal_that_takes_no_bytes_loses_nothing_and_stops_nothing() -> None:
    async def story() -> None:
        async with scene(60, 12) as s:
            s.screen.turn(TurnShown("answering", s.screen.now()))
            await s.stream("Before.")
            s.pen.is_stalled = True
            writes = s.pen.writes
            for number in range(100):
                s.screen.words(f"w{number:03d} ")
                await s.pause(0.1)
            assert s.pen.writes <= writes + 1  # a picture is not made before the last one was written
            s.pen.go_on()
            s.screen.complete()
            s.screen.turn(None)
            await s.pause()
            assert re.findall(r"w\d{3}", s.glass.text()) == [f"w{number:03d}" for number in range(100)]

    play(story)


def test_a_question_that_the_terminal_has_not_taken_yet_cannot_be_answered() -> None:
    async def story() -> None:
        async with scene(60, 12) as s:
            s.pen.is_stalled = True
            s.screen.say(NoticeItem("before"))
            await s.pause()
            s.screen.ask((QUESTION,))
            await s.pause(5)
            await s.type("y", pause=1)
            assert s.wishes() == []
            s.pen.go_on()
            await s.pause()
            assert "› y" in "\n".join(s.glass.rows())

    play(story)


# ---- keys


def test_a_bare_key_answers_a_question_that_could_be_read() -> None:
    async def story() -> None:
        async with scene() as s:
            for letter, verdict in (("y", "once"), ("a", "always"), ("n", "no")):
                question = CallQuestion(letter, "scout", "make", always="make")
                s.screen.ask((question,))
                await s.pause(1.2)
                await s.type(letter, pause=0.5)
                assert [(wish.id, wish.verdict) for wish in s.wishes() if isinstance(wish, QuestionAnswered)] == [
                    (letter, verdict)
                ]
                assert s.glass.rows() == ["›"]

    play(story)


def test_a_key_meant_for_a_message_never_approves() -> None:
    async def story() -> None:
        async with scene() as s:
            await s.type("yes I")
            s.screen.ask((QUESTION,))
            await s.pause(3)
            await s.type("y", pause=1)  # something is typed already
            assert s.wishes() == []
            assert "  ctrl-y: answer" in s.glass.rows()
            await s.type("\x15", pause=0.5)
            await s.type("y", pause=0.5)  # less than a second since the last key
            await s.type("\x15", pause=3)
            await s.type("yes", pause=3)  # a word, whose first letter comes after a long quiet
            assert s.wishes() == []
            assert "› yes" in s.glass.rows()
            await s.type("\x15", pause=3)
            s.screen.ask((CallQuestion("q3", "other", "make"),))
            await s.pause(0.3)
            await s.type("y", pause=3)  # the question came less than 0.7 s ago
            assert s.wishes() == []

    play(story)


def test_ctrl_y_goes_to_the_question_whatever_is_typed_and_the_words_stay() -> None:
    async def story() -> None:
        async with scene() as s:
            await s.type("half a sentence")
            s.screen.ask((QUESTION, CallQuestion("q2", "other", "make docs")))
            await s.pause()
            await s.type("\x19")
            assert "  y once · a always for `make` here · n no · e say why" in s.glass.rows()
            await s.type("y")
            assert s.wishes() == [QuestionAnswered("q1", "once")]
            await s.type("y")  # the next question was not gone to
            assert s.wishes() == []
            assert "› half a sentencey" in s.glass.rows()

    play(story)


def test_a_no_may_have_a_reason_and_the_input_comes_back_afterwards() -> None:
    async def story() -> None:
        async with scene() as s:
            await s.type("my words")
            s.screen.ask((QUESTION,))
            await s.pause()
            await s.type("\x19e")
            assert s.glass.rows()[-1] == "why ›"
            await s.type("use make clean")
            assert s.glass.rows()[-2:] == ["  enter sends the reason · esc goes back", "why › use make clean"]
            await s.type("\r")
            assert s.wishes() == [QuestionAnswered("q1", "no", "use make clean")]
            assert s.glass.rows()[-1] == "› my words"

    play(story)


def test_a_reason_for_a_question_that_was_answered_elsewhere_stays_in_the_input() -> None:
    async def story() -> None:
        async with scene() as s:
            s.screen.ask((QUESTION,))
            await s.pause()
            await s.type("\x19e")
            await s.type("because")
            s.screen.ask(())
            await s.pause()
            assert s.glass.rows() == ["› because"]
            await s.type("\x1b", pause=0.3)
            assert s.wishes() == []

    play(story)


def test_a_plan_is_carried_out_or_rejected_with_a_reason() -> None:
    async def story() -> None:
        async with scene() as s:
            s.screen.ask((PLAN,))
            await s.pause(2)
            await s.type("y", pause=1)
            s.screen.ask((PlanQuestion("p2", "scout", "again"),))
            await s.pause(2)
            await s.type("n", pause=1)
            await s.type("too long\r")
            assert s.wishes() == [QuestionAnswered("p1", "carry out"), QuestionAnswered("p2", "reject", "too long")]

    play(story)


def test_escape_stops_the_turn_and_unread_words_come_back_into_the_input() -> None:
    async def story() -> None:
        async with scene() as s:
            s.screen.turn(TurnShown("thinking", s.screen.now()))
            s.screen.queued(("check the docs",))
            await s.type("and more")
            assert s.glass.rows()[-2] == "  queued › check the docs"
            await s.type("\x1b", pause=0.3)
            assert s.wishes() == [StopWanted()]
            s.screen.turn(None)
            s.screen.queued(())
            s.screen.put_back("check the docs")
            await s.pause()
            assert s.glass.rows() == ["› check the docs", "  and more"]
            s.screen.turn(TurnShown("thinking", s.screen.now()))
            await s.type("\x03")
            assert s.wishes() == [StopWanted()]

    play(story)


def test_escape_twice_leaves_when_nothing_is_under_way_and_ctrl_d_at_once() -> None:
    async def story() -> None:
        async with scene() as s:
            await s.type("\x1b", pause=0.3)
            assert s.glass.rows() == ["again leaves", "›"]
            await s.pause(3)
            assert s.glass.rows() == ["›"]
            await s.type("\x1b", pause=0.3)
            await s.type("\x03", pause=0.3)
            assert s.wishes() == [Leave()]
            await s.type("words\x04", pause=0.3)
            assert s.wishes() == []
            await s.type("\x03\x04", pause=0.3)
            assert s.wishes() == [Leave()]

    play(story)


def test_enter_sends_alt_enter_and_a_backslash_begin_another_line() -> None:
    async def story() -> None:
        async with scene() as s:
            await s.type("one\x1b\rtwo\\\rthree")
            assert s.glass.rows() == ["› one", "  two", "  three"]
            await s.type("\r")
            assert s.wishes() == [WordsSent("one\ntwo\nthree", "one\ntwo\nthree")]
            await s.type("\r  \r")
            assert s.wishes() == []

    play(story)


def test_ctrl_t_shows_all_children_and_those_that_wait_are_never_hidden() -> None:
    async def story() -> None:
        async with scene(50) as s:
            now = s.screen.now()
            s.screen.children(
                tuple(WorkingChild(f"child{number}", "thinking", now, waits=number == 6) for number in range(7))
            )
            await s.pause()
            assert s.glass.rows() == [
                "· 7 subagents at work",
                "  ├ child0 · thinking · 0s",
                "  ├ child1 · thinking · 0s",
                "  ├ child2 · thinking · 0s",
                "  └ child6 · waits for you · 0s   (ctrl-t: all 7)",
                "›",
            ]
            await s.type("\x14")
            assert [row[4:10] for row in s.glass.rows()[1:-1]] == [f"child{number}" for number in range(7)]

    play(story)


def test_ctrl_o_shows_what_tools_give_back() -> None:
    async def story() -> None:
        async with scene(60) as s:
            s.screen.say(OutputItem("exec make", "first"))
            s.screen.say(OutputItem("exec make test", "2 passed\x1b[2J\n"))
            await s.pause()
            assert s.glass.rows() == ["›"]
            await s.type("\x0f")
            assert s.glass.rows() == [
                "⎿ exec make test",
                "  2 passed␛[2J",
                "tool output is shown · ctrl-o hides it",
                "›",
            ]

    play(story)


def test_whom_words_are_for_stands_before_the_input() -> None:
    async def story() -> None:
        async with scene() as s:
            s.screen.talks_to("scout\x1b")
            await s.type("hello")
            assert s.glass.rows() == ["scout␛ › hello"]
            s.screen.talks_to("")
            await s.pause()
            assert s.glass.rows() == ["› hello"]

    play(story)


def test_ctrl_r_finds_what_was_sent_before() -> None:
    async def story() -> None:
        async with scene() as s:
            await s.type("check the docs\r")
            await s.type("something else\r")
            s.wishes()
            await s.type("\x12docs")
            await s.type("\r")
            await s.type("\r")
            assert s.wishes() == [WordsSent("check the docs", "check the docs")]

    play(story)


def test_a_low_terminal_still_shows_the_answer_the_question_and_the_input() -> None:
    async def story() -> None:
        async with scene(60, 8) as s:
            s.screen.turn(TurnShown("answering", s.screen.now()))
            s.screen.ask((QUESTION,))
            s.screen.children(tuple(WorkingChild(f"c{number}", "thinking", s.screen.now()) for number in range(5)))
            await s.stream("word " * 40 + "the end")
            await s.pause(1)
            assert "the end" in " ".join(s.glass.rows())
            assert any(row.startswith("? scout wants to run") for row in s.glass.rows())
            assert s.glass.rows()[-1].startswith("›")

    play(story)


def test_code_wider_than_the_terminal_is_written_whole_and_leaves_nothing_of_the_region_behind() -> None:
    async def story() -> None:
        async with scene(30, 20) as s:
            s.screen.turn(TurnShown("answering", s.screen.now()))
            s.screen.children((WorkingChild("scout", "exec a long command that fills", s.screen.now()),) * 4)
            line = "x = '" + "日" * 33 + "y" * 20 + "'"
            await s.stream(f"Code:\n```\n{line}\n```\n")
            s.screen.complete()
            s.screen.children(())
            s.screen.turn(None)
            await s.pause()
            assert "".join(s.glass.rows()) == f"Code:```{line}```›"

    play(story)


def test_long_words_that_go_back_into_the_input_are_folded_and_sent_whole() -> None:
    async def story() -> None:
        async with scene() as s:
            text = "\n".join(f"line {number}" for number in range(200))
            s.screen.put_back(text)
            await s.pause()
            assert s.glass.rows() == ["› [paste 1: 200 lines]"]
            await s.type("\r")
            assert s.wishes() == [WordsSent(text, "[paste 1: 200 lines]")]

    play(story)


def test_the_terminal_is_emptied_and_the_input_stands_at_its_top() -> None:
    async def story() -> None:
        async with scene() as s:
            s.screen.say(NoticeItem("something"))
            await s.type("words")
            s.screen.clear()
            await s.pause()
            assert s.glass.rows() == ["› words"]

    play(story)


def test_a_text_is_given_to_the_terminal_for_its_clipboard_unless_it_is_too_long() -> None:
    async def story() -> None:
        async with scene() as s:
            assert s.screen.copy("héllo")
            assert s.pen.last == "\x1b]52;c;aMOpbGxv\x07"
            assert not s.screen.copy("x" * 100_000)

    play(story)


def test_an_output_that_was_asked_for_is_shown_whatever_ctrl_o_says() -> None:
    async def story() -> None:
        async with scene() as s:
            s.screen.say(OutputItem("exec make", "not shown"))
            s.screen.say(OutputItem("exec make", "2 passed", is_asked_for=True))
            await s.pause()
            assert s.glass.rows()[:2] == ["⎿ exec make", "  2 passed"]

    play(story)
