"""The pictures of README.md, in `docs/pictures/`: `make pictures`.

`demo.svg` is the screen that `fledge demo` leaves on a real pseudo-terminal. `chat.svg` is the scene `chat` of
`docs.screens` on the real screen of the chat. `page.png` is the page of a real gateway in Chromium, whose agents follow
a script. Times and process numbers differ from run to run, so no test checks that the pictures are fresh.
"""

import asyncio
import html
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pyte
from playwright.sync_api import sync_playwright
from tests.browser.browsing import Person
from tests.gateway.serving import Server, serving

from docs import screens
from fledge.models.base import Request
from fledge.models.scripted import Answer, ScriptedModel, ScriptedReply, last_text, use
from fledge.testing import run_virtual

FOLDER = Path(__file__).with_name("pictures")
LINE, CHAR, MARGIN, WIDTH = 18, 8.4, 16, 112
PAPER, PLAIN = "#1a1b26", "#c0caf5"
INK = {
    "red": "#f7768e",
    "green": "#9ece6a",
    "brown": "#e0af68",
    "blue": "#7aa2f7",
    "magenta": "#bb9af7",
    "cyan": "#73daca",
}
"""The colours of a terminal, by pyte's names."""

Run = tuple[str, str, bool]
"""Neighbouring characters of one style: their text, colour, and whether they are bold."""


def runs(screen: pyte.Screen) -> list[list[Run]]:
    """The rows of a terminal, each divided by style; without empty rows at the end."""
    rows: list[list[Run]] = []
    for y in range(screen.lines):
        row: list[Run] = []
        for x in range(screen.columns):
            cell = screen.buffer[y][x]
            style = (INK.get(cell.fg, PLAIN), bool(cell.bold))
            if row and row[-1][1:] == style:
                row[-1] = (row[-1][0] + cell.data, *style)
            else:
                row.append((cell.data, *style))
        rows.append(row)
    while rows and not "".join(text for text, _, _ in rows[-1]).strip():
        rows.pop()
    return rows


def svg(rows: Sequence[Sequence[Run]], columns: int) -> str:
    """The rows as an SVG that loads nothing."""
    width, height = int(columns * CHAR + 2 * MARGIN), len(rows) * LINE + 2 * MARGIN
    style = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:14px"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" style="{style}">'
    out = [head, f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>']
    for number, row in enumerate(rows):
        spans = []
        for text, ink, is_bold in row:
            weight = ' font-weight="bold"' if is_bold else ""
            spans.append(f'<tspan fill="{ink}"{weight}>{html.escape(text)}</tspan>')
        y = MARGIN + LINE * number + 13
        out.append(f'<text x="{MARGIN}" y="{y}" xml:space="preserve">{"".join(spans).rstrip()}</text>')
    return "\n".join([*out, "</svg>\n"])


def demo() -> str:
    """The screen after `fledge demo`, up to its advice for what to do next."""
    ours, theirs = pty.openpty()
    env = os.environ | {"TERM": "xterm", "COLUMNS": str(WIDTH), "LINES": "80"}
    command = [sys.executable, "-m", "fledge.cli.main", "demo"]
    screen = pyte.Screen(WIDTH, 80)
    stream = pyte.ByteStream(screen)
    stream.feed(b"$ fledge demo\r\n")
    with subprocess.Popen(command, stdout=theirs, stdin=theirs, stderr=theirs, env=env, close_fds=True):
        os.close(theirs)
        while piece := _read(ours):
            stream.feed(piece)
    os.close(ours)
    rows = runs(screen)
    end = next(at for at, row in enumerate(rows) if "".join(text for text, _, _ in row).startswith("Next, "))
    return svg(rows[: end - 1], WIDTH)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the program has ended
        return b""


def chat() -> str:
    """The scene of the chat, in colours."""
    shown: list[list[Run]] = []
    run_virtual(screens.chat(lambda glass: shown.extend(runs(glass.screen))))
    return svg(shown, screens.COLUMNS)


# ---- the page --------------------------------------------------------------------------------------------------------

ASKED = "Compare the three most used HTTP clients for Python, and check our own retry code."
TASKS = {
    "httpx": "Read the documentation of httpx and sum it up",
    "aiohttp": "Read the documentation of aiohttp and sum it up",
    "requests": "Read the documentation of requests and sum it up",
    "retry-code": "Check the retry code in this folder",
}
ANSWERS = {
    "httpx": "**httpx**: sync and async, HTTP/2, typed. Retries need a transport.",
    "aiohttp": "**aiohttp**: async only, the fastest of the three, with a server.",
    "requests": "**requests**: sync only, the largest ecosystem.",
}
SUMMARY = "Two of the four are back: **httpx** speaks HTTP/2, **aiohttp** is the fastest. Two are still at work."


def scripted(release: asyncio.Event) -> Callable[[Request], Awaitable[Answer]]:
    """A script: the main agent spawns the tasks and sums up; two subagents answer, one asks, one goes on working."""

    async def answer(request: Request) -> Answer:
        words = last_text(request)
        if words == ASKED:
            calls = tuple(use("sessions_spawn", task=task, label=label) for label, task in TASKS.items())
            return ScriptedReply("I send four subagents: one for each client, one for our code.", calls)
        read = " ".join(message.text for message in request.messages)
        if all(ANSWERS[one] in read for one in ("httpx", "aiohttp")):
            return ScriptedReply(SUMMARY)
        label = next((label for label, task in TASKS.items() if task in words), "")
        if label == "requests":
            await release.wait()
        if label == "retry-code":
            return ScriptedReply("", (use("exec", command="pytest -q tests/test_retry.py"),))
        if label:
            await asyncio.sleep(0.3)
            return ScriptedReply(ANSWERS[label])
        return ScriptedReply("Four subagents are at work.")

    return answer


def page(target: Path) -> None:
    """The conversation on the page of a gateway, with its subagents beside it."""
    settings: dict[str, object] = {"tools": {"exec": {"approval": "ask"}}}
    release = asyncio.Event()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        model = ScriptedModel(scripted(release))
        shop = Path(folder) / "shop"
        shop.mkdir()
        with serving(shop / "state", model, settings) as server:
            try:
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                window = browser.new_context(viewport={"width": 1180, "height": 700}, color_scheme="light")
                _show(Person(window.new_page(), server), server)
                window.pages[0].screenshot(path=target)
                browser.close()
            finally:
                server.loop.call_soon_threadsafe(release.set)


def _show(person: Person, server: Server) -> None:
    person.sign_in()
    person.say(ASKED)
    person.said("Two of the four are back")
    deadline = time.monotonic() + 20
    while not server.client().call("approvals.list") and time.monotonic() < deadline:
        time.sleep(0.1)
    person.page.wait_for_timeout(1500)


def main() -> None:
    """Make all of them."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "demo.svg").write_text(demo(), "utf-8")
    (FOLDER / "chat.svg").write_text(chat(), "utf-8")
    page(FOLDER / "page.png")
    for path in sorted(FOLDER.iterdir()):
        print(f"{path.relative_to(FOLDER.parents[1])}: {path.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
