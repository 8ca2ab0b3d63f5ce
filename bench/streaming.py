"""What one streamed model call costs its client: fledge's adapters beside the official SDKs, on the same server.

Each client is a process of its own that asks in a row, or in many rows at once, after calls that are not counted; its
figure is its CPU, all threads, divided by the calls. Every reply is checked to hold every word. The SDKs need not
be installed beside fledge: where they are not, they get an environment of their own, made once. That is why this file
imports nothing at its top but the standard library: it runs in theirs, too.
"""

import argparse
import asyncio
import importlib.util
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Literal

from bench.measure import Meter
from bench.sse_server import MODEL, ROOT, WORD, Protocol, Server, running, words_in

Who = Literal["fledge", "sdk"]

PROTOCOLS: tuple[Protocol, ...] = ("openai", "responses", "anthropic")
WIRES: dict[Protocol, str] = {"openai": "openai", "responses": "openai (responses)", "anthropic": "anthropic"}
"""The protocols as the table names them."""
SDKS = ("openai", "anthropic")
"""The packages of the official SDKs; OpenAI's speaks two of the protocols."""
SDK_FOLDER = Path(__file__).parent / ".venv-sdk"
WARMING = 10
"""Calls that are not counted."""
TIMEOUT_S = 300
PROMPT = "say something"


# ---- in the client's process -----------------------------------------------------------------------------------------

Ask = Callable[[], AsyncIterator[str]]
"""One call: yields the words as they come."""


def _fledge(protocol: Protocol, url: str) -> tuple[Ask, Callable[[], Awaitable[object]]]:
    from fledge.models.adapter import HttpModel
    from fledge.models.anthropic import AnthropicModel
    from fledge.models.base import Broke, Request, Text, UserMessage
    from fledge.models.keys import SecretKey
    from fledge.models.openai import OpenAIModel
    from fledge.models.providers import Provider
    from fledge.models.responses import ResponsesModel

    adapters: dict[Protocol, type[HttpModel]] = {
        "openai": OpenAIModel,
        "responses": ResponsesModel,
        "anthropic": AnthropicModel,
    }
    model = adapters[protocol](Provider(name=protocol, base_url=url), SecretKey("none"))
    request = Request(model=MODEL, messages=(UserMessage(PROMPT),), max_tokens=1000)

    async def ask() -> AsyncIterator[str]:
        async for event in model.stream(request):
            if isinstance(event, Text):
                yield event.text
            elif isinstance(event, Broke):
                raise RuntimeError(event.message)

    return ask, model.close


def _openai_sdk(url: str) -> tuple[Ask, Callable[[], Awaitable[object]]]:
    client: Any = import_module("openai").AsyncOpenAI(api_key="none", base_url=url, max_retries=0)

    async def ask() -> AsyncIterator[str]:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": PROMPT}],
            max_tokens=1000,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content

    return ask, client.close


def _responses_sdk(url: str) -> tuple[Ask, Callable[[], Awaitable[object]]]:
    client: Any = import_module("openai").AsyncOpenAI(api_key="none", base_url=url, max_retries=0)

    async def ask() -> AsyncIterator[str]:
        asked = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": PROMPT}]}]
        stream = await client.responses.create(
            model=MODEL, input=asked, max_output_tokens=1000, store=False, stream=True
        )
        async for event in stream:
            if event.type == "response.output_text.delta":
                yield event.delta

    return ask, client.close


def _anthropic_sdk(url: str) -> tuple[Ask, Callable[[], Awaitable[object]]]:
    client: Any = import_module("anthropic").AsyncAnthropic(api_key="none", base_url=url, max_retries=0)

    async def ask() -> AsyncIterator[str]:
        # The helper that gathers the message, as our adapter does; the raw events alone cost about a third less.
        asked = client.messages.stream(model=MODEL, messages=[{"role": "user", "content": PROMPT}], max_tokens=1000)
        async with asked as stream:
            async for text in stream.text_stream:
                yield text

    return ask, client.close


async def cpu_ms_a_call(who: Who, protocol: Protocol, server: Server, plan: "Plan") -> float:
    """CPU of one call in this process, everything warm."""
    url, words = server.url(plan.events, plan.manner, protocol), words_in(protocol, plan.events)
    if who == "fledge":
        ask, close = _fledge(protocol, url)
    else:
        sdks = {"openai": _openai_sdk, "responses": _responses_sdk, "anthropic": _anthropic_sdk}
        ask, close = sdks[protocol](url)

    async def once() -> None:
        heard = 0
        async for text in ask():
            heard += len(text)
        if heard != words * len(WORD):
            raise RuntimeError(f"{heard} of {words * len(WORD)} characters came: the figures mean nothing")

    async def in_a_row(calls: int) -> None:
        for _ in range(calls):
            await once()

    await asyncio.gather(*(in_a_row(-(-WARMING // plan.at_once)) for _ in range(plan.at_once)))
    with Meter() as m:
        await asyncio.gather(*(in_a_row(plan.calls // plan.at_once) for _ in range(plan.at_once)))
    await close()
    return 1000 * m.cpu_s / plan.calls


# ---- from outside ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sdk:
    """Where the official SDKs are."""

    python: Path


def found_sdk() -> Sdk | None:
    """The SDKs of this interpreter or of the environment that was made for them; None if neither has both."""
    if all(importlib.util.find_spec(name) for name in SDKS):
        return Sdk(Path(sys.executable))
    python = SDK_FOLDER / "bin" / "python"
    check = "import anthropic, openai"
    if python.exists() and subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0:
        return Sdk(python)
    return None


def made_sdk() -> Sdk | None:
    """The SDKs, installed now if need be; None if that fails, for example without a network."""
    if (sdk := found_sdk()) is not None:
        return sdk
    python = SDK_FOLDER / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(SDK_FOLDER)],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *SDKS],
    ):
        try:
            subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
    return found_sdk()


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of a client: so many calls, each answered by so many events in this manner, so many at once."""

    events: int
    calls: int
    manner: str = "each"
    at_once: int = 1


@dataclass(frozen=True, slots=True)
class Streamed:
    """What a call costs on both sides, medians of the rounds."""

    plan: Plan
    fledge_ms: float
    sdk_ms: float | None
    """None if there was no SDK to measure."""
    sdk_name: str = ""


def streamed(protocol: Protocol, plans: Sequence[Plan], rounds: int, sdk: Sdk | None) -> list[Streamed]:
    """Measure both sides, taking turns; only ours if there is no SDK."""
    ours: list[list[float]] = []
    theirs: list[list[float]] = []
    name = ""
    with running() as (server,):
        for _ in range(rounds):
            ours.append(_client("fledge", Path(sys.executable), protocol, server, plans)[0])
            if sdk is not None:
                took, name = _client("sdk", sdk.python, protocol, server, plans)
                theirs.append(took)
    return [
        Streamed(plan, median(took[at] for took in ours), median(took[at] for took in theirs) if theirs else None, name)
        for at, plan in enumerate(plans)
    ]


def _client(
    who: Who, python: Path, protocol: Protocol, server: Server, plans: Sequence[Plan]
) -> tuple[list[float], str]:
    """CPU ms of a call of each plan by one fresh process, and the name and version of what was measured."""
    asked = [f"{plan.events}:{plan.calls}:{plan.manner}:{plan.at_once}" for plan in plans]
    command = [str(python), "-m", "bench.streaming", who, protocol, str(server.port), *asked]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode:
        raise RuntimeError(f"the {who} client of {protocol} failed: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    return found["cpu_ms"], found["name"]


def _plan(text: str) -> Plan:
    events, calls, manner, at_once = text.split(":")
    return Plan(int(events), int(calls), manner, int(at_once))


async def _all(who: Who, protocol: Protocol, server: Server, plans: Sequence[Plan]) -> list[float]:
    return [await cpu_ms_a_call(who, protocol, server, plan) for plan in plans]


def main(arguments: list[str]) -> None:
    """Be a client, and print what a call cost by each plan."""
    parser = argparse.ArgumentParser(prog="python -m bench.streaming")
    parser.add_argument("who", choices=("fledge", "sdk"))
    parser.add_argument("protocol", choices=PROTOCOLS)
    parser.add_argument("port", type=int)
    parser.add_argument("plans", nargs="+", type=_plan, metavar="EVENTS:CALLS:MANNER:AT_ONCE")
    asked = parser.parse_args(arguments)
    took = asyncio.run(_all(asked.who, asked.protocol, Server(asked.port), asked.plans))
    package = "anthropic" if asked.protocol == "anthropic" else "openai"
    name = "fledge" if asked.who == "fledge" else f"{package} {version(package)}"
    print(json.dumps({"cpu_ms": took, "name": name}))


if __name__ == "__main__":
    main(sys.argv[1:])
