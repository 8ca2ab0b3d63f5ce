"""Turns that nobody spoke for, with the real turn driver: what starts one, when, and what its silence hides.

Test time begins at 08:00 UTC.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fledge.api.views import is_at_rest
from fledge.channels.inbound import heard
from fledge.core.heartbeat import PROMPT, HeartbeatSettings, active_hours
from fledge.core.inbox import QueueSettings
from fledge.core.route import Address
from fledge.core.transcript import Noted, Replied, Spoken, Told
from fledge.models.base import Request, Usage, UserMessage
from fledge.models.scripted import Answer, ScriptedModel, ScriptedReply
from fledge.orchestrator import bindings, control, heartbeat, inbox
from fledge.orchestrator.commit import Rules
from tests.orchestrator.stage import WIDE
from tests.runtime.desk import MAIN, Desk, Kit, Office, asked, said, use
from tests.statements import proves

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
QUIET = "HEARTBEAT_OK"


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


def beating(**settings: Any) -> Rules:
    return Rules(widths=WIDE, heartbeat=HeartbeatSettings(zone="UTC", **settings))


def answers(main: Answer | Callable[[Request], Answer] = QUIET) -> ScriptedModel:
    """Main answers so, everybody else at once."""

    def script(request: Request) -> Answer:
        if request.system != "main":
            return f"answer of {request.system}"
        return main(request) if callable(main) else main

    return ScriptedModel(script)


async def notice(desk: Desk, words: str = "something is odd", key: str = "n") -> None:
    await desk.engine.commit(lambda c: inbox.notice(c, MAIN, key, words))


async def request(desk: Desk, session: str = MAIN) -> None:
    await desk.engine.commit(lambda c: heartbeat.request(c, session, "somebody asked"))


class Watched:
    """A model whose main conversation answers the same, and when it was asked to."""

    def __init__(self, words: Answer = QUIET, takes_s: float = 0.0) -> None:
        self.at: list[float] = []
        self.desk: Desk | None = None
        self._words, self._takes_s = words, takes_s
        self.model = ScriptedModel(self._script)

    async def _script(self, request: Request) -> Answer:
        assert self.desk is not None
        if request.system != "main":
            return f"answer of {request.system}"
        self.at.append(self.desk.at())
        await self.desk.clock.sleep(self._takes_s)
        return self._words

    def act(self, office: Office, body: Callable[[Desk], Awaitable[Any]], **how: Any) -> Any:
        async def watched(desk: Desk) -> Any:
            self.desk = desk
            return await body(desk)

        return office.act(watched, self.model, **how)


# ---- what starts one -------------------------------------------------------------------------------------------------


@proves("2.arbitration.3", "Without it, a direct delivery is a heartbeat turn")
@proves("5.heartbeat.1", "Fire-and-forget completions reach an idle session as a heartbeat turn")
def test_a_fire_and_forget_completion_reaches_an_idle_session_as_a_heartbeat(office: Office) -> None:
    watched = Watched()

    async def body(desk: Desk) -> None:
        await desk.work(expects=False)
        await desk.sleep_until(10)

    watched.act(office, body)
    (messages,) = asked(watched.model, "main")
    assert messages[0].text == PROMPT
    assert "answer of worker" in messages[1].text
    assert messages[1].text.endswith("if nothing does, answer only HEARTBEAT_OK.")
    assert watched.at == [0.25]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (QUIET, []),
        (f"{QUIET} all is quiet", []),
        (f"all is quiet. {QUIET}", []),
        ("look at this", ["look at this"]),
        (f"{QUIET} {'but ' * 100}", ["but " * 100]),
    ],
)
def test_whoever_watches_hears_a_heartbeat_only_once_it_is_known_to_say_something(
    office: Office, words: str, told: list[str]
) -> None:
    async def body(desk: Desk) -> list[str]:
        watching = desk.listen()
        await request(desk)
        await desk.sleep_until(10)
        return [event.text for event in watching.waiting() if event.kind == "assistant:text"]

    assert office.act(body, answers(words)) == told


def test_a_completion_that_is_waited_for_is_an_ordinary_turn_at_once(office: Office) -> None:
    watched = Watched()

    async def body(desk: Desk) -> None:
        await desk.work()
        await desk.sleep_until(10)

    watched.act(office, body)
    assert PROMPT not in [message.text for message in asked(watched.model, "main")[0]]
    assert watched.at == [0.0]


@proves("5.heartbeat.2", "Stuck notices reach an idle session as a heartbeat turn")
def test_a_stuck_run_is_told_as_a_heartbeat(office: Office) -> None:
    kit = Kit()

    async def body(desk: Desk) -> str:
        key = await desk.spawn("stuck", stuck_after_s=30)
        await desk.sleep_until(40)
        return key

    def script(request: Request) -> Answer:
        return use("slow") if request.system == "stuck" else QUIET

    model = ScriptedModel(script)
    office.act(body, model, kit.tool("slow", 100, timeout=None))
    (messages,) = asked(model, "main")
    assert [message.text for message in messages] == [PROMPT, "stuck: no progress for 30 s"]


@proves("5.heartbeat.3", "Budget warnings reach an idle session as a heartbeat turn")
def test_a_budget_that_is_nearly_used_up_is_told_as_a_heartbeat(office: Office) -> None:
    def script(request: Request) -> Answer:
        return QUIET if request.system == "main" else ScriptedReply("done", usage=Usage(850, 0))

    model = ScriptedModel(script)

    async def body(desk: Desk) -> str:
        key = await desk.spawn("thrifty", queue_timeout_s=0, expects=False)
        await desk.give(key, tokens=1000)
        await desk.sleep_until(10)
        return key

    key = office.act(body, model, is_budgeted=True)
    texts = [message.text for messages in asked(model, "main") for message in messages]
    assert texts[0] == PROMPT
    assert f"{key} has used 85% of its budget" in texts


@proves("5.heartbeat.7", "Completions are referenced by a heartbeat, never capped")
def test_many_fire_and_forget_completions_are_all_told_however_many_there_are(office: Office) -> None:
    watched = Watched()

    async def body(desk: Desk) -> list[str]:
        for number in range(30):
            await desk.spawn(f"w{number}", expects=False)
        await desk.sleep_until(60)
        return await desk.all_told()

    assert watched.act(office, body) == sorted(f"w{number}" for number in range(30))
    assert len(watched.at) == 1


# ---- notices ---------------------------------------------------------------------------------------------------------


@proves("5.heartbeat.4", "At most 20 notices wait per session, the oldest give way")
def test_at_most_twenty_notices_wait_and_the_oldest_give_way(office: Office) -> None:
    watched = Watched()

    async def body(desk: Desk) -> list[str]:
        for number in range(25):
            await notice(desk, f"notice {number}", f"n{number}")
        await desk.sleep_until(10)
        return await desk.heard()

    words = watched.act(office, body, rules=Rules(widths=WIDE, queue=QueueSettings(cap=100)))
    assert words[1:] == [f"notice {number}" for number in range(5, 25)]
    assert words[0].startswith("[5 older messages left out")


@proves("5.heartbeat.5", "Consecutive duplicate notices are dropped")
def test_the_same_notice_twice_in_a_row_is_one_and_after_another_it_is_two(office: Office) -> None:
    watched = Watched()

    async def body(desk: Desk) -> list[str]:
        for number, words in enumerate(("a", "a", "b", "a", " ")):
            await notice(desk, words, f"n{number}")
        await desk.sleep_until(10)
        return await desk.heard()

    assert watched.act(office, body) == ["a", "b", "a"]


@proves("5.heartbeat.6", "Notices are durable")
def test_a_notice_and_its_heartbeat_survive_a_crash(office: Office) -> None:
    before, after = Watched(), Watched()

    async def first(desk: Desk) -> None:
        await notice(desk)

    async def second(desk: Desk) -> list[str]:
        await desk.sleep_until(10)
        return await desk.heard()

    before.act(office, first, ends="crashed")
    assert before.at == []
    assert after.act(office, second) == ["something is odd"]
    assert after.at == [0.25]


@proves("5.heartbeat.6")
@pytest.mark.parametrize("at", [0.0, 0.25, 1.0, 3.0])
def test_a_heartbeat_that_was_due_queued_or_under_way_at_a_crash_is_had_once(office: Office, at: float) -> None:
    before, after = Watched(takes_s=2.0), Watched()

    async def first(desk: Desk) -> None:
        await desk.work(expects=False)
        await desk.sleep_until(at)

    async def second(desk: Desk) -> tuple[list[str], int]:
        await desk.sleep_until(20)
        replies = [body for body in await desk.bodies(MAIN) if isinstance(body, Replied)]
        return await desk.all_told(), len(replies)

    before.act(office, first, ends="crashed")
    assert after.act(office, second) == (["worker"], 1)
    assert len(after.at) == (0 if at == 3.0 else 1)


# ---- when ------------------------------------------------------------------------------------------------------------


@proves("5.heartbeat.8", "requestHeartbeatNow coalesces for 250 ms")
def test_requests_within_a_quarter_of_a_second_are_one(office: Office) -> None:
    watched = Watched()

    async def body(desk: Desk) -> None:
        for at in (0.0, 0.1, 0.2, 5.0):
            await desk.sleep_until(at)
            await request(desk)
        await desk.sleep_until(10)

    watched.act(office, body)
    assert watched.at == [0.25, 5.25]


@proves("5.heartbeat.9", "A busy session is retried after 1 s")
def test_a_busy_session_is_tried_again_after_a_second(office: Office) -> None:
    watched = Watched("busy", takes_s=3.0)

    async def body(desk: Desk) -> None:
        await desk.send("go")
        await desk.sleep_until(1)
        await request(desk)
        await desk.sleep_until(10)

    watched.act(office, body)
    assert watched.at == [0.0, 3.25]


@proves("5.heartbeat.10", "Outside `activeHours` it waits")
@pytest.mark.parametrize(
    ("start", "end", "zone", "at"),
    [
        ("09:00", "17:00", "UTC", HOUR_S),
        ("07:00", "08:00", "UTC", 23 * HOUR_S),
        ("22:00", "06:00", "UTC", 14 * HOUR_S),
        ("22:00", "09:00", "UTC", 0.25),
        ("08:00", "24:00", "UTC", 0.25),
        ("09:00", "17:00", "Asia/Tokyo", 16 * HOUR_S),
        ("09:00", "18:00", "Asia/Tokyo", 0.25),
    ],
)
def test_outside_its_hours_it_waits_for_them(office: Office, start: str, end: str, zone: str, at: float) -> None:
    watched = Watched()

    async def body(desk: Desk) -> None:
        await notice(desk)
        await desk.sleep_until(2 * DAY_S)

    hours = HeartbeatSettings(hours=active_hours(start, end), zone=zone)
    watched.act(office, body, rules=Rules(widths=WIDE, heartbeat=hours))
    assert watched.at == [at]


@proves("5.heartbeat.10")
def test_hours_begin_on_the_minute(office: Office) -> None:
    watched = Watched()

    async def body(desk: Desk) -> None:
        await desk.sleep_until(3599.0)
        await notice(desk)
        await desk.sleep_until(DAY_S)

    watched.act(office, body, rules=beating(hours=active_hours("09:00", "17:00")))
    assert watched.at == [pytest.approx(3600.0)]


def test_what_waits_for_its_hours_leaves_the_session_at_rest_and_is_read_along_when_somebody_speaks(
    office: Office,
) -> None:
    watched = Watched("hello")

    async def body(desk: Desk) -> list[str]:
        await notice(desk)
        await desk.sleep_until(100)
        assert await desk.look(lambda tx: is_at_rest(tx, MAIN))
        assert watched.at == []
        await desk.send("good morning")
        await desk.sleep_until(200)
        assert await desk.look(lambda tx: tx.inbox.unread(MAIN)) == []
        return await desk.heard()

    assert watched.act(office, body, rules=beating(hours=active_hours("12:00", "12:00"))) == [
        "something is odd",
        "good morning",
    ]
    assert watched.at == [100.0]


def test_a_message_is_never_kept_waiting_for_hours(office: Office) -> None:
    watched = Watched("hello")

    async def body(desk: Desk) -> None:
        await desk.send("good morning")
        await desk.work()
        await desk.sleep_until(10)

    watched.act(office, body, rules=beating(hours=active_hours("12:00", "12:00")))
    assert watched.at[0] == 0.0
    assert len(watched.at) == 2


def test_a_live_run_reads_notices_at_its_own_boundaries_and_has_no_heartbeat(office: Office) -> None:
    def script(request: Request) -> Answer:
        if request.system == "main":
            return "NO_REPLY"
        return use("slow") if said(request) == 0 else "done"

    model = ScriptedModel(script)

    async def body(desk: Desk) -> list[str]:
        key = await desk.spawn("worker")
        await desk.sleep_until(1)
        await desk.engine.commit(lambda c: inbox.notice(c, key, "n", "something is odd"))
        await desk.ended(key)
        return await desk.heard(key)

    assert office.act(body, model, Kit().tool("slow", 5)) == ["worker", "something is odd"]
    assert PROMPT not in [message.text for message in asked(model)[-1]]


def test_a_heartbeat_asked_of_a_subagent_is_its_conversations(office: Office) -> None:
    def script(request: Request) -> Answer:
        return QUIET if request.system == "main" else use("slow") if said(request) == 0 else "done"

    model = ScriptedModel(script)

    async def body(desk: Desk) -> None:
        key = await desk.spawn("worker")
        await desk.sleep_until(1)
        await request(desk, key)
        await desk.sleep_until(2)

    office.act(body, model, Kit().tool("slow", 5))
    assert [message.text for message in asked(model, "main")[0]] == [PROMPT]


# ---- silence ---------------------------------------------------------------------------------------------------------


@proves("5.heartbeat.12", "A silent exchange is hidden from context")
@pytest.mark.parametrize("words", ["HEARTBEAT_OK", "**HEARTBEAT_OK** nothing new here", "x" * 299 + " HEARTBEAT_OK"])
def test_silence_is_hidden_from_what_the_model_sees_later_and_stays_in_the_store(office: Office, words: str) -> None:
    model = answers(lambda request: "hello" if request.messages[-1] == UserMessage("good morning") else words)

    async def body(desk: Desk) -> list[type[object]]:
        await desk.work(expects=False)
        await desk.sleep_until(10)
        await desk.send("good morning")
        await desk.sleep_until(20)
        return [type(body) for body in await desk.bodies(MAIN)]

    kinds = office.act(body, model)
    assert kinds == [Spoken, Told, Replied, Noted, Spoken, Replied]
    assert asked(model, "main")[-1] == (UserMessage("good morning"),)


def test_words_that_are_more_than_silence_stay(office: Office) -> None:
    model = answers(lambda request: f"words {said(request)}")

    async def body(desk: Desk) -> None:
        await desk.work(expects=False)
        await desk.sleep_until(10)
        await desk.send("good morning")
        await desk.sleep_until(20)

    office.act(body, model)
    assert len(asked(model, "main")[-1]) == 4


def test_a_heartbeat_that_did_something_is_remembered_though_it_says_nothing(office: Office) -> None:
    def script(request: Request) -> Answer:
        if request.messages[-1] == UserMessage("good morning"):
            return "hello"
        return use("look") if said(request) == 0 else QUIET

    model = ScriptedModel(script)

    async def body(desk: Desk) -> None:
        await notice(desk)
        await desk.sleep_until(10)
        await desk.send("good morning")
        await desk.sleep_until(20)

    office.act(body, model, Kit().tool("look"))
    assert len(asked(model, "main")[-1]) == 6


def test_how_much_may_stand_beside_an_ok_is_a_setting(office: Office) -> None:
    model = answers(lambda request: "hello" if request.messages[-1] == UserMessage("hi") else "HEARTBEAT_OK but look")

    async def body(desk: Desk) -> list[str]:
        await desk.engine.commit(lambda c: heard(c, Address("chat", "ann"), "hi", "1"))
        await desk.sleep_until(5)
        await notice(desk)
        await desk.sleep_until(10)
        return desk.profiles.sent

    assert len(office.act(body, model, rules=beating(ack_chars=5))) == 2


@proves("5.heartbeat.11")
@pytest.mark.parametrize(("words", "sent"), [("HEARTBEAT_OK", 0), ("Look at this!", 1)])
def test_silence_goes_to_no_channel_and_the_same_words_once_a_day(office: Office, words: str, sent: int) -> None:
    model = answers(lambda request: "hello" if request.messages[-1] == UserMessage("hi") else words)

    async def body(desk: Desk) -> list[int]:
        await desk.engine.commit(lambda c: heard(c, Address("chat", "ann"), "hi", "1"))
        await desk.sleep_until(5)
        counts = []
        for number, at in enumerate((10.0, HOUR_S, DAY_S + 60.0)):
            await desk.sleep_until(at)
            await notice(desk, f"notice {number}", f"n{number}")
            await desk.sleep_until(at + 5)
            counts.append(len(desk.profiles.sent) - 1)
        return counts

    assert office.act(body, model) == [sent, sent, 2 * sent]


def test_a_heartbeat_that_somebody_speaks_in_is_answered_like_any_turn(office: Office) -> None:
    """They are answered even with the words that heartbeats have said before."""

    def script(request: Request) -> Answer:
        if request.messages[-1] == UserMessage("n 2"):
            return use("slow")
        return "all is well"

    model = ScriptedModel(script)

    async def body(desk: Desk) -> list[int]:
        counts = []
        for at in (1, 2):
            await notice(desk, f"n {at}", f"n {at}")
            await desk.sleep_until(10 * at + 2)
            if at == 2:
                await desk.engine.commit(lambda c: heard(c, Address("chat", "ann"), "how is it?", "1"))
            else:
                await desk.engine.commit(lambda c: bindings.follow(c, MAIN, Address("chat", "ann")))
            await desk.sleep_until(10 * at + 9)
            counts.append(len(desk.profiles.sent))
        return counts

    assert office.act(body, model, Kit().tool("slow", 5)) == [0, 1]
    assert asked(model, "main")[-1][-1] == UserMessage("how is it?")


def test_a_stop_ends_a_heartbeat_too(office: Office) -> None:
    watched = Watched(takes_s=100.0)

    async def body(desk: Desk) -> None:
        await notice(desk)
        await desk.sleep_until(5)
        await desk.engine.commit(lambda c: control.stop(c, MAIN))
        await desk.sleep_until(10)
        assert await desk.look(lambda tx: is_at_rest(tx, MAIN))

    watched.act(office, body)
    assert watched.at == [0.25]


# ---- the clock -------------------------------------------------------------------------------------------------------


@proves("5.heartbeat.13", "`heartbeat.every`, off by default, runs it periodically")
def test_by_default_nothing_beats(office: Office) -> None:
    watched = Watched()

    async def body(desk: Desk) -> None:
        await desk.sleep_until(7 * DAY_S)

    watched.act(office, body)
    assert watched.at == []


@proves("5.heartbeat.13")
def test_a_period_beats_by_itself_over_restarts_and_missed_beats_are_one(office: Office) -> None:
    settings = beating(every_s=HOUR_S)
    first, second = Watched(), Watched()

    async def until_half_past_two(desk: Desk) -> None:
        await desk.sleep_until(2.5 * HOUR_S)

    async def until_ten(desk: Desk) -> None:
        await desk.sleep_until(10 * HOUR_S)

    first.act(office, until_half_past_two, rules=settings, ends="crashed")
    assert first.at == [HOUR_S, 2 * HOUR_S]
    office.now = 6.5 * HOUR_S
    second.act(office, until_ten, rules=settings)
    assert second.at == [6.5 * HOUR_S, 7 * HOUR_S, 8 * HOUR_S, 9 * HOUR_S]


def test_a_period_that_is_switched_off_or_shortened_counts_from_the_next_start(office: Office) -> None:
    day, off, hour = Watched(), Watched(), Watched()

    async def an_hour(desk: Desk) -> None:
        await desk.sleep_until(desk.at() + 1.5 * HOUR_S)

    day.act(office, an_hour, rules=beating(every_s=DAY_S))
    hour.act(office, an_hour, rules=beating(every_s=HOUR_S))
    off.act(office, an_hour, rules=beating())
    assert (day.at, hour.at, off.at) == ([], [2.5 * HOUR_S], [])


def test_a_period_keeps_to_its_hours(office: Office) -> None:
    watched = Watched()

    async def body(desk: Desk) -> None:
        await desk.sleep_until(DAY_S)

    watched.act(office, body, rules=beating(every_s=2 * HOUR_S, hours=active_hours("09:00", "13:00")))
    assert watched.at == [2 * HOUR_S, 4 * HOUR_S]


def test_a_period_lets_a_busy_session_work(office: Office) -> None:
    watched = Watched("hello", takes_s=1.5 * HOUR_S)

    async def body(desk: Desk) -> None:
        await desk.send("go")
        await desk.sleep_until(1.9 * HOUR_S)

    watched.act(office, body, rules=beating(every_s=HOUR_S))
    assert watched.at == [0.0, pytest.approx(1.5 * HOUR_S, abs=1.01)]


@pytest.mark.parametrize(("checklist", "asked_for"), [(None, 1), ("# Watch\n- [ ]\n", 0), ("- look at the mail", 1)])
def test_a_blank_checklist_spares_the_model_a_beat(office: Office, checklist: str | None, asked_for: int) -> None:
    watched = Watched()

    async def body(desk: Desk) -> None:
        await desk.sleep_until(1.5 * HOUR_S)
        assert await desk.look(lambda tx: tx.turns.get(MAIN)) is None

    watched.act(office, body, rules=beating(every_s=HOUR_S), checklist=checklist)
    assert len(watched.at) == asked_for


def test_a_blank_checklist_keeps_no_news_away(office: Office) -> None:
    watched = Watched()

    async def body(desk: Desk) -> None:
        await notice(desk)
        await desk.sleep_until(10)

    watched.act(office, body, checklist="")
    assert watched.at == [0.25]
