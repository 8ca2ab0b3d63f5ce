"""A network with latency: a TCP proxy that holds back what clients send for a while, so that a round trip takes longer.

Threads instead of asyncio, whose timers count in whole milliseconds. Usage: `python -m bench.delay HOST PORT MS`; it
prints the port that it listens on, and works until it is ended.
"""

import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


@contextmanager
def delayed(url: str, ms: float) -> Iterator[str]:
    """The address of the same server, this much further away, while the block lasts."""
    parts = urlsplit(url)
    words = [sys.executable, "-m", "bench.delay", parts.hostname or "127.0.0.1", str(parts.port or 5432), str(ms)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as proxy:
        try:
            assert proxy.stdout is not None
            user = f"{parts.username}@" if parts.username else ""
            yield urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{int(proxy.stdout.readline())}"))
        finally:
            proxy.kill()


def _pass_on(source: socket.socket, target: socket.socket, delay_s: float) -> None:
    """Give everything that comes from one side to the other, so much later."""
    held: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()

    def send() -> None:
        with suppress(OSError):
            while True:
                at, data = held.get()
                if (wait_s := at - time.monotonic()) > 0:
                    time.sleep(wait_s)
                if not data:
                    break
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()
    with suppress(OSError):
        while data := source.recv(1 << 16):
            held.put((time.monotonic() + delay_s, data))
    held.put((0.0, b""))


def main(host: str, port: int, delay_s: float) -> None:
    """Listen, and pass on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            client, _ = listener.accept()
            server = socket.create_connection((host, port))
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_pass_on, args=(client, server, delay_s), daemon=True).start()
            threading.Thread(target=_pass_on, args=(server, client, 0.0), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) / 1000)
