"""Gateways that run no agents, in processes of their own (`fledge serve --no-drive`), and a client that goes on with
another one when one does not answer."""

import asyncio
import os
import random
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from fledge.errors import FledgeError
from tests.cli import command
from tests.gateway.asking import Client, answer_in, request

ANSWER_S = 5.0
"""How long the client waits for an answer before it asks another gateway."""
SETTINGS = """{
  agents: {defaults: {model: "scripted/echo", subagents: {maxChildrenPerAgent: 100000}}},
  gateway: {requestsPerSecond: 10000},
}"""


class GatewayProcess:
    """A gateway."""

    def __init__(self, url: str, folder: Path) -> None:
        config = folder / "config"
        config.mkdir(exist_ok=True)
        (config / "fledge.json5").write_text(SETTINGS)
        (folder / "work").mkdir(exist_ok=True)
        env = {name: value for name, value in os.environ.items() if not name.startswith("FLEDGE_")}
        env |= {"HOME": str(folder), "FLEDGE_CONFIG": str(config)}
        line = ("serve", "--port", "0", "--no-drive", "--store", url, "--state", str(folder / "files"))
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it is killed)
        self._process = subprocess.Popen(
            [*command.PROGRAM, *line],
            cwd=folder / "work",
            env=env,
            stdout=subprocess.PIPE,
            stderr=self._log,  # it logs each run: nobody would empty a pipe
            text=True,
        )
        self.pid = self._process.pid
        self.address = self.token = ""

    async def ready(self) -> "GatewayProcess":
        """Wait until it answers."""
        assert self._process.stdout is not None
        said = await asyncio.to_thread(self._process.stdout.readline)
        assert " at " in said, self._words()
        self.address, _, token = said.strip().partition(" at ")[2].partition("; the token is in ")
        self.token = await asyncio.to_thread(lambda: Path(token).read_text().strip())
        return self

    @property
    def client(self) -> Client:
        return Client(self.address, self.token)

    @property
    def complaint(self) -> str:
        """What it said, if it has ended by itself."""
        return "" if self._process.poll() is None else f"ended with {self._process.returncode}: {self._words()}"

    def _words(self) -> str:
        self._log.seek(0)
        return self._log.read().decode()[-2000:]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once. Killing it twice is fine."""
        if not self._log.closed:
            self._process.kill()
            self._process.communicate()
            self._log.close()


class Caller:
    """A client of several gateways: it asks one of them, and another one if there is no answer in time. What it asks
    has a key, so that it is done once."""

    def __init__(self, gateways: list[GatewayProcess], dice: random.Random) -> None:
        self._gateways, self._dice = gateways, dice
        self.asked_again = 0

    async def call(self, method: str, **params: object) -> Any:
        """What the method answers."""
        while True:
            client = self._dice.choice(self._gateways).client
            try:
                return answer_in(await asyncio.to_thread(client.exchange, request(method, params), ANSWER_S))
            except FledgeError:
                self.asked_again += 1
                await asyncio.sleep(0.05)
