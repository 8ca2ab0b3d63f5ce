"""Who gets in: the token, names, origins, rates, sizes and slowness; what is turned away does no harm."""

import http.client
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

import fledge
from fledge.commands.gateway_state import Patience
from fledge.errors import StoreError
from fledge.gateway.auth import Rate, door
from fledge.runtime.feed import TurnEvent
from fledge.store.ways import TOKEN_FILE, make_token, read_token
from tests.gateway.asking import Client, find
from tests.gateway.serving import OverHttp, Server, serving
from tests.statements import proves

TOKEN = "t" * 43
ASK = b'{"jsonrpc":"2.0","method":"health","id":1}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("door") / "state"
    patience = Patience(body_s=0.2, stuck_s=0.2, quiet_s=0.2)
    settings: dict[str, object] = {"gateway": {"port": 0, "requestsPerSecond": 10_000, "maxBodyKb": 64}}
    with serving(folder, settings=settings, patience=patience) as server:
        yield server


# ---- the token's file ------------------------------------------------------------------------------------------------


@proves("8.gateway.1", "The token lies in a 0600 file")
def test_the_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    token = make_token(tmp_path)
    assert len(token) >= 32
    assert make_token(tmp_path) == read_token(tmp_path) == token
    assert stat.S_IMODE((tmp_path / TOKEN_FILE).stat().st_mode) == 0o600


@proves("8.gateway.1")
def test_gateways_that_start_at_once_have_one_token(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as gateways:
        for number in range(50):
            (folder := tmp_path / str(number)).mkdir()
            assert len(set(gateways.map(make_token, [folder] * 4))) == 1
            assert [file.name for file in folder.iterdir()] == [TOKEN_FILE]


@proves("8.gateway.1")
def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    make_token(tmp_path)
    (tmp_path / TOKEN_FILE).chmod(0o640)
    for take in (make_token, read_token):
        with pytest.raises(fledge.Refused, match="can be read by others"):
            take(tmp_path)


@pytest.mark.parametrize("words", ["", "short", "\x00" * 64, "é" * 10])
def test_a_file_without_a_token_is_refused_not_overwritten(tmp_path: Path, words: str) -> None:
    (tmp_path / TOKEN_FILE).write_text(words)
    (tmp_path / TOKEN_FILE).chmod(0o600)
    with pytest.raises(fledge.Refused, match="holds no token"):
        make_token(tmp_path)
    assert (tmp_path / TOKEN_FILE).read_text() == words


def test_a_folder_without_a_token_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="fledge serve"):
        read_token(tmp_path)
    assert find(tmp_path) is None


# ---- the door --------------------------------------------------------------------------------------------------------


def shown(**headers: str) -> list[tuple[bytes, bytes]]:
    given = {"host": "127.0.0.1:1", "authorization": f"Bearer {TOKEN}"} | headers
    return [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in given.items() if value]


LOCAL = door(TOKEN, "127.0.0.1", ["box.example"], ["https://page.example"])
WIDE = door(TOKEN, "0.0.0.0", [], [])


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "localhost"},
        {"host": "LOCALHOST:18789"},
        {"host": "[::1]:5"},
        {"host": "box.example:80"},
        {"authorization": f"bearer {TOKEN}"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "https://page.example"},
        {"origin": "HTTPS://Page.Example"},
        {"origin": "https://page.example:443"},
        {"origin": "HTTP://LocalHost:1", "host": "localhost:1"},
        {"origin": "http://localhost", "host": "LOCALHOST:80"},
        {"origin": "http://[::1]:1", "host": "[::1]:1"},
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
    ],
)
def test_these_requests_are_let_in(headers: dict[str, str]) -> None:
    assert LOCAL.refuse(shown(**headers)) is None


LINK = {"authorization": "", "sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}


def test_a_link_from_another_site_opens_the_page_and_nothing_else() -> None:
    assert LOCAL.refuse(shown(**LINK), proven=True, opens=True) is None
    refused = [
        LOCAL.refuse(shown(**LINK), proven=True),
        *(
            LOCAL.refuse(shown(**LINK | other), proven=True, opens=True)
            for other in (
                {"sec_fetch_dest": "iframe"},
                {"sec_fetch_mode": "no-cors"},
                {"sec_fetch_mode": ""},
                {"origin": "https://evil.example"},
                {"origin": "null"},
            )
        ),
    ]
    assert [one and one.status for one in refused] == [403] * 6
    elsewhere = LOCAL.refuse(shown(**LINK | {"host": "evil.example"}), proven=True, opens=True)
    assert elsewhere is not None
    assert elsewhere.status == 421


@pytest.mark.parametrize(
    ("path", "status"), [("/", 200), ("/page/app.js", 403), ("/rpc", 403), ("/events", 403), ("/health", 403)]
)
def test_over_the_wire_too_only_the_page_itself_is_led_to(server: Server, path: str, status: int) -> None:
    headers = {
        "Authorization": f"Bearer {server.token}",
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        assert connection.getresponse().status == status
    finally:
        connection.close()


@proves("8.gateway.2", "It is compared in constant time")
@proves("8.gateway.4", "Origin and Host are checked")
@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (421, {"host": ""}),
        (421, {"host": "evil.example"}),
        (421, {"host": "evil.example:18789"}),
        (421, {"host": "127.0.0.1.evil.example"}),
        (421, {"host": "192.168.1.5"}),
        (421, {"host": "user@127.0.0.1"}),
        (421, {"host": "127.0.0.1/path"}),
        (421, {"host": "127.0.0.1:port"}),
        (421, {"host": "[::1"}),
        (403, {"origin": "http://evil.example"}),
        (403, {"origin": "null"}),
        (403, {"origin": "http://127.0.0.1:2"}),
        (403, {"origin": "http://localhost:1"}),
        (403, {"origin": "file://127.0.0.1:1"}),
        (403, {"origin": "https://page.example.evil.example"}),
        (403, {"origin": "https://page.example:444"}),
        (403, {"origin": "http://page.example:443"}),
        (403, {"origin": "https://page.example/path"}),
        (403, {"origin": "https://user@page.example"}),
        (403, {"origin": "http://["}),
        (403, {"origin": "http://127.0.0.1:port"}),
        (403, {"sec_fetch_site": "cross-site"}),
        (403, {"sec_fetch_site": "same-site"}),
        (401, {"authorization": ""}),
        (401, {"authorization": TOKEN}),
        (401, {"authorization": f"Basic {TOKEN}"}),
        (401, {"authorization": "Bearer"}),
        (401, {"authorization": f"Bearer {TOKEN[:-1]}"}),
        (401, {"authorization": f"Bearer {TOKEN}x"}),
        (401, {"authorization": "Bearer ÿ"}),
    ],
)
def test_these_requests_are_turned_away(status: int, headers: dict[str, str]) -> None:
    rejection = LOCAL.refuse(shown(**headers))
    assert rejection is not None
    assert rejection.status == status
    assert TOKEN not in rejection.words


@pytest.mark.parametrize("name", [b"host", b"authorization", b"origin"])
def test_a_header_that_must_be_there_once_counts_for_nothing_if_it_is_there_twice(name: bytes) -> None:
    headers = shown(origin="http://127.0.0.1:1")
    twice = [*headers, *((one, value) for one, value in headers if one == name)]
    assert LOCAL.refuse(twice) is not None


def test_one_that_listens_to_the_world_may_be_asked_for_by_address_but_not_by_a_strange_name() -> None:
    assert WIDE.refuse(shown(host="192.168.1.5:18789")) is None
    assert WIDE.refuse(shown(host="[fe80::1]:18789")) is None
    rejection = WIDE.refuse(shown(host="evil.example"))
    assert rejection is not None
    assert rejection.status == 421


def test_what_a_channel_signs_needs_no_token_but_the_right_name() -> None:
    assert LOCAL.refuse(shown(authorization=""), proven=True) is None
    assert LOCAL.refuse(shown(authorization="", host="evil.example"), proven=True) is not None


@pytest.mark.parametrize(
    ("hosts", "origins", "field"),
    [
        (["a b"], [], "gateway.allowedHosts"),
        (["box.example:80"], [], "gateway.allowedHosts"),
        ([""], [], "gateway.allowedHosts"),
        ([], ["page.example"], "gateway.allowedOrigins"),
        ([], ["https://page.example/"], "gateway.allowedOrigins"),
        ([], ["*"], "gateway.allowedOrigins"),
        ([], ["https://user@page.example"], "gateway.allowedOrigins"),
        ([], ["https://page.example:port"], "gateway.allowedOrigins"),
        ([], ["https://["], "gateway.allowedOrigins"),
    ],
)
def test_names_and_origins_that_could_never_match_are_refused(hosts: list[str], origins: list[str], field: str) -> None:
    with pytest.raises(fledge.BadInput) as refused:
        door(TOKEN, "127.0.0.1", hosts, origins)
    assert refused.value.field == field


@pytest.mark.parametrize("origin", ["https://page.example", "HTTPS://Page.Example", "https://page.example:443"])
def test_an_allowed_origin_is_the_same_in_either_case_and_with_its_usual_port(origin: str) -> None:
    entrance = door(TOKEN, "127.0.0.1", (), (one for one in [origin]))
    assert entrance.refuse(shown(origin="https://page.example")) is None
    assert entrance.refuse(shown(origin="https://other.example")) is not None


def test_a_malformed_origin_is_turned_away_over_the_wire(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("GET", "/health", headers={"Authorization": f"Bearer {server.token}", "Origin": "http://["})
        assert connection.getresponse().status == 403
    finally:
        connection.close()


def test_a_client_may_ask_in_bursts_and_then_so_often_and_others_do_not_suffer() -> None:
    rate = Rate(2.0, 4.0)
    assert [rate.take("a", 0.0) for _ in range(5)] == [False] * 4 + [True]
    assert not rate.take("b", 0.0)
    assert [rate.take("a", 0.5), rate.take("a", 0.5)] == [False, True]
    assert [rate.take("a", 100.0) for _ in range(5)] == [False] * 4 + [True], "what is not used does not pile up"


def test_however_many_clients_there_are_few_are_remembered() -> None:
    rate = Rate(1.0, 1.0)
    for number in range(20_000):
        rate.take(str(number), 0.0)
    assert len(rate._left) <= 10_000


# ---- over the wire ---------------------------------------------------------------------------------------------------


def request(server: Server, verb: str = "POST", path: str = "/rpc", **headers: str) -> tuple[int, bytes]:
    return requested(server, ASK, verb, path, **headers)


def requested(server: Server, body: bytes, verb: str = "POST", path: str = "/rpc", **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        given = {"authorization": f"Bearer {server.token}"} | {k.replace("_", "-"): v for k, v in headers.items()}
        connection.request(verb, path, body, {name: value for name, value in given.items() if value})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def is_well(server: Server) -> bool:
    return bool(OverHttp(server).call("health")["status"] == "ok")


@proves("8.gateway.4")
@proves("8.approvals.1")
@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (401, {"authorization": ""}),
        (401, {"authorization": "Bearer wrong"}),
        (421, {"host": "evil.example"}),
        (403, {"origin": "https://evil.example"}),
    ],
)
@pytest.mark.parametrize("path", ["/rpc", "/events", "/health", "/metrics", "/schema", "/nowhere"])
def test_everything_is_behind_the_door(server: Server, path: str, status: int, headers: dict[str, str]) -> None:
    verb = "POST" if path == "/rpc" else "GET"
    assert request(server, verb, path, **headers)[0] == status


@proves("8.gateway.3", "It is taken from the `Authorization` header only")
def test_a_token_in_an_address_or_a_cookie_does_not_count(server: Server) -> None:
    none = {"authorization": ""}
    assert (
        request(server, "GET", f"/health?token={server.token}&authorization=Bearer%20{server.token}", **none)[0] == 401
    )
    assert request(server, cookie=f"token={server.token}", **none)[0] == 401
    assert request(server, x_token=server.token, **none)[0] == 401


@pytest.mark.parametrize(
    ("status", "headers"),
    [(401, {}), (401, {"authorization": "Bearer wrong"}), (403, {"origin": "https://evil.example"})],
)
def test_a_socket_is_not_opened_without_showing_who_asks(server: Server, status: int, headers: dict[str, str]) -> None:
    given = {"authorization": f"Bearer {server.token}"} | headers if "origin" in headers else headers
    with pytest.raises(InvalidStatus) as refused, server.socket(additional_headers=given):
        pass
    assert refused.value.response.status_code == status
    assert is_well(server)


def test_wrong_tokens_in_a_row_are_slowed_down_and_the_right_one_still_gets_in(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        statuses = {request(server, authorization="Bearer wrong")[0] for _ in range(200)}
        assert statuses == {401, 429}
        assert request(server)[0] == 200


@proves("8.gateway.6")
def test_who_asks_too_often_is_told_to_wait(tmp_path: Path) -> None:
    with serving(tmp_path / "state", settings={"gateway": {"port": 0, "requestsPerSecond": 1}}) as server:
        statuses = [request(server)[0] for _ in range(8)]
        assert statuses[:4] == [200] * 4
        assert 429 in statuses


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"content_length": "999999999"}, 413), ({"content_length": "-1"}, 400), ({"content_length": "x"}, 400)],
)
def test_a_body_that_says_it_is_too_large_is_not_read(server: Server, headers: dict[str, str], status: int) -> None:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    assert raw(server, "POST /rpc HTTP/1.1", *lines)[0].startswith(f"HTTP/1.1 {status}".encode())
    assert is_well(server)


def raw(server: Server, first: str, *lines: str, body: bytes = b"", patience_s: float = 10.0) -> list[bytes]:
    """What comes back to bytes that no client would send."""
    head = [first, "host: 127.0.0.1", f"authorization: Bearer {server.token}", *lines]
    with socket.create_connection(("127.0.0.1", server.port), timeout=patience_s) as connection:
        connection.sendall("\r\n".join([*head, "", ""]).encode("latin-1") + body)
        return [connection.recv(65536)]


@proves("8.gateway.6", "Body, rate and subscriptions are limited")
def test_a_body_that_turns_out_too_large_is_cut_off(server: Server) -> None:
    assert requested(server, b" " * (65 * 1024))[0] == 413
    piece = b"1000\r\n" + b" " * 0x1000 + b"\r\n"
    (answer,) = raw(server, "POST /rpc HTTP/1.1", "transfer-encoding: chunked", body=piece * 20 + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")
    assert is_well(server)


def test_a_body_that_never_comes_is_not_waited_for(server: Server) -> None:
    (answer,) = raw(server, "POST /rpc HTTP/1.1", "content-length: 100", body=b"{")
    assert answer.startswith(b"HTTP/1.1 408")
    assert is_well(server)


@pytest.mark.parametrize("first", ["nonsense", "GET", "\x00\x01\x02", "GET /" + "x" * 100_000 + " HTTP/1.1"])
def test_what_is_no_http_is_turned_away(server: Server, first: str) -> None:
    (answer,) = raw(server, first)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert is_well(server)


@pytest.mark.parametrize(
    ("verb", "path", "status"), [("GET", "/rpc", 405), ("PUT", "/events", 405), ("GET", "/x", 404)]
)
def test_other_places_and_verbs_are_not_there(server: Server, verb: str, path: str, status: int) -> None:
    assert request(server, verb, path)[0] == status


def test_a_message_that_is_too_large_closes_its_socket_and_no_other(server: Server) -> None:
    with server.socket() as stays, server.socket(max_size=None) as goes:
        goes.send(" " * (65 * 1024))
        with pytest.raises(ConnectionClosed) as closed:
            goes.recv(30)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        stays.send(ASK.decode())
        assert '"status":"ok"' in str(stays.recv(30))


def test_a_watcher_that_never_reads_is_left(server: Server) -> None:
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(
            f"GET /events HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {server.token}\r\n\r\n".encode()
        )
        assert slow.recv(12) == b"HTTP/1.1 200"
        feed = server.desk.fl._parts.agent.feed
        words = TurnEvent("assistant:text", "agent:main:main", "x" * 50_000)
        for _ in range(2000):
            if not server.desk.watches:
                break
            server.loop.call_soon_threadsafe(feed.emit, words)
            assert is_well(server)
        assert server.desk.watches == set()


def test_a_socket_that_never_reads_is_closed(server: Server) -> None:
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", server.port))
        upgrade = (
            "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: "
            + "A" * 22
            + "=="
        )
        head = f"GET /ws HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {server.token}\r\n{upgrade}\r\n\r\n"
        slow.sendall(head.encode())
        assert slow.recv(12) == b"HTTP/1.1 101"
        ask = b'{"jsonrpc":"2.0","method":"events.subscribe","id":1}'
        slow.sendall(b"\x81" + bytes([0x80 | len(ask)]) + b"\x00" * 4 + ask)  # one masked frame
        for _ in range(2000):
            if server.desk.watches:
                break
            assert is_well(server)
        feed = server.desk.fl._parts.agent.feed
        words = TurnEvent("assistant:text", "agent:main:main", "x" * 50_000)
        for _ in range(2000):
            if not server.desk.watches:
                break
            server.loop.call_soon_threadsafe(feed.emit, words)
            assert is_well(server)
        assert server.desk.watches == set()


def test_a_port_in_use_and_a_strange_address_are_refused_readably(server: Server, tmp_path: Path) -> None:
    for gateway, words in (({"port": server.port}, "cannot be listened on"), ({"host": "203.0.113.7"}, "203.0.113.7")):
        with (
            pytest.raises(fledge.FledgeError, match=words),
            serving(tmp_path / "state", settings={"gateway": {"port": 0} | gateway}),
        ):
            pass


def test_a_client_of_nonsense_is_refused() -> None:
    for address in ("", "https://127.0.0.1:1", "http://127.0.0.1"):
        with pytest.raises(fledge.BadInput, match=r"^address: "):
            Client(address, TOKEN)


def test_a_client_whose_gateway_is_gone_says_so(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        client, state = server.client(), server.state
        assert client.is_there()
        assert find(state) is not None
    assert not client.is_there()
    assert find(state) is None
    with pytest.raises(StoreError, match="does not answer"):
        client.call("health")
