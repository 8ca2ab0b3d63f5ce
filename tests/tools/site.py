"""A web server on this computer, look-ups that answer as told, and policies that let this computer pass for public."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from fledge.tools.web import IpAddress, refuse_special
from tests.tools.places import left_open, open_descriptors


class Site:
    """A server on this computer that records what it is asked."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.answers: dict[str, Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]] = {}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append((str(request.rel_url), dict(request.headers)))
        return await self.answers[request.path](request)

    def gives(self, path: str, **response: Any) -> None:
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            return web.Response(**response)

        self.answers[path] = answer

    def redirects(self, path: str, to: str, status: int = 302) -> None:
        self.gives(path, status=status, headers={"Location": to.replace("PORT", str(self.port))})


Visit = Callable[[Site], Awaitable[Any]]


def visit(work: Visit) -> Any:
    """Run the work with a site that listens; afterwards no descriptor is left."""

    async def main() -> Any:
        site = Site()
        server = web.Server(site.answer)
        runner = web.ServerRunner(server, handle_signals=False)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            site.port = runner.addresses[0][1]
            return await work(site)
        finally:
            await runner.cleanup()

    before = open_descriptors()
    try:
        return asyncio.run(main())
    finally:
        assert left_open(before) == set()


class Names:
    """Look-ups: each name has a list of answers, one per time it is asked; the last stays."""

    def __init__(self, **answers: list[Sequence[str]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        left = self.answers.get(host.replace(".test", ""), [[]])
        return left.pop(0) if len(left) > 1 else left[0]


def anything(address: IpAddress) -> str | None:
    return None


def only_this_computer(address: IpAddress) -> str | None:
    """As if this computer were the public internet, and nothing else."""
    return None if str(address) == "127.0.0.1" else refuse_special(address) or "elsewhere"
