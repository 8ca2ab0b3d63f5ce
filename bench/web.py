"""What the page costs in a browser: a table of many runs and a long conversation, on a real gateway.

The folder's history is copied in SQL (`history.py`). CPU is that of the page's main thread, as the browser counts it;
until something is first shown, that of the gateway, too (Linux). Time by the wall is told beside that of a folder with
a few runs, by taking turns: alone it would say more of the machine than of the page. The browser is the system's
Chromium.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from urllib.request import Request, urlopen

import fledge
from bench.history import copy_entries, copy_runs
from fledge.models.scripted import ScriptedModel, echo
from fledge.orchestrator.spawn_params import SpawnParams
from fledge.store.files import DATABASE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

LIVED = 5
"""Runs that were really lived."""
MODEL = "openai/bench"
PATIENCE_MS = 120_000
_FIRST_RUN = "#runs-grid .vrow .name"
_NODES = "document.querySelectorAll('*').length"
_FILTER = """
(id) => new Promise((done) => {
  document.querySelector(`.pill.p-${id}`).click();
  requestAnimationFrame(() => setTimeout(done));
})
"""
_FILTERS = ("active", "all", "failed", "all")
_SHOWN = """
const look = () => {
  if (document.querySelector(WHAT)) window.shownMs = performance.now();
  else requestAnimationFrame(look);
};
look();
"""
"""Notes in which frame something is first there; 0 is when the page was asked for."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU in ms, and elements."""

    runs_ms: float
    """Until the first run is shown, from signing in on."""
    runs_wall_ms: float
    few_wall_ms: float
    """The same by the wall; and in a folder with a few runs."""
    runs_nodes: int
    """Elements in the document once all runs are read and the last is shown."""
    filter_ms: float
    chat_ms: float
    chat_nodes: int


def measured(runs: int, entries: int, rounds: int) -> Cost | None:
    """What the page costs with so many runs and entries; None: there is no browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return None
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        state, few = Path(folder) / "state", Path(folder) / "few"
        fledge.run_sync(_live, state, model=ScriptedModel(echo), config={})
        shutil.copytree(state, few)
        copy_runs(state / DATABASE, runs)
        copy_entries(state / DATABASE, "agent:main:main", entries)
        with _gateway(state) as gateway, _gateway(few) as beside, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            walls = [(_wall_ms(browser, gateway), _wall_ms(browser, beside)) for _ in range(rounds)]
            tables = [_table(browser, gateway, runs + LIVED) for _ in range(rounds)]
            chats = [_chat(browser, gateway) for _ in range(rounds)]
            browser.close()
    many_wall, few_wall = (median(column) for column in zip(*walls, strict=True))
    shown, nodes, filtered = (median(column) for column in zip(*tables, strict=True))
    said, said_nodes = (median(column) for column in zip(*chats, strict=True))
    return Cost(
        runs_ms=shown,
        runs_wall_ms=many_wall,
        few_wall_ms=few_wall,
        runs_nodes=int(nodes),
        filter_ms=filtered,
        chat_ms=said,
        chat_nodes=int(said_nodes),
    )


async def _live(fl: fledge.Fledge) -> None:
    main = fl.session("main")
    await main.send("Hello")
    caller = await fl.spawner.caller_for(main.key)
    for number in range(LIVED):
        await fl.spawner.spawn(SpawnParams(task=f"task {number}", label=f"run {number}"), caller)
    await main.settled()


@dataclass(frozen=True, slots=True)
class Gateway:
    """`fledge serve` in a process of its own."""

    address: str
    sign_in: str
    """The credential of a browser."""
    pid: int

    @property
    def cpu_ms(self) -> float:
        """What all its threads have taken; 0 where the kernel does not tell."""
        try:
            fields = Path(f"/proc/{self.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return 1000 * (int(fields[11]) + int(fields[12])) / _TICKS


def _signed_in(address: str, token: str) -> str:
    """The credential for which a browser shows the token."""
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json", "origin": address}
    with urlopen(Request(f"{address}/login", b"{}", headers)) as answer:
        return str(json.load(answer)["signIn"])


@contextmanager
def _gateway(state: Path) -> Iterator[Gateway]:
    command = [sys.executable, "-m", "fledge.cli.main", "serve", "--state", str(state), "--port", "0", "--model", MODEL]
    env = os.environ | {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    process = subprocess.Popen(
        command, cwd=state.parent, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert found is not None, "fledge serve does not start"
        yield Gateway(found[0], _signed_in(found[0], (state / "gateway.token").read_text().strip()), process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=30)


class Measured:
    """A page whose main thread's CPU is counted."""

    def __init__(self, page: "Page") -> None:
        self.page = page
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    @property
    def cpu_ms(self) -> float:
        found = {one["name"]: one["value"] for one in self._session.send("Performance.getMetrics")["metrics"]}
        return 1000 * float(found["TaskDuration"])

    @property
    def nodes(self) -> int:
        return int(self.page.evaluate(_NODES))


@contextmanager
def _shown(browser: "Browser", gateway: Gateway, path: str, what: str) -> Iterator[tuple[Measured, float]]:
    """A page that shows this, and the CPU that it and the gateway took until then."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.add_init_script(f"localStorage.setItem('fledge.signin', {gateway.sign_in!r})")
        page.add_init_script(_SHOWN.replace("WHAT", repr(what)))
        measured, before = Measured(page), gateway.cpu_ms
        page.goto(f"{gateway.address}/{path}")
        page.locator(what).first.wait_for()
        yield measured, measured.cpu_ms + gateway.cpu_ms - before
    finally:
        context.close()


def _wall_ms(browser: "Browser", gateway: Gateway) -> float:
    """How long it takes until the first run is shown."""
    with _shown(browser, gateway, "#/runs", _FIRST_RUN) as (measured, _):
        return float(measured.page.evaluate("window.shownMs"))


def _table(browser: "Browser", gateway: Gateway, runs: int) -> tuple[float, float, float]:
    """The first run, then all of them read and the last shown, then a filter."""
    with _shown(browser, gateway, "#/runs", _FIRST_RUN) as (measured, first_ms):
        page = measured.page
        grid = page.locator("#runs-grid")
        grid.focus()
        while grid.get_attribute("aria-rowcount") == "-1":
            page.keyboard.press("End")
        assert int(grid.get_attribute("aria-rowcount") or 0) > runs
        page.keyboard.press("End")
        nodes, before = measured.nodes, measured.cpu_ms
        for name in _FILTERS:
            page.evaluate(_FILTER, name)
        return first_ms, nodes, (measured.cpu_ms - before) / len(_FILTERS)


def _chat(browser: "Browser", gateway: Gateway) -> tuple[float, float]:
    """The newest entries of a long conversation."""
    with _shown(browser, gateway, "", "#chat-log .msg") as (measured, first_ms):
        return first_ms, measured.nodes
