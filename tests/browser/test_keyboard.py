"""The page by keyboard alone, and cards that are answered by a key: only the focused one, only once it stands still."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.browsing import Gateway, browsing, modules, sitting
from tests.browser.page_server import speaking
from tests.cli.model_server import serving
from tests.statements import proves

MESSAGE = "Message, or a command such as /help"
QUESTION = {
    "id": "q1",
    "sessionKey": "agent:main:main",
    "tool": "exec",
    "arguments": '{"command": "rm -r build"}',
    "digest": "d1g35t",
    "askedAt": 0,
    "expiresAt": 0,
    "always": "rm -r",
    "forSubagents": False,
    "label": "",
    "lineage": [],
    "why": "",
    "cwd": "/work",
    "isSandboxed": False,
}
CARD = """async (question) => {
  const { questionCard } = await import("/page/cards.js");
  const store = { rows: new Map(), conversations: new Map(), readWaiting() {} };
  const card = questionCard(question, { store, kept: new Map() });
  document.body.append(card);
  card.focus();
  window.card = card;
}"""


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


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with modules(browser) as page:
        yield page


def answering(page: Page, error: str = "") -> list[dict[str, Any]]:
    """The calls that the page makes from now on; each is answered, or refused with these words."""
    calls: list[dict[str, Any]] = []

    def give(route: Route) -> None:
        calls.append(json.loads(route.request.post_data or ""))
        told = {"error": {"code": -32000, "message": error}} if error else {"result": {"ok": True}}
        route.fulfill(content_type="application/json", body=json.dumps({"jsonrpc": "2.0", "id": 1, **told}))

    page.route("https://page.test/rpc", give)
    return calls


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
        page.wait_for_function("one => performance.now() - one.movedAt > 500", arg=card.element_handle())
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


def test_a_key_does_nothing_to_a_card_that_has_just_appeared_or_moved(page: Page) -> None:
    calls = answering(page)
    page.evaluate(CARD, QUESTION)
    page.evaluate("card.movedAt = performance.now() + 1e6")
    page.keyboard.press("a")
    page.keyboard.press("d")
    assert page.evaluate("card.isConnected && !card.classList.contains('answered')")
    page.evaluate("""async () => {
      const { settle } = await import("/page/cards.js");
      card.movedAt = -1e6;
      settle([card]);
      card.before(document.createElement("hr"));
      settle([card]);
    }""")
    assert page.evaluate("card.movedAt") > 0, "it was moved down"
    page.evaluate("card.movedAt = -1e6")
    page.keyboard.press("a")
    expect(page.locator(".card.answered")).to_contain_text("Allowed once: exec runs.")
    assert [(one["method"], one["params"]) for one in calls] == [
        ("approvals.approve", {"id": "q1", "digest": "d1g35t"})
    ]


def test_a_key_acts_on_the_card_and_not_on_its_fields(page: Page) -> None:
    calls = answering(page)
    page.evaluate(CARD, QUESTION)
    page.evaluate("card.movedAt = -1e6")
    page.get_by_role("button", name="No, because …").click()
    page.keyboard.type("a sad day")
    assert calls == []
    page.keyboard.press("Enter")
    expect(page.locator(".card.answered")).to_contain_text("Denied, with your words.")
    assert calls[0]["params"] == {"id": "q1", "digest": "d1g35t", "words": "a sad day"}


def test_always_shows_the_words_of_the_rule_and_asks_about_subagents(page: Page) -> None:
    calls = answering(page)
    page.evaluate(CARD, QUESTION)
    page.get_by_role("button", name="Always …").click()
    expect(page.get_by_text("From now on commands that begin with rm -r run without a question.")).to_be_visible()
    page.get_by_label("subagents too").check()
    page.get_by_role("button", name="Always allow").click()
    expect(page.locator(".card.answered")).to_be_visible()
    assert calls[0]["params"] == {"id": "q1", "digest": "d1g35t", "always": True, "children": True}


def test_not_now_answers_nothing_and_can_be_taken_back(page: Page) -> None:
    calls = answering(page)
    page.evaluate(CARD, QUESTION)
    page.evaluate("card.movedAt = -1e6")
    page.keyboard.press("s")
    expect(page.locator(".card.answered")).to_contain_text("Set aside.")
    page.get_by_role("button", name="Show it").click()
    expect(page.get_by_role("button", name="Allow once")).to_be_visible()
    assert calls == []


def test_a_refused_answer_says_so_on_its_card(page: Page) -> None:
    answering(page, error="the call has changed")
    page.evaluate(CARD, QUESTION)
    page.get_by_role("button", name="Allow once").click()
    expect(page.locator(".card.answered")).to_contain_text("Not accepted: the call has changed.")
