"""Hostile words in every field of every value that the page draws: they are shown, and they do nothing.

The values are made from the published schema, so a new field is tried as soon as it is there.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from fledge.commands.methods import schema
from tests.browser.browsing import ACTING, browsing, modules
from tests.browser.page_server import HOSTILE, SHOWN
from tests.statements import proves

SCHEMA = schema()
PARTS: dict[str, Any] = {name.rpartition(".")[2]: part for name, part in SCHEMA["$defs"].items()}
CARDS = {
    "spawnCard": ("RunRow", "cards.spawnCard(store, value)"),
    "spawnCard of one that is over": ("RunRow", "cards.spawnCard(store, {...value, isActive: false, endedAt: 2})"),
    "a question": ("Question", "asks([value], [])"),
    "a question about a command": ("Question", "asks([{...value, tool: 'exec', arguments: call}], [])"),
    "a plan": ("Plan", "asks([], [value])"),
    "doneCard": ("CompletionValue", "cards.doneCard({...value, resultBytes: 0}, 1, async () => '')"),
    "the sidebar": ("SessionRow", "side(value)"),
    "the panel": ("RunRow", "tree(value)"),
    "a message": ("MessageEntry", "stream({...value, by: 'person'})"),
    "a message of a session": ("MessageEntry", "stream({...value, by: 'session'})"),
    "a message of fledge": ("MessageEntry", "stream({...value, by: 'fledge'})"),
    "a reply": ("ReplyEntry", "stream(value)"),
    "completions": ("CompletionsEntry", "stream(value)"),
    "a note": ("NoteEntry", "stream(value)"),
    "a line": ("LineEntry", "stream(value)"),
}
DRAW = """async ([value, call]) => {
  const cards = await import("/page/cards.js");
  const { waitingCards } = await import("/page/asks.js");
  const { Stream } = await import("/page/entries.js");
  const { sidebar } = await import("/page/side.js");
  const { panel } = await import("/page/panel.js");
  const store = {
    rows: new Map(), conversations: new Map(), connection: { state: "connected" },
    counts: {}, undelivered: [], waiting: 0,
    children: () => [], below: () => [], rootOf: (key) => key, listen() {}, readWaiting() {},
  };
  const shared = { store, kept: new Map() };
  const asks = (questions, plans) => waitingCards(questions, plans, shared, new Map())[0];
  const side = (conversation) => {
    store.conversations.set(conversation.key, conversation);
    const made = sidebar(store, {});
    made.draw("chat", conversation.key);
    return made.element;
  };
  const tree = (row) => {
    store.children = (key) => key === "root" ? [row] : [];
    store.below = () => [row];
    const made = panel("root", shared);
    made.draw();
    return made.element;
  };
  const stream = (entry) => {
    const list = document.createElement("ol");
    const transcript = { key: "k", shown: [entry], entry: () => ({ text: call, size: 0 }), whole: async () => entry };
    new Stream(transcript, store, ["You", "fledge"]).draw(list);
    return list;
  };
  document.body.replaceChildren(HOW);
  for (const one of document.querySelectorAll("details")) one.open = true;
  await new Promise(requestAnimationFrame);
  return document.body.textContent;
}"""

QUIET = {"you": ".rules li", "undelivered": ".card", "agents": ".card", "health": ".errors li", "settings": "tr"}
"""The quiet views, and what each shows last."""
MOUNT = """async ([view, { RunRow, SessionRow, Question, Plan, GivenUp }]) => {
  const { mount } = await import(`/page/${view}.js`);
  const store = {
    rows: new Map([[RunRow.sessionKey, RunRow]]), conversations: new Map([[SessionRow.key, SessionRow]]),
    questions: [Question], plans: [Plan], undelivered: [GivenUp, { ...GivenUp, key: "m", kind: "message" }],
    waiting: 2, isLoaded: true, connection: { state: "connected" },
    subscribe: () => () => {}, listen: () => () => {}, everySecond: () => () => {},
    readWaiting() {}, readUndelivered() {},
  };
  const root = document.createElement("main");
  document.body.replaceChildren(document.getElementById("says") ?? "", root);
  mount(root, [], { store, kept: new Map() });
}"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browsing() as browser, modules(browser) as page:
        yield page


def hostile(part: Any) -> Any:
    """A value of this schema whose words are all hostile."""
    match part:
        case {"$ref": ref}:
            return hostile(PARTS[str(ref).rpartition("/")[2].rpartition(".")[2]])
        case {"properties": fields}:
            return {name: hostile(field) for name, field in fields.items()}
        case {"anyOf": [*kinds]}:
            return hostile(next(one for one in kinds if one.get("type") != "null"))
        case {"enum": [word, *_]}:
            return word
        case {"type": "array", "items": items} if items:
            return [hostile(items)]
        case {"type": "string"}:
            return HOSTILE
        case {"type": "boolean"}:
            return True
        case {"type": "integer" | "number" | ["integer", "null"]}:
            return 1
        case _:
            return None


@proves("8.gateway.9")
@pytest.mark.parametrize("name", CARDS)
def test_hostile_words_in_every_field_are_only_words(page: Page, name: str) -> None:
    shape, how = CARDS[name]
    text = page.evaluate(
        DRAW.replace("HOW", how), [hostile(PARTS[shape]), '{"command": "<img src=x onerror=hacked()>"}']
    )
    assert_only_words(page, text)


def answering(route: Route) -> None:
    """Answer a method with hostile words in every field."""
    method = json.loads(route.request.post_data or "{}")["method"]
    result = hostile(SCHEMA["methods"][method]["result"])
    if method == "health":
        result["counters"] = {"outcomes": {HOSTILE: 1}, "deliveries": {f"{HOSTILE}:x": 1}, "interrupts": {}}
    route.fulfill(json={"jsonrpc": "2.0", "id": 1, "result": result})


@proves("8.gateway.9")
@pytest.mark.parametrize(("view", "part"), QUIET.items())
def test_hostile_words_in_every_field_of_a_quiet_view_are_only_words(page: Page, view: str, part: str) -> None:
    page.route("https://page.test/rpc", answering)
    shapes = {name: hostile(PARTS[name]) for name in ("RunRow", "SessionRow", "Question", "Plan", "GivenUp")}
    page.evaluate(MOUNT, [view, shapes])
    expect(page.locator(part).filter(has_text="onerror").first).to_be_visible()
    page.unroute("https://page.test/rpc")
    assert_only_words(page, page.evaluate("document.body.textContent"))


def assert_only_words(page: Page, text: str) -> None:
    """Hostile words were shown, and nothing came of them."""
    assert "onerror" in text
    assert SHOWN[:60] in text or "<img src=x onerror=hacked()>" in text
    assert page.evaluate("window.hacked") is None
    assert page.evaluate(ACTING) == []
    made = "img:not([src='/page/icon.svg']), script, iframe, object, embed, form, base, link, style, [style*=url]"
    assert page.locator(made).count() == 0
    handlers = (
        "[...document.querySelectorAll('*')].flatMap(one => one.getAttributeNames()).filter(one => /^on/.test(one))"
    )
    assert page.evaluate(handlers) == []
    addresses = page.locator("a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    assert [one for one in addresses if not one.startswith(("#/", "http://", "https://", "mailto:"))] == []
