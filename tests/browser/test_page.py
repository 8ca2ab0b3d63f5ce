"""The page in a real browser, against a real gateway: whole journeys of a person."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

import pytest
from playwright.sync_api import Browser, FilePayload, expect

from fledge.core.keys import project_key
from fledge.store.files import DATABASE
from tests import images
from tests.browser.browsing import ACTING, Gateway, Person, browsing, sitting
from tests.browser.looks import assert_sound
from tests.browser.page_server import HOSTILE, SHOWN, speaking
from tests.cli.model_server import Model, serving
from tests.statements import proves

GIVE = """([event, field, name]) => {
  const files = new DataTransfer();
  files.items.add(new File(["data"], name));
  const given = new Event(event, { bubbles: true, cancelable: true });
  Object.defineProperty(given, field, { value: files });
  document.getElementById("say").dispatchEvent(given);
}"""
"""Drop or paste a file where the person writes."""
RELEASE = "release"
"""Once this file is beside the port file of the model server, children that wait go on."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("page")
    with serving(folder, speaking(folder / "model" / RELEASE)) as model:
        yield model


@pytest.fixture
def gateway(model: Model, tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(model, tmp_path)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.end()
        release(gateway).unlink(missing_ok=True)


def release(gateway: Gateway) -> Path:
    """Let the children that wait go on."""
    file = gateway.model.port.parent / RELEASE
    file.touch()
    return file


@proves("4.tools.31", "Slash commands work on the page")
@proves("8.gateway.7", "The page uses fetch streams with the header: no cookie, no token in an address")
def test_sign_in_chat_and_commands_on_a_phone_by_keyboard(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway, viewport={"width": 360, "height": 640}) as person:
        page = person.page
        page.goto(gateway.address)
        person.show_token("no-such-token-" + "x" * 30)
        person.see("#signin-error", "That is not the token of this gateway.")
        person.show_token(gateway.token)
        person.see("#connection", "connected")
        person.see("#chat-empty", "Nothing has been said yet.")
        expect(page.get_by_label("Message, or a command such as /help")).to_be_focused()
        person.say("hello")
        person.said("How can I help?")
        person.see("#chat-log .msg[data-role=user]", "hello")
        expect(page.locator("#chat-pending .msg")).to_have_count(0)
        person.say("/etc/hosts is a path")
        person.said("You said: /etc/hosts is a path")
        expect(page.locator("#chat-log")).to_have_attribute("aria-live", "polite")
        person.say("/subagents frobnicate")
        person.see(".msg[data-role=command][data-state=failed]", "there is no such command")
        person.say("/subagents spawn main dig deep")
        person.said("The digger found gold.")
        person.say("/subagents list")
        person.see(".msg[data-role=command]", "1) done")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, "nothing sticks out"
        assert gateway.token not in page.url
        assert gateway.token not in page.evaluate("JSON.stringify([localStorage, sessionStorage]) + document.cookie")
        page.reload()
        person.said("How can I help?")
        page.get_by_role("button", name="Open navigation").press("Enter")
        expect(page.get_by_role("button", name="Close navigation")).to_be_focused()
        page.get_by_role("button", name="Sign out").press("Enter")
        expect(page.get_by_label("Token of this gateway")).to_be_focused()
        expect(page.locator("#chat-log .msg")).to_have_count(0)
        assert page.evaluate("sessionStorage.length + localStorage.length") == 0


@proves("3.attached.17", "The page attaches files by its button, by dropping and by pasting, and downloads them")
def test_files_are_attached_by_button_drop_and_paste_and_downloaded(
    browser: Browser, gateway: Gateway, tmp_path: Path
) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        page.get_by_label("Files to attach").set_input_files(
            [
                FilePayload(name="report.csv", mimeType="text/csv", buffer=b"a,b\n1,2\n"),
                FilePayload(name="left out.txt", mimeType="text/plain", buffer=b"x"),
                FilePayload(name="cat.png", mimeType="image/png", buffer=images.png(640, 480)),
            ]
        )
        page.get_by_role("button", name="Leave out left out.txt").click()
        for event, field, name in (("drop", "dataTransfer", "<b>d.bin"), ("paste", "clipboardData", "pasted.pdf")):
            page.evaluate(GIVE, [event, field, name])
            person.see(".files .attach", name)
        expect(page.locator(".files .attach")).to_have_count(4)
        person.say("hello")
        mine = person.see("#chat-log .msg[data-role=user]", "hello")
        for name in ("report.csv (8 B)", "<b>d.bin (4 B)", "pasted.pdf (4 B)"):
            expect(mine.get_by_role("button", name=name)).to_have_count(1)
        expect(mine.locator(".attach").filter(has_text="640×480")).to_have_count(1)
        expect(mine).not_to_contain_text("[file")
        expect(page.locator(".files .attach")).to_have_count(0)
        with page.expect_download() as saved:
            mine.get_by_role("button", name="report.csv").click()
        saved.value.save_as(tmp_path / "saved")
        assert saved.value.suggested_filename == "report.csv"
        assert (tmp_path / "saved").read_text() == "a,b\n1,2\n"


@proves("3.attached.17")
def test_a_message_whose_file_is_refused_comes_back_with_its_files(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        picker = page.get_by_label("Files to attach")
        picker.set_input_files([FilePayload(name="empty.txt", mimeType="text/plain", buffer=b"")])
        person.see("#alert", "empty.txt is empty")
        picker.set_input_files([FilePayload(name="huge.txt", mimeType="text/plain", buffer=b"x" * 1_048_577)])
        person.see(".files .attach", "huge.txt")
        person.say("read this")
        person.see("#alert", "attachments[0]: must have at most 1048576 bytes")
        person.see(".files .attach", "huge.txt")
        expect(page.get_by_label("Message, or a command such as /help")).to_have_value("read this")
        page.get_by_role("button", name="Leave out huge.txt").click()
        person.say("hello")
        person.said("How can I help?")


def test_a_subagents_answer_arrives_once_and_its_page_tells_all(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("spawn")
        person.said("The digger found gold.")
        page.locator("#panel").get_by_role("link", name="digger").click()
        person.see("#run-panel", "gold, at the very bottom")
        person.see(".stat", "10 in, 5 out")
        person.see("section[aria-label=Delivery] li", "Read by its requester")
        page.get_by_role("tab", name="Events").click()
        person.see(".events li", "finished")
        # By which way depends on whether the conversation is still busy with its own words.
        told = person.see(".events li", "to agent:main:main (fallback): ")
        assert "delivered" in told.inner_text()
        page.get_by_role("tab", name="Transcript").click()
        person.see("#run-panel .msg", "dig deep")
        page.goto(f"{gateway.address}/#/run/agent:main:subagent:none")
        person.see("#view-run", "There is no such run")


@proves("8.gateway.9", "All model and child text on the page is rendered as hostile")
def test_hostile_words_are_shown_and_do_nothing(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("act")
        told = person.said("It said: ")
        assert SHOWN in told.inner_text()
        page.locator("#panel").get_by_role("link", name="<i>label</i>").click()
        person.see("#run-panel", "onerror")
        assert SHOWN in page.locator("#run-panel").inner_text()
        page.get_by_role("tab", name="Transcript").click()
        person.see("#run-panel .msg", "onerror")
        assert SHOWN in page.locator("#run-panel").inner_text()
        person.see("#run-panel .msg", "hostile <b>task</b>")
        page.goto(f"{gateway.address}/#/chat")
        person.say("<img src=x onerror=alert(1)>")
        person.see("#chat-log .msg[data-role=user]", "<img src=x onerror=alert(1)>")
        person.say("/subagents log 1")
        person.see(".msg[data-role=command]", "onerror")
        person.say("/subagents <script>alert(1)</script>")
        person.see(".msg[data-role=command][data-state=failed]", "there is no such command")
        assert page.locator("#app img:not([src='/page/icon.svg']), #app script, #app [onerror]").count() == 0
        assert page.locator("#app b, #app i").filter(has_text=re.compile("^(task|label)$")).count() == 0
        assert page.locator("#app a[href^='javascript']").count() == 0


@proves("8.gateway.8")
def test_the_browser_itself_refuses_markup_made_from_text(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.page.goto(gateway.address)
        refused = "text => { try { document.body.innerHTML = text; return false } catch { return true } }"
        assert person.page.evaluate(refused, "<b>x</b>")
        assert any("TrustedHTML" in words for words in person.wrong)
        person.wrong.clear()


@proves("3.plan.10", "… on the page")
def test_plans_are_answered_and_calls_are_denied_and_allowed(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("plan")
        card = person.see("#waiting .card", "A plan for you")
        card.get_by_role("button", name="Ask for changes").click()
        expect(card.get_by_label("What should be different?")).to_be_focused()
        card.get_by_role("button", name="Send it back").click()
        person.see("#waiting .notice", "There are no words to send yet.")
        assert gateway.call("plans.list") != [], "nothing is rejected without words"
        card.get_by_label("What should be different?").fill("deeper")
        card.get_by_role("button", name="Send it back").click()
        person.see("#waiting .card", "child heard")
        page.get_by_role("button", name="Approve").click()
        expect(page.locator("#waiting .card")).to_have_count(0)
        person.say("write")
        card = person.see("#waiting .card", "May it run write?")
        assert "made.txt" in card.inner_text()
        person.see("#chat-live", "waiting for you")
        expect(page).to_have_title("(1) main · fledge")
        card.get_by_role("button", name="Deny").click()
        person.said("The tool said: write was refused")
        assert not (gateway.folder / "work" / "made.txt").exists()
        person.say("write")
        person.see("#waiting .card", "May it run write?").get_by_role("button", name="Allow once").click()
        person.said("made.txt")
        assert (gateway.folder / "work" / "made.txt").read_text() == "made"
        expect(page).to_have_title("main · fledge")


def test_a_run_is_steered_and_killed(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("wait")
        page.locator("#panel").get_by_role("link", name=re.compile("waiter.*running")).click()
        page.get_by_role("button", name="Steer").click()
        page.get_by_label("Where should it go instead?").fill("look left")
        page.get_by_role("dialog").get_by_role("button", name="Steer").click()
        page.get_by_role("tab", name="Events").click()
        person.see(".events li", "steered")
        page.get_by_role("tab", name="Transcript").click()
        person.see("#run-panel .msg", "child heard:")
        page.go_back()
        person.said("The waiter changed its mind.")
        person.see("#chat-log .card.slim", "waiter")  # rows are told at most once a second
        person.say("wait")
        card = person.see("#chat-log .card.live", "waiter")
        card.get_by_role("button", name="Kill").click()
        dialog = page.get_by_role("dialog", name="Kill waiter?")
        expect(dialog.get_by_role("list", name="What ends").get_by_text("waiter")).to_be_visible()
        expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
        dialog.get_by_role("button", name="Kill").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        person.see("#chat-log .card.slim .chip", "killed")


def test_stop_stops_the_turn_and_nothing_below_it(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.sign_in()
        person.say("wait")
        person.see("#chat-log .card.live", "waiter")
        person.say("fail")
        person.see("#chat-live", "That failed: ")
        person.page.get_by_role("button", name="Stop this turn").click()
        person.page.keyboard.press("Escape")
        person.say("hello")
        person.said("How can I help?")
        assert [run["status"] for run in gateway.call("runs.query")["rows"]] == ["running"]
        release(gateway)
        person.said("The waiter is done.")


def test_words_are_sent_to_a_run_that_goes_on(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("wait")
        page.locator("#panel").get_by_role("link", name=re.compile("waiter.*running")).click()
        page.get_by_role("button", name="Send", exact=True).click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Send", exact=True).click()
        expect(dialog.get_by_role("alert")).to_have_text("There are no words to send.")
        page.get_by_label("Words for this run").fill("mind the gap")
        dialog.get_by_role("button", name="Send", exact=True).click()
        expect(dialog).to_have_count(0)
        release(gateway)
        person.see("#run-panel .msg[data-role=user]", "mind the gap")
        person.see("#run-panel .msg[data-role=assistant]", "child heard: mind the gap")
        page.get_by_role("tab", name="Events").click()
        expect(page.locator(".events li").first).to_be_visible()
        assert page.locator(".events li").filter(has_text="steered").count() == 0


def test_the_page_begins_in_the_conversation_that_was_spoken_in_last_and_calls_a_projects_by_its_folder(
    browser: Browser, gateway: Gateway, tmp_path: Path
) -> None:
    folder = os.path.realpath(tmp_path / "docs")
    os.mkdir(folder)
    gateway.call("sessions.open", session=project_key(folder), folder=folder)
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        chosen = page.locator("#conversations [aria-current=page]")
        expect(chosen).to_contain_text("docs")
        expect(page.locator("#conversations .conv")).to_have_count(2)
        person.say("hello")
        person.said("How can I help?")
        assert gateway.call("sessions.history", session=project_key(folder))[0]["text"] == "hello"
        expect(page.locator("#conversations h2").filter(has_text="docs")).to_have_attribute("title", folder)
        page.get_by_role("button", name="New conversation").click()
        person.see("#chat-empty", "Nothing has been said yet.")
        person.say("in the same folder")
        person.said("You said: in the same folder")
        key = unquote(page.url.rpartition("/")[2])
        rows = {row["key"]: row for row in gateway.call("sessions.query")["rows"]}
        assert rows[key]["workspace"] == folder


def test_conversations_are_chosen_begun_and_kept_apart(browser: Browser, gateway: Gateway) -> None:
    box = "Message, or a command such as /help"
    with sitting(browser, gateway, viewport={"width": 1280, "height": 800}) as person:
        page = person.page
        person.sign_in()
        person.say("hello")
        person.said("How can I help?")
        page.get_by_role("button", name="New conversation").click()
        person.see("#chat-empty", "Nothing has been said yet.")
        expect(page.get_by_label(box)).to_be_focused()
        key = unquote(page.url.rpartition("/")[2])
        person.say("over here")
        person.said("You said: over here")
        assert gateway.call("sessions.history", session=key)[0]["text"] == "over here"
        side = page.locator("#conversations").get_by_role("link", name="over here")
        main = page.locator("#conversations").get_by_role("link", name="main")
        expect(side).to_have_attribute("aria-current", "page")
        page.get_by_label(box).fill("not finished")
        main.click()
        person.said("How can I help?")
        expect(page.locator("#chat-log .msg").filter(has_text="over here")).to_have_count(0)
        expect(page.get_by_label(box)).to_have_value("")
        person.say("write")
        person.see("#waiting .card", "May it run write?")
        expect(main).to_contain_text("waits for you")  # the list has its last order
        side.click()
        expect(side).to_have_attribute("aria-current", "page")
        person.said("You said: over here")
        expect(page.locator("#waiting .card")).to_have_count(0)
        expect(page.get_by_label(box)).to_have_value("not finished")
        expect(main).to_contain_text("1 thing waits for you")
        page.reload()
        person.said("You said: over here")
        expect(page.get_by_label(box)).to_have_value("not finished")
        main.click()
        page.locator("#waiting .card").get_by_role("button", name="Deny").click()
        person.said("The tool said: write was refused")
        page.get_by_label("Search conversations").fill("OVER")
        expect(main).to_have_count(0)
        side.click()
        person.said("You said: over here")
        page.goto(f"{gateway.address}/#/chat/not%20a%20key")
        person.see("#alert", "must be a name of letters")


def test_the_model_is_chosen_from_those_that_can_be_used(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        picker = page.get_by_role("button", name="main")
        person.say("hello")
        person.said("How can I help?")
        expect(picker).to_have_text("main · gpt-test")
        picker.click()
        dialog = page.get_by_role("dialog", name="Model of this conversation")
        choices = dialog.get_by_role("list", name="Models").get_by_role("button")
        expect(choices.nth(0)).to_have_text("As configured")
        expect(choices.nth(1)).to_contain_text("openai/gpt-test")
        expect(choices.nth(1)).to_have_attribute("aria-current", "true")
        assert any("$" in words for words in choices.all_inner_texts()), "models of the catalogue tell their price"
        assert_sound(page)
        search = dialog.get_by_label("Search models, or provider/name")
        search.fill("nothing like that")
        expect(dialog).to_contain_text("No model that can be used is called that.")
        search.fill("openai/my-own")
        expect(choices).to_have_text(["Use openai/my-own"])
        search.press("Enter")
        expect(dialog).to_have_count(0)
        person.say("hello")
        person.see("#chat-log .msg[data-role=assistant]", "How can I help?", times=2)
        expect(picker).to_have_text("main · my-own")


def test_a_turn_that_fails_says_so(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.sign_in()
        person.say("fail")
        person.see("#chat-live", "That failed: ")
        person.see("#chat-live", "no such luck")
        person.page.reload()
        expect(person.page.locator("#failing")).to_contain_text(re.compile(r"failed \d+ times?: .*luck; tried again"))
        person.page.get_by_role("button", name="Stop this turn").click()
        person.say("hello")
        person.said("How can I help?")
        expect(person.page.locator("#chat-live")).to_be_hidden()
        expect(person.page.locator("#failing")).to_be_hidden()


@proves("4.tools.39")
def test_a_turn_that_fails_for_half_an_hour_is_shown_as_unanswered(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.sign_in()
        person.say("fail")
        person.see("#chat-live", "That failed: ")
        expect(person.page.locator("#unanswered")).to_be_hidden()
        gateway.end()
        with closing(sqlite3.connect(gateway.state / DATABASE)) as rows, rows:
            rows.execute(
                "UPDATE active SET turn = json_set(turn, '$.opened_at', json_extract(turn, '$.opened_at') - 2400)"
            )
        gateway.start()
        # A busy machine may take more than half a minute to get here.
        expect(person.page.locator("#unanswered")).to_contain_text(re.compile(r"unanswered for 4\d min"))
        person.page.get_by_role("button", name="Stop this turn").click()
        person.say("hello")
        person.said("How can I help?")
        expect(person.page.locator("#unanswered")).to_be_hidden()


def test_a_link_from_another_site_opens_the_page(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        link = f'<a href="{gateway.address}/">fledge</a>'
        page.route("http://elsewhere.test/", lambda route: route.fulfill(content_type="text/html", body=link))
        page.goto("http://elsewhere.test/")
        page.get_by_role("link", name="fledge").click()
        expect(page.get_by_label("Token of this gateway")).to_be_focused()
        person.wrong.clear()  # it went elsewhere first
        page.route("http://elsewhere.test/", lambda route: route.fulfill(content_type="text/html", body=""))
        page.goto("http://elsewhere.test/")
        asking = f"fetch('{gateway.address}/', {{mode: 'no-cors'}}).then(r => r.type, () => 'refused')"
        assert page.evaluate(asking) != "basic"
        person.wrong.clear()


@proves("8.gateway.7")
def test_a_gateway_that_was_killed_is_found_again_and_nothing_is_doubled(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        person.say("hello")
        person.said("How can I help?")
        person.say("wait")
        person.see("#panel a", "running")
        gateway.end(signal.SIGKILL)
        person.see("#connection", "not connected")
        banner = person.see("#offline", "The gateway does not answer. What you see is as of ")
        expect(banner.get_by_role("button", name="Try now")).to_be_visible()
        person.say("hello again")
        person.see("#chat-pending .msg", "not sent yet")
        gateway.start()
        person.see("#connection", "connected")
        expect(banner).to_be_hidden()
        person.said("You said: hello again")
        release(gateway)
        person.said("The waiter is done.")
        person.said("How can I help?")
        person.see("#chat-log .msg[data-role=user]", "hello again")
        expect(page.locator("#chat-pending .msg")).to_have_count(0)
        person.see("#panel a", "done")
        expect(page.locator("#chat-log .card.slim")).to_contain_text("done")
        shown = page.locator("#chat-log .msg").all_inner_texts()
        page.reload()
        person.said("The waiter is done.")
        expect(page.locator("#chat-log .card.slim")).to_contain_text("done")
        assert page.locator("#chat-log .msg").all_inner_texts() == shown


@proves("8.gateway.18", "The page takes a one-time code out of its address before any request")
def test_a_link_of_fledge_page_signs_in_once_and_leaves_no_code(browser: Browser, gateway: Gateway) -> None:
    command = [sys.executable, "-m", "fledge.cli.main", "page", "--no-open", "--state", str(gateway.state)]
    done = subprocess.run(command, env=gateway.model.env, capture_output=True, text=True, timeout=60, check=True)
    address = done.stdout.splitlines()[0]
    with sitting(browser, gateway) as person:
        page = person.page
        asked: list[str] = []
        page.on("request", lambda one: asked.append(f"{one.method} {one.url.removeprefix(gateway.address)}"))
        page.goto(address)
        person.see("#connection", "connected")
        assert next(one for one in asked if one != "GET /" and not one.startswith("GET /page/")) == "POST /login"
        assert "code" not in page.url
        kept = page.evaluate("JSON.stringify([localStorage, sessionStorage])")
        assert gateway.token not in kept
        assert address.partition("=")[2] not in kept
        page.reload()
        person.see("#connection", "connected")
    with sitting(browser, gateway) as person:
        person.page.goto(address)
        person.see("#signin-error", "it is good once, for a minute")
        assert "code" not in person.page.url


@proves("8.gateway.25")
def test_a_label_acts_on_a_reader_nowhere_on_the_page(browser: Browser, gateway: Gateway) -> None:
    gateway.call("sessions.open", session="named")
    gateway.call("sessions.patch", session="named", label=f"\u202e{HOSTILE}"[:128])
    with sitting(browser, gateway) as person:
        page = person.page
        person.sign_in()
        page.goto(f"{gateway.address}/#/chat/agent%3Amain%3Anamed")
        person.see("h1", "<U+202E><img")
        expect(page).to_have_title(re.compile("^<U\\+202E><img"))
        person.see("#conversations", "<U+202E><img")
        assert page.evaluate(ACTING) == []
        page.get_by_role("button", name="More", exact=True).click()
        page.get_by_role("menuitem", name="Rename …").click()
        assert page.evaluate(ACTING) == []


@proves("8.gateway.24", "A browser that has signed in is signed in in every tab, also by a link to a view")
def test_a_browser_signs_in_once_for_every_tab_and_signs_out_of_all(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person, sitting(browser, gateway) as stranger:
        person.sign_in()
        person.say("hello")
        person.said("How can I help?")
        other = Person(person.page.context.new_page(), gateway)
        other.page.goto(f"{gateway.address}/#/settings")
        other.see("#signins li", "this browser")
        gateway.end()
        gateway.start()
        other.page.reload()
        other.see("#signins li", "this browser")
        stranger.page.goto(f"{gateway.address}/#/health")
        expect(stranger.page.get_by_label("Token of this gateway")).to_be_focused()
        stranger.show_token(gateway.token)
        expect(stranger.page.get_by_role("heading", name="Health", exact=True)).to_be_visible()
        other.page.reload()
        expect(other.page.locator("#signins li")).to_have_count(2)
        other.page.get_by_role("button", name="Sign out Chrome").click()
        expect(other.page.locator("#signins li")).to_have_count(1)
        stranger.see("#signin-error", "This browser is not signed in any more.")
        other.page.get_by_role("button", name="Sign out", exact=True).click()
        for one in (person, other):
            expect(one.page.get_by_label("Token of this gateway")).to_be_visible()
        assert gateway.call("signins.list") == []
        person.show_token(gateway.token)
        person.said("How can I help?")
        other.see("#connection", "connected")
        assert other.wrong == []


def test_a_sign_out_that_the_gateway_did_not_hear_of_says_so(browser: Browser, gateway: Gateway) -> None:
    with sitting(browser, gateway) as person:
        person.sign_in()
        person.page.route("**/rpc", lambda route: route.abort("connectionreset"))
        person.page.get_by_role("button", name="Sign out", exact=True).click()
        person.see("#signin-error", "The gateway could not be told")
        assert person.page.evaluate("sessionStorage.length + localStorage.length") == 0
