"""What readers of feeds cost others: `/health` and a turn while one client reads all events of a folder from the first
one on, and others ask for them and read nothing.

The gateway is a process of its own. Its folder's history is copied in SQL (`history.py`). With and without the readers,
in the same run: ratios count. Its memory is looked at all the time.
"""

import contextlib
import http.client
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import fledge
from bench.history import copy_runs
from fledge.config import check
from fledge.gateway.serve import serve
from fledge.models.scripted import ScriptedModel, echo
from fledge.orchestrator.spawn_params import SpawnParams
from fledge.store.files import DATABASE
from fledge.store.ways import read_token

EVENTS_A_RUN = 6
SILENT = 30
"""Clients that read nothing."""
CALLS = 20
BUFFER = 4096
"""What the system holds for a silent client, in bytes: little, so that the rest waits in the gateway."""
TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Cost:
    """By the wall, with the readers and without them, and how much memory the gateway takes more."""

    health_ms: float
    health_alone_ms: float
    turn_ms: float
    turn_alone_ms: float
    grown_mb: float


def measured(events: int, rounds: int) -> Cost:
    """What readers of so many events cost."""
    with tempfile.TemporaryDirectory(prefix="fledge-bench-") as folder:
        state = Path(folder) / "state"
        fledge.run_sync(_live, state, model=ScriptedModel(echo), config={})
        copy_runs(state / DATABASE, events // EVENTS_A_RUN)
        with _gateway(state) as gateway:
            gateway.turn_ms()
            found = [_round(gateway) for _ in range(rounds)]
    health, health_alone, turn, turn_alone, grown = zip(*found, strict=True)
    return Cost(median(health), median(health_alone), median(turn), median(turn_alone), max(grown))


async def _live(fl: fledge.Fledge) -> None:
    main = fl.session("main")
    await main.send("Hello")
    await fl.spawner.spawn(SpawnParams(task="task", label="run"), await fl.spawner.caller_for(main.key))
    await main.settled()


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway in a process of its own."""

    port: int
    token: str
    pid: int

    def health_ms(self) -> float:
        """How long `/health` takes."""
        return self._took_ms("health", "{}")

    def turn_ms(self) -> float:
        """How long a message and its answer take."""
        return self._took_ms("send", '{"session": "main", "message": "Hello"}')

    def _took_ms(self, method: str, params: str) -> float:
        body = f'{{"jsonrpc": "2.0", "id": 1, "method": "{method}", "params": {params}}}'
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            connection.connect()
            began = time.perf_counter()
            head = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
            connection.request("POST", "/rpc", body, head)
            answer = connection.getresponse()
            told = answer.read()
            took_ms = (time.perf_counter() - began) * 1000
        if answer.status != 200 or b'"result"' not in told:
            raise RuntimeError(f"{method}: {answer.status} {told[:500]!r}")
        return took_ms

    def feed(self, buffer: int = 0) -> socket.socket:
        """A connection whose answer are all events from the first one on."""
        client = socket.socket()
        if buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.connect(("127.0.0.1", self.port))
        head = f"GET /events?cursor=0 HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {self.token}\r\n\r\n"
        client.sendall(head.encode())
        return client

    def memory_mb(self) -> float:
        """Its memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1])
        return pages * 4096 / 1e6


def _round(gateway: Gateway) -> tuple[float, float, float, float, float]:
    before_mb = gateway.memory_mb()
    alone = _times(gateway)
    with ExitStack() as readers:
        for _ in range(SILENT):
            readers.enter_context(contextlib.closing(gateway.feed(BUFFER)))
        readers.enter_context(_reading(gateway))
        beside = _times(gateway)
        grown_mb = gateway.memory_mb() - before_mb
    return beside[0], alone[0], beside[1], alone[1], grown_mb


def _times(gateway: Gateway) -> tuple[float, float]:
    health = median(gateway.health_ms() for _ in range(CALLS))
    return health, median(gateway.turn_ms() for _ in range(CALLS))


@contextmanager
def _reading(gateway: Gateway) -> Iterator[None]:
    """Read a feed from the first event on, as long as the block lasts; anew once it has ended."""
    ends = threading.Event()

    def read() -> None:
        while not ends.is_set():
            with contextlib.closing(gateway.feed()) as client:
                client.settimeout(1.0)
                with contextlib.suppress(TimeoutError):
                    while not ends.is_set() and client.recv(1 << 20):
                        pass

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@contextmanager
def _gateway(state: Path) -> Iterator[Gateway]:
    command = [sys.executable, "-m", "bench.feeds", str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline()
        try:
            yield Gateway(int(port), read_token(state), process.pid)
        finally:
            process.terminate()


async def _serve(state: Path) -> None:
    def ready(address: str, gateway: object) -> None:
        print(address.rpartition(":")[2], flush=True)

    config = check({"gateway": {"port": 0, "requestsPerSecond": 100_000}}).config
    await serve(state, config, model=ScriptedModel(echo), ready=ready)


if __name__ == "__main__":
    import asyncio

    asyncio.run(_serve(Path(sys.argv[1])))
