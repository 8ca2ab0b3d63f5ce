"""A web application as users write one: each worker opens the same folder, and each request is a run."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import fledge
from fledge.models.base import Request as Asked
from fledge.models.scripted import Answer, last_text
from fledge.testing import ScriptedModel

STATE = Path(os.environ.get("APP_STATE", "state"))


async def answer(asked: Asked) -> Answer:
    await asyncio.sleep(0.1)
    return f"done: {last_text(asked)}"


def note(word: str) -> None:
    """Write down what happened here, for the test to read."""
    with open(STATE.parent / "notes", "a") as notes:
        notes.write(f"{os.getpid()} {word}\n")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    opened = fledge.open(STATE, model=ScriptedModel(answer), config={}, workspace=STATE.parent)
    async with opened as fl:
        fl.on_end(lambda run: note(f"ended {run.session_key}"))
        app.state.fl = fl
        yield


async def ask(request: Request) -> Response:
    """Do the task of this key, once, however often it is asked for."""
    fl: fledge.Fledge = request.app.state.fl
    key = request.path_params["key"]
    run = await fl.spawn(f"task {key}", label=key, idempotency_key=key)
    result = await run
    return JSONResponse({"text": result.text, "run": run.session_key, "status": result.status, "error": result.error})


async def who(request: Request) -> Response:
    """Which worker answers, and whether it holds the folder."""
    return JSONResponse({"pid": os.getpid(), "holds": request.app.state.fl.is_holder})


app = Starlette(routes=[Route("/ask/{key}", ask), Route("/who", who)], lifespan=lifespan)
