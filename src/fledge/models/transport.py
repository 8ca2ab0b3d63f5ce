"""Connections to one service, by aiohttp: a request out, the answer's head and its body in pieces back.

Exceptions of aiohttp become an `OSError` here, in words that say what to do. Redirects, cookies and compression are
switched off: a redirect would carry the key to another place. The meaning of an answer is not known here.
"""

import asyncio
import io
import re
from functools import lru_cache

import aiohttp
from yarl import URL

from fledge.cancellation import error_message
from fledge.egress import Environment, Headers, Proxy, proxy_for, tls_context
from fledge.errors import BadInput
from fledge.models.http import HttpLimits

REST_S = 60.0
"""Seconds that an unused connection is kept. Services close theirs after 5 s to some minutes, which is noticed."""
LAST_BYTES_S = 0.5
"""Seconds to wait for the end of an answer that has no more content: reading it keeps the connection usable."""
MOST_LINE_BYTES = 16 * 1024
LARGE_BYTES = 1024 * 1024
"""From this size on aiohttp warns of a body in one piece: sending it would block the event loop."""
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class HttpAnswer:
    """An answer whose head has come. It must be closed."""

    def __init__(self, response: aiohttp.ClientResponse, proxy: Proxy | None) -> None:
        self._response, self._proxy = response, proxy
        self.status = response.status
        self.fields: Headers = response.headers
        """By name, whatever its case."""

    async def read(self) -> bytes:
        """More of the body, as soon as there is any; nothing at its end. Raises `OSError`."""
        try:
            return await self._response.content.readany()
        except aiohttp.ClientError as error:
            raise _told(error, self._proxy) from error

    async def body(self, most: int) -> bytes:
        """The whole body, or a little more than `most` bytes of a longer one. Raises `OSError`."""
        raw = bytearray()
        while len(raw) <= most and (piece := await self.read()):
            raw += piece
        return bytes(raw)

    async def to_the_end(self) -> None:
        """Read to the end of the body, if it comes soon, so that the connection can serve the next request."""
        if self._response.content.at_eof():
            return
        async with asyncio.timeout(LAST_BYTES_S):
            while await self.read():
                pass

    def close(self) -> None:
        """Drop the connection, unless the answer was read to its end: then it is kept."""
        self._response.close()


class Connections:
    """The connections to the service at `base_url`, of one event loop."""

    def __init__(self, base_url: str, env: Environment, ca_file: str | None, limits: HttpLimits) -> None:
        """`env` names proxies and certificates, `ca_file` certificates of additional authorities to trust."""
        self._base, self._proxy = base_url, proxy_for(base_url, env)
        tls = tls_context(env, ca_file) if base_url.startswith("https:") else True
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=REST_S, ssl=tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=aiohttp.ClientTimeout(
                total=limits.request_s, sock_connect=limits.connect_s, sock_read=limits.idle_s
            ),
            max_line_size=MOST_LINE_BYTES,
            max_field_size=MOST_LINE_BYTES,
        )
        self.loop = asyncio.get_running_loop()

    async def send(self, path: str, fields: Headers, body: bytes | None = None) -> HttpAnswer:
        """Send the request, a GET unless it has a body; the answer once its head has come. Raises `OSError`.

        The service may close a kept connection in the moment in which it is used again. If no byte came back, the
        request is sent once more. The service may have read it, and in general a POST must not be repeated (RFC 9110
        §9.2.2); but this one only asks for a reply. At worst the user pays for a reply that never arrived, and the
        calling code would send the request again anyway, as the official clients do.
        """
        for name, value in fields.items():
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                # The value is not shown: it may be a key.
                raise BadInput(
                    "headers", f"the value for {name!r} must be one that a header can carry: printable, on one line"
                )
        try:
            try:
                return await self._tried(path, fields, body)
            except aiohttp.ServerDisconnectedError:
                return await self._tried(path, fields, body)
        except (aiohttp.ClientError, ValueError) as error:
            raise _told(error, self._proxy) from error

    async def _tried(self, path: str, fields: Headers, body: bytes | None) -> HttpAnswer:
        proxy = None if self._proxy is None else self._proxy.url
        method = "GET" if body is None else "POST"
        url = URL(self._base + path, encoded=True) if body is None else _address(self._base, path)
        # A request with images is megabytes long: as a file it is sent piece by piece, between other work.
        data = body if body is None or len(body) < LARGE_BYTES else io.BytesIO(body)
        response = await self._session.request(
            method, url, headers=fields, data=data, allow_redirects=False, proxy=proxy
        )
        return HttpAnswer(response, self._proxy)

    async def close(self) -> None:
        """Close every connection, those in use too."""
        await self._session.close()


def short_connections(base_url: str, env: Environment, ca_file: str | None, seconds: float) -> Connections:
    """Connections for requests that are answered within so many seconds, or fail."""
    return Connections(base_url, env, ca_file, HttpLimits(connect_s=seconds, request_s=seconds, idle_s=seconds))


@lru_cache(64)
def _address(base: str, path: str) -> URL:
    """The parsed address of a method of a service, cached: there are few, and each is used again and again."""
    return URL(base + path)


def _told(error: Exception, proxy: Proxy | None) -> OSError:
    """The same trouble in words that say what to do, and that hold no password of a proxy."""
    match error:
        case aiohttp.ClientHttpProxyError(status=407):
            return ConnectionError(credentials_wanted(proxy))
        case aiohttp.ClientHttpProxyError(status=status):
            return ConnectionError(f"the proxy {_shown(proxy)} did not connect: it answered {status}")
        case aiohttp.ClientProxyConnectionError(os_error=trouble):
            return ConnectionError(f"the proxy {_shown(proxy)} cannot be reached ({trouble.strerror or trouble})")
        case aiohttp.ClientConnectorCertificateError(certificate_error=trouble):
            advice = "is an authority missing? SSL_CERT_FILE or models.caFile name a file of them"
            return ConnectionError(f"the service cannot prove its name ({trouble}): {advice}")
        case aiohttp.ClientConnectorError(os_error=trouble):
            return trouble
        case TimeoutError() | OSError():
            return error
        case aiohttp.ClientPayloadError():
            return ConnectionError("the connection was closed in the middle of the answer")
        case aiohttp.ServerDisconnectedError():
            return ConnectionError("the service closed the connection without an answer")
        case aiohttp.ClientResponseError():
            return ConnectionError("the answer is not HTTP/1.1")
        case _:
            return ConnectionError(error_message(error))


def credentials_wanted(proxy: Proxy | None) -> str:
    """The error text for a proxy that wants a name and a password, or refuses those that it got."""
    variable = "" if proxy is None else proxy.variable
    return f"the proxy {_shown(proxy)} refuses the credentials: set {variable}=http://user:password@host:port"


def _shown(proxy: Proxy | None) -> str:
    return "" if proxy is None else f"{proxy.place} ({proxy.variable})"
