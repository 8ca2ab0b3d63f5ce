"""What every view of the page must be, whatever it shows: it fits its window, and axe-core finds nothing wrong.

The suite looks at a phone and a desk. A soak looks at every window, has axe-core look at each, and keeps a picture of
every view in `build/pictures`, to be compared by eye.
"""

from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.effort import SOAK

PHONE, DESK = (390, 844), (1440, 900)
OTHERS = [(360, 740), (1024, 768), (2560, 1440), (720, 450), (320, 256)]
"""The last two are what a page has of 1440 and 1280 pixels at 200 % and 400 % zoom."""
WINDOWS = [(*size, scheme) for size in (DESK, PHONE, *(OTHERS if SOAK else ())) for scheme in ("light", "dark")]
CHECKED = WINDOWS if SOAK else [(*DESK, "light"), (*PHONE, "dark")]
"""Windows in which axe-core looks: it is slow, and two have both widths and both themes."""
PICTURES = Path(__file__).parents[2] / "build" / "pictures"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
WIDER = """() => {
  const isHeld = (one) => { // by something that scrolls or cuts what it holds, and fits itself
    for (let above = one.parentElement; above && above !== document.body; above = above.parentElement) {
      const fits = above.getBoundingClientRect().right <= innerWidth + 1;
      if (fits && getComputedStyle(above).overflowX !== 'visible') return true;
    }
    return false;
  };
  return [...document.querySelectorAll('body *')]
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1
        && one.checkVisibility({ visibilityProperty: true }) && !one.closest('.sr, .side, svg')
        && getComputedStyle(one).position !== 'fixed' && !isHeld(one))
    .map((one) => `${one.tagName}.${one.className}`);
}"""


def assert_fits(page: Page) -> None:
    """Nothing sticks out of the window."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page scrolls sideways"
    wider = page.evaluate(WIDER)
    assert not wider, wider


def assert_looks(page: Page, window: tuple[int, int, str], name: str) -> None:
    """Nothing sticks out of the window; where it is checked, axe-core has no findings. A soak keeps a picture."""
    if SOAK:
        PICTURES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=PICTURES / f"{name}-{window[0]}-{window[2]}.png")
    (assert_sound if window in CHECKED else assert_fits)(page)


def assert_sound(page: Page) -> None:
    """Nothing sticks out of the window, and axe-core has no findings."""
    assert_fits(page)
    found = findings(page)
    assert not found, found


def findings(page: Page) -> list[str]:
    """What axe finds, each with its element."""
    told: dict[str, Any] = Axe().run(page, options={"runOnly": {"type": "tag", "values": RULES}}).response
    return [f"{one['id']}: {node['html'][:200]}" for one in told["violations"] for node in one["nodes"]]
