"""Strangers at the gateway's port: however many connect, wait, or post to channels, its owner gets in."""

import contextlib
import http.client
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fledge.channels.webhook import sign
from fledge.cli import verbs
from fledge.cli.where import Where
from fledge.commands.gateway_state import Patience
from fledge.gateway.bodies import MOST_AT_ONCE
from fledge.store.lock import holder_of
from fledge.store.ways import read_token
from tests.cli.command import ANY_RUNS, PROGRAM
from tests.gateway.asking import Client
from tests.gateway.serving import Server, serving
from tests.statements import proves

SECRET = "s" * 40
MIB = 1024 * 1024
PATIENCE_S = 30.0


@contextlib.contextmanager
def connections(server: Server, count: int, say: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections to a gateway that say this and nothing more."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S))
            one.sendall(say)
            opened.append(one)
        yield opened


def is_closed(connection: socket.socket) -> bool:
    """True as soon as the gateway has closed this connection; it must, or answer."""
    try:
        return connection.recv(65536) == b""
    except ConnectionResetError:
        return True


def is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        connection.settimeout(PATIENCE_S)


# ---- connections -----------------------------------------------------------------------------------------------------


@proves("8.gateway.10", "Connections that do not complete the head of a request cannot keep the owner out")
@pytest.mark.parametrize("say", [b"", b"POST /rpc HTTP/1.1\r\nhost: 127.0"], ids=["silent", "half a head"])
def test_silent_connections_do_not_lock_the_owner_out(tmp_path: Path, say: bytes) -> None:
    with serving(tmp_path / "state") as server:
        most = server.desk.limits.max_connections
        with connections(server, most + 20, say) as strangers:
            assert server.client().call("health")["status"] == "ok"
            with server.socket() as websocket:
                websocket.send('{"jsonrpc":"2.0","method":"health","id":1}')
                assert '"status":"ok"' in str(websocket.recv(PATIENCE_S))
            # Those that came first had waited longest.
            assert all(is_closed(one) for one in strangers[:20])
            assert is_open(strangers[-1])
            assert verbs.runs(Where(server.state), "ps", ANY_RUNS).code == 0


@proves("8.gateway.10")
def test_a_connection_at_work_is_not_closed_for_a_silent_one(tmp_path: Path) -> None:
    with serving(tmp_path / "state", settings={"gateway": {"port": 0, "maxConnections": 4}}) as server:
        run_id = server.client().call("agent", message="Wait for me")["runId"]
        waited: list[object] = []
        waiting = threading.Thread(
            target=lambda: waited.append(server.client().call("agent.wait", run=run_id, timeoutMs=60_000))
        )
        before = server.desk.requests
        waiting.start()
        while server.desk.requests == before:
            os.sched_yield()
        with connections(server, 20) as strangers:
            assert all(is_closed(one) for one in strangers[:16])
            server.client().call("sessions.stop")
            waiting.join(PATIENCE_S)
        assert len(waited) == 1


def test_when_every_connection_is_at_work_one_more_is_told_to_wait(tmp_path: Path) -> None:
    with serving(tmp_path / "state", settings={"gateway": {"port": 0, "maxConnections": 2}}) as server:
        with server.socket(), server.socket():
            head = f"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {server.token}\r\n\r\n"
            with connections(server, 1, head.encode()) as (one,):
                assert one.recv(12) == b"HTTP/1.1 503"
        assert server.client().call("health")["status"] == "ok"


@proves("8.gateway.11", "The head of a request, and its body, have a deadline")
@pytest.mark.parametrize("say", [b"", b"GET / HTTP/1.1\r\nhost:"], ids=["silent", "half a head"])
def test_a_head_that_does_not_come_in_time_is_not_waited_for(tmp_path: Path, say: bytes) -> None:
    with serving(tmp_path / "state", patience=Patience(head_s=0.2)) as server:
        with connections(server, 3, say) as strangers:
            assert all(is_closed(one) for one in strangers)
        # What is under way, and a WebSocket, has its head behind it.
        with server.socket() as websocket:
            assert server.client().call("sessions.wait", timeoutMs=1000)["settled"]
            websocket.send('{"jsonrpc":"2.0","method":"health","id":1}')
            assert '"status":"ok"' in str(websocket.recv(PATIENCE_S))


# ---- channels --------------------------------------------------------------------------------------------------------


def channels(tmp_path: Path) -> dict[str, object]:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    return {"ops": {"kind": "webhook", "url": "http://127.0.0.1:9/hook", "secretFile": str(secret)}}


def post(port: int, channel: str, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.request("POST", f"/channels/{channel}", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def forged(body: bytes) -> dict[str, str]:
    """The headers of somebody who does not know the secret, and knows what they look like."""
    return sign("x" * 40, "message", time.time(), body)


def genuine(number: int) -> tuple[bytes, dict[str, str]]:
    body = msgspec.json.encode({"sender": "ann", "text": f"Hello {number}"})
    return body, sign(SECRET, f"message-{number}", time.time(), body)


@proves("8.gateway.12", "Posts to channels are counted apart from the owner's requests until their signature holds")
@pytest.mark.parametrize("channel", ["ops", "nowhere"])
def test_strangers_that_post_to_channels_use_up_nothing_of_the_owners_rate(tmp_path: Path, channel: str) -> None:
    settings = {"gateway": {"port": 0, "requestsPerSecond": 5}, "channels": channels(tmp_path)}
    with serving(tmp_path / "state", settings=settings) as server:
        statuses = [post(server.port, channel, b"{}", forged(b"{}")) for _ in range(40)]
        assert set(statuses) == {403, 429}
        assert [server.client().call("health")["status"] for _ in range(10)] == ["ok"] * 10


@proves("8.gateway.12")
def test_what_is_proven_counts_as_the_owners_and_not_as_a_strangers(tmp_path: Path) -> None:
    settings = {"gateway": {"port": 0, "requestsPerSecond": 1}, "channels": channels(tmp_path)}
    with serving(tmp_path / "state", settings=settings) as server:
        statuses = [post(server.port, "ops", *genuine(number)) for number in range(8)]
        assert statuses[:4] == [202] * 4
        assert set(statuses) == {202, 429}
        assert post(server.port, "ops", b"{}", forged(b"{}")) == 403


@proves("8.gateway.13", "What can be refused without the body is refused before it is read: an unknown channel")
@pytest.mark.parametrize(("channel", "signed"), [("nowhere", True), ("nowhere", False), ("ops", False)])
def test_what_cannot_be_taken_is_answered_before_its_body_is_read(tmp_path: Path, channel: str, signed: bool) -> None:
    with serving(tmp_path / "state", settings={"gateway": {"port": 0}, "channels": channels(tmp_path)}) as server:
        headers = "".join(f"{name}: {value}\r\n" for name, value in (forged(b"") if signed else {}).items())
        head = f"POST /channels/{channel} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}content-length: {8 * MIB}\r\n\r\n"
        with connections(server, 1, head.encode()) as (one,):
            assert one.recv(12) == b"HTTP/1.1 403"


@proves("8.gateway.14", "Bodies of senders that are not proven are bounded altogether, and the oldest makes room")
def test_slow_strangers_make_room_for_a_message_that_is_there_at_once(tmp_path: Path) -> None:
    settings = {"gateway": {"port": 0, "requestsPerSecond": 1000}, "channels": channels(tmp_path)}
    with serving(tmp_path / "state", settings=settings) as server:
        headers = "".join(f"{name}: {value}\r\n" for name, value in forged(b"").items())
        head = f"POST /channels/ops HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}content-length: 1000\r\n\r\n{{"
        with connections(server, MOST_AT_ONCE + 10, head.encode()) as strangers:
            assert [one.recv(12) for one in strangers[:10]] == [b"HTTP/1.1 503"] * 10
            assert post(server.port, "ops", *genuine(1)) == 202
            assert is_open(strangers[-1])
            assert server.client().call("health")["status"] == "ok"


@proves("8.gateway.14")
@pytest.mark.parametrize("how", ["content-length: {length}", "transfer-encoding: chunked"], ids=["told", "in pieces"])
def test_strangers_cannot_make_the_gateway_hold_much(tmp_path: Path, how: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "fledge.json5").write_bytes(msgspec.json.encode({"channels": channels(tmp_path)}))
    env = os.environ | {"FLEDGE_CONFIG": str(tmp_path / "config"), "FLEDGE_STATE": str(tmp_path / "state")}
    length, senders = 4 * MIB - 1024, 40
    with subprocess.Popen([*PROGRAM, "serve", "--port", "0"], cwd=work, env=env, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"fledge serves")
            holder = holder_of(tmp_path / "state" / "lock")
            assert holder is not None
            port = int(holder.address.rpartition(":")[2])
            before = memory_of(process.pid)
            threads = [threading.Thread(target=sends_most, args=(port, how, length)) for _ in range(senders)]
            for thread in threads:
                thread.start()
            assert Client(holder.address, read_token(tmp_path / "state")).call("health")["status"] == "ok"
            for thread in threads:
                thread.join(PATIENCE_S)
            assert memory_of(process.pid) - before < 80 * MIB
        finally:
            process.terminate()
            assert process.wait(PATIENCE_S) == 0


def sends_most(port: int, how: str, length: int) -> None:
    """Post a body to a channel as somebody who cannot sign, but for its last byte, and wait to be turned away."""
    headers = "".join(f"{name}: {value}\r\n" for name, value in forged(b"").items())
    body = b" " * (length - 1)
    if "chunked" in how:
        body = b"".join(b"10000\r\n" + b" " * 0x10000 + b"\r\n" for _ in range(length // 0x10000))
    head = f"POST /channels/ops HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}{how.format(length=length)}\r\n\r\n"
    with (
        contextlib.suppress(ConnectionError, TimeoutError),
        socket.create_connection(("127.0.0.1", port), timeout=2.0) as connection,
    ):
        connection.sendall(head.encode() + body)
        connection.recv(100)


def memory_of(pid: int) -> int:
    """The most that a process has held in memory, in bytes."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
