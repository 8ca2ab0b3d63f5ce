"""A proxy with a password that refuses, in every way that one can: what a model and a log read of it."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from fledge.config import check
from fledge.errors import Refused
from fledge.models.base import Broke
from fledge.tools.base import ToolContext, ToolResult
from fledge.tools.search import configured_search, search_tool
from fledge.tools.web import Fetcher
from tests.models.test_proxies import asked
from tests.statements import proves

SECRET: Final = "pa-ss-wo-rd"
CONTEXT: Final = ToolContext(session="agent:main:main", entry=1, index=0, workspace=Path("/nowhere"))

ANSWERS: Final[dict[str, bytes | None]] = {
    "wants other credentials": b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n",
    "does not connect": b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
    "speaks no HTTP": b"220 smtp.example ESMTP\r\n",
    "sends a broken field": b"HTTP/1.1 200 OK\r\nContent-Length: no\r\n\r\n",
    "sends no field": b"HTTP/1.1 200 OK\r\nwithout a colon\r\n\r\n",
    "sends half an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
    "closes without an answer": b"",
    "is not there": None,
}


@asynccontextmanager
async def proxy(answer: bytes | None) -> AsyncIterator[dict[str, str]]:
    """A proxy that answers each request like this, as the variables that name it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer or b"")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if answer is None:
        server.close()
        await server.wait_closed()
    try:
        yield dict.fromkeys(("http_proxy", "https_proxy"), f"http://wren:{SECRET}@127.0.0.1:{port}")
    finally:
        server.close()


async def _public(host: str, _: int) -> Sequence[str]:
    return ["93.184.216.34"]


async def fetch(scheme: str, env: dict[str, str]) -> str:
    try:
        page = await Fetcher(look_up=_public, env=env).fetch(f"{scheme}://outside.example/")
    except Refused as refused:
        return str(refused)
    return f"{page.status} {page.body.decode()}"


async def search(scheme: str, env: dict[str, str]) -> str:
    settings = {"tools": {"web": {"search": {"provider": "searxng", "baseUrl": f"{scheme}://outside.example"}}}}
    service = configured_search(check(settings).config.tools.web.search, env)
    assert service is not None
    result = await search_tool(service).call(json.dumps({"query": "wrens", "limit": 3}), CONTEXT)
    assert isinstance(result, ToolResult)
    assert result.is_error
    return result.text


async def model(scheme: str, env: dict[str, str]) -> str:
    broke = await asked(f"{scheme}://outside.example/v1", env)
    assert isinstance(broke, Broke)
    return f"{broke.words} {broke.remedy}"


@proves("8.egress.40")
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("door", [fetch, search, model])
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_the_password_of_a_proxy_that_refuses_is_told_nowhere(
    caplog: pytest.LogCaptureFixture,
    answer: bytes | None,
    door: Callable[[str, dict[str, str]], Awaitable[str]],
    scheme: str,
) -> None:
    async def main() -> str:
        async with proxy(answer) as env:
            return await door(scheme, env)

    with caplog.at_level(logging.DEBUG):
        words = asyncio.run(main())
    assert words.strip()
    assert SECRET not in words
    assert SECRET not in caplog.text
