"""A service that streams replies rendered beforehand, in all wire protocols: the other end of what is measured.

A process of its own, so that its CPU is on nobody's bill: raw sockets, keep-alive, standard library only. How a reply
comes is said by the path before the protocol's own: `/22/4` sends 22 events in four writes, one after the other;
`/22/each` in a write per event, of which the kernel may join some; `/22/30hz` in thirty of them a second. `GET /stats`
tells how late the last kind was. Nothing of what a client sends is looked at, except for its length.

Usage: `python -m bench.sse_server`; prints its port and lives until its input ends.
"""

import asyncio
import functools
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Protocol = Literal["openai", "responses", "anthropic"]

ROOT = Path(__file__).resolve().parents[1]
MODEL = "test-model"
WORD = " fledgling"
SLOTS = 16
"""Paced streams are spread over so many moments of their period: they do not all speak at once."""

_PATH = re.compile(rb"POST /(\d+)/(each|\d+|\d+hz)(/v1/messages|(?:/v1)?/(?:chat/completions|responses))[ ?]")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n"
)
_LAST = b"0\r\n\r\n"


# ---- what is said ----------------------------------------------------------------------------------------------------

FRAME: dict[Protocol, int] = {"openai": 3, "responses": 8, "anthropic": 6}
"""Events of a reply that carry no words."""


def words_in(protocol: Protocol, events: int) -> int:
    """How many of so many events carry a word."""
    return events - FRAME[protocol]


def openai_events(events: int) -> list[bytes]:
    """A reply of so many chunks: the role, the words, the reason, the usage; and `[DONE]`, which is no chunk."""

    def chunk(delta: dict[str, object], reason: str | None = None) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _openai_chunk([choice], None)

    words = words_in("openai", events)
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": words,
        "total_tokens": 10 + words,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
    said = [chunk({"role": "assistant", "content": "", "refusal": None})]
    said += [chunk({"content": WORD})] * words
    said += [chunk({}, "stop"), _openai_chunk([], usage)]
    rendered = [b"data: " + _json(one) + b"\n\n" for one in said]
    rendered[-1] += b"data: [DONE]\n\n"
    return rendered


def _openai_chunk(choices: list[dict[str, object]], usage: dict[str, object] | None) -> dict[str, object]:
    return {
        "id": "chatcmpl-AbCdEfGhIjKlMnOpQrStUvWxYz012",
        "object": "chat.completion.chunk",
        "created": 1_760_000_000,
        "model": MODEL,
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
        "choices": choices,
        "usage": usage,
    }


def responses_events(events: int) -> list[bytes]:
    """A reply of so many events: four that begin it, the words, four that end it, each of which repeats them all."""
    words = words_in("responses", events)
    place = {"item_id": "msg_0123456789abcdef0123456789abcdef", "output_index": 0, "content_index": 0}
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": WORD * words}
    item = {"id": place["item_id"], "type": "message", "status": "completed", "content": [part], "role": "assistant"}
    begun = {"item": {**item, "status": "in_progress", "content": []}, "output_index": 0}
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": words,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 10 + words,
    }
    said: list[tuple[str, dict[str, object]]] = [
        ("response.created", {"response": _response("in_progress", [], None)}),
        ("response.in_progress", {"response": _response("in_progress", [], None)}),
        ("response.output_item.added", begun),
        ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
        *[("response.output_text.delta", {**place, "delta": WORD, "logprobs": [], "obfuscation": "4tG7h2Kq"})] * words,
        ("response.output_text.done", {**place, "text": WORD * words, "logprobs": []}),
        ("response.content_part.done", {**place, "part": part}),
        ("response.output_item.done", {"item": item, "output_index": 0}),
        ("response.completed", {"response": _response("completed", [item], usage)}),
    ]
    return [
        b"event: " + kind.encode() + b"\ndata: " + _json({"type": kind, "sequence_number": number, **fields}) + b"\n\n"
        for number, (kind, fields) in enumerate(said)
    ]


def _response(status: str, output: list[dict[str, object]], usage: dict[str, object] | None) -> dict[str, object]:
    return {
        "id": "resp_0123456789abcdef0123456789abcdef",
        "object": "response",
        "created_at": 1_760_000_000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": 1000,
        "model": MODEL,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage,
        "metadata": {},
    }


def anthropic_events(events: int) -> list[bytes]:
    """A reply of so many events: three that begin it, the words, three that end it."""
    words = words_in("anthropic", events)
    message: dict[str, object] = {
        "id": "msg_01AbCdEfGhIjKlMnOpQrStUv",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 1,
            "service_tier": "standard",
        },
    }
    said: list[dict[str, object]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
    ]
    delta = {"type": "text_delta", "text": WORD}
    said += [{"type": "content_block_delta", "index": 0, "delta": delta}] * words
    said += [
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": words},
        },
        {"type": "message_stop"},
    ]
    return [b"event: " + str(one["type"]).encode() + b"\ndata: " + _json(one) + b"\n\n" for one in said]


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


EVENTS: dict[Protocol, Callable[[int], list[bytes]]] = {
    "openai": openai_events,
    "responses": responses_events,
    "anthropic": anthropic_events,
}


@functools.cache
def rendered(protocol: Protocol, events: int, writes: int) -> tuple[bytes, ...]:
    """A whole response in so many writes: its head is in the first, its end in the last; an HTTP chunk per event."""
    said = EVENTS[protocol](events)
    chunks = [b"%x\r\n%b\r\n" % (len(one), one) for one in said]
    chunks[0] = _HEAD + chunks[0]
    chunks[-1] += _LAST
    bounds = [at * events // writes for at in range(writes + 1)]
    return tuple(b"".join(chunks[first:end]) for first, end in itertools.pairwise(bounds))


# ---- serving ---------------------------------------------------------------------------------------------------------


class _Wheel:
    """Writes for all streams of one rate, spread over its period; knows how late it was."""

    def __init__(self, per_s: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._step_s = 1 / (per_s * SLOTS)
        self._slots: list[list[tuple[asyncio.Transport, Iterator[bytes]]]] = [[] for _ in range(SLOTS)]
        self._at = self._joined = 0
        self._next = self._loop.time()
        self.late_s: list[float] = []
        self._turn()

    def join(self, transport: asyncio.Transport, writes: Iterator[bytes]) -> None:
        self._slots[self._joined % SLOTS].append((transport, writes))
        self._joined += 1

    def _turn(self) -> None:
        now = self._loop.time()
        while self._next <= now:
            slot = self._slots[self._at]
            if slot:
                self.late_s.append(now - self._next)
                self._slots[self._at] = [stream for stream in slot if _write(*stream)]
            self._at = (self._at + 1) % SLOTS
            self._next += self._step_s
        self._loop.call_at(self._next, self._turn)


def _write(transport: asyncio.Transport, writes: Iterator[bytes]) -> bool:
    """Write once more; False if that was the last, or nobody listens."""
    piece = next(writes, None)
    if piece is None or transport.is_closing():
        return False
    transport.write(piece)
    return True


class _Serving(asyncio.Protocol):
    """One connection: requests come in, each is answered as its path says."""

    def __init__(self, wheels: dict[int, _Wheel]) -> None:
        self._wheels = wheels
        self._read = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._read[: end + 2])
            length = _LENGTH.search(head)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._read) < whole:
                return
            del self._read[:whole]
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        assert self._transport is not None
        asked = _PATH.match(head)
        if asked is None:
            self._transport.write(_plain(self._stats() if head.startswith(b"GET /stats ") else None))
            return
        events, manner = int(asked[1]), asked[2].decode()
        protocol: Protocol = "openai"
        if asked[3].endswith(b"/messages"):
            protocol = "anthropic"
        elif asked[3].endswith(b"/responses"):
            protocol = "responses"
        if not manner.endswith("hz"):
            writes = int(manner) if manner.isdigit() else events
            self._go_on(iter(rendered(protocol, events, writes)))
        else:
            per_s = int(manner.removesuffix("hz"))
            wheel = self._wheels.get(per_s)
            if wheel is None:
                wheel = self._wheels[per_s] = _Wheel(per_s)
            wheel.join(self._transport, iter(rendered(protocol, events, events)))

    def _go_on(self, writes: Iterator[bytes]) -> None:
        assert self._transport is not None
        if _write(self._transport, writes):
            asyncio.get_running_loop().call_soon(self._go_on, writes)

    def _stats(self) -> dict[str, object]:
        late = sorted(second for wheel in self._wheels.values() for second in wheel.late_s)
        used = time.process_time()
        return {"cpu_s": used, "late_p99_ms": 1000 * late[len(late) * 99 // 100] if late else 0.0, "writes": len(late)}


def _plain(stats: dict[str, object] | None) -> bytes:
    body = b"" if stats is None else _json(stats)
    status = b"404 Not Found" if stats is None else b"200 OK"
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


async def serve() -> None:
    """Serve on a free port of this machine, say which, and stop when the input ends."""
    loop = asyncio.get_running_loop()
    wheels: dict[int, _Wheel] = {}
    server = await loop.create_server(lambda: _Serving(wheels), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


# ---- starting it -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs, in a process of its own."""

    port: int

    def url(self, events: int, manner: str, protocol: Protocol = "openai") -> str:
        """What a client is given as its base URL, to be answered so."""
        return f"http://127.0.0.1:{self.port}/{events}/{manner}" + ("" if protocol == "anthropic" else "/v1")


@contextmanager
def running(processes: int = 1, cores: Sequence[int] = ()) -> Iterator[list[Server]]:
    """So many servers, pinned to these cores if any are named; they are gone afterwards."""
    with ExitStack() as stack:
        started = [stack.enter_context(_process(cores)) for _ in range(processes)]
        yield started


@contextmanager
def _process(cores: Sequence[int]) -> Iterator[Server]:
    command = [sys.executable, "-m", "bench.sse_server"]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(process.pid, cores)
        yield Server(int(process.stdout.readline()))
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


if __name__ == "__main__":
    asyncio.run(serve())
