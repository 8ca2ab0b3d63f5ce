"""Every view in light and dark, on a phone and on a desk: nothing wrong in the console, nothing sticks out, and axe
finds nothing. One gateway has the scene."""

from collections.abc import Iterator
from typing import Literal

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.browsing import Gateway, Person, browsing, sitting
from tests.browser.looks import findings
from tests.browser.page_server import speaking
from tests.cli.model_server import serving

Scheme = Literal["light", "dark"]
WIDTHS = {390: 844, 1440: 900}
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
VIEWS = ("chat/main", "chat/none", "runs", "you", "undelivered", "agents", "health", "settings")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A conversation with everything in it: an answer, a result, a child at work, a plan and a question."""
    folder = tmp_path_factory.mktemp("looks")
    with serving(folder, speaking(folder / "model" / "release")) as model:
        gateway = Gateway(model, folder)
        gateway.start()
        try:
            for words in ("hello", "spawn", "wait", "plan", "write"):
                gateway.call("send", session="main", message=words, timeoutSeconds=20 if words != "write" else 0)
            yield gateway
        finally:
            gateway.end()


def show(person: Person, view: str) -> None:
    """Show a view, and wait until it has what it shows."""
    name, _, key = view.partition("/")
    address = f"{name}/agent%3Amain%3A{key}" if key else name
    person.page.goto(f"{person.gateway.address}/#/{address}")
    expect(person.page.locator(f"#app[data-view={name}]")).to_be_visible()
    if view == "chat/main":
        person.see("#waiting .card", "May it run write?")
        person.see("#chat-log .card.live", "waiter")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_view_is_shown_whole_and_without_errors(
    browser: Browser, gateway: Gateway, width: int, scheme: Scheme
) -> None:
    with sitting(browser, gateway, viewport={"width": width, "height": WIDTHS[width]}, color_scheme=scheme) as person:
        person.sign_in()
        for view in VIEWS:
            show(person, view)
            assert person.page.evaluate("document.documentElement.scrollWidth") <= width, view
            assert person.page.locator("h1:visible, .toptitle:visible").count() > 0, view


def test_axe_finds_nothing_on_a_desk(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway, viewport={"width": 1440, "height": 900}, color_scheme="light") as person:
        page = person.page
        page.goto(gateway.address)
        expect(page.get_by_label("Token of this gateway")).to_be_focused()
        found = {"sign-in": findings(page)}
        person.sign_in()
        for view in ("runs", "you", "settings", "chat/main"):
            show(person, view)
            found[view] = findings(page)
        page.keyboard.press("Control+k")
        expect(page.get_by_role("dialog", name="Search everything")).to_be_visible()
        found["search"] = findings(page)
        page.keyboard.press("Escape")
        page.locator("#chat-log .card.live").first.get_by_role("button", name="Kill").click()
        expect(page.get_by_role("dialog").get_by_role("listitem").filter(has_text="waiter")).to_be_visible()
        found["kill"] = findings(page)
        assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_axe_finds_nothing_on_a_phone(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway, viewport={"width": 390, "height": 844}, color_scheme="dark") as person:
        page, found = person.page, dict[str, list[str]]()
        person.sign_in()
        for view in ("undelivered", "agents", "health", "chat/none", "chat/main"):
            show(person, view)
            found[view] = findings(page)
        page.get_by_label("Message, or a command such as /help").fill("/")
        expect(page.get_by_role("listbox", name="Commands")).to_be_visible()
        found["commands"] = findings(page)
        page.get_by_label("Message, or a command such as /help").fill("")
        page.get_by_role("button", name="Open navigation").click()
        found["drawer"] = findings(page)
        assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_the_theme_is_chosen_and_kept(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway, color_scheme="light") as person:
        person.sign_in()
        ground = "getComputedStyle(document.body).backgroundColor"
        light = person.page.evaluate(ground)
        for _ in ("light", "dark"):
            person.page.get_by_role("button", name="Theme: ").click()
        dark = person.page.evaluate(ground)
        assert dark != light
        person.page.reload()
        person.see("#connection", "connected")
        assert person.page.evaluate(ground) == dark
