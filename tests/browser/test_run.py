"""The page of a run in a real browser, on a nested job that a real gateway drives."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.browsing import Gateway, Person, browsing, signed_in
from tests.browser.job_server import STILL, job_of, working
from tests.browser.looks import WINDOWS, assert_fits, assert_looks, assert_sound
from tests.browser.page_server import SHOWN
from tests.cli.model_server import serving
from tests.statements import proves

SETTINGS = ("agents.defaults.subagents.maxSpawnDepth=3", "agents.defaults.subagents.budget.tokens=500000")


class Scene:
    """A gateway with a job that stands still, and the session keys of its runs by label."""

    def __init__(self, gateway: Gateway, runs: dict[str, str]) -> None:
        self.gateway, self.runs = gateway, runs

    def spawn(self, label: str, task: str, **more: Any) -> str:
        """Start one more run; the job does not know it."""
        self.runs[label] = self.gateway.call("runs.spawn", label=label, task=task, **more)["childSessionKey"]
        return self.runs[label]

    def release(self, name: str) -> None:
        """Let the run go on whose task is `later: NAME`."""
        (self.gateway.folder / name).touch()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("run")
    with serving(folder, working(folder / "release")) as model:
        gateway = Gateway(model, folder, *SETTINGS)
        try:
            gateway.start()
            yield Scene(gateway, job_of(gateway))
        finally:
            (folder / "release").touch()
            gateway.end()


def open_run(person: Person, scene: Scene, label: str) -> Page:
    person.page.goto(f"{scene.gateway.address}/#/run/{quote(scene.runs[label], safe='')}")
    person.see("#view-run h1", label)
    return person.page


def window(page: Page) -> float:
    """How wide the window of the timeline is in its overview."""
    return float(page.locator(".ovwin").get_attribute("width") or 0)


@pytest.mark.parametrize("size", WINDOWS)
def test_the_page_of_a_run_fits_its_window_and_axe_finds_nothing(
    browser: Browser, scene: Scene, size: tuple[int, int, str]
) -> None:
    with signed_in(browser, scene.gateway, *size) as person:
        page = open_run(person, scene, "ledger migration")
        for tab in ("Transcript", "Events", "Result", "Raw JSON"):
            page.get_by_role("tab", name=tab).click()
            assert_looks(page, size, f"run-{tab.split()[0].lower()}")
        assert_looks(open_run(person, scene, "backfill script"), size, "run-asks")


@proves("8.page.20")
def test_the_page_says_why_and_offers_what_can_be_done(browser: Browser, scene: Scene) -> None:
    with signed_in(browser, scene.gateway) as person:
        page = open_run(person, scene, "ledger migration")
        acts = page.locator(".runhead .acts button")
        person.see(".why", "It wakes when its children have settled (2 of 5 have)")
        expect(acts).to_have_text(["Send", "Steer", "Kill"])
        expect(page.get_by_role("navigation", name="Where this run is").get_by_role("link")).to_have_text(
            ["Runs", "main"]
        )
        expect(page).to_have_title(re.compile("ledger migration · fledge$"))
        open_run(person, scene, "backfill script")
        person.see(".asks .card", "May it run write?")
        expect(page.locator(".crumbs a")).to_have_text(["Runs", "main", "ledger migration"])
        open_run(person, scene, "cut-over plan")
        person.see(".asks .card", "A plan for you")
        expect(acts).to_have_text(["Kill"])
        open_run(person, scene, "broken")
        person.see(".why", "It failed, and its requester has not read that yet.")
        person.see(".why", "no such luck")
        expect(acts).to_have_text(["Resume", "Run again"])
        page.goto(f"{scene.gateway.address}/#/run/agent:main:subagent:none")
        person.see("#view-run", "There is no such run")


def test_the_timeline_has_lanes_and_is_zoomed_panned_and_chosen_from_by_keys(browser: Browser, scene: Scene) -> None:
    with signed_in(browser, scene.gateway) as person:
        person.page.clock.set_fixed_time(time.time() + 60)  # the run is a minute old, and does not grow
        page = open_run(person, scene, "ledger migration")
        expect(page.locator(".tlnames span")).to_have_text(["Phase", "Attempts", "Model", "Tools", "Children", "Waits"])
        person.see(".lab.l-children", "port write path · running")
        person.see(".lab.l-children", "backfill script · needs approval")
        box = page.locator("#timeline")
        box.focus()
        whole = window(page)
        page.keyboard.press("+")
        page.keyboard.press("+")
        zoomed = window(page)
        assert zoomed < whole / 2
        left = float(page.locator(".ovwin").get_attribute("x") or 0)
        page.keyboard.press("ArrowLeft")
        assert float(page.locator(".ovwin").get_attribute("x") or 0) < left
        for _ in range(20):
            page.keyboard.press("ArrowLeft")
        assert window(page) == pytest.approx(zoomed, abs=2), "panning stops at the beginning and keeps the width"
        page.keyboard.press("0")
        assert window(page) == pytest.approx(whole, abs=2)
        page.keyboard.press("]")
        person.see(".tltold", "attempt 1")
        page.locator("rect.sp.l-tools").first.click()
        told = person.see(".tltold", "read notes.txt")
        told.get_by_role("button", name="Show in transcript").click()
        expect(page.locator("#run-panel .found-entry")).to_have_count(1)
        # The words on a bar let the pointer through to the bar.
        person.see(".lab.l-children", "port write path").dblclick(force=True)
        person.see("#view-run h1", "port write path")


CONTRAST = r"""() => {
  const picture = document.querySelector('.tlsvg');
  const light = (colour) => {
    const linear = (one) => (one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = colour.match(/[\d.]+/g).map((one) => linear(one / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [dark, bright] = [light(one), light(other)].sort((first, second) => first - second);
    return (bright + 0.05) / (dark + 0.05);
  };
  const grounds = (rect) => { // a hatched one has two
    if (!rect) return [getComputedStyle(picture.closest('.block')).backgroundColor];
    const { fill } = getComputedStyle(rect);
    const pattern = /url\("?#([\w-]+)/.exec(fill);
    const stripes = pattern && [...picture.querySelectorAll(`#${pattern[1]} rect`)];
    return stripes?.map((one) => getComputedStyle(one).fill) ?? [fill];
  };
  const rects = [...picture.querySelectorAll('rect')].filter((one) => !one.closest('defs'));
  return [...picture.querySelectorAll('text')].map((text) => {
    const { x, y, width, height } = text.getBBox();
    const beneath = (at) => rects.findLast((rect) => {
      const box = rect.getBBox();
      const isBefore = rect.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING;
      const middle = y + height / 2;
      return isBefore && at >= box.x && at <= box.x + box.width && middle >= box.y && middle <= box.y + box.height;
    });
    const found = [0, 0.25, 0.5, 0.75, 1].flatMap((part) => grounds(beneath(x + part * width)));
    const { fill } = getComputedStyle(text);
    const least = Math.min(...found.map((ground) => contrast(fill, ground)));
    return [least, `${text.getAttribute('class')} ${text.textContent}`];
  });
}"""
"""Contrast of all words in the timeline, which axe does not look at, each with the worst ground below it."""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_on_the_timeline_have_contrast(browser: Browser, scene: Scene, theme: str) -> None:
    seen: set[str] = set()
    scene.spawn(f"killed {theme}", "later: never")
    scene.gateway.call("runs.steer", target=f"killed {theme}", message="later: never ever")
    scene.gateway.call("runs.kill", target=f"killed {theme}")
    with signed_in(browser, scene.gateway, theme=theme) as person:
        person.page.clock.set_fixed_time(time.time() + 20)  # spans are wide enough for words
        for label in (*STILL, f"killed {theme}"):
            page = open_run(person, scene, label)
            # A run that was killed at once may have no span that is wide enough for words.
            expect(page.locator(".tlsvg .tltick").first).to_be_visible()
            for _ in range(4):
                low = [one for one in page.evaluate(CONTRAST) if one[0] < 4.5]
                assert not low, low
                seen |= {str(one[1]).split()[0] for one in page.evaluate(CONTRAST)}
                page.locator("#timeline").press("+")
    assert {"lab", "tltick", "null"} <= seen, "on spans, at ticks, on marks"


def test_tabs_tell_transcript_events_result_and_json_and_are_moved_in_by_arrows(browser: Browser, scene: Scene) -> None:
    with signed_in(browser, scene.gateway) as person:
        page = open_run(person, scene, "migration guide")
        panel = page.get_by_role("tabpanel")
        expect(panel.get_by_role("cell", name="write")).to_be_visible()
        page.get_by_role("tab", name="Result").focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("tab", name="Raw JSON")).to_be_focused()
        expect(panel).to_contain_text(f'"sessionKey": "{scene.runs["migration guide"]}"')
        page.keyboard.press("Home")
        expect(panel).to_contain_text("guide: for the teams")
        expect(panel).to_contain_text("task, from ledger migration")
        page.keyboard.press("ArrowRight")
        expect(panel.get_by_role("list", name="What happened").get_by_role("listitem").first).to_contain_text(
            "spawning"
        )


@proves("8.page.21")
def test_a_run_is_killed_resumed_and_run_again_from_its_page(browser: Browser, scene: Scene) -> None:
    scene.spawn("lively", "later: lively-release")
    with signed_in(browser, scene.gateway) as person:
        page = open_run(person, scene, "lively")
        person.see(".why", "thinking")
        page.get_by_role("button", name="Kill").click()
        dialog = page.get_by_role("dialog", name="Kill lively?")
        expect(dialog.get_by_role("listitem")).to_contain_text(["lively"])
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        dialog.get_by_role("button", name="Kill", exact=True).click()
        person.see(".why", "It was killed.")
        person.see("section[aria-label=Delivery] li", "Not announced")
        expect(page.locator(".mark.m-bad")).to_contain_text(["killed"])
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("dialog").get_by_role("button", name="Resume").click()
        person.see(".stat", "attempt2")
        scene.release("lively-release")
        person.see(".runhead .chip", "done")
        page.get_by_role("button", name="Run again").click()
        before = page.url
        page.get_by_role("dialog").get_by_role("button", name="Run again").click()
        expect(page).not_to_have_url(before)
        person.see("#view-run h1", "lively")
        person.see(".stat", "attempt1")


@proves("4.tools.66")
def test_a_finished_run_is_removed_from_its_page(browser: Browser, scene: Scene) -> None:
    scene.spawn("finished", "say done")
    with signed_in(browser, scene.gateway) as person:
        page = open_run(person, scene, "finished")
        person.see(".runhead .chip", "done")
        page.get_by_role("button", name="Remove").click()
        dialog = page.get_by_role("dialog", name="Remove finished?")
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        dialog.get_by_role("button", name="Remove", exact=True).click()
        expect(page).to_have_url(re.compile("#/runs$"))
        expect(page.get_by_role("row", name="finished")).to_have_count(0)
    assert [row["label"] for row in scene.gateway.call("runs.query")["rows"] if row["label"] == "finished"] == []


@proves("4.resume.15")
def test_a_run_that_used_up_its_budget_is_resumed_with_a_new_one_from_its_page(browser: Browser, scene: Scene) -> None:
    scene.spawn("spender", "hostile: spend it", budget={"turns": 1})
    with signed_in(browser, scene.gateway) as person:
        page = open_run(person, scene, "spender")
        person.see(".runhead .chip", "failed")
        page.get_by_role("button", name="Resume").click()
        dialog = page.get_by_role("dialog", name="Let spender go on?")
        dialog.get_by_role("button", name="Resume").click()
        expect(page.locator("body")).to_contain_text("the budget of spender is used up (1 turn)")
        dialog.get_by_label("New limit: turns").fill("5")
        dialog.get_by_role("button", name="Resume").click()
        person.see(".stat", "attempt2")
        person.see(".runhead .chip", "done")


def test_an_undelivered_result_says_why_and_is_delivered_again(browser: Browser, scene: Scene) -> None:
    scene.gateway.call("agent", message="hello", session="docs")
    for label in ("review", "second review"):
        scene.spawn(label, "later: docs-release", requester="docs")
    scene.gateway.call("sessions.delete", session="docs")
    scene.release("docs-release")
    with signed_in(browser, scene.gateway) as person:
        page = open_run(person, scene, "review")
        person.see(".why", "The result is safe, but it was not delivered.")
        person.see("section[aria-label=Delivery] li", "Kept for you")
        expect(page.locator(".runhead .acts button")).to_have_text(["Deliver again", "Dismiss"])
        assert_sound(page)
        scene.gateway.call("agent", message="hello", session="docs")
        page.get_by_role("button", name="Deliver again").click()
        person.see(".runhead .chip", "done")
        person.see("section[aria-label=Delivery] li.st-done", "Read by its requester")
        open_run(person, scene, "second review")
        page.get_by_role("button", name="Dismiss").click()
        page.get_by_role("dialog").get_by_role("button", name="Dismiss").click()
        person.see("section[aria-label=Delivery] li", "Dismissed")
        expect(page.locator(".runhead .acts button")).to_have_text(["Run again", "Remove"])


def test_limits_show_what_was_asked_what_holds_and_the_rule(browser: Browser, scene: Scene) -> None:
    scene.spawn("greedy", "guide: spend", budget={"tokens": 9_000_000}, runTimeoutSeconds=600)
    with signed_in(browser, scene.gateway) as person:
        open_run(person, scene, "greedy")
        cut = person.see(".limits tr.cut", "tokens")
        assert "9.0M" in cut.inner_text()
        assert "500k" in cut.inner_text()
        assert "cut by subagents.budget of main" in cut.inner_text()
        person.see(".limits tr:not(.cut)", "10m 00s")


def test_facts_show_the_mode_of_a_run_and_what_its_cleanup_does(browser: Browser, scene: Scene) -> None:
    scene.spawn("brief", "guide: spend", cleanup="delete")
    with signed_in(browser, scene.gateway) as person:
        open_run(person, scene, "brief")
        facts = person.see(".facts", "cleanup").inner_text().split("\n")
        assert [facts[facts.index(name) + 1] for name in ("mode", "cleanup")] == ["run", "delete"]


@proves("8.gateway.19")
def test_files_that_a_run_handed_over_are_downloads(browser: Browser, scene: Scene, tmp_path: Path) -> None:
    scene.spawn("filer", "files: make one", workspace="dir")
    with signed_in(browser, scene.gateway) as person:
        page = open_run(person, scene, "filer")
        person.see(".runhead .chip", "done")
        page.get_by_role("tab", name="Result").click()
        with page.expect_download() as saved:
            page.get_by_role("button", name="call sites.txt").click()
        saved.value.save_as(tmp_path / "saved")
        assert saved.value.suggested_filename == "call sites.txt"
        assert (tmp_path / "saved").read_text() == "41 sites\n"


@proves("8.gateway.19")
def test_files_on_the_card_of_a_result_are_downloads(browser: Browser, scene: Scene, tmp_path: Path) -> None:
    scene.gateway.call("sessions.open", session="filing")
    scene.spawn("second filer", "files: make one", workspace="dir", requester="filing")
    with signed_in(browser, scene.gateway) as person:
        page = person.page
        page.goto(f"{scene.gateway.address}/#/chat/agent:main:filing")
        card = person.see("#chat-log .card.done", "second filer")
        with page.expect_download() as saved:
            card.get_by_role("button", name="call sites.txt").click()
        saved.value.save_as(tmp_path / "saved")
        assert saved.value.suggested_filename == "call sites.txt"
        assert (tmp_path / "saved").read_text() == "41 sites\n"
        assert_sound(page)


@proves("8.gateway.9")
def test_hostile_words_are_text_on_every_tab(browser: Browser, scene: Scene) -> None:
    scene.gateway.call("agent", message="hostile", session="hostile")
    with signed_in(browser, scene.gateway) as person:
        page = person.page
        page.goto(f"{scene.gateway.address}/#/runs")
        person.see("#runs-grid .name", SHOWN[:40])
        page.locator("#runs-grid .name").filter(has_text=SHOWN[:40]).click()
        person.see(".runhead .chip", "done")
        for tab in ("Result", "Transcript", "Events", "Raw JSON"):
            page.get_by_role("tab", name=tab).click()
            assert page.locator("#view-run :is(img, script, iframe)").count() == 0
            assert_fits(page)
        page.get_by_role("tab", name="Result").click()
        person.see("#run-panel", SHOWN)
        page.locator("#timeline").focus()
        for _ in range(4):
            page.keyboard.press("]")
        assert page.locator(".tltold :is(img, script)").count() == 0
