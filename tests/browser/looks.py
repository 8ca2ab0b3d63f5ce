"""What every view of the page must be, whatever it shows: it fits its window, and axe-core finds nothing wrong."""

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

CHECKED = [(1440, 900, "light"), (390, 844, "dark")]
"""Windows in which axe-core looks: it is slow, and these have both widths and both themes."""
WINDOWS = [*CHECKED, (1440, 900, "dark"), (390, 844, "light")]
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


def assert_sound(page: Page) -> None:
    """Nothing sticks out of the window, and axe-core has no findings."""
    assert_fits(page)
    found = findings(page)
    assert not found, found


def findings(page: Page) -> list[str]:
    """What axe finds, each with its element."""
    told: dict[str, Any] = Axe().run(page, options={"runOnly": {"type": "tag", "values": RULES}}).response
    return [f"{one['id']}: {node['html'][:200]}" for one in told["violations"] for node in one["nodes"]]
