"""Undelivered, Agents, Health and Settings: what they tell, what can be done there, and how all quiet views look."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from fledge.core.keys import main_key
from fledge.core.route import Address, origin_of
from fledge.core.turn import OpenTurn
from fledge.orchestrator import outbox
from fledge.orchestrator.commit import Commit
from tests.browser.browsing import Person, browsing, sitting
from tests.browser.desk_scene import HOSTILE, SETTINGS, SHOWN, Scene, scene
from tests.browser.looks import CHECKED, WINDOWS, assert_looks, assert_sound
from tests.statements import proves


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as one:
        yield one


def look(person: Person, view: str) -> Page:
    """Sign in and go to a view."""
    person.sign_in()
    person.page.goto(f"{person.gateway.address}/#/{view}")
    return person.page


# ---- undelivered


@proves("8.page.8", "An undelivered result says for whom it was, why it did not arrive and how long it is kept")
def test_a_result_that_found_nobody_says_for_whom_why_and_how_long_it_is_kept(browser: Browser, desk: Scene) -> None:
    key = desk.lose("finder", "the **found** thing\n\n" + "\n\n".join(f"paragraph {n}" for n in range(40)))
    with sitting(browser, desk) as person:
        page = look(person, "undelivered")
        card = person.see("#undelivered-cards .card", "finder")
        expect(card).to_contain_text("was for gone")
        expect(card.locator(".because")).to_contain_text("No requester is left.")
        expect(card.locator(".because")).to_contain_text("Kept until")
        expect(card.locator("strong, b").filter(has_text="found")).to_have_count(1)
        fold = card.get_by_role("button", name="Show all")
        fold.click()
        expect(card.get_by_role("button", name="Show less")).to_have_attribute("aria-expanded", "true")
        card.get_by_role("link", name="Trace").click()
        expect(page).to_have_url(f"{desk.address}/#/run/{key.replace(':', '%3A')}")


@proves("8.page.9", "An undelivered result is offered again, given to another conversation, or dismissed")
def test_results_are_given_to_another_conversation_offered_again_and_dismissed(browser: Browser, desk: Scene) -> None:
    desk.call("send", session="other", message="hi")
    for label in ("first", "second", "third"):
        desk.lose(label, f"words of {label}")
    with sitting(browser, desk) as person:
        page = look(person, "undelivered")
        first, second, third = (
            person.see("#undelivered-cards .card", f"words of {one}") for one in ("first", "second", "third")
        )
        first.get_by_role("button", name="To a conversation …").click()
        search = page.get_by_role("dialog").get_by_label("Search conversations")
        expect(search).to_be_focused()
        search.fill("other")
        page.get_by_role("dialog").get_by_role("button", name="other").click()
        expect(first.locator(".outcome")).to_have_text("Offered to other.")
        third.get_by_role("button", name="Dismiss").click()
        expect(third.locator(".outcome")).to_contain_text("Dismissed.")
        expect(page.locator("#undelivered-cards .card")).to_have_count(3)  # nothing has moved
        desk.call("sessions.open", session="gone")
        second.get_by_role("button", name="Deliver again").click()
        expect(second.locator(".outcome")).to_contain_text("It will be delivered again.")
        person.see("#undelivered-empty", "Everything has arrived")
        for session, words in (("other", "words of first"), ("gone", "words of second")):
            desk.until(lambda tx, one=session: True if len(tx.transcripts.entries(f"agent:main:{one}")) > 1 else None)  # type: ignore[misc]
            assert str(desk.call("sessions.history", session=session)).count(words) >= 1
        assert desk.call("undelivered.list") == []


def test_a_long_result_can_still_be_read_whole_after_it_was_dismissed(browser: Browser, desk: Scene) -> None:
    desk.lose("finder", "\n\n".join(f"paragraph {n}" for n in range(40)))
    with sitting(browser, desk) as person:
        look(person, "undelivered")
        card = person.see("#undelivered-cards .card", "finder")
        card.get_by_role("button", name="Dismiss").click()
        expect(card.locator(".outcome")).to_contain_text("Dismissed.")
        card.get_by_role("button", name="Show all").click()
        expect(card.get_by_role("button", name="Show less")).to_have_attribute("aria-expanded", "true")
        expect(card.get_by_role("button", name="Dismiss")).to_have_count(0)


def test_a_result_that_finds_nobody_again_comes_back(browser: Browser, desk: Scene) -> None:
    key = desk.lose("finder", "found")
    tries = desk.call("undelivered.list")[0]["tries"]
    with sitting(browser, desk) as person:
        page = look(person, "undelivered")
        person.see(".because", f"{tries} tries.")
        page.get_by_role("button", name="Deliver again").click()
        desk.until(lambda tx: True if tx.inbox.undelivered() and len(tx.deliveries.of(key)) > tries else None)
        again = desk.call("undelivered.list")[0]["tries"]
        person.see(".because", f"{again} tries.")
        expect(page.locator("#undelivered-cards .card")).to_have_count(1)
        expect(page.get_by_role("button", name="Deliver again")).to_be_visible()


@proves("2.hops.26")
def test_a_message_that_could_not_be_sent_is_shown_and_dismissed(browser: Browser, desk: Scene) -> None:
    def lost(c: Commit) -> None:
        turn = OpenTurn(main_key(), 1, {}, 0, 0, 0, c.at, origin=origin_of(Address("ops", "ann")))
        outbox.reply(c, turn, 7, "for ann")
        c.tx.outbox.give_up(f"reply:{main_key()}:7", "HTTP 500", c.at + 9e9, c.at)

    desk.server.do(desk.server.desk.fl.engine.commit(lost))
    with sitting(browser, desk) as person:
        look(person, "undelivered")
        person.see("#undelivered-count", "1")
        card = person.see("#undelivered-cards .card", "for ann")
        assert "to ann on ops" in card.inner_text()
        assert "HTTP 500" in card.inner_text()
        expect(card.get_by_role("button", name="To a conversation …")).to_have_count(0)
        card.get_by_role("button", name="Dismiss").click()
        person.see("#undelivered-empty", "Everything has arrived")
        expect(card.locator(".outcome")).to_contain_text("Dismissed.")


# ---- agents, health, settings


def test_agents_are_shown_with_models_tools_and_bounds(browser: Browser, desk: Scene) -> None:
    with sitting(browser, desk) as person:
        page = look(person, "agents")
        critic = page.get_by_role("article", name="critic")
        expect(critic.locator("header")).to_contain_text("given/large then given/small")
        expect(critic.locator(".tool-never")).to_have_text(["execmay never use it", "writemay never use it"])
        expect(critic.locator(".tool-asks").filter(has_text="edit")).to_have_count(1)
        expect(critic.locator(".tool-may").filter(has_text="read")).to_have_count(1)
        expect(critic.locator(".facts")).to_contain_text("$0.50 · 40.0k tokens")
        main = page.get_by_role("article", name="main")
        expect(main.locator(".facts")).to_contain_text("main, critic")
        expect(main.locator(".chip")).to_have_text("idle")
        expect(main.locator(".week")).to_contain_text("0 runs in seven days")
        desk.call("runs.spawn", task="wait", label="busy")
        expect(main.locator(".chip")).to_have_text("1 at work")
        page.goto(f"{desk.address}/#/health")
        page.goto(f"{desk.address}/#/agents")
        expect(main.locator(".week")).to_contain_text("1 run in seven days")


def test_health_tells_of_lanes_who_waits_the_store_and_what_went_wrong(browser: Browser, desk: Scene) -> None:
    for label in ("one", "two", "three"):
        desk.call("runs.spawn", task="wait", label=label)
    lose_nobody = desk.call("runs.spawn", task="wait", label="late", program="tester", runTimeoutSeconds=1)
    with sitting(browser, desk) as person:
        page = look(person, "health")
        lane = person.see(".lanerow", "subagent")
        expect(lane.get_by_role("img")).to_have_attribute("aria-label", "2 of 2 slots in use, 2 waiting")
        expect(page.locator(".healthgrid")).to_contain_text("More slots: agents.defaults.subagents.maxConcurrent.")
        expect(page.locator("#health-chip")).to_have_text("healthy")
        expect(page.get_by_role("region", name="Store")).to_contain_text("free on disk")
        expect(page.get_by_role("region", name="What went wrong lately")).to_contain_text("stuck")
        page.get_by_role("region", name="What went wrong lately").get_by_role("link", name="one").first.click()
        expect(page).to_have_title("one · fledge")
        assert lose_nobody["childSessionKey"]


@proves("8.page.10", "Settings show value, default and origin of what the gateway runs with")
def test_settings_show_value_default_and_origin_and_can_be_searched(browser: Browser, desk: Scene) -> None:
    with sitting(browser, desk) as person:
        page = look(person, "settings")
        row = page.locator('[data-key="agents.defaults.subagents.maxConcurrent"]')
        expect(row.locator(".value")).to_have_text("2")
        expect(row.locator(".default")).to_have_text("8")
        expect(row.locator(".from")).to_have_text("the program")
        page.get_by_label("Search settings").fill("stuckafter")
        expect(row).to_have_count(0)
        expect(page.locator('[data-key="agents.defaults.subagents.stuckAfterSeconds"]')).to_be_visible()
        page.get_by_label("Search settings").fill("")
        page.get_by_label("only what is set").check()
        expect(page.locator("tr[data-key]:not(.set)")).to_have_count(0)
        expect(row).to_be_visible()


def test_switches_and_theme_are_kept_in_this_browser(browser: Browser, desk: Scene) -> None:
    with sitting(browser, desk) as person:
        page = look(person, "settings")
        page.get_by_role("switch", name="Single-letter keys").press("Space")
        page.get_by_role("switch", name="Calm").press("Space")
        page.get_by_label("dark").check()
        expect(page.get_by_role("button", name="Theme: dark. Press to change")).to_be_visible()
        page.reload()
        expect(page.get_by_role("switch", name="Single-letter keys")).not_to_be_checked()
        expect(page.get_by_role("switch", name="Calm")).to_be_checked()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.keyboard.press("g")
        page.keyboard.press("h")
        expect(page).to_have_title("Settings · fledge")  # letters are off
        page.get_by_role("switch", name="Tell me when something waits").press("Space")
        person.see(".notice", "The browser does not allow notices from this page.")
        expect(page.get_by_role("switch", name="Tell me when something waits")).not_to_be_checked()


# ---- how they look

VIEWS = {"you": "For you", "undelivered": "Undelivered", "agents": "Agents", "health": "Health", "settings": "Settings"}


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A scene with something in every view, hostile words among it."""
    with scene(tmp_path_factory.mktemp("busy")) as one:
        one.lose("<i>finder</i>", f"# {HOSTILE}\n\n" + "long " * 200)
        one.ask("exec", command=f"git status {HOSTILE} {'x' * 300}", timeout_seconds=30)
        one.ask("exec", "second", command="git status")
        one.ask("write", "third", path="a" * 200, content=HOSTILE)
        one.plan("<u>planner</u>", f"## Plan\n\n1. {HOSTILE}\n2. {'y' * 300}\n")
        for label in ("<b>one</b>", "z" * 120):
            one.call("runs.spawn", task="wait", label=label)
        yield one


@proves("8.gateway.9")
@pytest.mark.parametrize(("width", "height", "scheme"), WINDOWS)
def test_every_quiet_view_fits_and_is_sound(
    browser: Browser, busy: Scene, width: int, height: int, scheme: str
) -> None:
    with sitting(browser, busy, viewport={"width": width, "height": height}, color_scheme=scheme) as person:
        page = person.page
        person.sign_in()
        for view, name in VIEWS.items():
            page.goto(f"{busy.address}/#/{view}")
            expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
            expect(page.locator(".card, .settab, .lanerow").first).to_be_visible()
            assert_looks(page, (width, height, scheme), f"{view}-busy")
            assert page.locator("#main img, #main script, #main u").count() == 0
        page.goto(f"{busy.address}/#/undelivered")
        assert SHOWN in person.see("#undelivered-cards .card", "<i>finder</i>").inner_text()


@pytest.mark.parametrize(("width", "height", "scheme"), CHECKED)
def test_every_part_that_opens_and_every_empty_view_is_sound(
    browser: Browser, tmp_path: Path, width: int, height: int, scheme: str
) -> None:
    with (
        scene(tmp_path, {"tools": SETTINGS["tools"]}) as desk,
        sitting(browser, desk, viewport={"width": width, "height": height}, color_scheme=scheme) as person,
    ):
        page = look(person, "you")
        for view, words in (("you", "Nothing waits for you"), ("agents", "An agent of your own")):
            page.goto(f"{desk.address}/#/{view}")
            person.see("#main h2", words)
            assert_sound(page)
        page.goto(f"{desk.address}/#/you")
        for number, name in enumerate(("Always …", "No, because …", "Not now", "Deny")):
            desk.ask("exec", f"chat-{number}", command=f"git status a/{number}")
            card = page.locator("#waiting .ask").nth(number)
            card.get_by_role("button", name=name).click()
        expect(page.locator("#waiting .answered")).to_have_count(1)
        assert_sound(page)
        desk.lose("finder", "found")
        page.goto(f"{desk.address}/#/undelivered")
        page.get_by_role("button", name="To a conversation …").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert_sound(page)
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Dismiss").click()
        person.see("#main h2", "Everything has arrived")
        assert_sound(page)
