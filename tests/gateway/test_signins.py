"""The sign-in of a browser: who gets one, for what it counts, when it ends, and the file that keeps it."""

import asyncio
import http.client
import json
import re
import resource
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.cli.main import main
from fledge.commands.gateway_state import GatewayState, Patience
from fledge.commands.methods import call
from fledge.commands.signins import MOST_SIGN_INS, SIGN_IN_FILE, STORE_USE_S, UNUSED_S, SignIns
from fledge.errors import NotFound, StoreError
from fledge.store.ways import TOKEN_FILE
from fledge.testing import ScriptedModel
from tests.api.scene import obedient
from tests.gateway.asking import Hatch
from tests.gateway.serving import OverHttp, Server, serving
from tests.statements import proves

TOKEN = "t" * 43
ASK = b'{"jsonrpc":"2.0","method":"health","id":1}'
FIREFOX = "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:145.0) Gecko/20100101 Firefox/145.0"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("signins") / "state", patience=Patience(quiet_s=0.2)) as server:
        yield server


def asked(
    server: Server, headers: Mapping[str, str], path: str = "/rpc", verb: str = "POST", body: bytes = ASK
) -> tuple[int, Any]:
    """The status of an answer, and what it says."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request(verb, path, body, {name: value for name, value in headers.items() if value})
        answer = connection.getresponse()
        content = answer.read()
        return answer.status, json.loads(content) if answer.headers["content-type"] == "application/json" else content
    finally:
        connection.close()


def sign_in(server: Server, browser: str = FIREFOX) -> str:
    """The credential of a browser that has shown the token."""
    headers = {"authorization": f"Bearer {server.token}", "user-agent": browser}
    status, told = asked(server, headers, "/login", body=b"{}")
    assert (status, list(told)) == (200, ["signIn"])
    return str(told["signIn"])


def of_page(server: Server, credential: str) -> dict[str, str]:
    """The headers of a request of the page."""
    return {"authorization": f"Browser {credential}", "origin": server.address}


def listed(server: Server) -> dict[str, Any]:
    return {one["id"]: one for one in OverHttp(server).call("signins.list")}


# ---- getting one -----------------------------------------------------------------------------------------------------


@proves("8.gateway.21", "A browser signs in with the token or a code, and gets a random id of its own, never the token")
def test_the_token_and_a_code_sign_a_browser_in_and_neither_is_given_to_it(server: Server) -> None:
    by_token = sign_in(server)
    code = str(Hatch(server.state).call("page.link")["address"]).partition("=")[2]
    by_code = str(asked(server, {}, "/login", body=json.dumps({"code": code}).encode())[1]["signIn"])
    assert len({by_token.partition(".")[2], by_code.partition(".")[2], server.token}) == 3
    assert min(len(one.partition(".")[2]) for one in (by_token, by_code)) >= 43
    for credential in (by_token, by_code):
        assert asked(server, of_page(server, credential))[0] == 200
    kept = (server.state / SIGN_IN_FILE).read_text()
    assert [secret for one in (by_token, by_code) if (secret := one.partition(".")[2]) in kept] == []
    assert server.token not in kept
    assert stat.S_IMODE((server.state / SIGN_IN_FILE).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Browser SIGNED_IN", "origin": "OWN"}]
)
def test_nothing_else_signs_a_browser_in(server: Server, headers: dict[str, str]) -> None:
    known = set(listed(server))
    credential = sign_in(server)
    given = {name: one.replace("SIGNED_IN", credential).replace("OWN", server.address) for name, one in headers.items()}
    assert asked(server, given, "/login", body=b"{}")[0] == 401
    assert set(listed(server)) - known == {credential.partition(".")[0]}


# ---- what it counts for ----------------------------------------------------------------------------------------------


@proves("8.gateway.22", "A sign-in counts only together with the gateway's own origin, for the page's requests alone")
def test_a_sign_in_counts_for_the_page_its_feed_and_its_downloads(server: Server) -> None:
    headers = of_page(server, sign_in(server))
    assert asked(server, headers)[0] == 200
    assert asked(server, headers, "/artifacts/none/none")[0] == 404
    assert asked(server, headers, "/attachments/none/none")[0] == 404
    with feed(server, headers) as answer:
        assert answer.status == 200
        assert answer.readline().startswith(b": from ")


@pytest.mark.parametrize(
    ("status", "changed"),
    [
        (401, {"origin": ""}),
        (403, {"origin": "null"}),
        (403, {"origin": "http://evil.example"}),
        (403, {"origin": "http://127.0.0.1:1"}),
        (401, {"authorization": "Browser ID.{'x' * 43}"}),
        (401, {"authorization": "Browser ID."}),
        (401, {"authorization": "Browser ID"}),
        (401, {"authorization": "Browser .SECRET"}),
        (401, {"authorization": "Browser SECRET"}),
        (401, {"authorization": "Browser ID.SECRETx"}),
        (401, {"authorization": "Browser "}),
        (401, {"authorization": "Bearer ID.SECRET"}),
        (401, {"authorization": "Browser TOKEN"}),
        (401, {"authorization": "", "cookie": "fledge.signin=ID.SECRET"}),
        (421, {"host": "evil.example", "origin": "http://evil.example"}),
    ],
)
def test_it_counts_for_nothing_in_any_other_way(server: Server, status: int, changed: dict[str, str]) -> None:
    credential = sign_in(server)
    words = dict(zip(("ID", "SECRET"), credential.split("."), strict=True)) | {"TOKEN": server.token}
    for name, value in changed.items():
        for word, means in words.items():
            value = value.replace(word, means)
        changed = {**changed, name: value}
    assert asked(server, of_page(server, credential) | changed)[0] == status
    assert asked(server, of_page(server, credential))[0] == 200


@pytest.mark.parametrize(
    ("verb", "path"),
    [
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        ("GET", "/ws"),
        ("GET", "/events"),
        ("GET", "/health"),
        ("GET", "/metrics"),
        ("GET", "/schema"),
        ("GET", "/artifacts/none/none"),
        ("POST", "/rpc/"),
        ("POST", "/nowhere"),
    ],
)
def test_it_counts_nowhere_else(server: Server, verb: str, path: str) -> None:
    assert asked(server, of_page(server, sign_in(server)), path, verb)[0] == 401


def test_a_page_that_the_settings_allow_needs_the_token_as_before(tmp_path: Path) -> None:
    settings: dict[str, object] = {"gateway": {"port": 0, "allowedOrigins": ["https://page.example"]}}
    with serving(tmp_path / "state", settings=settings) as server:
        headers = of_page(server, sign_in(server)) | {"origin": "https://page.example"}
        assert asked(server, headers)[0] == 401
        assert asked(server, headers | {"authorization": f"Bearer {server.token}"})[0] == 200


def test_guesses_are_slowed_down_and_a_browser_that_is_signed_in_still_gets_in(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        credential = sign_in(server)
        id = credential.partition(".")[0]
        guesses = {asked(server, of_page(server, f"{id}.{n:043}"))[0] for n in range(200)}
        assert guesses == {401, 429}
        assert asked(server, of_page(server, credential))[0] == 200
        logins = {asked(server, {"authorization": f"Bearer {n:043}"}, "/login", body=b"{}")[0] for n in range(200)}
        assert logins == {401, 429}


# ---- its end ---------------------------------------------------------------------------------------------------------


@contextmanager
def feed(server: Server, headers: dict[str, str]) -> Iterator[http.client.HTTPResponse]:
    """A feed of the page, while the block lasts."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("POST", "/events?rows=true", None, headers)
        yield connection.getresponse()
    finally:
        connection.close()


@proves("8.gateway.23", "A sign-in is listed, and ends by its verb, by a new token, or 30 days after its last use")
@pytest.mark.parametrize("by", ["this gateway", "another gateway of the folder"])
def test_a_sign_in_that_is_ended_counts_no_more_and_its_feed_ends(server: Server, by: str) -> None:
    credential, other = sign_in(server), sign_in(server)
    id = credential.partition(".")[0]
    with feed(server, of_page(server, credential)) as answer:
        answer.readline()
        if by == "this gateway":
            body = json.dumps({"jsonrpc": "2.0", "method": "signins.end", "params": {"id": id}, "id": 1}).encode()
            assert asked(server, of_page(server, other), body=body)[1]["result"]["id"] == id
        else:
            SignIns(server.state, server.token).end(id)
        while answer.readline():
            pass  # until the feed ends; the connection has a time limit
    assert asked(server, of_page(server, credential))[0] == 401
    assert asked(server, of_page(server, other))[0] == 200
    with pytest.raises(NotFound, match="no browser is signed in"):
        OverHttp(server).call("signins.end", id=id)


def test_it_survives_a_restart_and_ends_with_the_token(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        credential = sign_in(server)
    with serving(tmp_path / "state") as server:
        assert asked(server, of_page(server, credential))[0] == 200
    (tmp_path / "state" / TOKEN_FILE).unlink()
    with serving(tmp_path / "state") as server:
        assert asked(server, of_page(server, credential))[0] == 401
        assert listed(server) == {}
        another = sign_in(server)
        assert list(listed(server)) == [another.partition(".")[0]]


def test_it_ends_thirty_days_after_its_last_use(tmp_path: Path) -> None:
    sign_ins = SignIns(tmp_path, TOKEN)
    used, unused = sign_ins.begin("used", 0.0), sign_ins.begin("unused", 0.0)
    used_id, unused_id = (one.partition(".")[0] for one in (used, unused))
    assert sign_ins.holds(used, UNUSED_S - 1) == used_id
    asyncio.run(sign_ins.use(used_id, UNUSED_S - 1))
    for known in (sign_ins, SignIns(tmp_path, TOKEN)):
        assert (known.holds(used, UNUSED_S), known.holds(unused, UNUSED_S)) == (used_id, None)
        assert (known.is_live(used_id, UNUSED_S), known.is_live(unused_id, UNUSED_S)) == (True, False)
        assert [one.id for one in known.live(UNUSED_S)] == [used_id]
        assert known.holds(used, 2 * UNUSED_S) is None


def test_the_last_use_is_stored_at_most_once_an_hour(tmp_path: Path) -> None:
    sign_ins = SignIns(tmp_path, TOKEN)
    id = sign_ins.begin("", 0.0).partition(".")[0]
    written = []
    for now in (1.0, STORE_USE_S - 1, STORE_USE_S, STORE_USE_S + 1, 2 * STORE_USE_S):
        asyncio.run(sign_ins.use(id, now))
        written.append(sign_ins.live(now)[0].used_at)
    assert written == [0.0, 0.0, STORE_USE_S, STORE_USE_S, 2 * STORE_USE_S]


# ---- the file --------------------------------------------------------------------------------------------------------


def test_however_many_browsers_sign_in_few_are_kept_those_that_were_used_last(tmp_path: Path) -> None:
    sign_ins = SignIns(tmp_path, TOKEN)
    credentials = [sign_ins.begin("x" * 10_000, float(n)) for n in range(3 * MOST_SIGN_INS)]
    assert len(sign_ins.live(1000.0)) == MOST_SIGN_INS
    kept = [credential for credential in credentials if sign_ins.holds(credential, 1000.0)]
    assert kept == credentials[-MOST_SIGN_INS:]
    assert (tmp_path / SIGN_IN_FILE).stat().st_size < 1000 * MOST_SIGN_INS


def test_gateways_of_one_folder_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    gateways = [SignIns(tmp_path, TOKEN) for _ in range(4)]

    def at_work(gateway: SignIns) -> list[str]:
        made = [gateway.begin("", 0.0) for _ in range(12)]
        for one in made[::2]:
            gateway.end(one.partition(".")[0])
        return made[1::2]

    with ThreadPoolExecutor(4) as pool:
        live = [one for made in pool.map(at_work, gateways) for one in made]
    for gateway in gateways:
        assert {one.id for one in gateway.live(0.0)} == {one.partition(".")[0] for one in live}
        assert all(gateway.holds(one, 0.0) for one in live)


@pytest.mark.parametrize("content", [b"", b"no json", b"[]", b"\xff\xfe", b'{"token": 5}', b"null" * 1_000_000])
def test_a_damaged_file_lets_no_browser_in_and_is_replaced_by_the_next_sign_in(tmp_path: Path, content: bytes) -> None:
    sign_ins = SignIns(tmp_path, TOKEN)
    before = sign_ins.begin("", 0.0)
    (tmp_path / SIGN_IN_FILE).write_bytes(content)
    assert sign_ins.holds(before, 0.0) is None
    after = sign_ins.begin("", 0.0)
    assert (sign_ins.holds(before, 0.0), sign_ins.holds(after, 0.0) is None) == (None, False)


def test_a_writer_of_the_file_without_the_token_cannot_make_a_sign_in(tmp_path: Path) -> None:
    SignIns(tmp_path, "another" * 6).begin("", 0.0)
    forged = json.loads((tmp_path / SIGN_IN_FILE).read_text())
    (tmp_path / "mine").mkdir()
    credential = SignIns(tmp_path / "mine", "guessed" * 6).begin("", 0.0)
    mine = json.loads((tmp_path / "mine" / SIGN_IN_FILE).read_text())
    sign_ins = SignIns(tmp_path, TOKEN)
    sign_ins.begin("", 0.0)
    real = json.loads((tmp_path / SIGN_IN_FILE).read_text())
    for document in (forged, mine, real | {"sign_ins": mine["sign_ins"]}):
        (tmp_path / SIGN_IN_FILE).write_text(json.dumps(document))
        assert sign_ins.holds(credential, 0.0) is None


def test_on_a_full_disk_a_browser_is_refused_and_the_others_stay_signed_in(tmp_path: Path) -> None:
    sign_ins = SignIns(tmp_path, TOKEN)
    credential = sign_ins.begin("", 0.0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        for change in (lambda: sign_ins.begin("", 0.0), lambda: sign_ins.end(credential.partition(".")[0])):
            with pytest.raises(StoreError, match=r"gateway.signins: cannot be written \(.*\); nothing has changed"):
                change()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sign_ins.holds(credential, 0.0)
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []


def test_something_else_in_the_place_of_the_file_is_a_readable_error(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        (server.state / SIGN_IN_FILE).mkdir()
        status, told = asked(server, {"authorization": f"Bearer {server.token}"}, "/login", body=b"{}")
        assert status == 507
        assert "gateway.signins: cannot be written" in told["error"]
        assert listed(server) == {}


# ---- the list --------------------------------------------------------------------------------------------------------


def test_what_a_browser_says_of_itself_is_cut_and_has_no_signs_that_act(server: Server) -> None:
    hostile = "<img src=x onerror=1>\x9b31m\x85\xad\xa0" + "x" * 1000
    id = sign_in(server, hostile).partition(".")[0]
    words = listed(server)[id]["browser"]
    assert words.startswith("<img src=x onerror=1>31mxxx")
    assert len(words) == 200
    assert words.isprintable()


def test_the_list_says_when_each_was_used_and_when_it_ends(server: Server) -> None:
    id = sign_in(server).partition(".")[0]
    one = listed(server)[id]
    assert one["browser"] == FIREFOX
    assert one["madeAt"] == one["usedAt"] == one["endsAt"] - UNUSED_S * 1000
    assert set(one) == {"id", "browser", "madeAt", "usedAt", "endsAt"}


def test_the_command_lists_browsers_and_signs_one_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "state") as server:
        page = ["page", "--state", str(server.state)]
        assert main([*page, "--browsers"]) == 0
        assert capsys.readouterr().out == "no browser is signed in\n"
        id = sign_in(server).partition(".")[0]
        assert main([*page, "--browsers"]) == 0
        assert re.fullmatch(rf"{id} · last used [-\d]+ [\d:]+ · {re.escape(FIREFOX)}\n", capsys.readouterr().out)
        assert main([*page, "--sign-out", id]) == 0
        assert capsys.readouterr().out.startswith(f"signed out: {id}")
        assert listed(server) == {}
        assert main([*page, "--sign-out", id]) == 1
        assert "no browser is signed in under" in capsys.readouterr().err


def test_where_no_gateway_serves_the_verbs_say_so(tmp_path: Path) -> None:
    async def ask(name: str, given: dict[str, object]) -> None:
        async with fledge.open(tmp_path / "state", model=ScriptedModel(obedient), workspace=tmp_path) as fl:
            await call(GatewayState(fl), name, given)

    cases: tuple[tuple[str, dict[str, object]], ...] = (("signins.list", {}), ("signins.end", {"id": "x"}))
    for name, given in cases:
        with pytest.raises(fledge.Refused, match="start one with `fledge serve`"):
            asyncio.run(ask(name, given))
