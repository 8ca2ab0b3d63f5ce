"""Everything that a person does on the page and that rides on one request: the request is lost, its answer is lost, or
the gateway has no time, while the feed lives. The gateway carries the action out once, or the page says that it does
not know and offers to try again."""

import json
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, FilePayload, Page, Route, expect

from fledge.commands.index import KEYED, READS
from tests.browser.browsing import Person, browsing, sitting
from tests.browser.desk_scene import SETTINGS, Scene, scene
from tests.gateway.test_signins import sign_in
from tests.statements import proves

SCRIPTS = {one.name: one.read_text() for one in files("fledge.web").iterdir() if one.name.endswith(".js")}
AGAIN = dict(
    re.findall(
        r'"?([a-z]+(?:\.[a-z]+)?)"?: "(keyed|sets|settles|acts)"',
        SCRIPTS["gateway.js"].partition("const AGAIN = {")[2].partition("};")[0],
    )
)
"""What a second request of each verb does, as the page has it."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, SETTINGS | {"gateway": {"port": 0, "requestsPerSecond": 10_000}}) as one:
        yield one


# ---- the faults ------------------------------------------------------------------------------------------------------


def lose_request(route: Route) -> None:
    """The gateway never sees the request."""
    route.abort("connectionreset")


def lose_answer(route: Route) -> None:
    """The gateway carries the request out, and the page never hears of it."""
    route.fetch()
    route.abort("connectionreset")


def have_no_time(route: Route) -> None:
    """The gateway turns the request away."""
    route.fulfill(status=429, json={"error": "too many requests: wait a moment"})


FAULTS = (lose_request, lose_answer, have_no_time)
Fault = Callable[[Route], None]


def strike(page: Page, verb: str, fault: Fault, times: int = 1) -> list[str]:
    """Let the next so many requests of this verb fail. Answers the bodies of all of its requests."""
    bodies: list[str] = []

    def rpc(route: Route) -> None:
        body = route.request.post_data or "{}"
        if json.loads(body)["method"] != verb:
            route.continue_()
            return
        bodies.append(body)
        if len(bodies) <= times:
            fault(route)
        else:
            route.continue_()

    page.route("**/rpc", rpc)
    return bodies


# ---- the actions -----------------------------------------------------------------------------------------------------


def said(desk: Scene, session: str = "main") -> list[str]:
    """What a person has said in a conversation, in order."""
    entries = desk.call("sessions.history", session=session, view="entries")["entries"]
    return [one["text"] for one in entries if one["type"] == "message"]


def completions(desk: Scene, session: str) -> int:
    """How many results a conversation has read."""
    entries = desk.call("sessions.history", session=session, view="entries")["entries"]
    return sum(len(one["completions"]) for one in entries if one["type"] == "completions")


def row(desk: Scene, key: str) -> Any:
    return next(one for one in desk.call("sessions.query")["rows"] if one["key"] == key)


def attempts(desk: Scene, key: str) -> int:
    return int(desk.call("runs.row", target=key)["attempt"])


def at_work(desk: Scene, label: str) -> str:
    """A run whose model answers once it is released; its session key."""
    key = str(desk.call("runs.spawn", task="wait", label=label)["childSessionKey"])
    desk.until(lambda tx: True if (run := tx.runs.find(key)) is not None and run.phase.name == "running" else None)
    return key


def open_run(person: Person, key: str) -> Page:
    person.page.goto(f"{person.gateway.address}/#/run/{quote(key, safe='')}")
    expect(person.page.locator("#view-run h1")).to_be_visible()
    return person.page


def look(person: Person, view: str) -> Page:
    person.page.goto(f"{person.gateway.address}/#/{view}")
    return person.page


def in_dialog(page: Page, button: str, words: str = "") -> None:
    dialog = page.get_by_role("dialog")
    if words:
        dialog.get_by_role("textbox").fill(words)
    dialog.get_by_role("button", name=button, exact=True).click()


Action = Callable[[Person, Scene], Callable[[], Any]]
"""Does something on the page; answers how to count what came of it at the gateway: 1 once it is carried out."""


def say(person: Person, desk: Scene) -> Callable[[], Any]:
    person.say("one message")
    return lambda: said(desk).count("one message")


def begin_in_folder(person: Person, desk: Scene) -> Callable[[], Any]:
    folder = desk.server.state.parent / "elsewhere"
    folder.mkdir()
    desk.call("sessions.open", session="there", folder=str(folder))
    desk.call("send", session="there", message="hello")
    person.page.goto(f"{person.gateway.address}/#/chat/agent%3Amain%3Athere")
    expect(person.page.locator(".chatview .head")).to_contain_text("elsewhere")
    person.page.get_by_role("button", name="New conversation").first.click()
    person.say("one message")
    return lambda: sum(
        one["workspace"] == str(folder) and one["key"] != "agent:main:there" and "one message" in one["firstWords"]
        for one in desk.call("sessions.query")["rows"]
    )


def command(person: Person, desk: Scene) -> Callable[[], Any]:
    person.say("/subagents spawn main dig")
    return lambda: desk.call("runs.query")["counts"]["all"]


def rename(person: Person, desk: Scene) -> Callable[[], Any]:
    person.page.get_by_role("button", name="More", exact=True).click()
    person.page.get_by_role("menuitem", name="Rename …").click()
    in_dialog(person.page, "Save", "renamed")
    return lambda: int(row(desk, "agent:main:main")["label"] == "renamed")


def stop(person: Person, desk: Scene) -> Callable[[], Any]:
    desk.say("wait")
    desk.until(lambda tx: True if tx.transcripts.entries("agent:main:main") else None)
    person.see(".activity", "answering")
    person.page.locator("#stop").click()
    return lambda: int(row(desk, "agent:main:main")["state"] == "idle")


def answer(key: str, state: str) -> Action:
    def act(person: Person, desk: Scene) -> Callable[[], Any]:
        id = desk.ask("write", path="made.txt", content="made")
        card = person.see("#waiting .ask", "made.txt")
        card.get_by_role("button", name=key).click()
        return lambda: sum(
            one["id"] == id and one["state"] == state for one in desk.call("approvals.list", decided=True)
        )

    return act


def revoke(person: Person, desk: Scene) -> Callable[[], Any]:
    desk.ask("exec", command="git status docs/a.md")
    [asked] = desk.call("approvals.list")
    desk.call("approvals.approve", id=asked["id"], digest=asked["digest"], always=True)
    look(person, "you").get_by_role("button", name="Revoke git status").click()
    return lambda: int(desk.call("permissions.list") == [])


def approve_plan(person: Person, desk: Scene) -> Callable[[], Any]:
    key = desk.plan("planner", "first one, then the other")
    look(person, "you")
    person.see("#waiting .ask", "Plan").get_by_role("button", name="Approve").click()
    return lambda: attempts(desk, key) - 1


def reject_plan(person: Person, desk: Scene) -> Callable[[], Any]:
    key = desk.plan("planner", "first one, then the other")
    look(person, "you")
    card = person.see("#waiting .ask", "Plan")
    card.get_by_role("button", name="Ask for changes").click()
    card.get_by_label("What should be different?").fill("everything")
    card.get_by_role("button", name="Send it back").click()
    return lambda: attempts(desk, key) - 1


def kill(person: Person, desk: Scene) -> Callable[[], Any]:
    key = at_work(desk, "worker")
    open_run(person, key).get_by_role("button", name="Kill", exact=True).click()
    expect(person.page.get_by_role("dialog")).to_contain_text("1 run ends")
    in_dialog(person.page, "Kill")
    return lambda: int(desk.call("runs.row", target=key)["endedReason"] == "killed")


def steer(person: Person, desk: Scene) -> Callable[[], Any]:
    key = at_work(desk, "worker")
    open_run(person, key).get_by_role("button", name="Steer").click()
    in_dialog(person.page, "Steer", "wait more")
    return lambda: attempts(desk, key) - 1


def tell(person: Person, desk: Scene) -> Callable[[], Any]:
    key = at_work(desk, "worker")
    open_run(person, key).get_by_role("button", name="Send", exact=True).click()
    in_dialog(person.page, "Send", "words for it")
    return lambda: str(
        desk.server.do(desk.server.desk.read(lambda tx: [one.body for one in tx.inbox.unread(key)]))
    ).count("words for it")


def resume(person: Person, desk: Scene) -> Callable[[], Any]:
    key = at_work(desk, "worker")
    desk.call("runs.kill", target=key, wait=True)
    open_run(person, key).get_by_role("button", name="Resume").click()
    in_dialog(person.page, "Resume")
    return lambda: attempts(desk, key) - 1


def remove_run(person: Person, desk: Scene) -> Callable[[], Any]:
    key = at_work(desk, "worker")
    desk.call("runs.kill", target=key, wait=True)
    open_run(person, key).get_by_role("button", name="Remove").click()
    in_dialog(person.page, "Remove")
    return lambda: int(desk.call("runs.query")["counts"]["all"] == 0)


def run_again(person: Person, desk: Scene) -> Callable[[], Any]:
    key = at_work(desk, "worker")
    desk.call("runs.kill", target=key, wait=True)
    open_run(person, key).get_by_role("button", name="Run again").click()
    in_dialog(person.page, "Run again")
    return lambda: desk.call("runs.query")["counts"]["all"] - 1


def deliver_again(person: Person, desk: Scene) -> Callable[[], Any]:
    desk.lose("finder", "words of it")
    desk.call("sessions.open", session="gone")
    look(person, "undelivered")
    person.see("#undelivered-cards .card", "words of it").get_by_role("button", name="Deliver again").click()
    return lambda: completions(desk, "gone")


def dismiss(person: Person, desk: Scene) -> Callable[[], Any]:
    desk.lose("finder", "words of it")
    look(person, "undelivered")
    person.see("#undelivered-cards .card", "words of it").get_by_role("button", name="Dismiss").click()
    return lambda: int(desk.call("undelivered.list") == [])


def sign_out_another(person: Person, desk: Scene) -> Callable[[], Any]:
    sign_in(desk.server)
    look(person, "settings").get_by_role("button", name="Sign out Firefox").click()
    return lambda: int(len(desk.call("signins.list")) == 1)


ACTIONS: dict[str, Action] = {
    "agent": say,
    "sessions.open": begin_in_folder,
    "sessions.patch": rename,
    "sessions.stop": stop,
    "slash.run": command,
    "approvals.approve": answer("Allow once", "started"),
    "approvals.deny": answer("Deny", "denied"),
    "permissions.revoke": revoke,
    "plans.approve": approve_plan,
    "plans.reject": reject_plan,
    "runs.kill": kill,
    "runs.steer": steer,
    "runs.send": tell,
    "runs.resume": resume,
    "runs.remove": remove_run,
    "runs.again": run_again,
    "signins.end": sign_out_another,
    "undelivered.retry": deliver_again,
    "undelivered.dismiss": dismiss,
}


@proves(
    "8.page.23",
    "Every action of the page is carried out once, however its request fails, or the page offers to try again",
)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("verb", ACTIONS)
def test_an_action_whose_request_fails_once_is_carried_out_once(
    browser: Browser, desk: Scene, verb: str, fault: Fault
) -> None:
    with sitting(browser, desk) as person:
        desk.call("sessions.open", session="main")
        person.sign_in()
        bodies = strike(person.page, verb, fault)
        count = ACTIONS[verb](person, desk)
        if AGAIN[verb] == "acts" and fault is not have_no_time:
            place = "[data-role=command]" if verb == "slash.run" else "#alert"
            doubt = person.see(place, "It is not known whether this reached the gateway")
            assert len(bodies) == 1, "it is not sent again unasked"
            if fault is lose_request:
                doubt.get_by_role("button", name="Try again").click()
        wait_until(person.page, count)
        expect(person.page.locator("#late")).to_be_hidden()
        assert len({json.dumps(json.loads(body)["params"], sort_keys=True) for body in bodies}) == 1
        assert person.page.locator("#connection").inner_text() == "connected"
        assert count() == 1


def wait_until(page: Page, count: Callable[[], Any]) -> None:
    """Return once it is carried out."""
    for _ in range(400):
        if count():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it was not carried out")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_message_with_a_file_is_sent_until_the_gateway_has_it_once(
    browser: Browser, desk: Scene, fault: Fault
) -> None:
    with sitting(browser, desk) as person:
        person.sign_in()
        strike(person.page, "agent", fault)
        file = FilePayload(name="report.csv", mimeType="text/csv", buffer=b"a,b\n1,2\n")
        person.page.get_by_label("Files to attach").set_input_files([file])
        person.see(".files .attach", "report.csv")
        person.say("one message")
        person.see("#chat-log .msg[data-role=user]", "one message")
        expect(person.page.locator("#chat-pending .msg")).to_have_count(0)
        entries = desk.call("sessions.history", session="main", view="entries")["entries"]
        assert [one["attachments"][0]["name"] for one in entries if one["type"] == "message"] == ["report.csv"]


def test_what_is_said_stays_in_order_however_many_requests_fail(browser: Browser, desk: Scene) -> None:
    with sitting(browser, desk) as person:
        person.sign_in()
        bodies = strike(person.page, "agent", lose_request, times=3)
        for words in ("first words", "second words", "third words"):
            person.say(words)
        person.see("#chat-pending .msg[data-state=waiting]", "it is sent again until the gateway has it")
        person.see("#late", "What you did has not reached the gateway yet")
        expect(person.page.locator("#chat-pending .msg")).to_have_count(0)
        assert said(desk) == ["first words", "second words", "third words"]
        sent = [json.loads(body)["params"]["message"] for body in bodies]
        assert sent == ["first words"] * 4 + ["second words", "third words"]


def test_what_was_said_before_a_reload_is_sent_from_whichever_view(browser: Browser, desk: Scene) -> None:
    with sitting(browser, desk) as person:
        person.sign_in()
        strike(person.page, "agent", lose_request, times=1000)
        person.say("said before")
        person.see("#chat-pending .msg", "it is sent again")
        person.page.unroute("**/rpc")
        look(person, "health")
        person.page.reload()
        desk.until(lambda tx: True if tx.transcripts.entries("agent:main:main") else None)
        assert said(desk) == ["said before"]


def test_a_message_that_the_gateway_refuses_stays_with_what_to_do(browser: Browser, desk: Scene) -> None:
    held: list[Route] = []

    def refuse() -> None:
        wait_until(page, lambda: len(held))
        error = {"code": -32602, "message": "message: too long"}
        held.pop().fulfill(json={"jsonrpc": "2.0", "id": 1, "error": error})

    with sitting(browser, desk) as person:
        page = person.page
        person.sign_in()
        strike(page, "agent", held.append, times=3)
        box = page.get_by_label("Message, or a command such as /help")
        person.say("one")
        box.fill("typed meanwhile")
        refuse()
        kept = person.see("#chat-pending .msg[data-state=refused]", "The gateway did not take this: message: too long.")
        kept.get_by_role("button", name="Send again").click()
        expect(kept).to_have_count(0)
        refuse()
        person.see("#alert", "message: too long")
        kept.get_by_role("button", name="Take it back").click()
        expect(box).to_have_value("one\n\ntyped meanwhile")
        expect(kept).to_have_count(0)
        box.press("Enter")
        box.fill("three")
        refuse()
        expect(kept).to_have_count(1)
        box.press("Enter")
        person.see("#chat-log .msg[data-role=user]", "three")
        expect(kept).to_contain_text("typed meanwhile")


def test_a_dialog_that_is_closed_sends_nothing_more(browser: Browser, desk: Scene) -> None:
    with sitting(browser, desk) as person:
        page = person.page
        person.sign_in()
        key = at_work(desk, "worker")
        strike(page, "runs.kill", lose_request, times=1000)
        open_run(person, key).get_by_role("button", name="Kill", exact=True).click()
        expect(page.get_by_role("dialog")).to_contain_text("1 run ends")
        in_dialog(page, "Kill")
        person.see("#late", "What you did has not reached the gateway yet")
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        expect(page.locator("#late")).to_be_hidden()
        page.unroute("**/rpc")
        page.evaluate("dispatchEvent(new Event('online'))")
        assert desk.call("runs.row", target=key)["isActive"]
        expect(page.locator("#alert")).to_be_hidden()


# ---- every verb that changes something goes through the one sender --------------------------------------------------


def test_every_verb_of_the_page_that_changes_something_is_sent_by_the_one_sender() -> None:
    verbs: dict[str, set[str]] = {"call": set(), "change": set()}
    for name, text in SCRIPTS.items():
        for how, verb in re.findall(r'\b(call|change)\("([\w.]+)"', text):
            verbs[how].add(verb)
        if name != "gateway.js":
            assert "fetch(" not in text, name
        if re.search(r'import \{[^}]*\bcall\b[^}]*\} from "./gateway.js"', text):
            assert re.findall(r"(?<![.#])\bcall\((?!\")", text) == [], f"{name}: the verb of a call is a literal"
    verbs["change"] |= {
        verb for text in SCRIPTS.values() for verb in re.findall(r'\b(?:act|each|answer)\("(\w+\.\w+)"', text)
    }
    assert verbs["call"] <= READS
    assert verbs["change"] == set(AGAIN) == set(ACTIONS)
    assert not verbs["change"] & READS
    assert {verb for verb, again in AGAIN.items() if again == "keyed"} == verbs["change"] & KEYED
