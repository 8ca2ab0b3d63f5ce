"""A messages server that rejects what the real one rejects.

`async with AnthropicServer(script) as server:` and give clients `server.base_url` and the key `server.key`. As a
process: `python -m tests.models.anthropic_server PORT_FILE [HOLD_FILE]` calls a tool once, then answers. Its signatures
are made from model and thinking, so that thinking which was changed or came from another model is found out.
"""

import hashlib
import json
import re
from typing import Any

import msgspec

from fledge.models.base import Call, Usage
from fledge.models.scripted import ScriptedReply
from tests.models.serving import Body, Rejected, Server, check_image, demand, main, only, pieces, sample_arguments

FIELDS = {
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "stream",
    "thinking",
    "output_config",
    "metadata",
    "stop_sequences",
    "temperature",
    "top_k",
    "top_p",
    "service_tier",
}
VERSIONS = {"2023-06-01": set[str](), "2026-10-21": {"temperature", "top_p", "top_k"}}
"""The versions of the API, and the fields that each removed: https://platform.claude.com/docs/en/api/versioning."""
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ADAPTIVE = re.compile(r"claude-(?:opus|sonnet|haiku|fable)-(?:4-[6-9]|[5-9])")
BLOCKS = {
    "user": {"text", "image", "tool_result"},
    "assistant": {"server_tool_use", "web_search_tool_result", "text", "tool_use", "thinking", "redacted_thinking"},
}
BLOCK_FIELDS = {
    "text": {"type", "text", "cache_control"},
    "image": {"type", "source", "cache_control"},
    "tool_use": {"type", "id", "name", "input", "cache_control"},
    "server_tool_use": {"type", "id", "name", "input", "cache_control"},
    "web_search_tool_result": {"type", "tool_use_id", "content", "cache_control"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
}
STOPS = {"end": "end_turn", "tools": "tool_use", "length": "max_tokens", "refused": "refusal"}
REDACTED = "redacted:"


SEARCH_TOOL = "web_search_20250305"
"""https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool"""


def signed(account: str, model: str, thinking: str) -> str:
    """The proof that this model thought this."""
    return hashlib.sha256(f"{account}\n{model}\n{thinking}".encode()).hexdigest()


class AnthropicServer(Server):
    """Speaks the messages protocol at `base_url`."""

    path = "/v1/messages"

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def check(self, headers: dict[str, str], given: Any) -> Body:
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if key != self.key:
            raise Rejected("invalid x-api-key", 401, "authentication_error")
        demand(not {"x-api-key", "authorization"} <= set(headers), "both x-api-key and authorization are set")
        version = headers.get("anthropic-version")
        demand(version in VERSIONS, "anthropic-version: header is required")
        demand(headers.get("content-type") == "application/json", "content-type: must be application/json")
        body: Body = only(given, FIELDS - VERSIONS[str(version)], "request")
        demand(isinstance(body.get("model"), str) and body["model"], "model: field required")
        demand(type(body.get("max_tokens")) is int and body["max_tokens"] >= 1, "max_tokens: at least 1 is required")
        demand(body.get("stream") is True, "stream: this server only streams")
        _check_thinking(body)
        _check_system(body.get("system"))
        _check_tools(body)
        _check_messages(self.account, body)
        demand(body_text(body).count('"cache_control"') <= 4, "at most 4 blocks with cache_control are allowed")
        return body

    def rejection(self, reason: Rejected) -> Any:
        return {"type": "error", "error": {"type": reason.kind, "message": str(reason)}, "request_id": "req_1"}

    def chunks(self, body: Body, reply: ScriptedReply) -> list[bytes]:
        usage = reply.usage or Usage(10, 5)
        message: dict[str, Any] = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": f"{body['model']}-20260101",
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {
                "input_tokens": usage.input_tokens,
                "cache_creation_input_tokens": usage.cache_write_tokens,
                "cache_read_input_tokens": usage.cache_read_tokens,
                "output_tokens": 1,
            },
        }
        found = [event("message_start", message=message), event("ping")]
        blocks = self._blocks(body, reply)
        for index, (start, deltas) in enumerate(blocks):
            found.append(event("content_block_start", index=index, content_block=start))
            found += [event("content_block_delta", index=index, delta=delta) for delta in deltas]
            found.append(event("content_block_stop", index=index))
        stop = STOPS[reply.stop or ("tools" if reply.calls else "end")]
        delta = {"stop_reason": stop, "stop_sequence": None}
        found.append(event("message_delta", delta=delta, usage={"output_tokens": usage.output_tokens}))
        return [*found, event("message_stop")]

    def _blocks(self, body: Body, reply: ScriptedReply) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
        size = self.piece_chars
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        proof = signed(self.account, body["model"], reply.thinking)
        if reply.thinking.startswith(REDACTED):
            blocks.append(({"type": "redacted_thinking", "data": proof}, []))
        elif reply.thinking:
            deltas = [{"type": "thinking_delta", "thinking": part} for part in pieces(reply.thinking, size)]
            deltas.append({"type": "signature_delta", "signature": proof})
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
        if reply.text:
            deltas = [{"type": "text_delta", "text": part} for part in pieces(reply.text, size)]
            blocks.append(({"type": "text", "text": ""}, deltas))
        for index, call in enumerate(reply.calls):
            id = call.id or f"toolu_{len(self.bodies)}_{index}"
            deltas = [{"type": "input_json_delta", "partial_json": ""}]
            deltas += [{"type": "input_json_delta", "partial_json": part} for part in pieces(call.arguments, size)]
            blocks.append(({"type": "tool_use", "id": id, "name": call.name, "input": {}}, deltas))
        return blocks


def event(kind: str, **data: Any) -> bytes:
    """One server-sent event."""
    return f"event: {kind}\ndata: ".encode() + msgspec.json.encode({"type": kind, **data}) + b"\n\n"


def body_text(body: Body) -> str:
    """The request as text, to count what is in it."""
    return json.dumps(body)


def _check_thinking(body: Body) -> None:
    adaptive = ADAPTIVE.match(body["model"]) is not None
    if "output_config" in body:
        effort = only(body["output_config"], {"effort"}, "output_config").get("effort")
        demand(effort in ("low", "medium", "high", "max"), "output_config.effort: unknown value")
        demand(adaptive, "output_config: not supported by this model")
    if "thinking" not in body:
        return
    thinking = only(body["thinking"], {"type", "budget_tokens", "display"}, "thinking")
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens")
        demand(not adaptive, "thinking.type: 'enabled' is not supported by this model")
        demand(type(budget) is int and budget >= 1024, "thinking.budget_tokens: must be at least 1024")
        demand(type(budget) is int and budget < body["max_tokens"], "max_tokens must be greater than budget_tokens")
        demand(body.get("temperature", 1) == 1, "temperature may only be set to 1 when thinking is enabled")
    else:
        demand(thinking.get("type") == "adaptive" and adaptive, "thinking.type: not supported by this model")
        demand("budget_tokens" not in thinking, "thinking.budget_tokens: not allowed here")


def _check_system(system: Any) -> None:
    if system is None:
        return
    if isinstance(system, str):
        demand(system.strip(), "system: text must not be empty")
        return
    demand(isinstance(system, list) and system, "system: must be text or blocks")
    for block in system:
        _check_text(only(block, BLOCK_FIELDS["text"], "system"), "system")


def _check_tools(body: Body) -> None:
    seen: set[str] = set()
    for at, tool in enumerate(body.get("tools", [])):
        where = f"tools.{at}"
        if tool.get("type") == SEARCH_TOOL:
            only(tool, {"type", "name", "max_uses", "cache_control"}, where)
            demand(tool.get("name") == "web_search", f"{where}.name: Input should be 'web_search'")
            demand(tool.get("max_uses", 1) >= 1, f"{where}.max_uses: must be at least 1")
            demand("web_search" not in seen, "tools: Tool names must be unique.")
            seen.add("web_search")
            continue
        only(tool, {"name", "description", "input_schema", "cache_control", "type"}, where)
        name, schema = tool.get("name"), tool.get("input_schema")
        demand(isinstance(name, str) and NAME.fullmatch(name), f"{where}.name: does not match")
        demand(name not in seen, "tools: Tool names must be unique.")
        seen.add(str(name))
        demand(isinstance(schema, dict) and schema.get("type") == "object", f"{where}.input_schema.type: object")
        demand(isinstance(schema, dict) and isinstance(schema.get("properties", {}), dict), f"{where}: bad properties")


def _check_text(block: dict[str, Any], where: str) -> None:
    demand(block.get("type") == "text", f"{where}: must be text")
    demand(isinstance(block.get("text"), str) and block["text"].strip(), f"{where}: text must not be empty")


def _check_messages(account: str, body: Body) -> None:
    messages = body.get("messages")
    demand(isinstance(messages, list) and messages, "messages: at least one message is required")
    assert isinstance(messages, list)
    used: set[str] = set()
    open_calls: set[str] = set()
    for at, message in enumerate(messages):
        where = f"messages.{at}"
        role = str(only(message, {"role", "content"}, where).get("role"))
        demand(role in BLOCKS, f"{where}.role: must be user or assistant")
        expected = "user" if at % 2 == 0 else "assistant"
        demand(role == expected, f"{where}: roles must alternate, beginning with user")
        blocks = message.get("content")
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        demand(isinstance(blocks, list) and blocks, f"{where}.content: must not be empty")
        demand(all(isinstance(block, dict) for block in blocks), f"{where}.content: must be blocks")
        for block in blocks:
            kind = block.get("type")
            demand(kind in BLOCKS[role], f"{where}.content: {kind!r} blocks cannot be in {role} messages")
            only(block, BLOCK_FIELDS[kind], f"{where}.content")
        if role == "user":
            _check_user(blocks, open_calls, where)
            open_calls = set()
        else:
            open_calls = _check_assistant(account, body, blocks, used, where)
    demand(not open_calls, "tool_use ids were found without tool_result blocks at the end")
    demand(messages[-1]["role"] == "user", "the conversation must end with a user message")
    _check_turn_begins_with_thinking(body)


def _check_user(blocks: list[dict[str, Any]], open_calls: set[str], where: str) -> None:
    answered: set[str] = set()
    for at, block in enumerate(blocks):
        if block["type"] == "text":
            _check_text(block, where)
            continue
        if block["type"] == "image":
            _check_image(block, where)
            continue
        demand(all(before["type"] == "tool_result" for before in blocks[:at]), f"{where}: tool_result must come first")
        id = block.get("tool_use_id")
        demand(id in open_calls, f"{where}: unexpected tool_use_id {id!r} found in tool_result blocks")
        demand(id not in answered, f"{where}: each tool_use must have a single result")
        answered.add(str(id))
        demand(isinstance(block.get("is_error", False), bool), f"{where}: is_error must be a boolean")
        _check_result(block, where)
    missing = sorted(open_calls - answered)
    demand(not missing, f"{where}: tool_use ids were found without tool_result blocks: {', '.join(missing)}")


def _check_result(block: dict[str, Any], where: str) -> None:
    content = block.get("content")
    if isinstance(content, str):
        demand(content.strip(), f"{where}: empty tool_result")
        return
    demand(isinstance(content, list) and content, f"{where}: empty tool_result")
    assert isinstance(content, list)
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        demand(kind in ("text", "image"), f"{where}: {kind!r} blocks cannot be in a tool_result")
        only(part, BLOCK_FIELDS[str(kind)], where)
        demand(kind == "text" or not block.get("is_error"), "all content must be type `text` if `is_error` is true")
        (_check_text if kind == "text" else _check_image)(part, where)


def _check_image(block: dict[str, Any], where: str) -> None:
    source = only(block.get("source"), {"type", "media_type", "data"}, f"{where}.image.source")
    demand(source.get("type") == "base64", f"{where}.image.source.type: must be base64")
    check_image(source.get("media_type"), source.get("data"), f"{where}.image.source")


def _check_assistant(account: str, body: Body, blocks: list[dict[str, Any]], used: set[str], where: str) -> set[str]:
    calls: set[str] = set()
    for at, block in enumerate(blocks):
        if block["type"] == "text":
            _check_text(block, where)
        elif block["type"] == "server_tool_use":
            searches = any(tool.get("type") == SEARCH_TOOL for tool in body.get("tools", []))
            demand(searches, f"{where}: server_tool_use of a tool that is not in tools")
            demand(str(block["id"]).startswith("srvtoolu_"), f"{where}: server_tool_use.id does not match")
            following = blocks[at + 1] if at + 1 < len(blocks) else {}
            demand(following.get("tool_use_id") == block["id"], f"{where}: without its web_search_tool_result block")
        elif block["type"] == "web_search_tool_result":
            for hit in block["content"]:
                proof = signed(account, body["model"], str(hit.get("url")))
                demand(hit.get("encrypted_content") == proof, f"{where}: Invalid `encrypted_content`")
        elif block["type"] == "thinking":
            proof = signed(account, body["model"], str(block.get("thinking")))
            demand(block.get("signature") == proof, f"{where}: Invalid `signature` in `thinking` block")
        elif block["type"] == "tool_use":
            demand(NAME.fullmatch(str(block.get("id"))), f"{where}: tool_use.id does not match")
            demand(block["id"] not in used, "tool_use ids must be unique")
            used.add(block["id"])
            calls.add(block["id"])
            demand(isinstance(block.get("input"), dict), f"{where}: tool_use.input must be an object")
            demand(NAME.fullmatch(str(block.get("name"))), f"{where}: tool_use.name does not match")
    return calls


def _check_turn_begins_with_thinking(body: Body) -> None:
    if body.get("thinking", {}).get("type") != "enabled":
        return
    first = None
    for message in reversed(body["messages"]):
        blocks = message["content"]
        if message["role"] == "assistant":
            first = blocks[0]["type"]
        elif isinstance(blocks, str) or all(block["type"] != "tool_result" for block in blocks):
            break
    allowed = (None, "thinking", "redacted_thinking")
    demand(first in allowed, f"Expected `thinking` or `redacted_thinking`, but found `{first}`")


def tool_then_answer(body: Body) -> ScriptedReply:
    """Calls a tool once after each message of the user, then says what came of it.

    The tool is the one the user named, or else the first.
    """
    blocks = body["messages"][-1]["content"]
    results = [block["content"] for block in blocks if block["type"] == "tool_result"]
    if results:
        return ScriptedReply(f"The tool said: {results[-1]}")
    said = blocks[-1]["text"]
    tools = body.get("tools", [])
    if not tools:
        return ScriptedReply(f"You said: {said}")
    tool = next((tool for tool in tools if re.search(rf"\b{tool['name']}\b", said)), tools[0])
    return ScriptedReply("Let me see. ", (Call("", tool["name"], json.dumps(sample_arguments(tool["input_schema"]))),))


if __name__ == "__main__":
    main(AnthropicServer, tool_then_answer)
