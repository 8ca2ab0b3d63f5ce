"""`web_fetch` through a proxy: what is judged before the proxy is asked, at the first address and at each redirect."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest

from fledge.errors import Refused
from fledge.tools.web import Fetcher
from tests.models.raw_server import RawServer, saying
from tests.proxies import PASSWORD, Proxy
from tests.statements import proves

TLS = Path(__file__).parents[1] / "models" / "tls"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
KNOWN = {"inside.example": "10.0.0.7", "outside.example": "93.184.216.34"}


def to(location: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()


async def look_up(host: str, _: int) -> Sequence[str]:
    if host not in KNOWN:
        raise socket.gaierror(socket.EAI_NONAME, "unknown here")
    return [KNOWN[host]]


async def fetched(url: str, proxy: Proxy, scheme: str = "http") -> str:
    """The page, got through the proxy."""
    env = {f"{scheme}_proxy": proxy.url, "SSL_CERT_FILE": str(TLS / "proxied-ca.pem")}
    return (await Fetcher(look_up=look_up, env=env, seconds=20).fetch(url)).body.decode()


@proves("8.egress.1")
@pytest.mark.parametrize("host", ["outside.example", "only-the-proxy-knows.example"])
def test_a_page_is_got_through_the_proxy(host: str) -> None:
    async def main() -> None:
        async with RawServer(saying(PAGE)) as server, Proxy(server.port) as proxy:
            assert await fetched(f"http://{host}/a?b=c", proxy) == "hello"
            assert (proxy.asked, proxy.complaints) == ([f"GET http://{host}/a?b=c"], [])

    asyncio.run(main())


@proves("8.egress.1")
def test_a_secure_page_is_got_through_a_tunnel_and_its_name_is_proved() -> None:
    async def main() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS / "proxied-server.pem")
        async with RawServer(saying(PAGE), context) as server, Proxy(server.port) as proxy:
            assert await fetched("https://model.example/", proxy, "https") == "hello"
            with pytest.raises(Refused, match="certificate"):
                await fetched("https://outside.example/", proxy, "https")
            assert proxy.asked == ["CONNECT model.example:443", "CONNECT outside.example:443"]

    asyncio.run(main())


@proves(
    "8.egress.3", "web_fetch judges addresses and names before it asks a proxy, at the first address and each redirect"
)
@pytest.mark.parametrize(
    "inside",
    [
        "http://127.0.0.1/",
        "http://localhost/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://inside.example/",
        "http://router/",
        "http://nas.local/",
        "http://metadata.google.internal/",
        "http://metadata.google.internal./",
    ],
)
@pytest.mark.parametrize("redirected", [False, True])
def test_what_is_not_public_is_not_asked_of_the_proxy_either(inside: str, redirected: bool) -> None:
    async def main() -> None:
        async with RawServer(saying(to(inside))) as server, Proxy(server.port) as proxy:
            with pytest.raises(Refused) as refused:
                await fetched("http://outside.example/" if redirected else inside, proxy)
            assert proxy.asked == (["GET http://outside.example/"] if redirected else [])
            if "localhost" not in inside:
                assert refused.value.status == "forbidden"

    asyncio.run(main())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_refuses_is_told_without_its_password(scheme: str) -> None:
    async def main() -> None:
        async with Proxy(1) as proxy:
            env = {f"{scheme}_proxy": f"http://wren:{PASSWORD[:1]}wrong@127.0.0.1:{proxy.port}"}
            with pytest.raises(Refused, match="proxy") as refused:
                await Fetcher(look_up=look_up, env=env).fetch(f"{scheme}://outside.example/")
            assert "wrong" not in str(refused.value)

    asyncio.run(main())
