"""The stream of a conversation while things happen: nothing twice, nothing missing, nothing moves under a reader."""

import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

import fledge
from fledge.core.keys import main_key
from fledge.core.transcript import Replied, Spoken
from fledge.orchestrator import transcripts
from fledge.orchestrator.commit import Commit
from tests.browser.browsing import Gateway, Person, browsing, sitting
from tests.browser.page_server import STORY, speaking
from tests.browser.test_pressing import FRAMES, HEARD, told_row
from tests.cli.model_server import Model, serving
from tests.effort import SOAK
from tests.statements import proves

PLAIN_STORY = STORY.replace("**", "")
COMPLETIONS = 200 if SOAK else 40


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with serving(tmp_path, speaking(tmp_path / "model" / "release")) as model:
        yield model


@pytest.fixture
def gateway(model: Model, tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(model, tmp_path)
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.end()


def written(gateway: Gateway, write: Callable[[Commit], object]) -> None:
    """Write into the folder while the gateway is down."""

    async def change(fl: fledge.Fledge) -> None:
        await fl.engine.commit(write)

    gateway.end()
    with ThreadPoolExecutor(1) as beside:  # this thread has the browser's event loop
        beside.submit(fledge.run_sync, change, gateway.state, config={}, drives=False).result()
    gateway.start()


def test_a_card_goes_from_running_to_done_without_a_reload(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.sign_in()
        person.say("wait")
        card = person.see("#chat-log .card.live", "waiter")
        expect(card.locator(".chip")).to_have_text("running")
        expect(card.locator(".doing")).to_contain_text("thinking")
        person.see("#panel .twig", "waiter")
        (gateway.model.port.parent / "release").touch()
        person.see("#chat-log .card.slim", "waiter")
        expect(person.page.locator("#chat-log .card.live")).to_have_count(0)
        done = person.see("#chat-log .card.done", "I waited")
        expect(done).to_contain_text(re.compile(r"delivered \d\d:\d\d:\d\d"))
        person.said("The waiter is done.")


@pytest.mark.parametrize("ahead_s", [-86_400, 86_400])
def test_a_computer_whose_clock_is_wrong_shows_the_times_of_the_gateway(
    browser: Browser, gateway: Gateway, ahead_s: int
) -> None:
    asked: list[str] = []
    with sitting(browser, gateway) as person:
        page = person.page
        page.add_init_script(f"const now = Date.now; Date.now = () => now() + {ahead_s * 1000};")
        page.on("request", lambda request: asked.append(request.post_data or ""))
        person.sign_in()
        person.say("wait")
        person.see("#panel .ticker li", "waiter was started")
        expect(page.locator("#panel .twig > .num")).to_have_text(re.compile(r"\d\d? s"))
        (gateway.model.port.parent / "release").touch()
        person.said("The waiter is done.")
        told = person.see("#panel .ticker li", "waiter was delivered").locator("time")
        (run,) = gateway.call("runs.query")["rows"]
        at = run["delivery"]["deliveredAt"]
        assert told.inner_text() == page.evaluate("at => new Date(at).toTimeString().slice(0, 8)", at)
        person.say("write")
        age = person.see(".card.ask", "write").locator(".num[data-since]")
        expect(age).to_have_text(re.compile(r"^\d\d? s$"))
        asked.clear()
        expect(age).to_have_text(re.compile(r"^([5-9]|\d\d) s$"))
        # A question that seems to have expired would be read again and again.
        assert sum("approvals.list" in body for body in asked) < 10


@proves("8.gateway.7")
def test_a_gateway_killed_in_mid_stream_doubles_and_drops_nothing(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("hello")
        person.said("How can I help?")
        person.say("story")
        person.see("#chat-live", "Once upon a time there was a page.")
        gateway.end(signal.SIGKILL)
        person.see("#offline", "The gateway does not answer.")
        gateway.start()
        person.said("The end.")
        expect(page.locator("#chat-live")).to_be_hidden()
        shown = page.locator("#chat-log .msg[data-role=assistant] .md").all_inner_texts()
        assert [words.strip() for words in shown] == ["Hello there.\nHow can I help?", PLAIN_STORY]
        assert page.locator("#chat-log .msg[data-role=user]").count() == 2
        seqs = page.locator("#chat-log [data-seq]").evaluate_all("all => all.map(one => Number(one.dataset.seq))")
        assert seqs == sorted(set(seqs)) == [entry["seq"] for entry in gateway.call("sessions.history", session="main")]


@proves("7.live.7")
def test_a_page_that_comes_in_the_middle_of_a_reply_shows_it_from_its_beginning(
    browser: Browser, gateway: Gateway
) -> None:
    def whole(person: Person) -> None:
        live = person.see("#chat-live", "Once upon a time there was a page. Once")
        so_far = gateway.call("events.watch", session="main")["soFar"]["text"].replace("**", "")
        expect(live).to_have_text(re.compile(f"^{re.escape(so_far[:100])}"))
        expect(live.locator("strong").first).to_have_text("there was")
        assert live.inner_text().strip() in PLAIN_STORY

    with sitting(browser, gateway) as person:
        person.sign_in()
        person.say("hello")
        person.said("How can I help?")
        gateway.call("sessions.open", session="other")
        person.say("story")
        whole(person)
        person.page.reload()
        whole(person)
        person.page.goto(f"{gateway.address}/#/chat/agent:main:other")
        expect(person.page.locator("#chat-live")).to_be_hidden()
        person.page.goto(f"{gateway.address}/#/chat/{main_key()}")
        whole(person)
        with sitting(browser, gateway) as other:
            other.sign_in()
            whole(other)


def test_every_completion_is_one_card_however_often_the_gateway_dies(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.sign_in()
        person.say("hello")
        person.said("How can I help?")
        for number in range(COMPLETIONS):
            if number in (COMPLETIONS // 3, 2 * COMPLETIONS // 3):
                gateway.end(signal.SIGKILL)
                gateway.start()
            gateway.call("runs.spawn", task=f"say {number}", label=f"child {number}", requester=main_key())
        gateway.call("sessions.wait", session="main", timeoutMs=60_000)
        cards = person.page.locator("#chat-log .card.done")
        expect(cards).to_have_count(COMPLETIONS, timeout=30_000)
        names = cards.locator(".runlink").all_inner_texts()
        assert sorted(names) == sorted(f"child {number}" for number in range(COMPLETIONS))
        person.page.reload()
        expect(cards).to_have_count(COMPLETIONS)


def test_history_pages_upwards_and_the_reader_stays_where_he_is(browser: Browser, gateway: Gateway) -> None:
    def write(c: Commit) -> None:
        for number in range(150):
            transcripts.write(
                c, main_key(), Spoken(f"question {number}", kind="send"), Replied(f"answer {number}\n" * 3)
            )

    gateway.call("sessions.open", session="main")
    written(gateway, write)
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        entries = page.locator("#chat-log .msg")
        expect(entries).to_have_count(100)
        expect(entries.last).to_be_in_viewport()
        first = page.locator("#chat-log .msg").filter(has_text="question 100").first
        where = "one => one.getBoundingClientRect().top"
        scroll = page.locator("#chat-scroll")
        scroll.evaluate("one => { one.scrollTop = 40 }")
        before = first.evaluate(where)
        expect(entries).to_have_count(200)
        assert abs(first.evaluate(where) - before) <= 1, "nothing moves while earlier entries come in above"
        scroll.evaluate("one => { one.scrollTop = 40 }")
        expect(entries).to_have_count(300)
        expect(page.get_by_role("button", name="Show earlier")).to_be_hidden()
        read = page.locator("#chat-log .msg").filter(has_text="question 30").first
        read.evaluate("one => one.scrollIntoView({ block: 'center' })")
        place = read.evaluate(where)
        gateway.call("send", session="main", message="hello", timeoutSeconds=10)
        newest = page.get_by_role("button", name="Newest (2)")
        expect(newest).to_be_visible()
        assert abs(read.evaluate(where) - place) <= 1, "nothing moves while somebody reads"
        newest.click()
        expect(entries.last).to_be_in_viewport()
        expect(newest).to_be_hidden()


def test_who_follows_the_end_of_a_long_conversation_has_its_newest_entries_and_can_go_back(
    browser: Browser, gateway: Gateway
) -> None:
    def write(c: Commit) -> None:
        for number in range(350):
            transcripts.write(c, main_key(), Spoken(f"question {number}", kind="send"), Replied(f"answer {number}"))

    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("hello")
        person.said("How can I help?")
        written(gateway, write)
        entries = page.locator("#chat-log .msg")
        expect(entries.filter(has_text="answer 349")).to_be_in_viewport()
        shown = entries.count()
        assert 100 <= shown <= 300
        page.locator("#chat-scroll").evaluate("one => { one.scrollTop = 40 }")
        expect(entries).to_have_count(shown + 100)
        seqs = page.locator("#chat-log [data-seq]").evaluate_all("all => all.map(one => Number(one.dataset.seq))")
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


def test_who_is_at_the_end_stays_there_when_the_window_is_turned_or_the_box_grows(
    browser: Browser, gateway: Gateway
) -> None:
    def write(c: Commit) -> None:
        for number in range(40):
            transcripts.write(c, main_key(), Spoken(f"question {number}", kind="send"), Replied("some words " * 100))

    gateway.call("sessions.open", session="main")
    written(gateway, write)
    with sitting(browser, gateway, viewport={"width": 1280, "height": 800}) as person:
        page = person.page
        person.sign_in()
        last, reader = page.locator("#chat-log .msg").last, page.locator("#chat-scroll")
        rest = "one => one.scrollHeight - one.scrollTop - one.clientHeight < 80"
        expect(last).to_be_in_viewport()
        for width, height in ((390, 844), (844, 390), (390, 500), (1280, 800)):
            page.set_viewport_size({"width": width, "height": height})
            page.wait_for_function(f"() => ({rest})(document.querySelector('#chat-scroll'))")
        page.get_by_label("Message, or a command such as /help").fill("a line\n" * 12)
        page.wait_for_function(f"() => ({rest})(document.querySelector('#chat-scroll'))")
        reader.evaluate("one => { one.scrollTop = 3000 }")
        page.evaluate(FRAMES)  # nobody scrolls and turns the window within one frame
        page.set_viewport_size({"width": 1280, "height": 500})
        page.evaluate(FRAMES)
        assert reader.evaluate("one => one.scrollTop") == 3000, "who reads further up stays there, too"


def test_long_words_are_shown_plain_and_long_outputs_folded(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("flood")
        entry = page.locator("#chat-log .msg[data-role=assistant]")
        expect(entry.locator("pre.md, .md").first).to_contain_text("xxxx")
        page.get_by_role("button", name="Show all (200 kB)").click()
        expect(entry.locator("pre.md")).to_contain_text("and that was it")


def test_a_conversation_that_is_deleted_and_begun_again_is_read_anew(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.sign_in()
        for number in (1, 2, 3):
            person.say("hello")
            person.see("#chat-log .msg[data-role=assistant]", "How can I help?", times=number)
        gateway.call("sessions.delete", session="main")
        person.say("a new beginning")
        person.said("You said: a new beginning")
        expect(person.page.locator("#chat-log .msg")).to_have_count(2)


def test_a_reading_that_the_gateway_could_not_answer_is_tried_again(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.sign_in()
        refused: list[str] = []

        def refuse(route: Route) -> None:
            if "sessions.history" in (route.request.post_data or "") and len(refused) < 3:
                refused.append("history")
                route.fulfill(status=503, body="{}")
            else:
                route.continue_()

        person.page.route("**/rpc", refuse)
        person.say("hello")
        person.said("How can I help?")
        assert len(refused) == 3


def test_nothing_moves_under_a_pressed_pointer(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        page.add_init_script(HEARD)
        person.sign_in()
        person.say("wait")
        person.said("The tool said: ")
        kill = page.locator("#chat-log .card.live").get_by_role("button", name="Kill")
        box = kill.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 5, box["y"] + 5)
        page.mouse.down()
        gateway.call("send", session="main", message="hello", timeoutSeconds=10)
        told_row(page, "How can I help")
        assert kill.bounding_box() == box
        expect(page.locator("#chat-log .msg[data-role=assistant]").filter(has_text="How can I help?")).to_have_count(0)
        page.mouse.up()
        expect(page.get_by_role("dialog", name="Kill waiter?")).to_be_visible()
        page.keyboard.press("Escape")
        person.said("How can I help?")
