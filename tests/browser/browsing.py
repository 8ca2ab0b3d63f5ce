"""What the page's tests share: a browser, a real `fledge serve`, and a person in front of the page."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

from playwright.sync_api import Browser, Dialog, Locator, Page, Route, expect, sync_playwright

from fledge.gateway.page import HEADERS
from tests.cli.model_server import MODEL, Model
from tests.gateway.asking import Client
from tests.left_out import requires

PATIENCE_MS = 20_000
SETTINGS = (
    "tools.write.approval=ask",
    "announce.maxRetries=0",
    "agents.defaults.subagents.maxSpawnDepth=2",
    "agents.defaults.subagents.maxChildrenPerAgent=200",  # tests spawn faster than models answer
)
expect.set_options(timeout=PATIENCE_MS)
PAGE_FILE = re.compile(r"/page/[a-z]+\.(js|css|svg)")
ARTIFACT = re.compile(r"/(artifacts|attachments)/[^?]+")
ACTING = r"""() => {
  const acts = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/;
  const all = [...document.querySelectorAll("*")];
  const read = ({ name }) => !name.startsWith("data-") && name !== "id";
  return [
    document.title,
    ...all.flatMap((one) => [...one.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data)),
    ...all.flatMap((one) => [...one.attributes].filter(read).map(({ name, value }) => `${name}=${value}`)),
    ...all.filter((one) => "value" in one).map((one) => `${one.value}`),
  ].filter((words) => acts.test(words));
}"""
"""Everything in the document that a person reads, by eye or by ear, and that has a character which acts."""
FEED = re.compile(r"/events\?rows=true(&cursor=\d+)?")


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser, as long as the block lasts."""
    requires("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def modules(browser: Browser) -> Iterator[Page]:
    """An empty document under the page's own policy, whose scripts can import the page's modules; no gateway."""
    context = browser.new_context()
    wrong: list[str] = []
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda told: wrong.append(told.text))
        page.route("https://page.test/**", _give)
        page.goto("https://page.test/")
        yield page
        assert wrong == [], wrong
    finally:
        context.close()


def _give(route: Route) -> None:
    name = route.request.url.rpartition("/")[2]
    if name == "":
        route.fulfill(content_type="text/html", headers=HEADERS, body='<!doctype html><p id="says"></p>')
    else:
        body = files("fledge.web").joinpath(name).read_text()
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        route.fulfill(content_type=kind, headers=HEADERS, body=body)


class Gateway:
    """`fledge serve` in a process of its own, which can be killed and started again at the same address."""

    def __init__(self, model: Model, folder: Path, *settings: str) -> None:
        self.model, self.folder, self.settings = model, folder, settings
        self.state, self.port = folder / "state", 0
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it; it takes requests afterwards."""
        settings = [part for one in (*SETTINGS, *self.settings) for part in ("--set", one)]
        place = ("--state", str(self.state), "--port", str(self.port))
        command = [sys.executable, "-m", "fledge.cli.main", "serve", *place, *MODEL, *settings]
        (self.folder / "work").mkdir(exist_ok=True)
        with (self.folder / "serve.log").open("a") as log:
            self._process = subprocess.Popen(
                command, cwd=self.folder / "work", env=self.model.env, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._process.stdout is not None
        told = self._process.stdout.readline()
        assert " at http://" in told, (self.folder / "serve.log").read_text()
        self.port = int(told.partition(" at http://")[2].partition(";")[0].rpartition(":")[2])

    def end(self, how: int = signal.SIGTERM) -> None:
        """End it, by this signal."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return (self.state / "gateway.token").read_text().strip()

    def call(self, method: str, **params: object) -> Any:
        return Client(self.address, self.token).call(method, **params)


class Served(Protocol):
    """A gateway: where it is, and its token."""

    @property
    def address(self) -> str: ...

    @property
    def token(self) -> str: ...


class Person:
    """Somebody in front of the page. Whatever the page should never do is remembered in `wrong`."""

    def __init__(self, page: Page, gateway: Served) -> None:
        self.page, self.gateway = page, gateway
        self.wrong: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("dialog", self._asked_by)
        page.on("pageerror", lambda error: self.wrong.append(f"error {error}"))
        page.on("console", lambda told: self._heard(told.text))
        page.on("request", lambda asked: self._asked(asked.url, asked.headers.get("cookie")))

    def _asked_by(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _heard(self, text: str) -> None:
        # Chromium itself says so of every answer that is no success, and of a gateway that is gone.
        if not text.startswith("Failed to load resource"):
            self.wrong.append(f"console {text}")

    def _asked(self, url: str, cookie: str | None) -> None:
        path = url.partition("#")[0].removeprefix(self.gateway.address)
        is_known = path in ("/", "/rpc", "/login") or any(one.fullmatch(path) for one in (PAGE_FILE, FEED, ARTIFACT))
        if not url.startswith(self.gateway.address) or not is_known or self.gateway.token in url or cookie:
            self.wrong.append(f"request {url} cookie {cookie}")

    def sign_in(self) -> None:
        self.page.goto(self.gateway.address)
        self.show_token(self.gateway.token)
        self.see("#connection", "connected")

    def show_token(self, token: str) -> None:
        self.page.get_by_label("Token of this gateway").fill(token)
        self.page.keyboard.press("Enter")

    def say(self, text: str) -> None:
        box = self.page.get_by_label("Message, or a command such as /help")
        box.fill(text)
        if text.startswith("/"):
            box.press("Escape")  # close the menu of commands
        box.press("Enter")

    def see(self, where: str, text: str, times: int = 1) -> Locator:
        """So many parts of the page hold this text, now or soon."""
        found = self.page.locator(where).filter(has_text=text)
        expect(found).to_have_count(times, timeout=PATIENCE_MS)
        return found

    def said(self, text: str) -> Locator:
        """An answer in the conversation, once."""
        return self.see("#chat-log .msg[data-role=assistant]", text)


@contextmanager
def sitting(browser: Browser, gateway: Served, **options: Any) -> Iterator[Person]:
    """A person with a fresh browser, as long as the block lasts; the page did nothing wrong meanwhile."""
    context = browser.new_context(**options)
    try:
        person = Person(context.new_page(), gateway)
        yield person
        assert person.page.evaluate("window.hacked") is None
        assert context.cookies() == []
        assert person.wrong == [], person.wrong
    finally:
        context.close()


@contextmanager
def signed_in(
    browser: Browser, gateway: Gateway, width: int = 1440, height: int = 900, theme: str = "light"
) -> Iterator[Person]:
    """A person who has signed in, in a window so wide, and who wants no motion."""
    size = {"width": width, "height": height}
    with sitting(browser, gateway, viewport=size, color_scheme=theme, reduced_motion="reduce") as person:
        person.sign_in()
        yield person
