"""Files attached to messages on the wire: sent in base64, refused by field, named in views, downloaded."""

import base64
import http.client
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

import fledge
from fledge.core.keys import attached_folder
from tests.gateway.serving import Asks, OverHttp, OverSocket, Server, serving
from tests.statements import proves

CSV = {"name": "report.csv", "content": "a,b\n"}
NUMBERS = count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("attachments") / "state") as one:
        yield one


@pytest.fixture(params=["http", "socket"])
def ask(request: pytest.FixtureRequest, server: Server) -> Iterator[Asks]:
    if request.param == "http":
        yield OverHttp(server)
    else:
        with server.socket() as socket:
            yield OverSocket(socket)


@pytest.fixture
def chat(server: Server) -> str:
    """A conversation of the test's own."""
    key = f"agent:main:chat-{next(NUMBERS)}"
    server.begin(key)
    return key


def get(server: Server, session: str, name: str, token: str | None = None) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a download."""
    shown = server.token if token is None else token
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("GET", f"/attachments/{quote(session)}/{name}", headers={"authorization": f"Bearer {shown}"})
        answer = connection.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


@proves("3.attached.14", "The gateway's `send` and `agent` take files as text or base64, and refuse by the field")
@pytest.mark.parametrize("method", ["send", "agent"])
def test_files_are_sent_over_the_wire(ask: Asks, server: Server, chat: str, method: str) -> None:
    blob = {"name": "blob.bin", "content": packed(bytes(range(256))), "encoding": "base64"}
    ask.call(method, session=chat, message="Hello", attachments=[CSV, blob])
    ask.call("sessions.wait", session=chat)
    told = [
        {"name": "report.csv", "size": 4, "type": "text/csv"},
        {"name": "blob.bin", "size": 256, "type": "application/octet-stream"},
    ]
    said = ask.call("sessions.history", session=chat)[0]
    assert (said["text"], said["attachments"]) == ("Hello\n[file report.csv, 4 B]\n[file blob.bin, 256 B]", told)
    entry = ask.call("sessions.history", session=chat, view="entries")["entries"][0]
    assert (entry["type"], entry["attachments"]) == ("message", told)
    assert get(server, chat, "blob.bin")[2] == bytes(range(256))


@proves("3.attached.14")
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "a"}, "content"),
        ({"content": "x"}, "name"),
        ({**CSV, "more": 1}, "more"),
        ({**CSV, "encoding": "rot13"}, "encoding"),
        ({**CSV, "name": 1}, "name"),
        ({**CSV, "name": "../a"}, r"attachments\[0\].name: must be a plain file name of at most 255 bytes"),
        ({**CSV, "name": "a\0b"}, r"attachments\[0\].name: must be a plain file name"),
        ({**CSV, "name": "x" * 300}, r"attachments\[0\].name: must be a plain file name"),
        ({**CSV, "name": "C:\\a"}, r"attachments\[0\].name: must be a plain file name"),
        ({**CSV, "content": ""}, r"attachments\[0\].content: must not be empty"),
        ({**CSV, "content": "!", "encoding": "base64"}, r"attachments\[0\].content: must be base64"),
        ({**CSV, "content": "x" * 1_048_577}, r"attachments\[0\]: must have at most 1048576 bytes"),
    ],
)
def test_a_file_that_breaks_a_rule_is_refused_and_nothing_is_said(
    ask: Asks, server: Server, chat: str, wrong: dict[str, object], words: str
) -> None:
    for method in ("send", "agent"):
        with pytest.raises(fledge.FledgeError, match=words):
            ask.call(method, session=chat, message="Hello", attachments=[wrong])
    assert ask.call("sessions.history", session=chat) == []
    assert not (server.state / "attached" / attached_folder(chat)).exists()


@proves("3.attached.15", "The largest message that the limits allow passes the gateway's bound on a request")
def test_the_most_that_a_message_may_carry_passes_and_a_byte_more_is_refused(ask: Asks, chat: str) -> None:
    files = [{"name": f"{n}", "content": packed(bytes(1024 * 1024)), "encoding": "base64"} for n in range(5)]
    ask.call("send", session=chat, message="Hello", attachments=files)
    assert len(ask.call("sessions.history", session=chat)[0]["attachments"]) == 5
    with pytest.raises(fledge.BadInput, match="attachments: must have at most 5242880 bytes together"):
        ask.call("send", session=chat, message="Hello", attachments=[*files, {"name": "a", "content": "x"}])
    many = [{"name": f"{n}", "content": "x"} for n in range(51)]
    with pytest.raises(fledge.BadInput, match="attachments: must be at most 50 files"):
        ask.call("send", session=chat, message="Hello", attachments=many)


@proves("3.attached.15")
def test_a_request_beyond_the_bound_is_answered_with_the_setting_that_bounds_it(server: Server, chat: str) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"send","params":{"session":"%s","message":"x","attachments":[{"name":"a",'
    body = body % chat.encode() + b'"encoding":"base64","content":"' + b"A" * (8192 * 1024) + b'"}]}}'
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("POST", "/rpc", body, {"authorization": f"Bearer {server.token}"})
        answer = connection.getresponse()
        assert (answer.status, b"gateway.maxBodyKb" in answer.read()) == (413, True)
    finally:
        connection.close()


@proves("3.attached.12")
def test_no_file_is_read_from_the_gateways_machine_by_a_command(ask: Asks, chat: str, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("private")
    done = ask.call("slash.run", session=chat, line=f"/attach {tmp_path}/secret.txt look")
    assert (done["ok"], "in a terminal only" in done["text"]) == (False, True)
    assert ask.call("sessions.history", session=chat) == []


# ---- downloads -------------------------------------------------------------------------------------------------------


@proves(
    "3.attached.16",
    "An attached file is a download: token needed, never shown by the browser, nothing else",
)
def test_an_attached_file_is_a_download_for_whoever_has_the_token(server: Server, chat: str) -> None:
    page = {"name": 'a "b" ü.html', "content": "<script>alert(1)</script>"}
    OverHttp(server).call("send", session=chat, message="Hello", attachments=[page])
    status, headers, body = get(server, chat, quote('a "b" ü.html'))
    assert (status, body) == (200, b"<script>alert(1)</script>")
    assert headers["content-disposition"] == "attachment; filename*=UTF-8''a%20%22b%22%20%C3%BC.html"
    assert headers["content-type"] == "application/octet-stream"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert get(server, chat, quote('a "b" ü.html'), "wrong" * 10)[0] == 401


@proves("3.attached.16")
@pytest.mark.parametrize(
    "name",
    [
        *("../../gateway.token", "%2e%2e/secret", "..%2f..%2fgateway.token", "/etc/passwd", "%2fetc%2fpasswd"),
        *(".", "", "report.csv/", "nothing", "a%00b", "link"),
    ],
)
def test_no_name_leads_out_of_the_folder_or_through_a_link(server: Server, name: str) -> None:
    chat = "agent:main:leading"
    folder = server.state / "attached" / attached_folder(chat)
    if not folder.exists():
        OverHttp(server).call("send", session=chat, message="Hello", attachments=[CSV])
        (folder / "link").symlink_to(server.state / "gateway.token")
    status, _, body = get(server, chat, name)
    assert (status, server.token.encode() in body) == (404, False)


def test_a_session_that_is_not_there_has_no_files(server: Server, chat: str) -> None:
    for session in (chat, "agent:main:nobody", "nobody", "agent:main:subagent:x", "../state"):
        assert get(server, session, "report.csv")[0] == 404


def test_the_files_of_a_deleted_conversation_are_gone(server: Server, chat: str) -> None:
    OverHttp(server).call("send", session=chat, message="Hello", attachments=[CSV])
    server.do(server.desk.fl.session(chat).delete())
    assert get(server, chat, "report.csv")[0] == 404
