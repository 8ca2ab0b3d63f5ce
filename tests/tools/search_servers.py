"""Search services on loopback that reject what the real ones reject.

Brave: https://api-dashboard.search.brave.com/app/documentation/web-search/query (a wrong token is a 422 there).
Tavily: https://docs.tavily.com/documentation/api-reference/endpoint/search.
SearXNG: https://docs.searxng.org/dev/search_api.html (a format that is not switched on is a 403).
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Self

from aiohttp import web

KEY = "search-key-1234567890"
HIT = ("Wrens &amp; <strong>nests</strong>", "https://birds.example/wren", "A small\n\nbird &lt;brown&gt;")
"""Title, address and words of the one good hit."""


class SearchServer:
    """All three services on one port; `status` with `body` in the place of every answer that would be good."""

    def __init__(
        self,
        status: int = 200,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        silent: bool = False,
    ) -> None:
        self._status, self._body, self._headers, self._silent = status, body, headers or {}, silent
        self.asked: list[dict[str, Any]] = []
        """What was accepted: the parameters."""
        app = web.Application()
        app.router.add_get("/res/v1/web/search", self._brave)
        app.router.add_post("/tavily/search", self._tavily)
        app.router.add_get("/searxng/search", self._searxng)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        self.port = 0

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def base_url(self, provider: str, host: str = "127.0.0.1") -> str:
        path = {"brave": "res/v1", "tavily": "tavily", "searxng": "searxng"}[provider]
        return f"http://{host}:{self.port}/{path}"

    async def _brave(self, request: web.Request) -> web.StreamResponse:
        asked = dict(request.query)
        if request.headers.get("X-Subscription-Token") != KEY:
            error = {"code": "SUBSCRIPTION_TOKEN_INVALID", "detail": "The provided subscription token is invalid."}
            return web.json_response({"type": "ErrorResponse", "error": error}, status=422)
        known = {"q", "count", "text_decorations", "result_filter"}
        is_good = set(asked) <= known and 0 < len(asked.get("q", "")) <= 400 and 0 < int(asked["count"]) <= 20
        if not is_good or asked["text_decorations"] not in ("true", "false"):
            error = {"code": "VALIDATION", "detail": "Unable to validate request parameter(s)"}
            return web.json_response({"type": "ErrorResponse", "error": error}, status=422)
        return await self._answer(asked, {"type": "search", "web": {"type": "search", "results": _hits("description")}})

    async def _tavily(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.json_response({"detail": {"error": "Unauthorized: missing or invalid API key."}}, status=401)
        asked = await request.json()
        if request.content_type != "application/json" or set(asked) - {"query", "max_results"} or not asked["query"]:
            return web.json_response({"detail": {"error": "Invalid request"}}, status=400)
        if not 0 <= asked["max_results"] <= 20:
            return web.json_response({"detail": {"error": "Max results must be between 0 and 20"}}, status=400)
        return await self._answer(asked, {"query": asked["query"], "results": _hits("content"), "response_time": 0.1})

    async def _searxng(self, request: web.Request) -> web.StreamResponse:
        asked = dict(request.query)
        if asked.get("format") != "json" or not asked.get("q"):
            raise web.HTTPForbidden
        return await self._answer(asked, {"query": asked["q"], "results": _hits("content"), "answers": []})

    async def _answer(self, asked: dict[str, Any], good: dict[str, Any]) -> web.StreamResponse:
        self.asked.append(asked)
        if self._silent:
            await asyncio.Event().wait()
        if self._status == 200 and self._body is None:
            return web.json_response(good)
        return web.Response(
            status=self._status, body=self._body or b"", headers=self._headers, content_type="application/json"
        )


def _hits(words: str) -> list[dict[str, Any]]:
    title, url, text = HIT
    return [{"title": title, "url": url, words: text, "score": 0.9}, {"title": "bad", "url": "javascript:alert(1)"}]
