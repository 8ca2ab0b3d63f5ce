"""The page of a gateway that runs no agents: it shows the words that a worker in another process streams."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import expect

import fledge
from tests.browser.browsing import browsing, sitting
from tests.cluster.gateways import GatewayProcess
from tests.left_out import requires
from tests.scale.test_live import Speaker
from tests.statements import proves
from tests.store.conftest import server as server
from tests.store.postgres import Server

PATIENCE_S = 60.0


class Speaking:
    """A worker in a thread of its own, whose model says what the test gives it."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._ready, self._speaker = threading.Event(), Speaker()
        self._loop = asyncio.new_event_loop()
        self._ends = asyncio.Event()

    def say(self, text: str | None) -> None:
        """Let the model say more; None ends its reply."""
        self._loop.call_soon_threadsafe(self._speaker.pieces.put_nowait, text)

    @contextmanager
    def at_work(self) -> Iterator["Speaking"]:
        thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._work()), name="worker")
        thread.start()
        assert self._ready.wait(PATIENCE_S)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._ends.set)
            thread.join(PATIENCE_S)
            self._loop.close()

    async def _work(self) -> None:
        options = {"agents": {"defaults": {"subagents": {"maxChildrenPerAgent": 100_000}}}}
        files, work = self._folder / "files", self._folder / "work"
        async with fledge.open(files, store=self._url, model=self._speaker, config=options, workspace=work):
            self._ready.set()
            await self._ends.wait()


@proves("7.live.6")
@proves("7.live.7")
def test_the_page_shows_the_words_of_a_worker_as_they_come(server: Server, tmp_path: Path) -> None:
    requires("chromium")
    url = server.url(server.new_schema())
    (tmp_path / "work").mkdir()
    with Speaking(url, tmp_path).at_work() as worker:
        gateway = GatewayProcess(url, tmp_path)
        try:
            asyncio.run(gateway.ready())
            with browsing() as browser, sitting(browser, gateway) as person:
                person.sign_in()
                person.say("Tell me a story")
                worker.say("Once \N{BIRD} upon ")
                person.see("#chat-live", "Once \N{BIRD} upon")
                person.page.reload()
                person.see("#chat-live", "Once \N{BIRD} upon")
                worker.say("a time")
                person.see("#chat-live", "Once \N{BIRD} upon a time")
                assert person.page.locator("#chat-log .msg[data-role=assistant]").count() == 0
                worker.say(None)
                person.said("Once \N{BIRD} upon a time")
                expect(person.page.locator("#chat-live")).to_be_hidden()
        finally:
            gateway.kill()
