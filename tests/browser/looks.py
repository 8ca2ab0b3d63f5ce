"""What must hold of every view at every width, light and dark: nothing sticks out, and axe finds nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.browser.browsing import Gateway, Person, sitting

LOOKS = tuple((width, theme) for width in (390, 1440) for theme in ("light", "dark"))
_HEIGHTS = {390: 844, 1440: 900}
_RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@contextmanager
def looking(browser: Browser, gateway: Gateway, width: int = 1440, theme: str = "light") -> Iterator[Person]:
    """A person who has signed in, with a window so wide and colours so light."""
    size = {"width": width, "height": _HEIGHTS.get(width, 900)}
    with sitting(browser, gateway, viewport=size, color_scheme=theme, reduced_motion="reduce") as person:
        person.sign_in()
        yield person


def findings(page: Page) -> list[str]:
    """What axe-core finds wrong, each with the element."""
    found = Axe().run(page, options=_RULES).response["violations"]
    return [f"{one['id']}: {node['html'][:160]}" for one in found for node in one["nodes"]]


def sticks_out(page: Page) -> bool:
    """Whether the page can be scrolled sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))
