"""A chat-completions server that rejects what OpenAI's rejects.

Models that reason refuse tools beside a reasoning level (https://github.com/openai/openai-openapi/issues/541); gpt-5.5
and later refuse them even without one, because they reason by default (https://github.com/BerriAI/litellm/pull/34569).

`async with OpenAIServer(script) as server:` and give clients `server.base_url` and the key `server.key`. As a process:
`python -m tests.models.openai_server PORT_FILE [HOLD_FILE]` calls a tool once, then answers.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from fledge.models.base import Call, Usage
from fledge.models.scripted import ScriptedReply
from tests.models.serving import Body, Rejected, Server, check_data_url, demand, main, only, pieces, sample_arguments

FIELDS = {
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "reasoning_effort",
    "temperature",
    "top_p",
    "stop",
    "seed",
    "user",
    "metadata",
    "store",
    "n",
}
EFFORTS = {
    r"gpt-5(-mini|-nano)?$": {"minimal", "low", "medium", "high"},
    r"gpt-5\.1": {"none", "low", "medium", "high"},
    r"gpt-5\.\d": {"none", "low", "medium", "high", "xhigh"},
    r"o\d": {"low", "medium", "high"},
    r"gpt-4": set[str](),
}
"""The reasoning levels that OpenAI's models accept, by the beginning of their names."""
ANY_EFFORT = {"none", "minimal", "low", "medium", "high", "xhigh", "max"}
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
THINKS = re.compile(r"(o\d|gpt-5)")
NO_EFFORT_WITH_TOOLS = re.compile(r"gpt-5\.[2-9]")
REASONS_BY_DEFAULT = re.compile(r"gpt-5\.[5-9]")
FINISH = {"end": "stop", "tools": "tool_calls", "length": "length", "refused": "content_filter"}


def efforts_of(model: str) -> set[str] | None:
    """The reasoning levels of a model of OpenAI's; None of any other."""
    return next((levels for pattern, levels in EFFORTS.items() if re.match(pattern, model)), None)


class OpenAIServer(Server):
    """Speaks chat-completions at `base_url`."""

    path = "/v1/chat/completions"
    fields = FIELDS
    assistant_fields = frozenset({"role", "content", "tool_calls", "refusal", "name"})
    call_fields = frozenset({"id", "type", "function"})

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def check(self, headers: dict[str, str], given: Any) -> Body:
        if self.key is not None and headers.get("authorization") != f"Bearer {self.key}":
            shown = headers.get("authorization", "").removeprefix("Bearer ")
            raise Rejected(f"Incorrect API key provided: {shown}", 401, "invalid_request_error", "invalid_api_key")
        demand(headers.get("content-type") == "application/json", "Content-Type must be application/json")
        body: Body = only(given, self.fields, "request")
        demand(isinstance(body.get("model"), str) and body["model"], "model: required")
        demand(body.get("stream") is True, "stream: this server only streams")
        if "stream_options" in body:
            only(body["stream_options"], {"include_usage"}, "stream_options")
        _check_tokens(body)
        _check_effort(body)
        _check_tools(body)
        self._check_messages(body.get("messages"))
        return body

    def rejection(self, reason: Rejected) -> Any:
        return {"error": {"message": str(reason), "type": reason.kind, "param": None, "code": reason.code or None}}

    def chunks(self, body: Body, reply: ScriptedReply) -> list[bytes]:
        found = [self.chunk(body, {"role": "assistant", "content": ""})]
        deltas = [*self.thoughts(body, reply), *({"content": part} for part in pieces(reply.text, self.piece_chars))]
        found += [self.chunk(body, delta) for delta in [*deltas, *self.calls(body, reply)]]
        stop = reply.stop or ("tools" if reply.calls else "end")
        found.append(self.chunk(body, {}, FINISH[stop]))
        if body.get("stream_options", {}).get("include_usage"):
            found.append(event({**self._frame(body), "choices": [], "usage": _usage(reply.usage or Usage(10, 5))}))
        return [*found, b"data: [DONE]\n\n"]

    def thoughts(self, body: Body, reply: ScriptedReply) -> Iterator[dict[str, Any]]:
        """The deltas of the thinking: OpenAI sends none, compatible servers do."""
        for part in pieces(reply.thinking, self.piece_chars):
            yield {"reasoning_content": part}

    def calls(self, body: Body, reply: ScriptedReply) -> Iterator[dict[str, Any]]:
        """The deltas of the calls."""
        for index, call in enumerate(reply.calls):
            head = {"index": index, "id": call.id or f"call_{len(self.bodies)}_{index}", "type": "function"}
            yield {"tool_calls": [{**head, "function": {"name": call.name, "arguments": ""}}]}
            for part in pieces(call.arguments, self.piece_chars):
                yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}

    def chunk(self, body: Body, delta: dict[str, Any], finish: str | None = None) -> bytes:
        """One event with one delta."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._frame(body), "choices": [choice], "usage": None})

    def _frame(self, body: Body) -> dict[str, Any]:
        model = f"{body['model']}-2026-01-01"
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1800000000, "model": model}

    def _check_messages(self, messages: Any) -> None:
        demand(isinstance(messages, list) and messages, "messages: must not be empty")
        open_calls: set[str] = set()
        for at, message in enumerate(messages):
            where = f"messages[{at}]"
            demand(isinstance(message, dict), f"{where}: must be an object")
            role = message.get("role")
            if role != "tool":
                demand(
                    not open_calls, f"{where}: an assistant message with 'tool_calls' must be followed by tool messages"
                )
            if role in ("system", "developer", "user"):
                only(message, {"role", "content", "name"}, where)
                if role == "user" and isinstance(message.get("content"), list):
                    _check_parts(message["content"], where)
                else:
                    demand(isinstance(message.get("content"), str) and message["content"], f"{where}.content: empty")
            elif role == "assistant":
                open_calls = self.check_assistant(message, where)
            elif role == "tool":
                only(message, {"role", "content", "tool_call_id"}, where)
                demand(isinstance(message.get("content"), str), f"{where}: a tool message takes text alone, no images")
                demand(message["content"], f"{where}.content: empty")
                demand(
                    message.get("tool_call_id") in open_calls,
                    f"{where}: messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
                )
                open_calls.discard(message["tool_call_id"])
            else:
                raise Rejected(f"{where}.role: unknown role {role!r}")
        demand(not open_calls, "the last tool_calls are not answered")
        demand(any(message["role"] == "user" for message in messages), "messages: nobody asks anything")

    def check_assistant(self, message: dict[str, Any], where: str) -> set[str]:
        """The ids of the message's calls; raises `Rejected`."""
        only(message, self.assistant_fields, where)
        content, calls = message.get("content"), message.get("tool_calls")
        demand(content is None or (isinstance(content, str) and content), f"{where}.content: empty")
        demand(content is not None or calls, f"{where}: neither content nor tool_calls")
        ids: set[str] = set()
        for call in calls or []:
            only(call, self.call_fields, f"{where}.tool_calls")
            demand(call.get("type") == "function", f"{where}.tool_calls.type: must be function")
            demand(isinstance(call.get("id"), str) and 0 < len(call["id"]) <= 40, f"{where}.tool_calls.id: bad length")
            demand(call["id"] not in ids, f"{where}.tool_calls.id: {call['id']} is there twice")
            ids.add(call["id"])
            function = only(call.get("function"), {"name", "arguments"}, f"{where}.tool_calls.function")
            demand(NAME.fullmatch(str(function.get("name"))), f"{where}.tool_calls.function.name: does not match")
            try:
                demand(isinstance(json.loads(function["arguments"]), dict), f"{where}: arguments are not an object")
            except (KeyError, TypeError, ValueError):
                raise Rejected(f"{where}: arguments are not JSON") from None
        return ids


def _check_parts(parts: list[Any], where: str) -> None:
    demand(parts, f"{where}.content: empty")
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text":
            demand(only(part, {"type", "text"}, where).get("text"), f"{where}.content: empty text")
        else:
            demand(kind == "image_url", f"{where}.content: Invalid value: '{kind}'")
            image = only(only(part, {"type", "image_url"}, where)["image_url"], {"url", "detail"}, where)
            demand(image.get("detail", "auto") in ("auto", "low", "high"), f"{where}.detail: unknown value")
            check_data_url(image.get("url"), f"{where}.image_url")


def event(data: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def _usage(usage: Usage) -> dict[str, Any]:
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
    }


def _check_tokens(body: Body) -> None:
    both = [name for name in ("max_tokens", "max_completion_tokens") if name in body]
    demand(len(both) <= 1, "max_tokens and max_completion_tokens cannot both be set")
    for name in both:
        demand(type(body[name]) is int and body[name] >= 1, f"{name}: must be at least 1")
    refused = "max_tokens" in body and THINKS.match(body["model"])
    demand(not refused, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")


def _check_effort(body: Body) -> None:
    model, effort = body["model"], body.get("reasoning_effort")
    levels = efforts_of(model)
    if effort is not None:
        demand(levels != set(), "Unrecognized request argument: reasoning_effort")
        demand(
            effort in (ANY_EFFORT if levels is None else levels),
            f"Unsupported value: 'reasoning_effort' does not support '{effort}' with this model.",
        )
    reasons = effort != "none" and (effort is not None or REASONS_BY_DEFAULT.match(model))
    demand(
        not (reasons and body.get("tools") and NO_EFFORT_WITH_TOOLS.match(model)),
        f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. "
        "To use function tools, use /v1/responses or set reasoning_effort to 'none'.",
    )


def _check_tools(body: Body) -> None:
    if "tools" not in body:
        return
    demand(isinstance(body["tools"], list) and body["tools"], "tools: must not be empty")
    seen: set[str] = set()
    for at, tool in enumerate(body["tools"]):
        where = f"tools[{at}]"
        demand(only(tool, {"type", "function"}, where).get("type") == "function", f"{where}.type: must be function")
        function = only(tool.get("function"), {"name", "description", "parameters", "strict"}, f"{where}.function")
        name = function.get("name")
        demand(isinstance(name, str) and NAME.fullmatch(name), f"{where}.function.name: does not match")
        demand(name not in seen, f"{where}.function.name: {name} is there twice")
        seen.add(str(name))
        schema = function.get("parameters")
        demand(isinstance(schema, dict) and schema.get("type") == "object", f"{where}: schema must be type: object")
        demand(isinstance(schema, dict) and isinstance(schema.get("properties", {}), dict), f"{where}: bad properties")


def tool_then_answer(body: Body) -> ScriptedReply:
    """Calls a tool once after each message of the user, then says what came of it.

    The tool is the one the user named, or else the first.
    """
    last = body["messages"][-1]
    if last["role"] == "tool":
        return ScriptedReply(f"The tool said: {last['content']}")
    tools = [tool["function"] for tool in body.get("tools", [])]
    if not tools:
        return ScriptedReply(f"You said: {last['content']}")
    tool = next((tool for tool in tools if re.search(rf"\b{tool['name']}\b", last["content"])), tools[0])
    return ScriptedReply("Let me see. ", (Call("", tool["name"], json.dumps(sample_arguments(tool["parameters"]))),))


if __name__ == "__main__":
    main(OpenAIServer, tool_then_answer)
