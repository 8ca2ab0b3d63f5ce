"""The page in a real browser, against a real gateway: whole journeys of a person."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

import fledge
from fledge.core.keys import main_key, project_key
from fledge.core.route import Address, origin_of
from fledge.orchestrator import outbox
from fledge.orchestrator.commit import Commit
from fledge.store.base import Turn
from fledge.store.files import DATABASE
from tests.browser.browsing import Gateway, browsing, sitting
from tests.browser.page_server import SHOWN, speaking
from tests.cli.model_server import Model, serving
from tests.statements import proves

RELEASE = "release"
"""Once this file is beside the port file of the model server, children that wait go on."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("page")
    with serving(folder, speaking(folder / "model" / RELEASE)) as model:
        yield model


@pytest.fixture
def gateway(model: Model, tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(model, tmp_path)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.end()
        release(gateway).unlink(missing_ok=True)


def release(gateway: Gateway) -> Path:
    """Let the children that wait go on."""
    file = gateway.model.port.parent / RELEASE
    file.touch()
    return file


@proves("4.tools.31", "Slash commands work on the page")
@proves("8.gateway.7", "The page uses fetch streams with the header: no cookie, no token in an address")
def test_sign_in_chat_and_commands_on_a_phone_by_keyboard(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway, viewport={"width": 360, "height": 640}) as person:
        page = person.page
        page.goto(gateway.address)
        person.show_token("no-such-token-" + "x" * 30)
        person.see("#signin-error", "That is not the token of this gateway.")
        person.show_token(gateway.token)
        person.see("#connection", "connected")
        person.see("#chat-empty", "Nothing has been said yet.")
        expect(page.get_by_label("Message, or a command such as /help")).to_be_focused()
        person.say("hello")
        person.said("How can I help?")
        person.see("#chat-log .entry[data-role=user]", "hello")
        expect(page.locator("#chat-pending .entry")).to_have_count(0)
        person.say("/etc/hosts is a path")
        person.said("You said: /etc/hosts is a path")
        expect(page.locator("#chat-log")).to_have_attribute("aria-live", "polite")
        person.say("/subagents frobnicate")
        person.see(".entry[data-role=command][data-failed]", "there is no such command")
        person.say("/subagents spawn main dig deep")
        person.said("The digger found gold.")
        person.say("/subagents list")
        person.see(".entry[data-role=command]", "1) done")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, "nothing sticks out"
        assert gateway.token not in page.url
        assert gateway.token not in page.evaluate("JSON.stringify(localStorage) + document.cookie")
        page.reload()
        person.said("How can I help?")
        page.get_by_role("button", name="Sign out").press("Enter")
        expect(page.get_by_label("Token of this gateway")).to_be_focused()
        expect(page.locator("#chat-log .entry")).to_have_count(0)
        assert page.evaluate("sessionStorage.length") == 0


def test_a_subagents_answer_arrives_once_and_its_page_tells_all(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("spawn")
        person.said("The digger found gold.")
        page.locator("#runs-tree").get_by_role("link", name="digger").click()
        person.see(".facts dd", "gold, at the very bottom")
        person.see(".facts dd", "unknown; tokens: 10 in, 5 out")
        person.see("section[aria-label=Timeline] li", "finished → ")
        # By which way depends on whether the conversation is still busy with its own words.
        told = person.see("section[aria-label=Delivery] li", "to agent:main:main (fallback): ")
        assert "delivered" in told.inner_text()
        person.see("section[aria-label=Transcript] .entry", "dig deep")
        page.goto(f"{gateway.address}/#/run/agent:main:subagent:none")
        person.see("#view-run", "There is no such run")


@proves("8.gateway.9", "All model and child text on the page is rendered as hostile")
def test_hostile_words_are_shown_and_do_nothing(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("act")
        told = person.said("It said: ")
        assert SHOWN in told.inner_text()
        page.locator("#runs-tree").get_by_role("link", name="<i>label</i>").click()
        person.see(".facts dd", "onerror")
        person.see("section[aria-label=Transcript] .entry", "onerror")
        assert SHOWN in page.locator("section[aria-label=Transcript]").inner_text()
        assert SHOWN in page.locator(".facts").inner_text()
        person.see(".facts dd", "hostile <b>task</b>")
        page.goto(f"{gateway.address}/#/chat")
        person.say("<img src=x onerror=alert(1)>")
        person.see("#chat-log .entry[data-role=user]", "<img src=x onerror=alert(1)>")
        person.say("/subagents log 1")
        person.see(".entry[data-role=command]", "onerror")
        person.say("/subagents <script>alert(1)</script>")
        person.see(".entry[data-role=command][data-failed]", "there is no such command")
        assert page.locator("#app img, #app script, #app b, #app i").count() == 0


@proves("8.gateway.8")
def test_the_browser_itself_refuses_markup_made_from_text(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.page.goto(gateway.address)
        refused = "text => { try { document.body.innerHTML = text; return false } catch { return true } }"
        assert person.page.evaluate(refused, "<b>x</b>")
        assert any("TrustedHTML" in words for words in person.wrong)
        person.wrong.clear()


@proves("3.plan.10", "… on the page")
def test_plans_are_answered_and_calls_are_denied_and_allowed(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("plan")
        card = person.see("#waiting .card", "A plan awaits your answer")
        card.get_by_role("button", name="Reject").click()
        person.see("#alert", "say why the plan is rejected")
        card.get_by_label("Reason for rejecting").fill("deeper")
        card.get_by_role("button", name="Reject").click()
        person.see("#waiting .card", "child heard")
        page.get_by_role("button", name="Approve").click()
        expect(page.locator("#waiting .card")).to_have_count(0)
        person.say("write")
        card = person.see("#waiting .card", "May it run write?")
        assert '"made.txt"' in card.inner_text()
        person.see("#chat-live", "waiting for you")
        expect(page).to_have_title("(1) fledge")
        card.get_by_role("button", name="Deny").click()
        person.said("The tool said: write was refused")
        assert not (gateway.folder / "work" / "made.txt").exists()
        person.say("write")
        person.see("#waiting .card", "May it run write?").get_by_role("button", name="Allow").click()
        person.said("made.txt")
        assert (gateway.folder / "work" / "made.txt").read_text() == "made"
        expect(page).to_have_title("fledge")


def test_a_run_is_sent_to_steered_and_killed(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("wait")
        page.locator("#runs-tree").get_by_role("link", name="waiter").click()
        person.see(".facts dd", "running")
        page.get_by_label("Words for this run").fill("look left")
        page.get_by_role("button", name="Steer").click()
        person.see("section[aria-label=Timeline] li", "Steered")
        person.see(".facts dd", "child heard:")
        page.get_by_role("link", name="Chat", exact=True).click()
        person.said("The waiter changed its mind.")
        person.say("wait")
        page.locator("#runs-tree").get_by_role("link", name="waiter running").click()
        person.see(".facts dd", "running")  # what comes in above the buttons moves them
        page.get_by_role("button", name="Kill").click()
        page.get_by_role("button", name="Really kill it").click()
        person.see(".facts .chip", "killed")


def test_words_are_sent_to_a_run_that_goes_on(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("wait")
        page.locator("#runs-tree").get_by_role("link", name="waiter").click()
        person.see(".facts dd", "running")
        page.get_by_role("button", name="Send", exact=True).click()
        person.see("#alert", "there are no words to tell it")
        page.get_by_label("Words for this run").fill("mind the gap")
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.get_by_label("Words for this run")).to_have_value("")
        release(gateway)
        person.see("section[aria-label=Transcript] .entry", "mind the gap", times=2)
        person.see("section[aria-label=Transcript] .entry[data-role=assistant]", "child heard: mind the gap")
        assert page.locator("section[aria-label=Timeline] li").filter(has_text="Steered").count() == 0


def test_the_page_begins_in_the_conversation_that_was_spoken_in_last_and_calls_a_projects_by_its_folder(
    browser: Browser, gateway: Gateway, tmp_path: Path
) -> None:
    folder = os.path.realpath(tmp_path / "docs")
    os.mkdir(folder)
    gateway.call("sessions.open", session=project_key(folder), folder=folder)
    with sitting(browser, gateway) as person:
        person.sign_in()
        expect(person.page.get_by_label("Conversation", exact=True)).to_have_value(project_key(folder))
        expect(person.page.get_by_label("Conversation", exact=True).locator("option")).to_have_text(["docs", "main"])
        person.say("hello")
        person.said("How can I help?")
        assert gateway.call("sessions.history", session=project_key(folder))[0]["text"] == "hello"


def test_conversations_are_chosen_begun_and_kept_apart(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway, viewport={"width": 360, "height": 640}) as person:
        page = person.page
        person.sign_in()
        person.say("hello")
        person.said("How can I help?")
        page.get_by_role("button", name="New").click()
        page.get_by_label("Name of the new conversation").fill("two words")
        page.keyboard.press("Enter")
        person.see("#alert", "a conversation's name begins with a letter or digit")
        page.get_by_label("Name of the new conversation").fill("side")
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{gateway.address}/#/chat/agent%3Amain%3Aside")
        person.see("#chat-empty", "Nothing has been said yet.")
        person.say("over here")
        person.said("You said: over here")
        assert gateway.call("sessions.history", session="side")[0]["text"] == "over here"
        page.get_by_label("Message, or a command such as /help").fill("not finished")
        page.get_by_label("Conversation", exact=True).select_option("main")
        person.said("How can I help?")
        expect(page.locator("#chat-log .entry").filter(has_text="over here")).to_have_count(0)
        expect(page.get_by_label("Message, or a command such as /help")).to_have_value("")
        person.say("write")  # a question of the other conversation leads to it
        page.get_by_label("Conversation", exact=True).select_option("side")
        person.said("You said: over here")
        expect(page.get_by_label("Message, or a command such as /help")).to_have_value("not finished")
        page.locator("#waiting .card").get_by_role("link", name="main").click()
        person.said("How can I help?")
        page.locator("#waiting .card").get_by_role("button", name="Deny").click()
        person.said("The tool said: write was refused")
        page.go_back()
        person.said("You said: over here")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, "nothing sticks out"
        page.reload()
        person.said("You said: over here")
        page.goto(f"{gateway.address}/#/chat/not%20a%20key")
        person.see("#alert", "must be a name of letters")


def test_a_turn_that_fails_says_so(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.sign_in()
        person.say("fail")
        person.see("#chat-live", "That failed: ")
        person.see("#chat-live", "no such luck")
        person.page.get_by_role("button", name="Stop").click()
        person.say("hello")
        person.said("How can I help?")
        expect(person.page.locator("#chat-live")).to_be_hidden()


@proves("4.tools.39")
def test_a_turn_that_fails_for_half_an_hour_is_shown_as_unanswered(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.sign_in()
        person.say("fail")
        person.see("#chat-live", "That failed: ")
        expect(person.page.locator("#unanswered")).to_be_hidden()
        gateway.end()
        with closing(sqlite3.connect(gateway.state / DATABASE)) as rows, rows:
            rows.execute("UPDATE turns SET opened_at = opened_at - 2400")
        gateway.start()
        person.see("#unanswered", "unanswered for 40 min")
        person.page.get_by_role("button", name="Stop").click()
        person.say("hello")
        person.said("How can I help?")
        expect(person.page.locator("#unanswered")).to_be_hidden()


def test_a_link_from_another_site_opens_the_page(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        link = f'<a href="{gateway.address}/">fledge</a>'
        page.route("http://elsewhere.test/", lambda route: route.fulfill(content_type="text/html", body=link))
        page.goto("http://elsewhere.test/")
        page.get_by_role("link", name="fledge").click()
        expect(page.get_by_label("Token of this gateway")).to_be_focused()
        person.wrong.clear()  # it went elsewhere first
        page.route("http://elsewhere.test/", lambda route: route.fulfill(content_type="text/html", body=""))
        page.goto("http://elsewhere.test/")
        asking = f"fetch('{gateway.address}/', {{mode: 'no-cors'}}).then(r => r.type, () => 'refused')"
        assert page.evaluate(asking) != "basic"
        person.wrong.clear()


@proves("8.gateway.7")
def test_a_gateway_that_was_killed_is_found_again_and_nothing_is_doubled(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("hello")
        person.said("How can I help?")
        person.say("wait")
        person.see("#runs-tree a", "running")
        gateway.end(signal.SIGKILL)
        person.see("#connection", "not connected")
        person.say("hello again")
        person.see("#chat-pending .entry", "not sent yet")
        gateway.start()
        person.see("#connection", "connected")
        person.said("You said: hello again")
        release(gateway)
        person.said("The waiter is done.")
        person.said("How can I help?")
        person.see("#chat-log .entry[data-role=user]", "hello again")
        expect(page.locator("#chat-pending .entry")).to_have_count(0)
        person.see("#runs-tree a", "ok")
        shown = page.locator("#chat-log .entry").all_inner_texts()
        page.reload()
        person.said("The waiter is done.")
        assert page.locator("#chat-log .entry").all_inner_texts() == shown


@proves("2.hops.26")
def test_a_message_that_could_not_be_sent_is_shown_and_dismissed(browser: Browser, gateway: Gateway) -> None:
    def lose(c: Commit) -> None:
        turn = Turn(main_key(), 1, {}, 0, 0, 0, c.at, origin=origin_of(Address("ops", "ann")))
        outbox.reply(c, turn, 7, "for ann")
        c.tx.give_up_post(f"reply:{main_key()}:7", "HTTP 500", c.at + 9e9, c.at)

    async def change(fl: fledge.Fledge) -> None:
        await fl.engine.commit(lose)

    gateway.end()
    with ThreadPoolExecutor(1) as beside:  # this thread has the browser's event loop
        beside.submit(fledge.run_sync, change, gateway.state, config={}, drives=False).result()
    gateway.start()
    with sitting(browser, gateway) as person:
        person.sign_in()
        person.see("#undelivered-count", "1")
        person.page.get_by_role("link", name="Undelivered").click()
        card = person.see("#undelivered-cards .card", "for ann")
        assert "to ann on ops" in card.inner_text()
        assert "HTTP 500" in card.inner_text()
        card.get_by_role("button", name="Dismiss").click()
        person.see("#undelivered-empty", "Everything has arrived.")


def test_undelivered_results_are_retried_and_dismissed(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        page.get_by_role("link", name="Undelivered").click()
        person.see("#undelivered-empty", "Everything has arrived.")
        page.get_by_role("link", name="Chat", exact=True).click()
        for number in (1, 2):
            person.say("wait")
            person.see("#runs-tree a", "running", times=number)
        gateway.call("sessions.delete", session="main")
        release(gateway)
        person.see("#undelivered-count", "2")
        person.say("hello")
        person.said("How can I help?")
        page.get_by_role("link", name="Undelivered").click()
        cards = person.see("#undelivered-cards .card", "I waited", times=2)
        cards.first.get_by_role("button", name="Dismiss").click()
        person.see("#undelivered-cards .card", "I waited")
        cards.first.get_by_role("button", name="Retry").click()
        person.see("#undelivered-empty", "Everything has arrived.")
        page.get_by_role("link", name="Chat", exact=True).click()
        person.said("The waiter is done.")


@proves("8.gateway.18", "The page takes a one-time code out of its address before any request")
def test_a_link_of_fledge_page_signs_in_once_and_leaves_no_code(browser: Browser, gateway: Gateway) -> None:
    command = [sys.executable, "-m", "fledge.cli.main", "page", "--no-open", "--state", str(gateway.state)]
    done = subprocess.run(command, env=gateway.model.env, capture_output=True, text=True, timeout=60, check=True)
    address = done.stdout.splitlines()[0]
    with sitting(browser, gateway) as person:
        page = person.page
        asked: list[str] = []
        page.on("request", lambda one: asked.append(f"{one.method} {one.url.removeprefix(gateway.address)}"))
        page.goto(address)
        person.see("#connection", "connected")
        assert next(one for one in asked if one != "GET /" and not one.startswith("GET /page/")) == "POST /login"
        assert "code" not in page.url
        assert page.evaluate("Object.values(sessionStorage)") == [gateway.token]
    with sitting(browser, gateway) as person:
        person.page.goto(address)
        person.see("#signin-error", "it is good once, for a minute")
        assert "code" not in person.page.url
