"""Elements that become what they show now (`refill` of `dom.js`), in a real browser, without a gateway.

Pictures are lists of nodes: words, a link or a button by its name, or an element that holds others. Whatever was shown
before, the next picture is shown exactly; what has the focus keeps it while something of its name is there.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page

from tests.browser.browsing import browsing, modules
from tests.statements import proves

NAMES = st.sampled_from("abcd")
LEAVES = st.one_of(
    st.sampled_from(["words", "words and more", "others"]),
    st.builds(lambda name, words: ["a", {"href": f"#{name}", "class": words}, [words]], NAMES, st.sampled_from("xy")),
    st.builds(lambda name: ["button", {"class": name}, [name]], NAMES),
)
PICTURES = st.recursive(
    st.lists(LEAVES, max_size=5),
    lambda below: st.lists(
        st.one_of(LEAVES, st.builds(lambda tag, kids: [tag, {}, kids], st.sampled_from(["p", "li"]), below)), max_size=5
    ),
    max_leaves=12,
)
SHOW = """async ([before, after, focus]) => {
  const { el, fill, refill } = await import("/page/dom.js");
  const box = el("section");
  const around = el("main", { tabindex: "-1" }, box);
  const pressed = [];
  const made = (one, now) => {
    if (typeof one === "string") return one;
    const [tag, given, kids] = one;
    const acts = tag === "button" && { click: () => pressed.push([now, kids[0]]) };
    return el(tag, { ...given, on: acts }, kids.map((kid) => made(kid, now)));
  };
  const nameOf = (stop) => stop.getAttribute("href") ?? stop.textContent;
  const namesIn = () => [...box.querySelectorAll("a, button")].map(nameOf);
  document.body.replaceChildren(around);
  refill(box, before.map((one) => made(one, "before")));
  const stops = [...box.querySelectorAll("a, button")];
  const focused = stops[focus % (stops.length || 1)];
  const name = focused && nameOf(focused);
  focused?.focus();
  refill(box, after.map((one) => made(one, "after")));
  const wanted = el("section");
  fill(wanted, after.map((one) => made(one, "wanted")));
  for (const one of box.querySelectorAll("button")) one.click();
  const holder = document.activeElement;
  return {
    isShown: box.isEqualNode(wanted), pressed, name: name ?? null, isThere: namesIn().includes(name),
    named: holder.matches("a, button") ? nameOf(holder) : holder.tagName,
    buttons: [...box.querySelectorAll("button")].map((one) => ["after", one.textContent]),
  };
}"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browsing() as browser, modules(browser) as page:
        yield page


@proves("8.page.31", "Focus and selection stay on what they are on while it changes or moves")
@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=PICTURES, after=PICTURES, focus=st.integers(0, 20))
def test_any_picture_is_shown_after_any_other_and_the_focus_stays_with_its_name(
    page: Page, before: list[Any], after: list[Any], focus: int
) -> None:
    told = page.evaluate(SHOW, [before, after, focus])
    assert told["isShown"], (before, after)
    assert told["pressed"] == told["buttons"], "each button does what it was made for last"
    if told["name"] is None:
        assert told["named"] == "BODY"
    else:
        assert told["named"] == (told["name"] if told["isThere"] else "MAIN"), (before, after)


KEEP = """async () => {
  const { el, refill } = await import("/page/dom.js");
  const box = el("ul");
  document.body.replaceChildren(box);
  const item = (name, words) => el("li", null,
    el("details", null, el("summary", null, name), el("p", null, words)), el("a", { href: `#${name}` }, name));
  refill(box, item("one", "Once upon"), item("two", "words"));
  const [one, two] = box.children;
  one.querySelector("details").open = true;
  const text = one.querySelector("p").firstChild;
  getSelection().setBaseAndExtent(text, 0, text, 4);
  two.querySelector("a").focus();
  getSelection().setBaseAndExtent(text, 0, text, 4);
  refill(box, item("new", "words"), item("two", "other words"), item("one", "Once upon a time"));
  return {
    order: [...box.querySelectorAll("a")].map((link) => link.textContent),
    isKept: box.children[2] === one && box.children[1] === two,
    isOpen: [...box.querySelectorAll("details")].map((details) => details.open),
    selected: getSelection().toString(), focused: document.activeElement.textContent,
    words: one.querySelector("p").textContent,
  };
}"""


@proves("8.page.31")
def test_what_is_open_selected_or_focused_stays_so_where_it_went(page: Page) -> None:
    assert page.evaluate(KEEP) == {
        "order": ["new", "two", "one"],
        "isKept": True,
        "isOpen": [False, False, True],
        "selected": "Once",
        "focused": "two",
        "words": "Once upon a time",
    }
