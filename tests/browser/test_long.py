"""A page that is open for long: what it holds stays the same size, whatever happens and wherever one goes.

Children step for as long as the test lasts, and the feed tells the rows of all of them every second. A soak has ten
minutes of that with fifty events a second. The browser counts what is held, after its garbage is collected.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedReply, last_text, use
from fledge.testing import ScriptedModel
from tests.browser.browsing import Person, browsing, sitting
from tests.browser.desk_scene import Gates, Scene
from tests.effort import SOAK
from tests.gateway.serving import serving

AT_WORK = 50 if SOAK else 12
STEP_S = 1.0 if SOAK else 0.5
EVENTS = 30_000 if SOAK else 60
"""Rows that the feed tells after everything was seen once: in a soak ten minutes of fifty a second."""
ROUNDS = 40 if SOAK else 5
"""How often every view is gone to."""
MAIN = "agent:main:main"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
SETTINGS: dict[str, Any] = {
    "tools": {"write": {"approval": "ask"}},
    "agents": {
        "defaults": {
            "maxSteps": 0,
            "subagents": {"maxConcurrent": AT_WORK + 4, "maxChildrenPerAgent": AT_WORK + 4},
        }
    },
}
COUNTED = """
const tell = window.TextDecoder.prototype.decode;
window.rowsTold = 0;
window.TextDecoder.prototype.decode = function (...given) {
  const text = tell.apply(this, given);
  window.rowsTold += text.split('"type":"row"').length - 1;
  return text;
};
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@contextmanager
def at_work(folder: Path, children: int = AT_WORK, step_s: float = STEP_S) -> Iterator[Scene]:
    """A conversation whose children take one step after the other, a call that asks, a plan and a finished run."""
    steps = count()

    async def script(request: Request) -> Answer:
        words = last_text(request)
        if "say" in words:
            return ScriptedReply("Said.")
        if "ask" in words:
            return ScriptedReply("", (use("write", path="made.txt", content="made"),))
        await asyncio.sleep(step_s)
        number = next(steps)  # letters: steps that differ by digits alone would count as the same
        name = "".join(LETTERS[number // 26**place % 26] for place in range(4))
        return ScriptedReply("", (use("read", path=f"{name}.txt"),))

    with serving(folder / "state", ScriptedModel(script), SETTINGS) as server:
        one = Scene(server, Gates())
        for number in range(children):
            one.call("runs.spawn", task="step on", label=f"stepper {number}")
        one.call("runs.spawn", task="ask first", label="asker")
        one.call("runs.spawn", task="say it", label="sayer")
        one.plan("planner", "it")
        one.until(lambda tx: tx.approvals.open() or None)
        # All that comes once has come: the finished run's answer was read and answered.
        one.until(lambda tx: True if tx.queue.place(MAIN) is None and tx.turns.get(MAIN) is None else None)
        yield one


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[Scene]:
    with at_work(tmp_path) as scene:
        yield scene


@dataclass(frozen=True)
class Held:
    """What a page holds."""

    elements: int
    """In the document and beside it."""
    listeners: int
    heap_mb: float


def held(page: Page) -> Held:
    """What the page holds once its garbage is collected."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    for _ in range(3):
        session.send("HeapProfiler.collectGarbage")
    found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return Held(int(found["Nodes"]), int(found["JSEventListeners"]), found["JSHeapUsedSize"] / 1e6)


def assert_flat(before: Held, after: Held) -> None:
    """Nothing has grown, but for what a row or a line more takes."""
    assert after.elements <= before.elements * 1.1 + 200, (before, after)
    assert after.listeners <= before.listeners * 1.1 + 20, (before, after)
    assert after.heap_mb <= before.heap_mb * 1.15 + 0.5, (before, after)


def views(scene: Scene) -> dict[str, str]:
    """Where each view is, and what it shows."""
    rows = {row["label"]: row["sessionKey"] for row in scene.call("runs.query", limit=500)["rows"]}
    return {
        f"chat/{MAIN}": "#panel .twig",
        "runs": "#runs-grid .vrow .name",
        f"run/{rows['stepper 1']}": "#view-run h1",
        f"run/{rows['asker']}": ".asks .card",
        "you": "#waiting .card",
        "undelivered": "#main h1",
        "agents": "#agents .card",
        "health": ".lanerow",
        "settings": ".settab",
    }


def wait_for_rows(page: Page, more: int) -> None:
    """Wait until the feed has told so many rows more."""
    wanted = page.evaluate("window.rowsTold") + more
    for _ in range(1000 + 10 * more):
        if page.evaluate("window.rowsTold") >= wanted:
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{page.evaluate('window.rowsTold')} of {wanted} rows were told")


def go_round(person: Person, places: dict[str, str]) -> None:
    for place, what in places.items():
        person.page.goto(f"{person.gateway.address}/#/{place}")
        expect(person.page.locator(what).first).to_be_visible()


def test_going_from_view_to_view_leaves_nothing_behind(browser: Browser, busy: Scene) -> None:
    with sitting(browser, busy) as person:
        person.sign_in()
        places = views(busy)
        for _ in range(3):
            go_round(person, places)
        before = held(person.page)
        for _ in range(ROUNDS):
            go_round(person, places)
        assert_flat(before, held(person.page))


PACES = {"chat": (AT_WORK, STEP_S), "runs": (AT_WORK, STEP_S)} | ({"run": (2, 0.02)} if SOAK else {})
"""For each view that is looked at: how many children take a step how often."""


def is_full(page: Page, scene: Scene, view: str) -> bool:
    """True once a view holds all it will: each child was told a few times; of a run, there are more steps than it
    shows."""
    if view == "run":
        return bool(scene.call("runs.spans", target="stepper 1")["leftOut"])
    return bool(page.evaluate("window.rowsTold") >= 5 * AT_WORK)


@pytest.mark.parametrize("view", PACES)
def test_what_happens_for_long_makes_the_page_no_larger(browser: Browser, tmp_path: Path, view: str) -> None:
    with at_work(tmp_path, *PACES[view]) as scene, sitting(browser, scene) as person:
        page = person.page
        page.add_init_script(COUNTED)
        person.sign_in()
        place, what = next(one for one in views(scene).items() if one[0].partition("/")[0] == view)
        page.goto(f"{scene.address}/#/{place}")
        expect(page.locator(what).first).to_be_visible()  # on a slow machine, rows are told before that
        looks = [held(page)]
        while not is_full(page, scene, view):
            wait_for_rows(page, 10)
            looks.append(held(page))  # more than once: of its entries, a page forgets half at a time
        most = Held(*(max(numbers) for numbers in zip(*map(astuple, looks), strict=True)))
        wait_for_rows(page, 120 if view == "run" else EVENTS)
        assert_flat(most, held(page))
