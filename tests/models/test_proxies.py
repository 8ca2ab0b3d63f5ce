"""Models behind a proxy that demands credentials, and behind certificates that only a file knows."""

import asyncio
import ssl
from pathlib import Path

import pytest

from fledge.errors import BadInput
from fledge.models.base import Broke, Request, UserMessage
from fledge.models.names import Registry
from fledge.models.providers import Provider
from fledge.models.scripted import ScriptedReply
from tests.models.asking import ask, broke_of, run, text_of
from tests.models.openai_server import OpenAIServer
from tests.models.raw_server import RawServer, saying
from tests.models.serving import KEY
from tests.proxies import PASSWORD, Proxy
from tests.statements import proves

TLS = Path(__file__).parent / "tls"
GOOD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
    b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


def secure_server() -> RawServer:
    """A service that proves to be model.example, to those who believe `proxied-ca.pem`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "proxied-server.pem")
    return RawServer(saying(GOOD), context)


async def asked(base_url: str, env: dict[str, str], ca_file: str | None = None) -> str | Broke:
    """The words of the model at this address, or what broke."""
    registry = Registry({"MINE": KEY, **env}, ca_file=ca_file)
    registry.add_provider(Provider(name="mine", base_url=base_url, key_env="MINE"))
    model, name = registry.open("mine/m")
    try:
        events = await ask(model, Request(model=name, messages=(UserMessage("x"),)))
        return text_of(events) or broke_of(events)
    finally:
        await registry.close()


@proves("8.egress.1", "Models and web_fetch go through HTTPS_PROXY and HTTP_PROXY, with credentials, except NO_PROXY")
@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY"])
def test_a_plain_address_is_asked_in_absolute_form_with_credentials(variable: str) -> None:
    async def main() -> None:
        async with OpenAIServer([ScriptedReply("hi")]) as server, Proxy(server.port) as proxy:
            assert await asked("http://model.example/v1", {variable: proxy.url}) == "hi"
            assert proxy.asked == ["POST http://model.example/v1/chat/completions"]
            assert proxy.complaints == []
            assert "proxy-authorization" not in server.headers[0]

    run(main())


@proves("8.egress.1")
@pytest.mark.parametrize("variable", ["https_proxy", "HTTPS_PROXY"])
def test_a_secure_address_is_asked_through_a_tunnel_and_must_prove_its_name(variable: str) -> None:
    async def main() -> None:
        async with secure_server() as server, Proxy(server.port) as proxy:
            env = {variable: proxy.url, "SSL_CERT_FILE": str(TLS / "proxied-ca.pem")}
            assert await asked("https://model.example/v1", env) == "hi"
            assert proxy.asked == ["CONNECT model.example:443"]
            assert b"authorization: bearer" in server.requests[0].head.lower()
            assert b"proxy-authorization" not in server.requests[0].head.lower()
            # A stranger's certificate is not believed, and nothing is said to it.
            broke = await asked("https://other.example/v1", env)
            assert isinstance(broke, Broke)
            assert "cannot prove its name" in broke.message
            assert len(server.requests) == 1

    run(main())


@proves("8.egress.2", "Authorities are the system's, or SSL_CERT_FILE's instead; models.caFile's are believed besides")
def test_certificates_come_from_the_file_that_is_named() -> None:
    async def main() -> None:
        async with secure_server() as server, Proxy(server.port) as proxy:
            env, ca_file = {"https_proxy": proxy.url}, str(TLS / "proxied-ca.pem")
            broke = await asked("https://model.example/v1", env)
            assert isinstance(broke, Broke)
            assert "SSL_CERT_FILE or models.caFile" in broke.message
            assert server.requests == []
            assert await asked("https://model.example/v1", env, ca_file) == "hi"
            # The other authority instead of the system's, this one besides.
            other = {**env, "SSL_CERT_FILE": str(TLS / "ca.pem")}
            assert await asked("https://model.example/v1", other, ca_file) == "hi"

    run(main())


@pytest.mark.parametrize("no_proxy", ["model.example", ".example", "*", "x, model.example:80"])
def test_what_is_excepted_is_asked_directly(no_proxy: str) -> None:
    async def main() -> None:
        async with OpenAIServer([]) as server, Proxy(server.port) as proxy:
            env = {"http_proxy": proxy.url, "no_proxy": no_proxy}
            broke = await asked("http://model.example:80/v1", env)
            assert isinstance(broke, Broke)
            assert "http://model.example:80/v1 cannot be reached" in broke.message
            assert proxy.asked == proxy.complaints == []

    run(main())


def test_this_machine_is_never_asked_through_a_proxy() -> None:
    async def main() -> None:
        async with OpenAIServer([ScriptedReply("hi")] * 2) as server, Proxy(1) as proxy:
            for host in ("127.0.0.1", "localhost"):
                assert await asked(f"http://{host}:{server.port}/v1", {"http_proxy": proxy.url}) == "hi"
            assert proxy.asked == proxy.complaints == []

    run(main())


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("given", ["127.0.0.1:{}", "http://wren:wrong@127.0.0.1:{}"])
def test_a_proxy_that_refuses_the_credentials_is_named_and_no_password_is_told(scheme: str, given: str) -> None:
    async def main() -> None:
        async with Proxy(1) as proxy:
            broke = await asked(f"{scheme}://model.example/v1", {f"{scheme}_proxy": given.format(proxy.port)})
            assert isinstance(broke, Broke)
            words = f"the proxy 127.0.0.1:{proxy.port} ({scheme}_proxy) refuses the credentials: set {scheme}_proxy="
            assert words in broke.message
            assert "wrong" not in broke.message
            assert len(proxy.complaints) == 1

    run(main())


def test_a_proxy_that_cannot_be_reached_or_does_not_connect_is_named() -> None:
    async def main() -> None:
        async with Proxy(1, status=503) as proxy:
            broke = await asked("https://model.example/v1", {"HTTPS_PROXY": proxy.url})
            assert isinstance(broke, Broke)
            assert broke.message == f"the proxy 127.0.0.1:{proxy.port} (HTTPS_PROXY) did not connect: it answered 503"
            port = proxy.port
        broke = await asked("https://model.example/v1", {"HTTPS_PROXY": f"http://a:{PASSWORD}@127.0.0.1:{port}"})
        assert isinstance(broke, Broke)
        assert broke.message.startswith(f"the proxy 127.0.0.1:{port} (HTTPS_PROXY) cannot be reached (")
        assert PASSWORD not in broke.message

    run(main())


@pytest.mark.parametrize("given", ["http://", "a b", "http://a:99999", f"ftp://u:{PASSWORD}@a"])
def test_a_variable_that_names_no_proxy_is_refused_and_not_repeated(given: str) -> None:
    with pytest.raises(BadInput) as refused:
        asyncio.run(asked("https://model.example/v1", {"HTTPS_PROXY": given}))
    assert str(refused.value).startswith("HTTPS_PROXY: must be a proxy's address like http://proxy:3128")
    assert PASSWORD not in str(refused.value)


def test_a_file_without_certificates_is_refused_by_the_name_that_names_it(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("nothing")
    for ca_file, env, field in (
        (str(empty), {}, "models.caFile"),
        ("/nowhere", {}, "models.caFile"),
        (None, {"SSL_CERT_FILE": str(empty)}, "SSL_CERT_FILE"),
    ):
        with pytest.raises(BadInput, match=f"^{field}: must be a readable file of certificates in PEM"):
            Registry(env, ca_file=ca_file).open("openai/m")
