"""For you: what waits for a person is shown whole, and answered once, by the person who saw it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.browser.browsing import Person, browsing, sitting
from tests.browser.desk_scene import HOSTILE, SETTINGS, SHOWN, Scene, scene
from tests.statements import proves

CALM = "new Promise((go) => setTimeout(go, 500))"
"""Longer than a card ignores keys after it appeared or moved."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as one:
        yield one


def look(person: Person) -> Page:
    """Sign in and go to For you."""
    person.sign_in()
    person.page.goto(f"{person.gateway.address}/#/you")
    return person.page


def card_of(person: Person, words: str) -> Locator:
    return person.see("#waiting .ask", words)


def press(page: Page, card: Locator, key: str) -> None:
    """Focus a card, let it stand for a while, and press a key."""
    card.focus()
    page.evaluate(CALM)
    page.keyboard.press(key)


@proves("8.page.1", "A call that waits is shown whole, by its tool, with who asks, where and why")
def test_every_call_is_shown_whole_by_its_tool_with_why_and_where(browser: Browser, desk: Scene) -> None:
    desk.ask("exec", command="make lint &&\n  make test", timeout_seconds=30)
    desk.ask("write", "notes", path="docs/new.md", content="# New\n\nfirst\n")
    desk.ask("edit", "fix", path="app.py", old="same\nold line\nend", new="same\nnew line\nend")
    desk.ask("grep", "search", pattern="needle", glob="*.py")
    with sitting(browser, desk) as person:
        page = look(person)
        cards = page.locator("#waiting .ask")
        expect(cards).to_have_count(4)
        run, wrote, edited, other = (cards.nth(n) for n in range(4))
        expect(run.locator("pre")).to_have_text("make lint &&\n  make test")
        expect(run.locator(".arguments")).to_have_text("timeout_seconds30")
        expect(run.locator(".touches")).to_contain_text("It asks because the settings ask before each call of exec.")
        expect(run.locator(".touches")).to_contain_text(str(desk.server.state.parent))
        expect(wrote.locator("figcaption")).to_have_text("docs/new.md")
        assert wrote.locator(".d-add").all_inner_texts() == ["+# New", "+", "+first"]
        assert edited.locator(".d-del").all_inner_texts() == ["-old line"]
        assert edited.locator(".d-add").all_inner_texts() == ["+new line"]
        expect(edited.locator(".d-same")).to_have_count(2)
        expect(other.locator(".arguments")).to_have_text("patternneedleglob*.py")
        other.locator("summary").click()
        expect(other.locator(".raw pre")).to_have_text('{"pattern":"needle","glob":"*.py"}')
        expect(page).to_have_title("(4) For you · fledge")


@proves("8.changes.1")
def test_a_question_shows_the_change_of_the_file_as_it_is(browser: Browser, desk: Scene) -> None:
    folder = desk.server.state.parent
    before = "".join(f"line {n}\n" for n in range(12)) + f"{HOSTILE}\ntoken = ghp_{'a1' * 18}\n"
    (folder / "app.py").write_text(before)
    (folder / "picture").write_bytes(b"\x00" * 10)
    desk.ask("write", "replace", path="app.py", content=before.replace("line 11", "eleven"))
    desk.ask("edit", "secret", path="app.py", old="token = ", new="key = ")
    desk.ask("write", "binary", path="picture", content="text\n")
    with sitting(browser, desk) as person:
        page = look(person)
        cards = page.locator("#waiting .ask")
        expect(cards).to_have_count(3)
        wrote, edited, binary = (cards.nth(n).locator(".change") for n in range(3))
        assert wrote.locator("code span").all_inner_texts() == [
            "@@ 8 unchanged lines @@",
            *(" line 8", " line 9", " line 10", "-line 11", "+eleven"),
            f" {SHOWN}",
            " token = [redacted]",
        ]
        expect(wrote.locator(".soft")).to_have_text("secrets of the file are not shown")
        assert edited.locator(".d-del").all_inner_texts() == ["-token = [redacted]", "-token = "]
        assert edited.locator(".d-add").all_inner_texts() == ["+key = [redacted]", "+key = "]
        expect(binary.locator(".soft")).to_have_text("replaces a file of 10 bytes that is not shown (binary)")
        assert binary.locator(".d-add").all_inner_texts() == ["+text"]
        press(page, cards.nth(0), "a")
        expect(cards.nth(0)).to_contain_text("Allowed once")
        desk.until(lambda tx: "eleven" in (folder / "app.py").read_text() or None)
        page.goto(f"{desk.address}/#/chat/agent%3Amain%3Areplace")
        person.see("details.call summary", "write").click()
        expect(page.locator("details.call .change .d-add")).to_have_text(["+eleven"])


def test_a_call_is_allowed_denied_and_denied_with_words_for_the_model(browser: Browser, desk: Scene) -> None:
    work = desk.server.state.parent
    desk.ask("write", "one", path="one.txt", content="1")
    desk.ask("write", "two", path="two.txt", content="2")
    desk.ask("write", "three", path="three.txt", content="3")
    with sitting(browser, desk) as person:
        page = look(person)
        one, two, three = (card_of(person, f"{name}.txt") for name in ("one", "two", "three"))
        one.get_by_role("button", name="Allow once").click()
        expect(one.locator(".outcome")).to_have_text("Allowed once: it goes on.")
        two.get_by_role("button", name="Deny").click()
        expect(two.locator(".outcome")).to_contain_text("Denied")
        three.get_by_role("button", name="No, because …").click()
        words = three.get_by_label("What should it do instead? The model reads this.")
        expect(words).to_be_focused()
        three.get_by_role("button", name="Deny with these words").click()
        expect(three.locator(".notice")).to_have_text("There are no words to send yet.")
        words.fill("ask ann first")
        words.press("Control+Enter")
        expect(three.locator(".outcome")).to_have_text("Denied, with your words: “ask ann first”")
        expect(page.locator("#waiting .ask:not(.answered)")).to_have_count(0)
        expect(page.locator("#waiting .ask")).to_have_count(3)  # nothing has moved
        states = {one["sessionKey"]: (one["state"], one["words"]) for one in desk.call("approvals.list", decided=True)}
        assert states["agent:main:two"] == ("denied", "")
        assert states["agent:main:three"] == ("denied", "ask ann first")
        desk.until(lambda tx: (work / "one.txt").exists() or None)
        assert not (work / "two.txt").exists()
        assert not (work / "three.txt").exists()


def test_the_list_of_conversations_tells_of_a_question_as_soon_as_it_is_asked(browser: Browser, desk: Scene) -> None:
    with sitting(browser, desk) as person:
        person.sign_in()
        item = person.page.locator("#conversations").get_by_role("link", name="main")
        desk.say('wait call exec {"command": "make all"}')
        expect(item).to_contain_text("at work")
        desk.go_on()
        expect(item).to_contain_text("1 thing waits for you")


def test_always_shows_the_rule_before_it_is_made_and_it_can_be_revoked(browser: Browser, desk: Scene) -> None:
    desk.ask("exec", command="git status docs/a.md")
    with sitting(browser, desk) as person:
        look(person)
        card = card_of(person, "git status docs/a.md")
        card.get_by_role("button", name="Always …").click()
        expect(card.locator(".askmore")).to_contain_text("main runs git status … in")
        expect(card.locator(".askmore")).to_contain_text(str(desk.server.state.parent))
        card.get_by_label("subagents that run as main, too").check()
        assert desk.call("permissions.list") == []
        card.get_by_role("button", name="Always allow").click()
        expect(card.locator(".outcome")).to_contain_text("runs without a question from now on")
        [rule] = desk.call("permissions.list")
        assert (rule["words"], rule["children"]) == (["git", "status"], True)
        listed = person.see(".rules li", "git status …")
        expect(listed).to_contain_text("main and its subagents")
        listed.get_by_role("button", name="Revoke git status …").click()
        person.see(".rules li", "Nothing yet.")
        assert desk.call("permissions.list") == []
        desk.ask("write", path="a.txt", content="a")
        expect(card_of(person, "a.txt").get_by_role("button", name="Always …")).to_have_count(0)


@proves("3.plan.10")
def test_a_plan_is_approved_edited_and_sent_back(browser: Browser, desk: Scene) -> None:
    keys = {label: desk.plan(label, f"first {label}") for label in ("good", "close", "bad")}
    with sitting(browser, desk) as person:
        look(person)
        good, close, bad = (card_of(person, f"first {label}") for label in keys)
        good.get_by_role("button", name="Approve").click()
        expect(good.locator(".outcome")).to_have_text("Approved: good carries it out.")
        close.get_by_role("button", name="Edit …").click()
        text = close.get_by_label("The plan as it is to be carried out")
        expect(text).to_have_value("first close")
        text.fill("first close, then rest")
        close.get_by_role("button", name="Approve this plan").click()
        expect(close.locator(".outcome")).to_have_text("Approved as you wrote it: close carries it out.")
        bad.get_by_role("button", name="Ask for changes").click()
        bad.get_by_label("What should be different?").fill("shorter")
        bad.get_by_role("button", name="Send it back").click()
        expect(bad.locator(".outcome")).to_have_text("Sent back: bad plans again, with your words.")
        card_of(person, "REJECTED: shorter")  # the next plan is a card of its own

        def told(label: str) -> str:
            return json.dumps(desk.call("sessions.history", session=keys[label]))

        assert "APPROVED: proceed" in told("good")
        assert "It replaces yours." in told("close")
        assert "first close, then rest" in told("close")


@proves(
    "8.page.3",
    "A key answers the focused card alone, not within 400 ms after it appeared or moved; a chord answers none",
)
def test_keys_act_on_the_focused_card_alone_and_n_goes_to_the_next(browser: Browser, desk: Scene) -> None:
    first, second = (
        desk.ask("write", "one", path="one.txt", content="1"),
        desk.ask("write", "two", path="two.txt", content="2"),
    )
    with sitting(browser, desk) as person:
        page = look(person)
        one, two = card_of(person, "one.txt"), card_of(person, "two.txt")
        page.evaluate(CALM)
        page.keyboard.press("a")  # no card has the focus
        page.keyboard.press("n")
        expect(one).to_be_focused()
        page.keyboard.press("n")
        expect(two).to_be_focused()
        page.evaluate(CALM)
        page.keyboard.press("d")
        expect(two.locator(".outcome")).to_contain_text("Denied")
        assert [asked["id"] for asked in desk.call("approvals.list")] == [first]
        press(page, one, "r")
        page.keyboard.type("add no salt")  # a and d are letters here
        expect(one.get_by_label("What should it do instead?")).to_have_value("add no salt")
        one.get_by_role("button", name="Back").click()
        expect(one).to_be_focused()
        page.evaluate("localStorage.setItem('fledge.letters', 'false')")
        press(page, one, "a")
        page.evaluate("localStorage.setItem('fledge.letters', 'true')")
        page.keyboard.press("g")
        page.keyboard.press("a")  # the chord goes to Agents, and allows nothing
        expect(page).to_have_title("(1) Agents · fledge")
        assert [asked["id"] for asked in desk.call("approvals.list")] == [first]
        assert second not in {asked["id"] for asked in desk.call("approvals.list")}


@proves("8.page.3")
def test_a_key_within_400_ms_after_a_card_appeared_or_moved_does_nothing(browser: Browser, desk: Scene) -> None:
    at_once = """() => { new MutationObserver((_, observer) => {
        const card = document.querySelector('#waiting .ask');
        if (!card) return;
        observer.disconnect();
        card.focus();
        card.dispatchEvent(new KeyboardEvent('keydown', { key: 'a', bubbles: true }));
        window.pressed = performance.now();
    }).observe(document.querySelector('#waiting'), { childList: true }); }"""
    push_down = """() => new Promise((go) => {
        document.querySelector('#waiting').style.setProperty('margin-top', '60px');
        requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => {
            document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'a', bubbles: true }));
            go();
        })));
    })"""
    with sitting(browser, desk) as person:
        page = look(person)
        person.see("#you-empty", "Nothing waits for you")
        page.evaluate(at_once)
        desk.ask("write", path="one.txt", content="1")
        card = card_of(person, "one.txt")
        page.evaluate(CALM)
        assert page.evaluate("window.pressed") > 0
        page.evaluate(push_down)
        page.evaluate(CALM)
        assert len(desk.call("approvals.list")) == 1, "neither key was taken"
        page.keyboard.press("a")
        expect(card.locator(".outcome")).to_contain_text("Allowed once")
        assert desk.call("approvals.list") == []


@proves("8.page.4", "*Not now* is no answer")
def test_not_now_is_no_answer_and_the_card_can_be_shown_again(browser: Browser, desk: Scene) -> None:
    desk.ask("write", path="one.txt", content="1")
    with sitting(browser, desk) as person:
        page = look(person)
        card = card_of(person, "one.txt")
        press(page, card, "s")
        expect(card).to_contain_text("Set aside. It still waits; nothing was answered.")
        expect(card.locator("pre")).to_be_hidden()
        page.evaluate(CALM)
        page.keyboard.press("a")  # what cannot be seen cannot be allowed
        assert len(desk.call("approvals.list")) == 1
        expect(page.locator("#you-count")).to_have_text("1")
        page.goto(f"{desk.address}/#/chat/agent%3Amain%3Amain")
        expect(page.locator("#waiting .ask pre")).to_be_visible()  # it is set aside in one place
        page.goto(f"{desk.address}/#/you")
        card = card_of(person, "one.txt")
        expect(card).to_contain_text("Set aside.")
        card.get_by_role("button", name="Show it").click()
        expect(card.locator("pre")).to_be_visible()
        expect(card).to_be_focused()


@proves("8.page.5", "What was answered elsewhere, or has expired, says so in every tab")
def test_what_was_answered_in_another_tab_says_so_and_takes_no_second_answer(browser: Browser, desk: Scene) -> None:
    desk.ask("write", "one", path="one.txt", content="1")
    desk.ask("write", "two", path="two.txt", content="2")
    plan = desk.plan("planner", "the plan")
    with sitting(browser, desk) as person, sitting(browser, desk) as other:
        look(person)
        look(other)
        for tab in (person, other):
            expect(tab.page.locator("#waiting .ask")).to_have_count(3)
        card_of(other, "one.txt").get_by_role("button", name="Allow once").click()
        card_of(other, "two.txt").get_by_role("button", name="Deny").click()
        card_of(other, "the plan").get_by_role("button", name="Approve").click()
        expect(card_of(person, "one.txt").locator(".outcome")).to_contain_text("Allowed elsewhere by")
        expect(card_of(person, "two.txt").locator(".outcome")).to_contain_text("Denied elsewhere by")
        expect(card_of(person, "the plan").locator(".outcome")).to_have_text("Approved elsewhere.")
        expect(person.page.locator("#waiting").get_by_role("button", name="Allow once")).to_have_count(0)
        assert plan not in {one["sessionKey"] for one in desk.call("plans.list")}


@proves("8.page.5")
def test_what_expires_while_it_is_shown_says_so(browser: Browser, tmp_path: Path) -> None:
    with scene(tmp_path, SETTINGS | {"plan": {"approvalHours": 0.001}}) as desk, sitting(browser, desk) as person:
        look(person)
        desk.ask("write", path="one.txt", content="1")
        card = card_of(person, "one.txt")
        expect(card.locator(".outcome")).to_contain_text("No answer came in time.")
        expect(card.get_by_role("button", name="Allow once")).to_have_count(0)


def changing(method: str, change: Any) -> Any:
    """A handler of requests: the gateway's answer to a method is changed on its way to the page."""

    def handle(route: Route) -> None:
        if json.loads(route.request.post_data or "{}").get("method") != method:
            route.continue_()
            return
        answer = route.fetch()
        told = answer.json()
        told["result"] = change(told["result"])
        route.fulfill(response=answer, json=told)

    return handle


@proves("8.page.2", "An answer is for what was shown: another call, or another plan, is shown and not answered")
def test_an_answer_to_a_call_that_has_changed_is_refused_and_the_new_call_is_shown(
    browser: Browser, desk: Scene
) -> None:
    desk.ask("write", path="one.txt", content="rm everything")

    def older(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        harmless = '{"path":"one.txt","content":"harmless"}'
        return [one | {"arguments": harmless, "digest": "0" * 64} for one in questions]

    with sitting(browser, desk) as person:
        page = person.page
        page.route("**/rpc", changing("approvals.list", older))
        look(person)
        card_of(person, "harmless")
        card = page.locator("#waiting .ask")
        page.unroute_all(behavior="wait")
        card.get_by_role("button", name="Allow once").click()
        expect(card.locator(".notice")).to_contain_text("The call has changed since it was shown.")
        expect(card.locator(".d-add")).to_have_text("+rm everything")
        assert len(desk.call("approvals.list")) == 1
        assert not (desk.server.state.parent / "one.txt").exists()
        card.get_by_role("button", name="Allow once").click()
        expect(card.locator(".outcome")).to_contain_text("Allowed once")


@proves("8.page.2")
def test_a_plan_that_was_replaced_meanwhile_is_not_approved_unseen(browser: Browser, desk: Scene) -> None:
    key = desk.plan("planner", "the first plan")
    first = desk.call("plans.list")
    with sitting(browser, desk) as person:
        page = person.page
        page.route("**/rpc", changing("plans.list", lambda plans: first))
        look(person)
        card = card_of(person, "the first plan")
        desk.call("plans.reject", target=key, reason="another one")
        desk.until(lambda tx: True if key in tx.runs.awaiting() else None)
        page.unroute_all(behavior="wait")
        card.get_by_role("button", name="Approve").click()
        expect(card.locator(".outcome")).to_have_text("Sent back elsewhere: it plans again.")
        card_of(person, "REJECTED: another one")
        assert [one["sessionKey"] for one in desk.call("plans.list")] == [key]


@proves("8.page.6", "For you names what is stuck or undelivered, and what a person can do")
def test_what_does_not_move_is_named_with_what_a_person_can_do(browser: Browser, desk: Scene) -> None:
    desk.call("runs.spawn", task="wait", label="collector")
    desk.lose("lost one", "lost words")
    with sitting(browser, desk) as person:
        page = look(person)
        stuck = person.see(".card.look", "collector")
        expect(stuck).to_contain_text("the model has not answered")
        expect(stuck).to_contain_text("steer or kill it, or let it go on")
        lost = person.see(".card.look", "1 result undelivered")
        lost.get_by_role("link", name="Look").click()
        expect(page).to_have_title("Undelivered · fledge")


@proves("8.page.7", "A notice of the browser says how much waits, and never what")
def test_a_notice_of_the_browser_tells_that_something_waits_and_never_what(browser: Browser, desk: Scene) -> None:
    record = """window.told = [];
        window.Notification = class { constructor(title, given) { window.told.push([title, given.body]); }
            static permission = 'granted'; static requestPermission = async () => 'granted'; };
        window.isAway = false;
        Object.defineProperty(document, 'hidden', { get: () => window.isAway });"""
    with sitting(browser, desk) as person:
        person.page.add_init_script(record)
        page = look(person)
        person.see("#you-empty", "Nothing waits for you")
        page.evaluate("window.isAway = true")
        desk.ask("exec", command="echo one")
        expect(page).to_have_title("(1) For you · fledge")
        assert page.evaluate("window.told") == [], "nobody asked for notices"
        page.evaluate("window.isAway = false")
        page.goto(f"{desk.address}/#/settings")
        page.get_by_role("switch", name="Tell me when something waits").check(force=True)
        desk.ask("exec", "seen", command="echo two")
        expect(page).to_have_title("(2) Settings · fledge")
        assert page.evaluate("window.told") == [], "it is seen"
        page.evaluate("window.isAway = true")
        desk.ask("exec", "third", command="echo three")
        page.evaluate(
            "new Promise((go) => { const look = () => (told.length ? go() : setTimeout(look, 20)); look(); })"
        )
        assert page.evaluate("window.told") == [["fledge", "3 things wait for you"]]


@proves("8.gateway.9")
def test_hostile_words_in_questions_plans_and_runs_are_shown_and_do_nothing(browser: Browser, desk: Scene) -> None:
    desk.call("sessions.patch", session=desk.call("sessions.open", session="evil")["sessionKey"], label="<i>evil</i>")
    desk.ask("exec", "evil", command=HOSTILE, **{"<b>name</b>": HOSTILE})
    desk.ask("write", "evil2", path=HOSTILE, content=f"+{HOSTILE}\n@@ {HOSTILE}")
    desk.ask("edit", "evil3", path="x", old=HOSTILE, new=f"{HOSTILE}!")
    desk.plan("<u>label</u>", f"# {HOSTILE}\n\n{HOSTILE}\n")
    with sitting(browser, desk) as person:
        page = look(person)
        expect(page.locator("#waiting .ask")).to_have_count(4)
        assert page.locator("#waiting").inner_text().count(SHOWN) >= 6
        person.see("#waiting .lineage", "<u>label</u>")
        assert page.locator("#main img, #main script, #main b:has-text('name'), #main u, #main i").count() == 0


def test_after_the_last_card_a_key_that_was_meant_for_one_more_is_typed_nowhere(browser: Browser, desk: Scene) -> None:
    with sitting(browser, desk) as person:
        page = person.page
        person.sign_in()
        desk.ask("write", path="made.txt", content="made")
        press(page, card_of(person, "made.txt"), "a")
        expect(page.locator("#waiting .ask")).to_have_count(0)
        expect(page.locator("#chat-scroll")).to_be_focused()
        page.keyboard.press("a")
        expect(page.get_by_label("Message, or a command such as /help")).to_have_value("")
