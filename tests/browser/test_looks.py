"""Every view in light and dark, on a phone and on a desk: nothing wrong in the console, nothing sticks out, and axe
finds nothing. One gateway has the scene."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.browsing import Gateway, Person, browsing, signed_in, sitting
from tests.browser.looks import CHECKED, WINDOWS, assert_looks
from tests.browser.page_server import speaking
from tests.cli.model_server import serving
from tests.effort import SOAK

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


@pytest.mark.parametrize("window", WINDOWS)
def test_every_view_fits_its_window_without_errors_and_axe_finds_nothing(
    browser: Browser, gateway: Gateway, window: tuple[int, int, str]
) -> None:
    width, height, scheme = window
    with sitting(browser, gateway, viewport={"width": width, "height": height}, color_scheme=scheme) as person:
        page = person.page
        page.goto(gateway.address)
        expect(page.get_by_label("Token of this gateway")).to_be_focused()
        assert_looks(page, window, "sign-in")
        person.sign_in()
        for view in VIEWS:
            show(person, view)
            assert page.locator("h1:visible, .toptitle:visible").count() > 0, view
            assert_looks(page, window, view.replace("/", "-"))


@pytest.mark.parametrize("window", WINDOWS if SOAK else CHECKED)
def test_every_layer_fits_its_window_and_axe_finds_nothing(
    browser: Browser, gateway: Gateway, window: tuple[int, int, str]
) -> None:
    with signed_in(browser, gateway, *window) as person:
        page = person.page
        show(person, "chat/main")
        card, dialog = page.locator("#chat-log .card.live").first, page.get_by_role("dialog")

        def look(name: str) -> None:
            assert_looks(page, window, name)
            page.keyboard.press("Escape")

        page.keyboard.press("Control+k")
        expect(page.get_by_role("dialog", name="Search everything")).to_be_visible()
        look("search")
        card.get_by_role("button", name="Kill").click()
        expect(dialog.get_by_role("listitem").filter(has_text="waiter")).to_be_visible()
        look("kill")
        card.get_by_role("button", name="Steer").click()
        expect(dialog.get_by_label("Where should it go instead?")).to_be_focused()
        look("steer")
        if page.get_by_role("button", name="More", exact=True).is_visible():  # on a phone, the search has its actions
            page.get_by_role("button", name="More", exact=True).click()
            expect(page.get_by_role("menu", name="More")).to_be_visible()
            look("more")
        page.locator("#chat-scroll").focus()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        look("keys")
        page.get_by_label("Message, or a command such as /help").fill("/")
        expect(page.get_by_role("listbox", name="Commands")).to_be_visible()
        look("commands")
        page.get_by_label("Message, or a command such as /help").fill("")
        if page.get_by_role("button", name="Open navigation").is_visible():
            page.get_by_role("button", name="Open navigation").click()
            look("drawer")


def test_nothing_moves_for_who_wants_no_motion(browser: Browser, gateway: Gateway) -> None:
    moving = "document.getAnimations().filter((one) => one.playState === 'running').length"
    with sitting(browser, gateway) as person:
        person.sign_in()
        show(person, "chat/main")
        assert person.page.evaluate(moving) > 0, "a run at work has a sign that turns"
    with signed_in(browser, gateway) as person:
        show(person, "chat/main")
        assert person.page.evaluate(moving) == 0


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
