"""Signing in at the page with a one-time code: good once, for a minute, made by the folder's owner alone."""

import http.client
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.cli.main import main
from fledge.commands.login import GOOD_S, MOST_CODES, LoginCodes
from tests.gateway.asking import Hatch
from tests.gateway.serving import OverHttp, OverSocket, Server, serving
from tests.statements import proves


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("login") / "state") as server:
        yield server


def code_of(server: Server) -> str:
    """A new code, made through the private socket."""
    address = Hatch(server.state).call("page.link")["address"]
    assert address.startswith(f"{server.address}/#code=")
    return str(address.partition("=")[2])


def post(server: Server, body: object, **headers: str) -> tuple[int, Any]:
    """What the gateway answers to somebody without a token."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request("POST", "/login", content, {"content-type": "application/json", **headers})
        answer = connection.getresponse()
        assert answer.headers["cache-control"] == "no-store" or answer.status in (403, 429)
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@proves("8.gateway.15", "A code of `fledge page` has 128 bits, is good once and for a minute, and is never the token")
def test_a_code_is_good_once(server: Server) -> None:
    code = code_of(server)
    assert len(code) == 22
    assert code not in server.token
    status, told = post(server, {"code": code})
    assert (status, list(told), server.token in told["signIn"]) == (200, ["signIn"], False)
    status, told = post(server, {"code": code})
    assert (status, "fledge page" in told["error"]) == (403, True)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"code": "x" * 22}, 403),
        ({"code": "\ud800"}, 400),
        ({"code": 5}, 400),
        ({}, 401),
        ({"code": "x", "more": 1}, 400),
        (b"no json", 400),
        ({"code": "x" * 2000}, 413),
    ],
)
def test_anything_else_is_refused(server: Server, body: object, status: int) -> None:
    assert post(server, body)[0] == status


def test_a_page_of_another_site_cannot_post_a_code(server: Server) -> None:
    code = code_of(server)
    assert post(server, {"code": code}, origin="https://evil.example")[0] == 403
    assert post(server, {"code": code})[0] == 200


@proves("8.gateway.16", "Codes are made on the private socket alone")
def test_no_code_is_made_over_the_gateway(server: Server) -> None:
    with pytest.raises(fledge.Refused, match="private socket"):
        OverHttp(server).call("page.link")
    with server.socket() as connection, pytest.raises(fledge.Refused, match="private socket"):
        OverSocket(connection).call("page.link")


def test_a_code_ends_after_a_minute_and_only_so_many_are_good_at_once() -> None:
    codes = LoginCodes("http://127.0.0.1:1")
    late = codes.make(100.0)
    assert not codes.take(late, 100.0 + GOOD_S)
    assert not codes.take(late, 100.0)
    first, *others = [codes.make(200.0) for _ in range(MOST_CODES + 1)]
    assert len({first, *others}) == MOST_CODES + 1
    assert not codes.take(first, 200.0)
    assert [codes.take(one, 200.0) for one in others] == [True] * MOST_CODES


# ---- the command -----------------------------------------------------------------------------------------------------


def test_the_command_prints_an_address_that_signs_in(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["page", "--no-open", "--state", str(server.state)]) == 0
    address, how = capsys.readouterr().out.splitlines()
    assert how == "open it in a browser on this machine; it signs in once, within a minute"
    assert post(server, {"code": address.partition("=")[2]})[0] == 200


@pytest.mark.parametrize("has_folder", [True, False])
def test_without_a_gateway_the_command_says_how_to_start_one(
    tmp_path: Path, has_folder: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if has_folder:
        with serving(tmp_path / "state"):
            pass
    assert main(["page", "--no-open", "--state", str(tmp_path / "state")]) == 1
    assert "start one with `fledge serve`" in capsys.readouterr().err


@proves("8.gateway.17", "No process is started with a code on its command line")
def test_a_browser_is_started_with_a_file_that_only_its_owner_can_read(server: Server, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {heard}\n')
    browser.chmod(0o755)
    command = [sys.executable, "-m", "fledge.cli.main", "page", "--state", str(server.state)]
    environment = {**os.environ, "BROWSER": f"{browser} %s", "DISPLAY": ":9"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    address, how = done.stdout.splitlines()
    code = address.partition("=")[2]
    assert how.startswith("opened in your browser")
    assert code not in heard.read_text()
    file = Path(heard.read_text().strip().removeprefix("file://"))
    assert code in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
