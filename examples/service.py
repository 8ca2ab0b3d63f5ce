"""A web service whose tasks survive a restart. Starlette here; a FastAPI application has the same lifespan.

    python examples/service.py [MODEL]          or: uvicorn service:app

Without the name of a model, such as openai/gpt-5, a script stands in for one. Started as a program, it makes a few
requests to itself and stops.
"""

import asyncio
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse
from starlette.routing import Route

import fledge
from fledge.testing import ScriptedModel, last_text

STATE = tempfile.mkdtemp()
MODEL = sys.argv[1] if len(sys.argv) > 1 else ScriptedModel(lambda request: f"done: {last_text(request)}")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """One folder for the service. Several workers may open it: one holds it, the others ask that one."""
    async with fledge.open(STATE, model=MODEL) as fl:
        app.state.fl = fl
        yield


async def begin(request: HttpRequest) -> JSONResponse:
    """POST /tasks: start a task. A task that is posted again with the same key is not started again."""
    fl: fledge.Fledge = request.app.state.fl
    given = await request.json()
    run = await fl.spawn(given["task"], idempotency_key=given.get("key", ""))
    return JSONResponse({"id": run.run_id}, status_code=202)


async def answer(request: HttpRequest) -> JSONResponse:
    """GET /tasks/{id}: the result. It waits for it at most 30 seconds."""
    fl: fledge.Fledge = request.app.state.fl
    try:
        result = await (await fl.run(request.path_params["id"])).result(timeout=30)
    except fledge.NotFound as error:
        return JSONResponse({"error": str(error)}, status_code=404)
    return JSONResponse({"status": result.status, "text": result.text, "error": result.error})


app = Starlette(
    lifespan=lifespan, routes=[Route("/tasks", begin, methods=["POST"]), Route("/tasks/{id}", answer, methods=["GET"])]
)


async def main() -> None:
    """Serve on a free port, ask for one task twice, and stop."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    listening = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.ensure_future(server.serve([listening]))
    async with aiohttp.ClientSession(f"http://127.0.0.1:{listening.getsockname()[1]}") as http:
        ids = [(await (await http.post("/tasks", json={"task": "say hello", "key": "k"})).json())["id"] for _ in "12"]
        print(await (await http.get(f"/tasks/{ids[0]}")).json())
        print("one run" if ids[0] == ids[1] else "two runs")
    server.should_exit = True
    await serving


if __name__ == "__main__":
    asyncio.run(main())
