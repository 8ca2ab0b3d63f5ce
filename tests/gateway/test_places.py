"""The other places: health, metrics and schema for machines, and what channels post to us."""

import http.client
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fledge.channels.webhook import sign
from fledge.commands.methods import METHODS
from tests.gateway.serving import Server, serving

SECRET = "s" * 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    tmp_path = tmp_path_factory.mktemp("places")
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    settings: dict[str, object] = {
        "gateway": {"port": 0},
        "channels": {"ops": {"kind": "webhook", "url": "http://127.0.0.1:9/hook", "secretFile": str(secret)}},
    }
    with serving(tmp_path / "state", settings=settings) as server:
        yield server


def test_health_and_schema_are_the_methods_and_the_table(server: Server) -> None:
    client = server.client()
    assert msgspec.json.decode(client.request("GET", "/health"))["status"] == "ok"
    assert set(msgspec.json.decode(client.request("GET", "/schema"))["methods"]) == set(METHODS)


def test_metrics_are_lines_that_prometheus_reads(server: Server) -> None:
    client = server.client()
    client.call("runs.spawn", program="counted", task="Say hello")
    run_id = client.call("runs.list", requester="agent:main:counted")[0]["runId"]
    client.call("runs.result", run=run_id)
    lines = client.request("GET", "/metrics").decode().splitlines()
    assert 'fledge_outcomes_total{status="ok"} 1' in lines
    assert 'fledge_deliveries_total{kind="delivered",reason="direct"} 1' in lines
    assert "fledge_drivers 0" in lines
    names = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {line.partition("{")[0].split()[0] for line in lines if not line.startswith("#")} <= names


def posted(server: Server, channel: str, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("POST", f"/channels/{channel}", body, headers)
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def test_what_a_channel_posts_is_taken_once_if_its_signature_is_right(server: Server) -> None:
    body = msgspec.json.encode({"sender": "ann", "text": "Hello from outside"})
    now = server.desk.fl.engine.clock.now()
    headers = sign(SECRET, "message-1", now, body)
    assert [posted(server, "ops", body, headers) for _ in range(2)] == [202, 202]
    client = server.client()
    client.call("sessions.wait", session="main")
    said = [one["text"] for one in client.call("sessions.history", session="main") if one["role"] == "user"]
    assert said.count("Hello from outside") == 1


@pytest.mark.parametrize(
    ("channel", "change", "status"),
    [("ops", "body", 403), ("ops", "unsigned", 403), ("nowhere", "", 403), ("ops", "old", 403), ("ops", "shape", 400)],
)
def test_what_is_not_proven_or_makes_no_sense_is_not_taken(
    server: Server, channel: str, change: str, status: int
) -> None:
    body = msgspec.json.encode({"sender": "eve", "text": f"Let me in {change}"} if change != "shape" else {"eve": 1})
    now = server.desk.fl.engine.clock.now() - (3600 if change == "old" else 0)
    headers = {} if change == "unsigned" else sign(SECRET, f"message {change}", now, body)
    sent = body.replace(b"eve", b"ann") if change == "body" else body
    assert posted(server, channel, sent, headers) == status
    history = server.client().call("sessions.history", session="main") if change == "" else []
    assert [one for one in history if "Let me in" in one["text"]] == []


def test_the_places_are_behind_the_same_door(server: Server, tmp_path: Path) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", "/channels/ops", b"{}", {"host": "evil.example"})
    assert connection.getresponse().status == 421
    connection.close()
