"""A responses server that rejects what OpenAI's rejects: `POST /v1/responses`, streamed, with `store: false`.

It follows the API reference (https://platform.openai.com/docs/api-reference/responses and .../responses-streaming) and
the refusals that users met: reasoning without its encrypted content is not found
(https://github.com/openai/openai-agents-python/issues/919), reasoning without the item that followed it is refused
(https://github.com/coder/xum/pull/59), encrypted content of another account cannot be verified
(https://github.com/openai/codex/issues/8119), models that do not reason refuse to include it
(https://github.com/OpenHands/software-agent-sdk/pull/1208), and unverified organizations get no summaries
(https://github.com/continuedev/continue/issues/9779). The official SDK is run against it (`test_sdks.py`).
As a process: `python -m tests.models.responses_server PORT_FILE [HOLD_FILE]` calls a tool once, then answers.
"""

import hashlib
import json
import re
from typing import Any

import msgspec

from fledge.models.base import Call, Usage
from fledge.models.scripted import ScriptedReply
from tests.models.openai_server import efforts_of
from tests.models.serving import Body, Rejected, Server, check_data_url, demand, main, only, pieces, sample_arguments

FIELDS = {
    "model",
    "input",
    "instructions",
    "stream",
    "store",
    "include",
    "max_output_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning",
    "text",
    "temperature",
    "top_p",
    "metadata",
    "prompt_cache_key",
    "truncation",
    "user",
}
ITEMS = {
    "message": {"type", "role", "content", "phase", "id", "status"},
    "function_call": {"type", "call_id", "name", "arguments", "id", "status"},
    "function_call_output": {"type", "call_id", "output", "id", "status"},
    "web_search_call": {"type", "id", "status", "action"},
    "reasoning": {"type", "id", "summary", "encrypted_content", "content", "status"},
}
PARTS = {
    "user": {"input_text": {"type", "text"}, "input_image": {"type", "image_url", "detail"}},
    "assistant": {"output_text": {"type", "text", "annotations", "logprobs"}, "refusal": {"type", "refusal"}},
}
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def encrypted(account: str, model: str, summary: list[dict[str, Any]]) -> str:
    """What stands for encrypted reasoning: only this server can make and check it."""
    text = "|".join(part["text"] for part in summary)
    return f"enc_{hashlib.sha256(f'{account}|{model}|{text}'.encode()).hexdigest()}"


class ResponsesServer(Server):
    """Speaks the responses protocol at `base_url`. A paragraph of a reply's thinking is a part of its summary."""

    path = "/v1/responses"
    verified = True
    """Whether the account's organization is verified: only then it gets summaries."""

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def check(self, headers: dict[str, str], given: Any) -> Body:
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            shown = headers.get("authorization", "").removeprefix("Bearer ")
            raise Rejected(f"Incorrect API key provided: {shown}", 401, "invalid_request_error", "invalid_api_key")
        demand(headers.get("content-type") == "application/json", "Content-Type must be application/json")
        body: Body = only(given, FIELDS, "request")
        demand(isinstance(body.get("model"), str) and body["model"], "model: required")
        demand(body.get("stream") is True, "stream: this server only streams")
        demand(body.get("store") is False, "store: this server stores nothing")
        limit = body.get("max_output_tokens", 16)
        demand(type(limit) is int and limit >= 16, "Invalid 'max_output_tokens': integer below minimum value. >= 16")
        self._check_reasoning(body)
        _check_tools(body)
        _check_input(self.account, body)
        return body

    def _check_reasoning(self, body: Body) -> None:
        levels = efforts_of(body["model"]) or set()
        for value in body.get("include", []):
            demand(value == "reasoning.encrypted_content", f"Invalid value: '{value}'.")
            demand(levels, "Encrypted content is not supported with this model.")
        if "reasoning" not in body:
            return
        reasoning = only(body["reasoning"], {"effort", "summary"}, "reasoning")
        demand(levels, "Unsupported parameter: 'reasoning.effort' is not supported with this model.")
        effort, summary = reasoning.get("effort"), reasoning.get("summary")
        demand(
            effort in levels,
            f"Unsupported value: '{effort}' is not supported with the '{body['model']}' model. "
            f"Supported values are: {', '.join(sorted(levels))}.",
        )
        demand(summary in (None, "auto", "concise", "detailed"), "reasoning.summary: unknown value")
        demand(summary is None or self.verified, "Your organization must be verified to generate reasoning summaries.")

    def rejection(self, reason: Rejected) -> Any:
        return {"error": {"message": str(reason), "type": reason.kind, "param": None, "code": reason.code or None}}

    def chunks(self, body: Body, reply: ScriptedReply) -> list[bytes]:
        return _Stream(self, body, reply).chunks


def event(kind: str, **fields: Any) -> bytes:
    """One server-sent event."""
    return f"event: {kind}\n".encode() + b"data: " + msgspec.json.encode({"type": kind, **fields}) + b"\n\n"


class _Stream:
    """The events of one reply, numbered."""

    def __init__(self, server: ResponsesServer, body: Body, reply: ScriptedReply) -> None:
        self._body, self._reply, self._size = body, reply, server.piece_chars
        self._account, self._turn = server.account, len(server.bodies)
        self._items: list[dict[str, Any]] = []
        self.chunks: list[bytes] = []
        self.event("response.created", response=self._response("in_progress"))
        self.event("response.in_progress", response=self._response("in_progress"))
        if reply.thinking and body.get("reasoning", {}).get("effort", "none") != "none":
            self._think()
        if reply.text:
            self._speak()
        for number, call in enumerate(reply.calls):
            self._call(number, call)
        self._end()

    def event(self, kind: str, **fields: Any) -> None:
        self.chunks.append(event(kind, sequence_number=len(self.chunks), **fields))

    def _added(self, item: dict[str, Any]) -> dict[str, Any]:
        self.event("response.output_item.added", output_index=len(self._items), item=item)
        return {"item_id": item["id"], "output_index": len(self._items)}

    def _done(self, item: dict[str, Any]) -> None:
        self.event("response.output_item.done", output_index=len(self._items), item=item)
        self._items.append(item)

    def _think(self) -> None:
        """An item of reasoning; its summary is there only if it was asked for, encrypted content always."""
        item = {"type": "reasoning", "id": f"rs_{self._turn}", "summary": [], "encrypted_content": "partial"}
        place = self._added(item)
        summary: list[dict[str, Any]] = []
        if self._body["reasoning"].get("summary"):
            for number, text in enumerate(self._reply.thinking.split("\n\n")):
                here = {**place, "summary_index": number}
                part = {"type": "summary_text", "text": ""}
                self.event("response.reasoning_summary_part.added", **here, part=part)
                for piece in pieces(text, self._size):
                    self.event("response.reasoning_summary_text.delta", **here, delta=piece)
                self.event("response.reasoning_summary_text.done", **here, text=text)
                summary.append({**part, "text": text})
                self.event("response.reasoning_summary_part.done", **here, part=summary[-1])
        sealed = encrypted(self._account, self._body["model"], summary)
        self._done({**item, "summary": summary, "encrypted_content": sealed})

    def _speak(self) -> None:
        refused = self._reply.stop == "refused"
        kind, field = ("refusal", "refusal") if refused else ("output_text", "text")
        extra: dict[str, Any] = {} if refused else {"annotations": [], "logprobs": []}
        item = {"type": "message", "id": f"msg_{self._turn}", "role": "assistant", "status": "in_progress"}
        place = self._added({**item, "content": []})
        self.event("response.content_part.added", **place, content_index=0, part={"type": kind, field: "", **extra})
        logprobs: dict[str, Any] = {} if refused else {"logprobs": []}
        for piece in pieces(self._reply.text, self._size):
            self.event(f"response.{kind}.delta", **place, content_index=0, delta=piece, **logprobs)
        text = {field: self._reply.text}
        self.event(f"response.{kind}.done", **place, content_index=0, **text, **logprobs)
        part = {"type": kind, **text, **extra}
        self.event("response.content_part.done", **place, content_index=0, part=part)
        phase = "commentary" if self._reply.calls else "final_answer"
        self._done({**item, "status": "completed", "content": [part], "phase": phase})

    def _call(self, number: int, call: Call) -> None:
        item = {
            "type": "function_call",
            "id": f"fc_{self._turn}_{number}",
            "call_id": call.id or f"call_{self._turn}_{number}",
            "name": call.name,
            "arguments": "",
            "status": "in_progress",
        }
        place = self._added(item)
        for piece in pieces(call.arguments, self._size):
            self.event("response.function_call_arguments.delta", **place, delta=piece)
        self.event("response.function_call_arguments.done", **place, arguments=call.arguments, name=call.name)
        self._done({**item, "arguments": call.arguments, "status": "completed"})

    def _end(self) -> None:
        if self._reply.stop == "length":
            response = self._response("incomplete", incomplete_details={"reason": "max_output_tokens"})
            self.event("response.incomplete", response=response)
        else:
            self.event("response.completed", response=self._response("completed"))

    def _response(self, status: str, **more: Any) -> dict[str, Any]:
        body = self._body
        over = status != "in_progress"
        return {
            "id": f"resp_{self._turn}",
            "object": "response",
            "created_at": 1800000000,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "model": f"{body['model']}-2026-01-01",
            "output": list(self._items),
            "parallel_tool_calls": True,
            "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
            "store": False,
            "text": {"format": {"type": "text"}},
            "tool_choice": "auto",
            "tools": body.get("tools", []),
            "top_p": 1.0,
            "temperature": 1.0,
            "truncation": "disabled",
            "usage": _usage(self._reply.usage or Usage(10, 5)) if over else None,
            "metadata": {},
            **more,
        }


def _usage(usage: Usage) -> dict[str, Any]:
    given = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": given,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": given + usage.output_tokens,
    }


# ---- what is refused -------------------------------------------------------------------------------------------------


def _check_tools(body: Body) -> None:
    seen: set[str] = set()
    for at, tool in enumerate(body.get("tools", [])):
        where = f"tools[{at}]"
        if tool.get("type") == "web_search":
            # https://developers.openai.com/docs/guides/tools-web-search
            only(tool, {"type", "filters", "search_context_size", "user_location"}, where)
            effort = body.get("reasoning", {}).get("effort")
            demand(
                effort != "minimal", "The following tools cannot be used with reasoning.effort 'minimal': web_search."
            )
            continue
        only(tool, {"type", "name", "description", "parameters", "strict"}, where)
        demand(tool.get("type") == "function", f"Invalid value: '{tool.get('type')}'. {where}.type")
        name = tool.get("name")
        demand(isinstance(name, str) and NAME.fullmatch(name), f"Invalid '{where}.name': string does not match pattern")
        demand(name not in seen, f"{where}.name: {name} is there twice")
        seen.add(name)
        schema = tool.get("parameters")
        demand(isinstance(schema, dict) and schema.get("type") == "object", f"Invalid schema for function '{name}'")
        if tool.get("strict", True):
            every = set(schema.get("required", [])) == set(schema.get("properties", {}))
            closed = schema.get("additionalProperties") is False
            demand(every and closed, f"Invalid schema for function '{name}': strict wants every property required")


def _check_input(account: str, body: Body) -> None:
    items: Any = body.get("input")
    demand(isinstance(items, list) and items, "input: must not be empty")
    open_calls: set[str] = set()
    answered: set[str] = set()
    for at, item in enumerate(items):
        where = f"input[{at}]"
        kind = item.get("type") if isinstance(item, dict) else None
        demand(kind in ITEMS, f"Invalid value: '{kind}'. {where}.type")
        only(item, ITEMS[str(kind)], where)
        if kind == "message":
            _check_message(item, where)
        elif kind == "function_call":
            id = item.get("call_id")
            demand(isinstance(id, str) and 0 < len(id) <= 64, f"{where}.call_id: bad length")
            demand(id not in open_calls | answered, f"{where}.call_id: {id} is there twice")
            demand(NAME.fullmatch(str(item.get("name"))), f"Invalid '{where}.name': string does not match pattern")
            _check_arguments(item, where)
            open_calls.add(id)
        elif kind == "function_call_output":
            id = item.get("call_id")
            demand(isinstance(item.get("output"), str | list) and item["output"], f"{where}.output: empty")
            if isinstance(item["output"], list):
                _check_parts(item["output"], "user", f"{where}.output")
            demand(id in open_calls, f"No tool call found for function call output with call_id {id}.")
            open_calls.discard(id)
            answered.add(str(id))
        elif kind == "web_search_call":
            demand(str(item.get("id")).startswith("ws_"), f"Invalid '{where}.id'")
            demand(item.get("status") == "completed" and isinstance(item.get("action"), dict), f"{where}: incomplete")
        else:
            _check_thought(account, body["model"], items, at, where)
    demand(not open_calls, f"No tool output found for function call {', '.join(sorted(open_calls))}.")


def _check_message(item: dict[str, Any], where: str) -> None:
    role = item.get("role")
    demand(role in PARTS, f"Invalid value: '{role}'. {where}.role")
    demand("phase" not in item or role == "assistant", f"{where}.phase: only of an assistant")
    demand(isinstance(item.get("content"), list) and item["content"], f"{where}.content: empty")
    _check_parts(item["content"], str(role), f"{where}.content")


def _check_parts(parts: list[Any], role: str, where: str) -> None:
    for part in parts:
        allowed = PARTS[role].get(part.get("type"))
        demand(allowed, f"Invalid value: '{part.get('type')}'. {where}")
        only(part, allowed or set(), where)
        if part["type"] == "input_image":
            demand(part.get("detail", "auto") in ("auto", "low", "high", "original"), f"{where}.detail: unknown value")
            check_data_url(part.get("image_url"), f"{where}.image_url")
        demand(any(isinstance(value, str) and value for name, value in part.items() if name != "type"), "empty part")


def _check_arguments(item: dict[str, Any], where: str) -> None:
    try:
        demand(isinstance(json.loads(item["arguments"]), dict), f"{where}.arguments: not an object")
    except (KeyError, TypeError, ValueError):
        raise Rejected(f"{where}.arguments: not JSON") from None


def _check_thought(account: str, model: str, items: list[Any], at: int, where: str) -> None:
    """Reasoning that came back: whole, of this model, and followed by what came of it."""
    item = items[at]
    id = item.get("id")
    if not item.get("encrypted_content"):
        raise Rejected(
            f"Item with id '{id}' not found. Items are not persisted when `store` is set to false. "
            "Try again with `store` set to true, or remove this item from your input.",
            404,
        )
    demand(isinstance(item.get("summary"), list), f"Missing required parameter: '{where}.summary'.")
    if item["encrypted_content"] != encrypted(account, model, item["summary"]):
        shown = item["encrypted_content"]
        words = f"The encrypted content {shown[:4]}...{shown[-4:]} could not be verified."
        raise Rejected(words, code="invalid_encrypted_content")
    following = items[at + 1].get("type") if at + 1 < len(items) else None
    mine = following == "function_call" or (following == "message" and items[at + 1].get("role") == "assistant")
    demand(
        mine or following in ("reasoning", "web_search_call"),
        f"Item '{id}' of type 'reasoning' was provided without its required following item.",
    )


def tool_then_answer(body: Body) -> ScriptedReply:
    """Calls a tool once after each message of the user, then says what came of it.

    The tool is the one the user named, or else the first.
    """
    last = body["input"][-1]
    if last["type"] == "function_call_output":
        return ScriptedReply(f"The tool said: {last['output']}")
    said = last["content"][0]["text"]
    tools = [tool for tool in body.get("tools", []) if tool["type"] == "function"]
    if not tools:
        return ScriptedReply(f"You said: {said}")
    tool = next((tool for tool in tools if re.search(rf"\b{tool['name']}\b", said)), tools[0])
    return ScriptedReply("Let me see. ", (Call("", tool["name"], json.dumps(sample_arguments(tool["parameters"]))),))


if __name__ == "__main__":
    main(ResponsesServer, tool_then_answer)
