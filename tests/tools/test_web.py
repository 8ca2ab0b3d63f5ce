"""Fetching: which addresses, redirects and tricks with names, bounds, content, and searching."""

import asyncio
import ipaddress
import os
from pathlib import Path

import pytest

from fledge.errors import BadInput, Refused
from fledge.tools.base import ToolContext
from fledge.tools.web import Fetcher, IpAddress, WebPage, look_up, refuse_special
from tests.statements import proves
from tests.tools.site import Names, Site, anything, only_this_computer, visit

CONTEXT = ToolContext(session="agent:main:main", entry=1, index=0, workspace=Path("/nowhere"))

# ---- addresses -------------------------------------------------------------------------------------------------------


@proves("8.files.5", "Private, loopback and link-local addresses are refused after resolution")
@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", None),
        ("1.1.1.1", None),
        ("172.15.255.255", None),
        ("172.32.0.0", None),
        ("100.63.255.255", None),
        ("100.128.0.0", None),
        ("223.255.255.255", None),
        ("11.0.0.0", None),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("10.0.0.1", "private"),
        ("100.64.0.1", "shared by carriers"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.255", "loopback"),
        ("168.63.129.16", "a cloud's own"),
        ("169.254.169.254", "link-local"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.0.0.1", "reserved"),
        ("192.0.2.1", "reserved"),
        ("192.88.99.1", "reserved"),
        ("192.168.0.1", "private"),
        ("198.18.0.1", "reserved"),
        ("198.19.255.255", "reserved"),
        ("198.51.100.1", "reserved"),
        ("203.0.113.1", "reserved"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("2606:4700::1111", None),
        ("2a00:1450::1", None),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::127.0.0.1", "reserved"),
        ("::ffff:127.0.0.1", "mapped from IPv4"),
        ("::ffff:8.8.8.8", "mapped from IPv4"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "private"),
        ("fec0::1", "reserved"),
        ("ff02::1", "multicast"),
        ("2001::1", "reserved"),
        ("2001:db8::1", "reserved"),
        ("2002:7f00:1::", "tunnelled from IPv4"),
        ("2002:808:808::", "tunnelled from IPv4"),
        ("3fff::1", "reserved"),
        ("4000::1", "reserved"),
        ("64:ff9b::8.8.8.8", None),
        ("64:ff9b::127.0.0.1", "loopback"),
        ("64:ff9b::10.0.0.1", "private"),
        ("64:ff9b:1::1", "reserved"),
        ("100::1", "reserved"),
    ],
)
def test_only_public_addresses_are_let_through(address: str, kind: str | None) -> None:
    assert refuse_special(ipaddress.ip_address(address)) == kind


# ---- against a server ------------------------------------------------------------------------------------------------


def test_a_page_is_fetched_with_its_own_name_and_nothing_of_ours() -> None:
    names = Names(site=[["127.0.0.1"]])

    async def work(site: Site) -> None:
        site.gives("/a", text="<p>hello", content_type="text/html", headers={"Set-Cookie": "a=b; Path=/"})
        fetcher = Fetcher(look_up=names, policy=only_this_computer)
        # Nothing listens there: were the proxy used, nothing would be fetched.
        os.environ["HTTP_PROXY"] = os.environ["http_proxy"] = "http://127.0.0.1:9"
        for _ in range(2):
            page = await fetcher.fetch(f"http://site.test:{site.port}/a?q=1#part")
            assert page == WebPage(
                f"http://site.test:{site.port}/a?q=1#part", 200, "text/html", "utf-8", b"<p>hello", False
            )
        path, headers = site.asked[1]
        assert path == "/a?q=1"
        assert headers == {
            "Host": f"site.test:{site.port}",
            "User-Agent": "fledge",
            "Accept": "text/html, text/*, application/json",
            "Accept-Encoding": "identity",
            "Connection": "close",
        }

    try:
        visit(work)
    finally:
        del os.environ["HTTP_PROXY"], os.environ["http_proxy"]
    assert names.asked == ["site.test", "site.test"]


@proves("8.files.5")
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:PORT/",
        "http://127.1:PORT/",
        "http://2130706433:PORT/",
        "http://0x7f000001:PORT/",
        "http://0177.0.0.1:PORT/",
        "http://[::1]:PORT/",
        "http://[::ffff:127.0.0.1]:PORT/",
        "http://[::ffff:7f00:1]:PORT/",
        "http://①②⑦.0.0.1:PORT/",
        "http://localhost:PORT/",
        "http://localhost.:PORT/",
        "http://0.0.0.0:PORT/",
        "http://169.254.169.254/latest/meta-data/",
    ],
)
def test_this_computer_is_not_fetched_however_it_is_written(url: str) -> None:
    async def work(site: Site) -> None:
        site.gives("/", text="inside")
        with pytest.raises((Refused, BadInput)):
            await Fetcher(seconds=5).fetch(url.replace("PORT", str(site.port)))
        assert site.asked == []

    visit(work)


@proves("8.files.4", "web_fetch takes http and https only")
@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("file:///etc/passwd", "url: must begin with http:// or https:// and name a host"),
        ("ftp://example.org/", "url: must begin with http:// or https://"),
        ("gopher://example.org/", "url: must begin with http:// or https://"),
        ("data:text/plain,x", "url: must begin with http:// or https://"),
        ("/etc/passwd", "url: must begin with http:// or https://"),
        ("http://", "url: must "),
        ("http:///x", "url: must "),
        ("", "url: must begin with http:// or https://"),
        ("http://u:p@example.org/", "url: must not hold a user name or password (got 'http://…@example.org')"),
        ("http://u@example.org/", "url: must not hold a user name or password"),
        ("http://example.org:99999/", "url: must be a URL ("),
        ("http://example.org:0/", "url: must begin with http:// or https:// and name a host"),
        ("http://[::1/", "url: must be a URL ("),
        ("http://example.org/" + "x" * 2030, "url: must be at most 2048 characters"),
        ("http://exa\ud800mple.org/", "url: must be a URL"),
    ],
)
def test_what_is_no_plain_web_address_is_refused(url: str, told: str) -> None:
    with pytest.raises(BadInput) as refusal:
        asyncio.run(Fetcher(look_up=Names(), policy=anything).fetch(url))
    assert str(refusal.value).startswith(told)


@proves("8.files.5")
@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (["10.0.0.1"], "url: site.test is at 10.0.0.1, which is private: only public addresses are fetched"),
        (["127.0.0.1", "10.0.0.1"], "url: site.test is at 10.0.0.1, which is private"),
        (["fe80::1%eth0"], "url: site.test is at fe80::1%eth0, which is link-local"),
        (["nonsense"], "url: its host has an address that cannot be used: nonsense"),
        ([], "url: site.test could not be reached ("),
    ],
)
def test_a_name_is_refused_if_any_of_its_addresses_is(answers: list[str], told: str) -> None:
    async def work(site: Site) -> None:
        fetcher = Fetcher(look_up=Names(site=[answers]), policy=only_this_computer)
        with pytest.raises((Refused, BadInput)) as refusal:
            await fetcher.fetch(f"http://site.test:{site.port}/")
        assert str(refusal.value).startswith(told)
        assert site.asked == []

    visit(work)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_followed_to_the_end(status: int) -> None:
    async def work(site: Site) -> None:
        site.redirects("/a", "b", status)
        site.redirects("/b", "http://other.test:PORT/c", status)
        site.gives("/c", text="there")
        names = Names(site=[["127.0.0.1"]], other=[["127.0.0.1"]])
        page = await Fetcher(look_up=names, policy=only_this_computer).fetch(f"http://site.test:{site.port}/a")
        assert (page.url, page.body) == (f"http://other.test:{site.port}/c", b"there")
        assert [headers["Host"] for _, headers in site.asked] == [
            f"site.test:{site.port}",
            f"site.test:{site.port}",
            f"other.test:{site.port}",
        ]

    visit(work)


@proves("8.files.6", "… and at each redirect")
@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("http://10.0.0.1/", "url: 10.0.0.1 is at 10.0.0.1, which is private"),
        ("http://[::1]:PORT/inside", "url: ::1 is at ::1, which is loopback"),
        ("//169.254.169.254/x", "url: 169.254.169.254 is at 169.254.169.254, which is link-local"),
        ("http://inner.test:PORT/inside", "url: inner.test is at 192.168.1.1, which is private"),
        ("file:///etc/passwd", "url: must begin with http:// or https://"),
        ("http://u:p@site.test:PORT/inside", "url: must not hold a user name or password"),
        ("http://" + "x" * 3000, "url: must be at most 2048 characters"),
        ("http://[", "url: must be a URL"),
        ("/round", "url: more than 5 redirects, the last to http://site.test"),
    ],
)
def test_a_redirect_is_judged_like_a_first_address(to: str, told: str) -> None:
    async def work(site: Site) -> None:
        site.redirects("/round", to)
        site.gives("/inside", text="inside")
        names = Names(site=[["127.0.0.1"]], inner=[["192.168.1.1"]])
        with pytest.raises((Refused, BadInput)) as refusal:
            await Fetcher(look_up=names, policy=only_this_computer).fetch(f"http://site.test:{site.port}/round")
        assert str(refusal.value).startswith(told)
        assert {path for path, _ in site.asked} == {"/round"}
        assert len(site.asked) == (6 if to == "/round" else 1)

    visit(work)


def test_a_redirect_to_this_computer_is_refused_by_the_default_policy() -> None:
    async def work(site: Site) -> None:
        def public_once(address: IpAddress) -> str | None:
            judged.append(str(address))
            return None if len(judged) <= 2 else refuse_special(address)

        judged: list[str] = []
        site.redirects("/", "http://127.0.0.1:PORT/inside")
        site.gives("/inside", text="inside")
        with pytest.raises(Refused, match=r"url: 127\.0\.0\.1 is at 127\.0\.0\.1, which is loopback"):
            await Fetcher(look_up=Names(site=[["127.0.0.1"]]), policy=public_once).fetch(
                f"http://site.test:{site.port}/"
            )
        assert [path for path, _ in site.asked] == ["/"]

    visit(work)


@proves("8.files.7")
def test_a_name_that_changes_its_address_is_never_connected_to_unjudged() -> None:
    async def work(site: Site) -> None:
        # First an address that is let through, where nothing listens; then, were it asked again, one that is not.
        names = Names(site=[["127.0.0.2"], ["127.0.0.1"]])
        seen: list[str] = []

        def policy(address: IpAddress) -> str | None:
            seen.append(str(address))
            return None if str(address) == "127.0.0.2" else "private"

        site.gives("/", text="inside")
        fetcher = Fetcher(look_up=names, policy=policy, seconds=5)
        with pytest.raises(Refused):
            await fetcher.fetch(f"http://site.test:{site.port}/")
        assert names.asked[:1] == ["site.test"]
        assert site.asked == []
        with pytest.raises(Refused, match="which is private"):
            await fetcher.fetch(f"http://site.test:{site.port}/")
        assert site.asked == []

    visit(work)


@proves("8.files.7", "It connects to the address that was checked")
def test_the_address_that_was_judged_is_the_one_connected_to() -> None:
    async def work(site: Site) -> None:
        names = Names(site=[["127.0.0.1"], ["192.0.2.1"]])
        site.gives("/", text="fine")
        page = await Fetcher(look_up=names, policy=only_this_computer).fetch(f"http://site.test:{site.port}/")
        assert page.body == b"fine"
        assert names.asked == ["site.test"]

    visit(work)


def test_where_sockets_are_made_the_address_is_judged_once_more() -> None:
    async def work(site: Site) -> None:
        judged: list[str] = []

        def public_at_first(address: IpAddress) -> str | None:
            judged.append(str(address))
            return None if len(judged) == 1 else "private"

        site.gives("/", text="inside")
        with pytest.raises(Refused, match="could not be reached"):
            await Fetcher(policy=public_at_first).fetch(f"http://127.0.0.1:{site.port}/")
        assert judged == ["127.0.0.1", "127.0.0.1"]
        assert site.asked == []

    visit(work)


def test_a_secure_connection_asks_for_the_name_at_the_judged_address() -> None:
    async def main() -> bytes:
        heard: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.set_result(await reader.read(4096))
            writer.close()

        server = await asyncio.start_server(hear, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            fetcher = Fetcher(look_up=Names(site=[["127.0.0.1"]]), policy=only_this_computer)
            with pytest.raises(Refused, match=r"url: site\.test could not be reached"):
                await fetcher.fetch(f"https://site.test:{port}/")
            return await heard

    hello = asyncio.run(main())
    assert hello[0] == 0x16
    assert b"site.test" in hello


def test_names_are_looked_up_as_this_computer_does() -> None:
    assert set(asyncio.run(look_up("127.0.0.1", 80))) == {"127.0.0.1"}
    assert set(asyncio.run(look_up("2130706433", 80))) == {"127.0.0.1"}
