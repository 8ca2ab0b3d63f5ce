"""A press counts for what was pressed, and focus and selection stay where they are, whatever happens meanwhile.

Each test holds the pointer or a key down, has the gateway change what is pressed or where it stands, waits until the
page was told so and had two frames to draw, and releases.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.browser.browsing import Person, browsing, sitting
from tests.browser.desk_scene import Scene, scene
from tests.statements import proves

MAIN = "agent:main:main"
SETTINGS: dict[str, Any] = {
    "announce": {"maxRetries": 0},
    "tools": {name: {"approval": "ask"} for name in ("exec", "write")},
    "agents": {"defaults": {"subagents": {"maxSpawnDepth": 2, "maxConcurrent": 20, "maxChildrenPerAgent": 20}}},
}
HEARD = """
window.heard = []; // methods and their results as soon as the page has read them; "feed" and its text
window.underWay = 0; // calls without a result
const ask = window.fetch;
window.fetch = async (path, given) => {
  if (path !== "/rpc") return ask(path, given);
  window.underWay += 1;
  const answer = await ask(path, given);
  const { method } = JSON.parse(given.body);
  const read = answer.json.bind(answer);
  answer.json = async () => {
    const told = await read();
    window.underWay -= 1;
    window.heard.push([method, told.result]);
    return told;
  };
  return answer;
};
const decode = window.TextDecoder.prototype.decode;
window.TextDecoder.prototype.decode = function (...given) {
  const text = decode.apply(this, given);
  window.heard.push(["feed", text]);
  return text;
};
"""
FRAMES = "new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))"
MIDDLE = """([node]) => {
  node.scrollIntoView({ block: "nearest" });
  const { x, y, width, height } = node.getBoundingClientRect();
  return [x + width / 2, y + height / 2];
}"""
SELECT = "node => getSelection().selectAllChildren(node)"
SELECTED = "getSelection().toString()"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, SETTINGS) as one:
        yield one


@contextmanager
def looking(browser: Browser, desk: Scene, view: str) -> Iterator[Person]:
    """A person at a view."""
    with sitting(browser, desk, viewport={"width": 1440, "height": 900}, reduced_motion="reduce") as person:
        person.page.add_init_script(HEARD)
        person.sign_in()
        person.page.goto(f"{desk.address}/#/{view}")
        yield person


def told(page: Page, method: str, holds: str) -> None:
    """Wait until the page was told a result of this method for which a function holds, and could have drawn it."""
    page.wait_for_function(f"() => window.heard.some(([method, result]) => method === '{method}' && ({holds})(result))")
    page.evaluate(FRAMES)


def told_row(page: Page, words: str) -> None:
    """Wait until the feed has told the page a row with words like these, and it could have drawn it."""
    page.wait_for_function(
        "words => RegExp(words).test(heard.map(([method, text]) => method === 'feed' ? text : '').join(''))", arg=words
    )
    page.evaluate(FRAMES)


def middle(target: Locator) -> tuple[float, float]:
    """Where the middle of something is on the screen, now or soon."""
    expect(target).to_have_count(1)
    x, y = target.evaluate_all(MIDDLE)  # in one step: it may be drawn anew
    return x, y


@contextmanager
def reading_later(page: Page) -> Iterator[None]:
    """What the page reads from here on it reads after the block: an answer is taken only once nothing is pressed, and
    one that says too little would be the only one until then."""
    kept: list[Route] = []
    is_over = False

    def keep(route: Route) -> None:
        if is_over:
            route.continue_()
        else:
            kept.append(route)

    page.route("**/rpc", keep)
    while page.evaluate("window.underWay") > len(kept):
        pass
    yield
    is_over = True
    for route in kept:
        route.continue_()
    page.unroute("**/rpc", keep)  # once nothing is kept: it may let go by itself what is


@contextmanager
def pressed(page: Page, target: Locator, happens: Callable[[], object] | None = None) -> Iterator[None]:
    """Hold the pointer down in the middle of something; what the page hears in the block is news. Whatever it reads
    knows of what `happens`."""
    with reading_later(page) if happens else nullcontext():
        page.mouse.move(*middle(target))
        page.evaluate("window.heard.length = 0")
        page.mouse.down()
        if happens:
            happens()
    yield
    page.mouse.up()


@contextmanager
def touched(page: Page, target: Locator, happens: Callable[[], object]) -> Iterator[None]:
    """As `pressed`, with a finger."""
    session = page.context.new_cdp_session(page)
    with reading_later(page):
        x, y = middle(target)
        page.evaluate("window.heard.length = 0")
        session.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        happens()
    yield
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def keep_back(page: Page, method: str) -> list[Route]:
    """Have calls of this method, or with a parameter of this name, wait on their way to the gateway, here."""
    kept: list[Route] = []
    page.route(
        "**/rpc",
        lambda route: kept.append(route) if f'"{method}"' in (route.request.post_data or "") else route.continue_(),
    )
    return kept


@contextmanager
def focused(page: Page, target: Locator) -> Iterator[None]:
    """Have the focus on something; what the page hears in the block is news, and the focus is still there after it."""
    target.focus()
    expect(target).to_be_focused()
    page.evaluate("window.heard.length = 0")
    yield
    expect(target).to_be_focused()


def spawn(desk: Scene, label: str, task: str = "wait", **more: object) -> str:
    """Start a run that is at work; answers its session key."""
    key = str(desk.call("runs.spawn", task=task, label=label, **more)["childSessionKey"])
    desk.until(lambda tx: True if tx.turns.get(key) is not None or task != "wait" else None)
    return key


def at(desk: Scene, view: str, key: str) -> str:
    """The address of a session's page."""
    return f"{desk.address}/#/{view}/{quote(key, safe='')}"


# ---- conversations


def conversations(page: Page, name: str) -> Locator:
    return page.locator("#conversations").get_by_role("link", name=name)


WAITS = "result => result.rows.some((row) => row.key === 'agent:main:second' && row.waits === 1)"
"""Something waits in the second conversation, which stands first now."""


@pytest.fixture
def three(desk: Scene) -> Scene:
    """Three conversations; the last one stands first."""
    for name in ("second", "first"):
        desk.call("send", session=name, message="say hello", timeoutSeconds=10)
    return desk


def asks(three: Scene) -> None:
    """The second conversation asks the person something."""
    three.ask("write", "second", path="a.txt", content="a")


@proves("8.page.30", "A press counts for what was pressed, whatever changes or moves until it is released")
@pytest.mark.parametrize("name", ["first", "second"])
def test_a_conversation_that_is_pressed_opens_though_the_list_changes(
    browser: Browser, three: Scene, name: str
) -> None:
    """The second one changes, and takes the place of the first."""
    with looking(browser, three, f"chat/{MAIN}") as person:
        page = person.page
        expect(page.locator("#conversations .conv")).to_have_count(3)
        with pressed(page, conversations(page, name), lambda: asks(three)):
            told(page, "sessions.query", WAITS)
        expect(page).to_have_url(at(three, "chat", f"agent:main:{name}"))
        expect(conversations(page, "second")).to_contain_text("1 thing waits for you")  # what was heard is shown


@proves("8.page.30")
def test_a_conversation_that_a_finger_presses_opens_though_the_list_changes(browser: Browser, three: Scene) -> None:
    with sitting(browser, three, viewport={"width": 1440, "height": 900}, has_touch=True) as person:
        page = person.page
        page.add_init_script(HEARD)
        person.sign_in()
        expect(page.locator("#conversations .conv")).to_have_count(3)
        with touched(
            page, conversations(page, "main"), lambda: three.ask("write", "second", path="a.txt", content="a")
        ):
            told(page, "sessions.query", WAITS)
        expect(page).to_have_url(at(three, "chat", MAIN))
        expect(conversations(page, "second")).to_contain_text("1 thing waits for you")
        hello = {"session": "third", "message": "say hello", "timeoutSeconds": 10}
        with touched(page, conversations(page, "first"), lambda: three.call("send", **hello)):
            told(page, "sessions.query", "result => result.rows.some((row) => row.key === 'agent:main:third')")
        expect(page).to_have_url(at(three, "chat", "agent:main:first"))


def test_news_are_shown_as_soon_after_a_long_press_as_after_a_short_one(browser: Browser, three: Scene) -> None:
    with looking(browser, three, f"chat/{MAIN}") as person:
        page = person.page
        expect(page.locator("#conversations .conv")).to_have_count(3)
        page.clock.install()
        page.reload()
        expect(page.locator("#conversations .conv")).to_have_count(3)
        with pressed(page, conversations(page, "first"), lambda: three.say("say more", "first")):
            told(page, "sessions.query", "() => true")
            page.clock.fast_forward(9000)
        asks(three)
        expect(conversations(page, "second")).to_contain_text("1 thing waits for you")


@proves("8.page.31")
@pytest.mark.parametrize("name", ["first", "second"])
def test_a_conversation_with_the_focus_keeps_it_though_the_list_changes(
    browser: Browser, three: Scene, name: str
) -> None:
    with looking(browser, three, f"chat/{MAIN}") as person:
        page = person.page
        expect(page.locator("#conversations .conv")).to_have_count(3)
        with focused(page, conversations(page, name)):
            asks(three)
            told(page, "sessions.query", WAITS)
            expect(conversations(page, "second")).to_contain_text("waits for you")
        page.keyboard.press("Enter")
        expect(page).to_have_url(at(three, "chat", f"agent:main:{name}"))


def test_a_conversation_that_is_gone_leaves_the_focus_with_the_page(browser: Browser, three: Scene) -> None:
    with looking(browser, three, f"chat/{MAIN}") as person:
        page = person.page
        conversations(page, "second").focus()
        three.call("sessions.delete", session="second")
        three.call("send", session="first", message="say more", timeoutSeconds=10)  # a deletion has no event
        expect(conversations(page, "second")).to_have_count(0)
        expect(conversations(page, "first")).not_to_be_focused()


# ---- the table of runs


@proves("8.page.30")
@pytest.mark.parametrize("part", [".name", ".c-state"])
def test_a_row_of_the_table_that_is_pressed_opens_though_rows_come_above_it(
    browser: Browser, desk: Scene, part: str
) -> None:
    key = spawn(desk, "one")
    with looking(browser, desk, "runs") as person:
        page = person.page
        row = person.see("#runs-grid .vbody .vrow", "one")
        expect(row.locator(".chip")).to_have_text("running")
        with pressed(page, row.locator(part)):
            spawn(desk, "two")
            told_row(page, '"label":"two"')
        expect(page).to_have_url(at(desk, "run", key))


@proves("8.page.30")
def test_a_group_and_a_run_that_are_pressed_fold_though_others_come_above_them(browser: Browser, desk: Scene) -> None:
    desk.call("send", session="other", message="say hello", timeoutSeconds=10)
    parent = spawn(desk, "parent")
    spawn(desk, "child", requester=parent)
    with looking(browser, desk, "runs") as person:
        page = person.page
        row = page.get_by_role("row").filter(has_text="parent")
        expect(row).to_have_attribute("aria-expanded", "true")
        with pressed(page, row.locator(".caretbtn")):
            spawn(desk, "elsewhere", requester="agent:main:other")
            told_row(page, '"label":"elsewhere"')
        expect(row).to_have_attribute("aria-expanded", "false")
        expect(page).to_have_url(f"{desk.address}/#/runs")
        group = page.locator("#runs-grid .grouprow").filter(has_text="main")
        with pressed(page, group):
            desk.plan("planner", "the plan")
            spawn(desk, "more", requester="agent:main:other")
            told_row(page, '"label":"more"')
        expect(group).to_have_attribute("aria-expanded", "false")


@proves("8.page.30")
def test_a_run_that_needs_a_look_opens_though_another_one_comes(browser: Browser, desk: Scene) -> None:
    key = desk.plan("first plan", "the plan")
    with looking(browser, desk, "runs") as person:
        page = person.page
        urgent = page.get_by_role("list", name="Runs that need a look")
        with pressed(page, urgent.get_by_role("link", name="first plan")):
            desk.plan("second plan", "the plan")
            told_row(page, '"planId":"[^"]')
        expect(page).to_have_url(at(desk, "run", key))


@proves("8.page.30")
@proves("8.page.31")
def test_kill_of_selected_runs_is_pressed_and_keeps_the_focus_though_one_ends(browser: Browser, desk: Scene) -> None:
    keys = {label: spawn(desk, label) for label in ("one", "two", "three")}
    with looking(browser, desk, "runs") as person:
        page = person.page
        page.get_by_role("button", name="Select", exact=True).click()
        for label in keys:
            person.see("#runs-grid .vbody .vrow", label).click()
        bar = page.get_by_role("group", name="Selected runs")
        with focused(page, bar.locator(".danger")):
            desk.call("runs.kill", target=keys["one"])
            expect(bar.locator(".danger")).to_have_text("Kill 2")
        with pressed(page, bar.locator(".danger")):
            desk.call("runs.kill", target=keys["two"])
            told_row(page, keys["two"])
            told_row(page, "killed")
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_role("list", name="What ends").get_by_text("three")).to_be_visible()
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()


# ---- the tree beside a conversation, and what stands below it


def tree(page: Page, name: str) -> Locator:
    return page.locator("#panel .twig").filter(has_text=name)


@proves("8.page.30")
@proves("8.page.31")
def test_a_run_of_the_tree_is_pressed_and_keeps_the_focus_though_it_changes(browser: Browser, desk: Scene) -> None:
    key = spawn(desk, "one")
    with looking(browser, desk, f"chat/{MAIN}") as person:
        page = person.page
        expect(tree(page, "one")).to_contain_text("thinking")
        with focused(page, tree(page, "one")):
            desk.ask("write", path="a.txt", content="a")  # the tree is drawn again
            spawn(desk, "child", requester=key)
            expect(tree(page, "child")).to_be_visible()
        with pressed(page, tree(page, "one")):
            desk.call("runs.kill", target=key)
            told_row(page, "killed")
        expect(page).to_have_url(at(desk, "run", key))


@proves("8.page.30")
@proves("8.page.31")
def test_the_line_above_the_composer_is_pressed_and_keeps_the_focus_though_it_changes(
    browser: Browser, desk: Scene
) -> None:
    desk.ask("write", path="a.txt", content="a")
    with looking(browser, desk, f"chat/{MAIN}") as person:
        page = person.page
        waits = page.locator(".activity .seg")
        with focused(page, waits):
            plan = desk.plan("planner", "the plan")
            expect(waits).to_contain_text("2 wait for you")
        with pressed(page, waits, lambda: desk.call("plans.approve", target=plan)):
            told(page, "plans.list", "result => result.length === 0")
        expect(page.locator("#waiting .ask").first).to_be_focused()


# ---- the page of a run


def run_page(person: Person, label: str) -> Page:
    person.see("#view-run h1", label)
    person.see(".runhead .chip", "running")
    return person.page


@contextmanager
def spaced(page: Page, target: Locator) -> Iterator[None]:
    """As `pressed`, with the space bar."""
    target.focus()
    page.evaluate("window.heard.length = 0")
    page.keyboard.down("Space")
    yield
    page.keyboard.up("Space")


@proves("8.page.30")
@pytest.mark.parametrize("by", [pressed, spaced])
def test_a_button_of_a_run_is_pressed_though_the_run_changes(browser: Browser, desk: Scene, by: Any) -> None:
    key = spawn(desk, "one")
    with looking(browser, desk, f"run/{key}") as person:
        page = run_page(person, "one")
        with by(page, page.locator(".runhead").get_by_role("button", name="Kill")):
            desk.call("runs.steer", target=key, message="wait")
            told_row(page, '"attempt":2')
        dialog = page.get_by_role("dialog", name="Kill one?")
        expect(dialog.get_by_role("list", name="What ends").get_by_text("one")).to_be_visible()
        page.keyboard.press("Escape")
        person.see(".stat", "attempt2")
        expect(page.locator(".runhead").get_by_role("button", name="Kill")).to_be_focused()


@proves("8.page.30")
@proves("8.page.31")
def test_what_stands_beside_a_run_is_pressed_and_keeps_focus_and_selection(browser: Browser, desk: Scene) -> None:
    key = spawn(desk, "one")
    with looking(browser, desk, f"run/{key}") as person:
        page = run_page(person, "one")
        session = page.locator(".facts dd").filter(has_text=key)
        session.evaluate(SELECT)
        with focused(page, page.get_by_role("button", name="Copy session")):
            desk.call("runs.steer", target=key, message="wait")
            person.see(".stat", "attempt2")
            told(page, "runs.info", "result => result.timeline.some((one) => one.name === 'Steered')")
        assert page.evaluate(SELECTED).strip() == key
        with pressed(page, page.locator("section[aria-label=Delivery]").get_by_role("link", name="main")):
            spawn(desk, "child", requester=key)
            told(page, "runs.info", "() => true")  # it is read again when a child begins
        expect(page).to_have_url(at(desk, "chat", MAIN))


@proves("8.page.31")
def test_a_tool_call_that_is_open_keeps_its_selection_and_the_focus_when_it_ends(browser: Browser, desk: Scene) -> None:
    asked = desk.ask("write", path="a.txt", content="a")
    with looking(browser, desk, f"chat/{MAIN}") as person:
        page = person.page
        call = page.locator("#chat-log details.call")
        call.locator("summary").click()
        call.locator("pre").first.evaluate(SELECT)
        with focused(page, call.locator("summary")):
            [question] = desk.call("approvals.list")
            desk.call("approvals.deny", id=asked, digest=question["digest"])
            expect(call).to_have_attribute("data-status", "error")
        expect(call.locator(".iolabel").last).to_contain_text("output")
        assert "a.txt" in page.evaluate(SELECTED)


@proves("8.page.30")
def test_a_span_of_the_timeline_is_chosen_though_the_run_changes(browser: Browser, desk: Scene) -> None:
    key = spawn(desk, "one")
    with looking(browser, desk, f"run/{key}") as person:
        page = run_page(person, "one")
        with pressed(page, page.locator("rect.sp.l-attempts")):
            spawn(desk, "child", requester=key)
            told(page, "runs.spans", "result => result.spans.some((one) => one.lane === 'children')")
        person.see(".tltold", "attempt 1")
        person.see(".lab.l-children", "child")


# ---- what waits for a person


def card(person: Person, words: str) -> Locator:
    return person.see("#waiting .ask", words)


DENIED = "result => result.some((one) => one.state === 'denied')"


def denied_elsewhere(page: Page, desk: Scene) -> list[Route]:
    """Deny the command that waits, elsewhere; what the page asks about that waits on its way."""
    kept = keep_back(page, "decided")
    question = next(asked for asked in desk.call("approvals.list") if asked["tool"] == "exec")
    with page.expect_request(lambda asked: '"decided"' in (asked.post_data or "")):
        desk.call("approvals.deny", id=question["id"], digest=question["digest"])
    return kept


@proves("8.page.30")
@pytest.mark.parametrize(
    ("name", "outcome"), [("Allow once", "Allowed once"), ("Deny", "Denied"), ("No, because …", ""), ("Not now", "")]
)
def test_a_question_is_answered_though_the_one_above_it_is_answered_elsewhere(
    browser: Browser, desk: Scene, name: str, outcome: str
) -> None:
    desk.ask("exec", "one", command="echo one\n" * 9)
    desk.ask("write", "two", path="two.txt", content="2")
    with looking(browser, desk, "you") as person:
        page = person.page
        one, two = card(person, "echo one"), card(person, "two.txt")
        kept = denied_elsewhere(page, desk)
        with pressed(page, two.get_by_role("button", name=name, exact=name == "Deny")):
            kept.pop().continue_()
            told(page, "approvals.list", DENIED)
        expect(one.locator(".outcome")).to_contain_text("Denied elsewhere")
        if outcome:
            expect(two.locator(".outcome")).to_contain_text(outcome)
        elif name == "Not now":
            expect(two).to_contain_text("Set aside.")
        else:
            expect(two.get_by_label("What should it do instead?")).to_be_focused()


@proves("8.page.2")
def test_a_press_on_a_question_that_is_answered_elsewhere_meanwhile_answers_nothing(
    browser: Browser, desk: Scene
) -> None:
    asked = desk.ask("write", path="one.txt", content="1")
    with looking(browser, desk, "you") as person:
        page = person.page
        one = card(person, "one.txt")
        with pressed(page, one.get_by_role("button", name="Allow once")):
            [question] = desk.call("approvals.list")
            desk.call("approvals.deny", id=asked, digest=question["digest"])
            told(page, "approvals.list", "result => result.length === 0")
        expect(one.locator(".outcome")).to_contain_text("Denied elsewhere")
        assert [one["state"] for one in desk.call("approvals.list", decided=True)] == ["denied"]
        assert not (desk.server.state.parent / "one.txt").exists()


@proves("8.page.30")
def test_a_plan_is_approved_though_a_question_above_it_is_answered_elsewhere(browser: Browser, desk: Scene) -> None:
    desk.ask("exec", command="echo one\n" * 9)
    key = desk.plan("planner", "the plan")
    with looking(browser, desk, "you") as person:
        page = person.page
        plan = card(person, "the plan")
        kept = denied_elsewhere(page, desk)
        with pressed(page, plan.get_by_role("button", name="Approve")):
            kept.pop().continue_()
            told(page, "approvals.list", DENIED)
        expect(plan.locator(".outcome")).to_have_text("Approved: planner carries it out.")
        assert key not in {one["sessionKey"] for one in desk.call("plans.list")}


@proves("8.page.30")
@proves("8.page.31")
def test_what_is_worth_a_look_is_pressed_and_keeps_the_focus_though_more_comes(browser: Browser, desk: Scene) -> None:
    desk.lose("first", "words of first")
    with looking(browser, desk, "you") as person:
        page = person.page
        link = page.locator(".card.look").get_by_role("link", name="Look", exact=True)
        with focused(page, link):
            desk.lose("second", "words of second")
            person.see(".card.look", "2 results undelivered")
        with pressed(page, link):
            desk.ask("write", path="one.txt", content="1")
            told(page, "approvals.list", "result => result.length === 1")
        expect(page).to_have_title("(1) Undelivered · fledge")


@proves("8.page.30")
@proves("8.page.31")
def test_a_rule_is_revoked_and_keeps_the_focus_though_another_one_is_made(browser: Browser, desk: Scene) -> None:
    def always(command: str, person: Person | None = None) -> None:
        """Allow a command for good, elsewhere; if somebody looks, once it is seen."""
        asked = desk.ask("exec", command, command=f"git {command} a")
        seen = card(person, f"git {command}") if person else None
        question = next(one for one in desk.call("approvals.list") if one["id"] == asked)
        desk.call("approvals.approve", id=asked, digest=question["digest"], always=True)
        if seen:
            expect(seen.locator(".outcome")).to_be_visible()  # nothing more will move

    always("status")
    with looking(browser, desk, "you") as person:
        page = person.page
        revoke = page.get_by_role("button", name="Revoke git status")
        with focused(page, revoke):
            always("log", person)
            person.see(".rules li", "git log")
        with page.expect_request(lambda asked: '"permissions.list"' in (asked.post_data or "")):
            kept = keep_back(page, "permissions.list")
            always("diff", person)
        with pressed(page, revoke):
            kept.pop().continue_()
            told(page, "permissions.list", "result => result.length === 3")
            page.unroute_all()
        expect(revoke).to_have_count(0)
        assert sorted(one["words"][1] for one in desk.call("permissions.list")) == ["diff", "log"]


@proves("8.page.30")
@proves("8.page.31")
def test_an_undelivered_result_is_dismissed_and_keeps_the_focus_though_it_is_tried_again_elsewhere(
    browser: Browser, desk: Scene
) -> None:
    key = desk.lose("finder", "words of finder")

    def again() -> int:
        """Have it tried once more, elsewhere; answers how often that was."""
        [one] = desk.call("undelivered.list")
        desk.call("undelivered.retry", target=one["key"])
        desk.until(lambda tx: True if tx.inbox.undelivered() and len(tx.deliveries.of(key)) > one["tries"] else None)
        return int(desk.call("undelivered.list")[0]["tries"])

    with looking(browser, desk, "undelivered") as person:
        page = person.page
        dismiss = page.locator("#undelivered-cards").get_by_role("button", name="Dismiss")
        dismiss.focus()
        person.see(".because", f"{again()} tries.")
        expect(page.locator("#undelivered-cards .card:focus-within")).to_have_count(1)
        with pressed(page, dismiss, again):
            told(page, "undelivered.list", "() => true")
        expect(page.locator("#undelivered-cards .outcome")).to_contain_text("Dismissed.")
        assert desk.call("undelivered.list") == []


# ---- layers


@proves("8.page.30")
def test_an_option_of_the_search_is_chosen_though_runs_come(browser: Browser, desk: Scene) -> None:
    key = spawn(desk, "one")
    with looking(browser, desk, f"chat/{MAIN}") as person:
        page = person.page
        expect(tree(page, "one")).to_be_visible()
        page.keyboard.press("Control+k")
        page.keyboard.type("one")
        with pressed(page, page.get_by_role("option").filter(has_text="running")):
            spawn(desk, "one more")
            told_row(page, '"label":"one more"')
        expect(page).to_have_url(at(desk, "run", key))


@proves("8.page.30")
def test_a_button_of_a_dialog_is_pressed_though_its_list_comes_meanwhile(browser: Browser, desk: Scene) -> None:
    key = spawn(desk, "parent")
    for number in range(8):
        spawn(desk, f"child {number}", requester=key)
    with looking(browser, desk, f"run/{key}") as person:
        page = run_page(person, "parent")
        kept = keep_back(page, "runs.ends")
        page.locator(".runhead").get_by_role("button", name="Kill").click()
        with pressed(page, page.get_by_role("dialog").get_by_role("button", name="Cancel")):
            kept.pop().continue_()
            told(page, "runs.ends", "result => result.rows.length === 9")
        expect(page.get_by_role("dialog")).to_have_count(0)
