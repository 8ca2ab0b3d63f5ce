"""The page by keyboard alone. Keys that answer what waits are proved in `test_you.py`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.browsing import Gateway, browsing, sitting
from tests.browser.page_server import speaking
from tests.cli.model_server import serving
from tests.statements import proves

MESSAGE = "Message, or a command such as /help"
CALM = "new Promise((go) => setTimeout(go, 500))"
"""Longer than a card ignores keys after it appeared or moved."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with serving(tmp_path, speaking(tmp_path / "model" / "release")) as model:
        gateway = Gateway(model, tmp_path)
        gateway.start()
        try:
            yield gateway
        finally:
            gateway.end()


@proves("4.tools.31")
def test_a_call_is_allowed_and_the_views_are_walked_by_keys_alone(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page, keyboard = person.page, person.page.keyboard
        page.goto(gateway.address)
        expect(page.get_by_label("Token of this gateway")).to_be_focused()
        keyboard.insert_text(gateway.token)
        keyboard.press("Enter")
        expect(page.get_by_label(MESSAGE)).to_be_focused()
        keyboard.type("write")
        keyboard.press("Enter")
        card = person.see("#waiting .card", "May it run write?")
        keyboard.type("an")
        expect(page.get_by_label(MESSAGE)).to_have_value("an")
        keyboard.press("Escape")
        keyboard.press("n")
        expect(card).to_be_focused()
        page.evaluate(CALM)
        keyboard.press("a")
        person.said("made.txt")
        assert (gateway.folder / "work" / "made.txt").exists()
        keyboard.press("Escape")
        for key, view in {"r": "runs", "y": "you", "u": "undelivered", "s": "settings", "c": "chat"}.items():
            keyboard.press("g")
            keyboard.press(key)
            expect(page.locator(f"#app[data-view={view}]")).to_be_visible()
        page.locator("#chat-scroll").focus()
        keyboard.press("?")
        expect(page.get_by_role("button", name="Close", exact=True)).to_be_focused()
        keyboard.press("Tab")
        expect(page.get_by_role("button", name="Close", exact=True)).to_be_focused()
        keyboard.press("Escape")
        expect(page.locator("#chat-scroll")).to_be_focused()
        keyboard.press("Control+k")
        keyboard.type("health")
        keyboard.press("Enter")
        expect(page.locator("#app[data-view=health]")).to_be_visible()
        page.evaluate("localStorage.setItem('fledge.letters', 'false')")
        keyboard.press("g")
        keyboard.press("r")
        keyboard.press("?")
        expect(page.locator("#app[data-view=health]")).to_be_visible()
        expect(page.get_by_role("dialog")).to_have_count(0)


def test_escape_twice_stops_the_turn(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.sign_in()
        person.say("fail")
        person.see("#chat-live", "That failed: ")
        person.page.keyboard.press("Escape")
        person.page.keyboard.press("Escape")
        expect(person.page.locator(".activity")).to_contain_text("at rest")
        person.say("hello")
        person.said("How can I help?")


def test_a_question_that_is_answered_elsewhere_goes_from_every_tab(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as one, sitting(browser, gateway) as other:
        one.sign_in()
        other.sign_in()
        one.say("write")
        one.see("#waiting .card", "May it run write?")
        other.see("#waiting .card", "May it run write?").get_by_role("button", name="Deny", exact=True).click()
        expect(one.page.locator("#waiting .card")).to_have_count(0)
        one.said("The tool said: write was refused")
        other.said("The tool said: write was refused")


def test_the_focus_stays_where_it_is_while_what_is_shown_changes(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway, viewport={"width": 1440, "height": 900}) as person:
        page = person.page
        person.sign_in()
        person.say("wait")
        person.said("The tool said: ")
        twig = person.see("#panel .twig", "waiter")
        twig.focus()
        gateway.call("runs.steer", target="waiter", message="wait for me, then tell more")
        person.see("#chat-log .card.live", "attempt 2")
        expect(person.see("#panel .twig", "waiter")).to_be_focused()
        page.keyboard.press("Enter")
        person.see("#view-run h1", "waiter")
        copy = page.get_by_role("button", name="Copy session")
        copy.focus()
        gateway.call("runs.kill", target="waiter")
        person.see("section[aria-label=Delivery] li", "Not announced")
        expect(copy).to_be_focused()
        page.locator(".runhead").get_by_role("button", name="Resume").focus()
        gateway.call("runs.resume", target="waiter")
        person.see(".runhead .chip", "done")
        expect(page.locator("#view-run")).to_be_focused()  # the button is gone, and no other one takes its place
        second = gateway.call("runs.spawn", task="wait for me", label="second", requester="main")["childSessionKey"]
        page.goto(f"{gateway.address}/#/run/{second}")
        page.locator(".runhead").get_by_role("button", name="Steer").press("Enter")
        expect(page.get_by_role("dialog", name="Steer second")).to_be_visible()
        gateway.call("runs.kill", target="second")
        person.see(".runhead .acts", "Run again")
        page.keyboard.press("Escape")
        expect(page.locator("#main")).to_be_focused()
