"""The strict servers are strict: what the real services reject, they reject, and they can be run as processes."""

import asyncio
import base64
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fledge.models.base import Request, UserMessage
from fledge.models.scripted import ScriptedReply
from tests import images
from tests.models.asking import ANTHROPIC, OPENAI, PROTOCOLS, READ, RESPONSES, Protocol, ask, calls_of, run
from tests.models.responses_server import encrypted
from tests.models.serving import KEY, sample_arguments

OPENAI_HEADERS = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
ANTHROPIC_HEADERS = {"x-api-key": KEY, "anthropic-version": "2023-06-01", "Content-Type": "application/json"}
USER = {"role": "user", "content": "hi"}
FUNCTION = {"name": "read", "description": "", "parameters": {"type": "object", "properties": {"path": {}}}}
CALLED = {
    "role": "assistant",
    "tool_calls": [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "x"}
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {}}]}
USED_BLOCK = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
USED = {"role": "user", "content": [USED_BLOCK]}
TOOL = {"name": "read", "input_schema": {"type": "object"}}
PNG, GIF = base64.b64encode(images.png()).decode(), base64.b64encode(images.gif()).decode()
WIDE = base64.b64encode(images.png(8001, 1)).decode()
HEAVY = base64.b64encode(images.png(extra=b"x" * 4_000_000)).decode()
BROKEN = base64.b64encode(images.png()[:29] + b"\0\0\0\0" + images.png()[33:]).decode()
WRONG_IMAGES = [
    ("image/png", "", "cannot be empty"),
    ("image/png", "!!", "Invalid base64"),
    ("image/png", GIF, "was specified using the image/png media type"),
    ("image/bmp", PNG, "media_type"),
    ("image/png", WIDE, "exceed max allowed size: 8000 pixels"),
    ("image/png", HEAVY, "image exceeds 5 MB maximum"),
    ("image/png", BROKEN, "Could not process image"),
]
WRONG_IMAGE_IDS = ["empty", "no base64", "another kind", "another format", "too wide", "too long", "damaged"]


async def post(protocol: Protocol, body: Any, headers: dict[str, str]) -> tuple[int, str]:
    async with protocol.serve([ScriptedReply("ok")]) as server, aiohttp.ClientSession() as session:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with session.post(
            f"http://127.0.0.1:{server.port}{server.path}", data=io.BytesIO(data), headers=headers
        ) as response:
            return response.status, await response.text()


def openai(**more: Any) -> dict[str, Any]:
    return {"model": "m", "stream": True, "messages": [USER], **more}


def anthropic(**more: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-5", "max_tokens": 2000, "stream": True, "messages": [USER], **more}


def without(headers: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key != name}


def tools(*functions: Any) -> list[Any]:
    return [{"type": "function", "function": function} for function in functions]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (openai(), 200, "[DONE]"),
        (openai(messages=[USER, CALLED, RESULT], tools=tools(FUNCTION)), 200, "[DONE]"),
        (openai(surprise=1), 400, "unknown field surprise"),
        (openai(model=""), 400, "model"),
        (openai(stream=False), 400, "stream"),
        (openai(messages=[]), 400, "messages"),
        (openai(messages=[{"role": "robot", "content": "x"}]), 400, "unknown role"),
        (openai(messages=[{"role": "user", "content": ""}]), 400, "empty"),
        (openai(messages=[{**USER, "extra": 1}]), 400, "unknown field extra"),
        (openai(messages=[USER, {"role": "assistant", "content": None}]), 400, "neither"),
        (openai(messages=[USER, RESULT]), 400, "must be a response"),
        (openai(messages=[USER, CALLED]), 400, "not answered"),
        (openai(messages=[USER, CALLED, USER]), 400, "must be followed"),
        (openai(messages=[USER, CALLED, RESULT, RESULT]), 400, "must be a response"),
        (openai(messages=[{"role": "system", "content": "x"}]), 400, "nobody asks"),
        (openai(tools=tools(FUNCTION, FUNCTION)), 400, "twice"),
        (openai(tools=tools({**FUNCTION, "name": "a b"})), 400, "does not match"),
        (openai(tools=tools({**FUNCTION, "parameters": {"type": "string"}})), 400, "type: object"),
        (openai(tools=[]), 400, "must not be empty"),
        (openai(max_tokens=0), 400, "at least 1"),
        (openai(max_tokens=5, max_completion_tokens=5), 400, "cannot both"),
        (openai(model="gpt-5", max_tokens=5), 400, "max_completion_tokens"),
        (openai(reasoning_effort="huge"), 400, "reasoning_effort"),
        (openai(model="gpt-4o", reasoning_effort="low"), 400, "Unrecognized"),
        (openai(model="gpt-5.1", reasoning_effort="minimal"), 400, "does not support 'minimal'"),
        (openai(model="gpt-5.1", reasoning_effort="low", tools=tools(FUNCTION)), 200, "[DONE]"),
        (openai(model="gpt-5.4", tools=tools(FUNCTION)), 200, "[DONE]"),
        (openai(model="gpt-5.4", reasoning_effort="low", tools=tools(FUNCTION)), 400, "use /v1/responses"),
        (openai(model="gpt-5.6-sol", reasoning_effort="low"), 200, "[DONE]"),
        (openai(model="gpt-5.6-sol", tools=tools(FUNCTION)), 400, "use /v1/responses"),
        (openai(model="gpt-5.6-sol", reasoning_effort="none", tools=tools(FUNCTION)), 200, "[DONE]"),
        (b"{", 400, "not JSON"),
    ],
)
def test_the_openai_server_rejects_what_the_real_one_rejects(body: Any, status: int, words: str) -> None:
    got, text = run(post(OPENAI, body, OPENAI_HEADERS))
    assert (got, words in text) == (status, True), text


@pytest.mark.parametrize("protocol", [OPENAI, RESPONSES], ids=["openai", "responses"])
@pytest.mark.parametrize("headers", [without(OPENAI_HEADERS, "Authorization"), {"Authorization": "Bearer no"}])
def test_the_servers_of_openai_want_their_key(protocol: Protocol, headers: dict[str, str]) -> None:
    status, text = run(post(protocol, openai() if protocol is OPENAI else responses(), headers))
    assert (status, "invalid_api_key" in text) == (401, True)


def said(text: str = "hi", role: str = "user") -> dict[str, Any]:
    kind = "input_text" if role == "user" else "output_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def responses(*items: Any, **more: Any) -> dict[str, Any]:
    return {"model": "gpt-5.4", "stream": True, "store": False, "input": list(items) or [said()], **more}


def reasoned(summary: str = "hm", model: str = "gpt-5.4") -> dict[str, Any]:
    parts = [{"type": "summary_text", "text": summary}]
    return {"type": "reasoning", "id": "rs_1", "summary": parts, "encrypted_content": encrypted("first", model, parts)}


CALL = {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "a", "output": "x"}
LOOSE = {"type": "function", **FUNCTION, "strict": False}
INCLUDED = ["reasoning.encrypted_content"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (responses(), 200, "response.completed"),
        (responses(said(), reasoned(), CALL, OUTPUT, tools=[LOOSE]), 200, "response.completed"),
        (responses(said(), reasoned(), reasoned(), said("so", "assistant"), said()), 200, "response.completed"),
        (responses(reasoning={"effort": "low", "summary": "auto"}, include=INCLUDED), 200, "response.completed"),
        (responses(surprise=1), 400, "unknown field surprise"),
        (responses(model=""), 400, "model"),
        (responses(stream=False), 400, "stream"),
        (responses(store=True), 400, "store"),
        (responses(max_output_tokens=15), 400, "below minimum value"),
        (responses(input=[]), 400, "must not be empty"),
        (responses({"type": "telegram"}), 400, "Invalid value: 'telegram'"),
        (responses({**said(), "extra": 1}), 400, "unknown field extra"),
        (responses({**said(), "phase": "commentary"}), 400, "only of an assistant"),
        (responses(said(role="robot")), 400, "Invalid value: 'robot'"),
        (responses(said("")), 400, "empty part"),
        (responses(said(), CALL), 400, "No tool output found for function call a"),
        (responses(said(), OUTPUT), 400, "No tool call found"),
        (responses(said(), CALL, OUTPUT, CALL, OUTPUT), 400, "is there twice"),
        (responses(said(), {**CALL, "arguments": "["}, OUTPUT), 400, "not JSON"),
        (responses(said(), {**CALL, "name": "a b"}, OUTPUT), 400, "does not match"),
        (responses(said(), CALL, {**OUTPUT, "output": ""}), 400, "empty"),
        (responses(said(), reasoned()), 400, "without its required following item"),
        (responses(said(), reasoned(), said()), 400, "without its required following item"),
        (responses(said(), reasoned(model="gpt-5.5"), CALL, OUTPUT), 400, "invalid_encrypted_content"),
        (responses(said(), {**reasoned(), "encrypted_content": None}, CALL, OUTPUT), 404, "'rs_1' not found"),
        (responses(tools=[{**LOOSE, "strict": True}]), 400, "strict wants every property required"),
        (responses(tools=[LOOSE, LOOSE]), 400, "twice"),
        (responses(reasoning={"effort": "minimal"}), 400, "Unsupported value: 'minimal'"),
        (responses(model="gpt-4o", reasoning={"effort": "low"}), 400, "not supported with this model"),
        (responses(model="gpt-4o", include=INCLUDED), 400, "not supported with this model"),
        (b"[]", 400, "must be an object"),
    ],
)
def test_the_responses_server_rejects_what_the_real_one_rejects(body: Any, status: int, words: str) -> None:
    got, text = run(post(RESPONSES, body, OPENAI_HEADERS))
    assert (got, words in text) == (status, True), text


def content(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (anthropic(), 200, "message_stop"),
        (anthropic(messages=[USER, USE, USED], tools=[TOOL], system="s"), 200, "message_stop"),
        (anthropic(thinking={"type": "enabled", "budget_tokens": 1024}), 200, "message_stop"),
        (anthropic(surprise=1), 400, "unknown field surprise"),
        (anthropic(max_tokens=None), 400, "max_tokens"),
        (anthropic(messages=[]), 400, "at least one"),
        (anthropic(messages=[USER, USER]), 400, "alternate"),
        (anthropic(messages=[{"role": "assistant", "content": "x"}, USER]), 400, "alternate"),
        (anthropic(messages=[{"role": "system", "content": "x"}]), 400, "role"),
        (anthropic(messages=[USER, {"role": "assistant", "content": "x"}]), 400, "end with a user"),
        (anthropic(messages=[{"role": "user", "content": ""}]), 400, "empty"),
        (anthropic(messages=[content()]), 400, "must not be empty"),
        (anthropic(messages=[content({"type": "text", "text": " \n"})]), 400, "empty"),
        (anthropic(messages=[content({"type": "thinking", "thinking": "x"})]), 400, "cannot be in user"),
        (anthropic(messages=[content({"type": "text", "text": "x", "more": 1})]), 400, "unknown field more"),
        (anthropic(messages=[USED]), 400, "unexpected tool_use_id"),
        (anthropic(messages=[USER, USE]), 400, "without tool_result"),
        (anthropic(messages=[USER, USE, USER]), 400, "without tool_result"),
        (anthropic(messages=[USER, USE, content(*USED["content"], *USED["content"])]), 400, "single result"),
        (anthropic(messages=[USER, USE, USED, USE, USED]), 400, "unique"),
        (
            anthropic(messages=[USER, USE, content({"type": "text", "text": "x"}, *USED["content"])]),
            400,
            "must come first",
        ),
        (
            anthropic(messages=[USER, content({"type": "thinking", "thinking": "x"}, role="assistant"), USER]),
            400,
            "Invalid `signature`",
        ),
        (
            anthropic(messages=[USER, USE, USED], thinking={"type": "enabled", "budget_tokens": 1024}),
            400,
            "Expected `thinking`",
        ),
        (anthropic(thinking={"type": "enabled", "budget_tokens": 1023}), 400, "at least 1024"),
        (anthropic(thinking={"type": "enabled", "budget_tokens": 2000}), 400, "greater than"),
        (anthropic(thinking={"type": "adaptive"}), 400, "not supported"),
        (anthropic(model="claude-opus-5", thinking={"type": "enabled", "budget_tokens": 1024}), 400, "not supported"),
        (anthropic(tools=[TOOL, TOOL]), 400, "unique"),
        (anthropic(tools=[{**TOOL, "name": "a b"}]), 400, "does not match"),
        (anthropic(tools=[{**TOOL, "input_schema": {}}]), 400, "input_schema"),
        (anthropic(system=""), 400, "system"),
        (b"[]", 400, "must be an object"),
    ],
)
def test_the_anthropic_server_rejects_what_the_real_one_rejects(body: Any, status: int, words: str) -> None:
    got, text = run(post(ANTHROPIC, body, ANTHROPIC_HEADERS))
    assert (got, words in text) == (status, True), text


@pytest.mark.parametrize(
    ("headers", "status", "words"),
    [
        (without(ANTHROPIC_HEADERS, "x-api-key"), 401, "authentication_error"),
        ({**ANTHROPIC_HEADERS, "x-api-key": "no"}, 401, "authentication_error"),
        (without(ANTHROPIC_HEADERS, "anthropic-version"), 400, "anthropic-version"),
        ({**ANTHROPIC_HEADERS, "anthropic-version": "2020-01-01"}, 400, "anthropic-version"),
        ({**ANTHROPIC_HEADERS, "Authorization": f"Bearer {KEY}"}, 400, "both"),
        ({**ANTHROPIC_HEADERS, "anthropic-version": "2026-10-21"}, 400, "unknown field temperature"),
        ({**ANTHROPIC_HEADERS, "Content-Type": "text/plain"}, 400, "content-type"),
    ],
)
def test_the_anthropic_server_wants_its_headers(headers: dict[str, str], status: int, words: str) -> None:
    got, text = run(post(ANTHROPIC, anthropic(temperature=1), headers))
    assert (got, words in text) == (status, True), text


def test_sample_arguments_are_the_smallest_a_schema_allows() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {}, "c": {"type": "string"}}, "required": ["a", "b"]}
    assert sample_arguments(schema) == {"a": 1, "b": "."}


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=[protocol.name for protocol in PROTOCOLS])
def test_a_server_runs_as_a_process_and_calls_a_tool(protocol: Protocol, tmp_path: Path) -> None:
    port_file, hold_file = tmp_path / "port", tmp_path / "hold"
    hold_file.touch()
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", f"tests.models.{protocol.name}_server", str(port_file), str(hold_file)]
    process = subprocess.Popen(command, cwd=root, env=os.environ | {"PYTHONPATH": f"{root}:{root / 'src'}"})

    async def main() -> None:
        while not await asyncio.to_thread(port_file.exists):
            assert process.poll() is None
            await asyncio.to_thread(os.sched_yield)
        port = int(await asyncio.to_thread(port_file.read_text))
        server = protocol.serve([])
        server.port = port
        model = protocol.model(server)
        reply = asyncio.ensure_future(ask(model, Request(model="m", messages=(UserMessage("hi"),), tools=(READ,))))
        while not await asyncio.to_thread(Path(f"{port_file}.log").exists):
            await asyncio.to_thread(os.sched_yield)
        assert not reply.done()
        await asyncio.to_thread(hold_file.unlink)
        events = await reply
        assert [(call.name, call.arguments) for call in calls_of(events)] == [("read", '{"path": "."}')]
        await model.close()

    try:
        run(main())
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


# ---- images ----------------------------------------------------------------------------------------------------------


def block(kind: str, data: str) -> dict[str, Any]:
    """An image as the messages protocol has it."""
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def url_part(kind: str, data: str) -> dict[str, Any]:
    """An image as chat completions have it."""
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}


def input_part(kind: str, data: str) -> dict[str, Any]:
    """An image as responses have it."""
    return {"type": "input_image", "image_url": f"data:{kind};base64,{data}", "detail": "auto"}


def with_image(protocol: Protocol, kind: str, data: str) -> dict[str, Any]:
    """A request with this image in a message of the user's."""
    if protocol is ANTHROPIC:
        return anthropic(messages=[content(block(kind, data))])
    if protocol is OPENAI:
        return openai(messages=[content(url_part(kind, data))])
    return responses({"type": "message", "role": "user", "content": [input_part(kind, data)]})


def headers_of(protocol: Protocol) -> dict[str, str]:
    return ANTHROPIC_HEADERS if protocol is ANTHROPIC else OPENAI_HEADERS


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_the_servers_take_an_image(protocol: Protocol) -> None:
    assert run(post(protocol, with_image(protocol, "image/png", PNG), headers_of(protocol)))[0] == 200


@pytest.mark.parametrize(("kind", "data", "words"), WRONG_IMAGES, ids=WRONG_IMAGE_IDS)
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_the_servers_reject_images_that_the_real_ones_reject(
    protocol: Protocol, kind: str, data: str, words: str
) -> None:
    got, text = run(post(protocol, with_image(protocol, kind, data), headers_of(protocol)))
    assert (got, words in text) == (400, True), text


@pytest.mark.parametrize(
    ("protocol", "body", "words"),
    [
        (OPENAI, openai(messages=[USER, CALLED, {**RESULT, "content": [url_part("image/png", PNG)]}]), "text alone"),
        (OPENAI, openai(messages=[{"role": "user", "content": []}]), "empty"),
        (OPENAI, openai(messages=[content({"type": "text", "text": ""})]), "empty text"),
        (OPENAI, openai(messages=[content({"type": "image_url", "image_url": {"url": "x"}})]), "data URL"),
        (
            ANTHROPIC,
            anthropic(
                messages=[
                    USER,
                    USE,
                    content({**USED_BLOCK, "is_error": True, "content": [block("image/png", PNG)]}),
                ]
            ),
            "if `is_error` is true",
        ),
        (ANTHROPIC, anthropic(messages=[USER, USE, content({**USED_BLOCK, "content": []})]), "empty"),
        (ANTHROPIC, anthropic(messages=[content({"type": "image", "source": {"type": "file"}})]), "must be base64"),
        (RESPONSES, responses(said(), CALL, {**OUTPUT, "output": [{"type": "image"}]}), "Invalid value: 'image'"),
    ],
)
def test_the_servers_reject_images_where_the_real_ones_do(protocol: Protocol, body: Any, words: str) -> None:
    got, text = run(post(protocol, body, headers_of(protocol)))
    assert (got, words in text) == (400, True), text
