"""The table of runs in a real browser, on a nested job that a real gateway drives."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from bench.history import copy_runs
from playwright.sync_api import Browser, Locator, Page, expect

from fledge.store.files import DATABASE
from tests.browser.browsing import Gateway, Person, browsing, signed_in
from tests.browser.job_server import MANY, job_of, working
from tests.browser.looks import WINDOWS, assert_fits, assert_looks, assert_sound
from tests.browser.page_server import SHOWN
from tests.cli.model_server import serving
from tests.statements import proves

DEPTH = "agents.defaults.subagents.maxSpawnDepth=3"

CURRENT = """
(name) => {
  const row = document.getElementById(document.querySelector("#runs-grid").getAttribute("aria-activedescendant"));
  return row?.querySelector(".name, b")?.innerText === name;
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with a job that stands still: children work, ask, plan, have failed and are done."""
    with _started(tmp_path_factory.mktemp("runs")) as gateway:
        job_of(gateway)
        yield gateway


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway for tests that add runs: those that count the runs of the job may come after them."""
    with _started(tmp_path_factory.mktemp("other")) as gateway:
        yield gateway


@contextmanager
def _started(folder: Path) -> Iterator[Gateway]:
    with serving(folder, working(folder / "release")) as model:
        gateway = Gateway(model, folder, DEPTH)
        try:
            gateway.start()
            yield gateway
        finally:
            (folder / "release").touch()
            gateway.end()


def table(person: Person, name: str = "ledger migration") -> Locator:
    """The table with all rows, this run among them: a row may come by itself, before the others are read."""
    person.page.goto(f"{person.gateway.address}/#/runs")
    person.see("#runs-grid .vrow .name", name)
    grid = person.page.get_by_role("treegrid", name="Runs")
    expect(grid).not_to_have_attribute("aria-rowcount", "-1")
    return grid


def names(page: Page) -> list[str]:
    return page.locator("#runs-grid .vbody .name, #runs-grid .grouprow b").all_inner_texts()


@pytest.mark.parametrize("window", WINDOWS)
def test_the_table_fits_its_window_and_axe_finds_nothing(
    browser: Browser, gateway: Gateway, window: tuple[int, int, str]
) -> None:
    with signed_in(browser, gateway, *window) as person:
        table(person)
        assert_looks(person.page, window, "runs-job")


@proves("8.page.20", "What does not move says in the table and on its page what it waits for and what a person can do")
def test_runs_are_trees_below_their_conversation_and_say_why_they_wait(browser: Browser, gateway: Gateway) -> None:
    with signed_in(browser, gateway) as person:
        grid = table(person)
        group = grid.get_by_role("row", name=re.compile("main 7 runs"))
        expect(group).to_have_attribute("aria-level", "1")
        lead = grid.get_by_role("row", name=re.compile("ledger migration"))
        expect(lead).to_contain_text("waits for 3 of 5 children")
        expect(lead).to_have_attribute("aria-level", "2")
        child = grid.get_by_role("row", name=re.compile("backfill script"))
        expect(child).to_contain_text("waits for your approval: write")
        expect(child).to_have_attribute("aria-level", "3")
        urgent = person.page.get_by_role("list", name="Runs that need a look")
        expect(urgent.get_by_role("link")).to_have_count(2)
        expect(urgent).to_contain_text("waits for your answer to its plan")


def test_filters_count_flatten_and_search_narrows(browser: Browser, gateway: Gateway) -> None:
    with signed_in(browser, gateway) as person:
        page = person.page
        table(person)
        pills = page.get_by_role("group", name="Filter")
        expect(pills.get_by_role("button")).to_have_text(
            ["All 7", "Active 5", "Waiting for me 2", "Stuck 0", "Failed 1", "Undelivered 0"]
        )
        pills.get_by_role("button", name="Waiting for me").click()
        expect(page.locator("#runs-grid .vbody .name")).to_have_text(["backfill script", "cut-over plan"])
        expect(page.get_by_role("row", name=re.compile("backfill"))).to_have_attribute("aria-level", "2")
        pills.get_by_role("button", name="Stuck").click()
        person.see("#runs-empty", "No run is like that.")
        page.get_by_role("button", name="Show all runs").click()
        page.get_by_label("Search runs").fill("GUIDE")
        expect(page.locator("#runs-grid .vbody .vrow:not(.dim) .name")).to_have_text(["migration guide"])
        expect(page.locator("#runs-grid .vbody .dim .name")).to_have_text(["ledger migration"])
        page.get_by_label("Search runs").fill("no such words")
        person.see("#runs-empty", "No run says that.")


def test_the_table_is_moved_in_folded_and_opened_by_keys(browser: Browser, gateway: Gateway) -> None:
    with signed_in(browser, gateway) as person:
        page, grid = person.page, table(person)

        def current() -> str:
            row = page.locator(f"#{grid.get_attribute('aria-activedescendant')}")
            return row.locator(".name, b").first.inner_text()

        def arrives(name: str) -> None:
            """The row with this name becomes the current one, as soon as it is drawn."""
            page.wait_for_function(CURRENT, arg=name)

        page.keyboard.press("j")
        expect(grid).to_be_focused()
        arrives("main")
        page.keyboard.press("j")
        page.keyboard.press("ArrowDown")
        arrives("ledger migration")
        page.keyboard.press("ArrowLeft")
        assert names(page)[:4] == ["main", "cut-over plan", "ledger migration"]
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        arrives(names(page)[3])  # right goes to the first child
        page.keyboard.press("ArrowLeft")
        arrives("ledger migration")  # left goes to the row above it in the tree
        page.keyboard.press("End")
        last = current()
        page.keyboard.press("k")
        assert current() != last
        page.keyboard.press("Home")
        arrives("main")
        page.keyboard.press("PageDown")
        arrives(last)  # all rows fit on one page
        page.keyboard.press("5")
        expect(page.locator("#runs-grid .vbody .name")).to_have_text(["broken"])
        page.keyboard.press("1")
        page.keyboard.press("f")
        expect(page.get_by_label("Search runs")).to_be_focused()
        page.keyboard.type("jxk1")
        expect(page.get_by_label("Search runs")).to_have_value("jxk1")
        page.get_by_label("Search runs").fill("")
        page.keyboard.press("Enter")
        expect(grid).to_be_focused()
        page.keyboard.press("Home")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("cut-over plan")
        page.go_back()
        expect(grid).to_be_visible()
        assert current() == "cut-over plan", "the table is as it was left"


def test_the_help_lists_every_key_that_the_table_names(browser: Browser, gateway: Gateway) -> None:
    with signed_in(browser, gateway) as person:
        table(person).focus()
        named = person.page.locator(".hints kbd").all_inner_texts()
        assert "x" in named
        person.page.keyboard.press("?")
        keys = person.page.get_by_role("dialog", name="Keys").locator("dt .sr")
        listed = {key for keys in keys.all_text_contents() for key in keys.split(" ")}
        assert set(named) <= listed


@proves("8.page.21", "A kill lists everything that ends before anything does, with the focus on Cancel")
def test_selected_runs_are_killed_after_a_list_of_what_ends(browser: Browser, other: Gateway) -> None:
    with signed_in(browser, other) as person:
        other.call("runs.spawn", task="wait: for nothing", label="spare one")
        other.call("runs.spawn", task="wait: for nothing", label="spare two")
        page, grid = person.page, table(person, "spare one")
        page.get_by_label("Search runs").fill("spare")
        one, two = (grid.get_by_role("row", name=re.compile(name)) for name in ("spare one", "spare two"))
        expect(one).to_contain_text("thinking")
        expect(two).to_contain_text("thinking")
        page.get_by_role("button", name="Select", exact=True).click()
        one.click()
        grid.focus()
        page.keyboard.press("Home")
        page.keyboard.press("j")
        page.keyboard.press("x")
        expect(one).to_have_attribute("aria-selected", "true")
        expect(two).to_have_attribute("aria-selected", "true")
        page.get_by_role("group", name="Selected runs").get_by_role("button", name="Kill 2").click()
        dialog = page.get_by_role("dialog", name="Kill 2 runs?")
        expect(dialog.get_by_role("list", name="What ends").get_by_role("listitem")).to_have_count(2)
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        assert_sound(page)
        dialog.get_by_role("button", name="Kill 2 runs").click()
        expect(grid).to_be_focused()
        for row in (one, two):
            expect(row.locator(".chip")).to_have_text("killed")
        page.keyboard.press("Escape")
        expect(page.get_by_role("group", name="Selected runs")).to_be_hidden()


def test_a_row_changes_while_it_is_shown_and_nothing_is_reloaded(browser: Browser, other: Gateway) -> None:
    with signed_in(browser, other) as person:
        other.call("runs.spawn", task="guide: for all", label="seen before")
        grid = table(person, "seen before")
        made = other.call("runs.spawn", task="wait: and see", label="seen live")
        row = grid.get_by_role("row", name=re.compile("seen live"))
        expect(row.locator(".chip")).to_have_text("running")
        element = row.element_handle()
        other.call("runs.kill", target=made["childSessionKey"])
        expect(row.locator(".chip")).to_have_text("killed")
        assert element is not None
        assert element.evaluate("node => node.isConnected"), "the row is the same element"


def test_runs_that_one_reply_spawns_at_once_stand_in_the_order_of_its_calls(browser: Browser, other: Gateway) -> None:
    """They are created in one commit, at one time."""
    other.call("agent", message="many", session="many")
    with signed_in(browser, other) as person:
        table(person, MANY[-1])
        person.page.get_by_label("Search runs").fill("one of many")
        expect(person.page.locator("#runs-grid .vbody .name")).to_have_text([*reversed(MANY)])


@proves("8.gateway.9")
def test_hostile_names_are_text_in_every_cell(browser: Browser, other: Gateway) -> None:
    with signed_in(browser, other) as person:
        page = person.page
        page.goto(f"{other.address}/#/runs")
        other.call("agent", message="hostile", session="hostile")
        person.see("#runs-grid .name", SHOWN[:40])
        assert page.locator("#runs-grid :is(img, script, iframe)").count() == 0
        page.get_by_label("Search runs").fill("<img src=x onerror=alert(1)>")
        person.see("#runs-empty", "No run says that.")
        assert_fits(page)


@proves("8.page.22", "However many runs there are, they are read page by page and few rows are in the document")
def test_two_thousand_runs_are_read_page_by_page_and_few_are_in_the_document(
    browser: Browser, gateway: Gateway, tmp_path: Path
) -> None:
    large = Gateway(gateway.model, tmp_path)
    try:
        large.start()
        made = large.call("runs.spawn", task="guide: for all", label="copied", program="many")
        assert large.call("runs.result", run=made["runId"], timeoutMs=20_000)["status"] == "ok"
        large.end()
        copy_runs(large.state / DATABASE, 2000)
        large.start()
        with signed_in(browser, large) as person:
            page = person.page
            page.goto(f"{large.address}/#/runs")
            grid = page.get_by_role("treegrid", name="Runs")
            person.see(".pill.p-all", "2,001")
            expect(grid.locator(".grouprow")).to_contain_text("2001 runs")
            assert grid.get_attribute("aria-rowcount") == "-1", "most of them are not here yet"
            grid.focus()
            while grid.get_attribute("aria-rowcount") == "-1":
                height = page.locator(".vbody").evaluate("body => body.style.height")
                page.keyboard.press("End")
                page.wait_for_function("was => document.querySelector('.vbody').style.height !== was", arg=height)
            expect(grid).to_have_attribute("aria-rowcount", "2003")  # with the heading and the line of the group
            page.keyboard.press("End")
            current = page.locator(f"#{grid.get_attribute('aria-activedescendant')}")
            expect(current).to_have_attribute("aria-rowindex", "2003")
            assert page.locator("#runs-grid .vbody > *").count() < 60
            assert page.evaluate("document.querySelectorAll('*').length") < 3000
            page.keyboard.press("Home")
            expect(page.locator(f"#{grid.get_attribute('aria-activedescendant')}")).to_contain_text("2001 runs")
    finally:
        large.end()


def test_an_empty_folder_teaches_how_to_begin(browser: Browser, gateway: Gateway, tmp_path: Path) -> None:
    empty = Gateway(gateway.model, tmp_path)
    try:
        empty.start()
        with signed_in(browser, empty) as person:
            person.page.goto(f"{empty.address}/#/runs")
            person.see("#runs-empty", "No runs yet")
            person.see("#runs-empty code", "fledge spawn")
            assert_sound(person.page)
    finally:
        empty.end()
