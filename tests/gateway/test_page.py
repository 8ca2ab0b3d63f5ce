"""The page's files: given to anybody, with headers that let them do nothing else than they say; nothing else is."""

import http.client
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from fledge.gateway.page import HEADERS
from tests.gateway.serving import Server, serving
from tests.statements import proves

SOURCES = sorted(file.name for file in files("fledge.web").iterdir() if file.name.endswith((".html", ".js", ".css")))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("page") / "state") as server:
        yield server


def get(server: Server, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
    """Ask as a browser does that knows no token."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    finally:
        connection.close()


@proves("8.gateway.8", "The page has a strict CSP")
@pytest.mark.parametrize("name", [*SOURCES, "icon.svg"])
def test_the_pages_files_need_no_token_and_carry_strict_headers(server: Server, name: str) -> None:
    status, headers, body = get(server, "/" if name == "index.html" else f"/page/{name}")
    assert (status, body) == (200, files("fledge.web").joinpath(name).read_bytes())
    assert headers | HEADERS == headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "set-cookie" not in headers


def test_fifteen_tabs_that_open_at_once_get_all_files(tmp_path: Path) -> None:
    with serving(tmp_path / "state", settings={"gateway": {"port": 0}}) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        for name in 15 * SOURCES:
            connection.request("GET", "/" if name == "index.html" else f"/page/{name}")
            response = connection.getresponse()
            response.read()
            assert response.status == 200
        connection.close()


@pytest.mark.parametrize(
    "path", ["/rpc", "/events", "/health", "/metrics", "/schema", "/nothing", "/pages", "//", "/page"]
)
def test_nothing_but_the_pages_files_is_given_without_a_token(server: Server, path: str) -> None:
    assert get(server, path)[0] == 401


@pytest.mark.parametrize(
    "path", ["/page/", "/page/__init__.py", "/page/../gateway.token", "/page/%2e%2e/rpc", "/page/none.js"]
)
def test_only_whole_names_of_the_pages_files_are_found(server: Server, path: str) -> None:
    assert get(server, path)[0] in (401, 404)


def test_the_page_cannot_be_posted_to(server: Server) -> None:
    assert get(server, "/", "POST")[0] == 401
    assert get(server, "/page/app.js", "PUT")[0] == 401
    assert get(server, "/", "HEAD")[::2] == (200, b"")


@proves("8.gateway.9")
@pytest.mark.parametrize("name", SOURCES)
def test_the_pages_sources_make_no_markup_from_text_and_use_nothing_from_elsewhere(name: str) -> None:
    text = files("fledge.web").joinpath(name).read_text()
    if name == "dom.js":
        text = text.replace('"http://www.w3.org/2000/svg"', "", 1)  # a namespace: nothing is fetched from it
    if name == "theme.js":
        # What this browser remembers: the theme and the switches of Settings, behind two functions.
        assert text.count("localStorage") == 2
        assert "token" not in text
        text = text.replace("localStorage", "")
    if name == "gateway.js":
        # ... and the credential of this browser, behind four.
        assert text.count("localStorage") == 3
        text = text.replace("localStorage", "")
    banned = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\(|new Function|localStorage|cookie|https?://|\sstyle=|\son\w+=\""
    assert re.findall(banned, text) == []


@proves("8.gateway.25", "No character of a title, tooltip, label or other text acts on a reader, wherever it is shown")
@pytest.mark.parametrize("name", [name for name in SOURCES if name.endswith(".js") and name != "dom.js"])
def test_every_text_that_a_person_reads_outside_a_text_node_is_set_by_dom(name: str) -> None:
    text = files("fledge.web").joinpath(name).read_text()
    read = r"alt|label|title|placeholder|download|aria-(?:label|description|roledescription|valuetext)"
    set_directly = (
        rf"""setAttribute\(["'`](?:{read})["'`]|setAttribute\((?!["'])|(?<!this)\.(?:{read}|aria[A-Z]\w+) = """
    )
    written_directly = (
        r"\.(?:textContent|innerText|nodeValue|data) =|createTextNode|createElement\((?!\"(?:a|canvas)\"\))"
    )
    assert re.findall(f"{set_directly}|{written_directly}", text) == []


@pytest.mark.parametrize("name", [name for name in SOURCES if name.endswith(".js") and name != "time.js"])
def test_only_one_file_reads_the_clock_of_this_computer(name: str) -> None:
    text = files("fledge.web").joinpath(name).read_text()
    assert "Date.now()" not in text, "`present` of time.js is the gateway's time, performance.now() counts durations"
    assert "new Date()" not in text


def test_every_file_the_page_names_is_there() -> None:
    folder = files("fledge.web")
    named = re.findall(r'"/page/([\w.]+)"', folder.joinpath("index.html").read_text())
    for name in SOURCES:
        named += re.findall(r'from "\./([\w.]+)"', folder.joinpath(name).read_text())
    assert named
    assert [name for name in named if not folder.joinpath(name).is_file()] == []


def test_the_wheel_holds_the_page() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert 'only-include = ["src/fledge", "docs"]' in project, "everything in the package is packed, whatever its kind"
