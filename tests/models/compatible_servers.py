"""Chat-completions servers with the demands of four services that are not OpenAI.

DeepSeek refuses a conversation with tools in thinking mode whose replies come back without their `reasoning_content`
(https://api-docs.deepseek.com/guides/thinking_mode). Gemini refuses a reply whose first call comes back without its
thought signature (https://ai.google.dev/gemini-api/docs/thought-signatures names the placeholder for calls of other
models; https://github.com/noho/dayu-agent/issues/45 has captured streams). OpenRouter hands the reasoning of the model
behind it through as `reasoning_details`, in pieces, and that model refuses it unless it comes back whole
(https://openrouter.ai/docs/use-cases/reasoning-tokens, https://github.com/agno-agi/agno/issues/8794). Mistral refuses a
message of the user's right behind a tool's (https://github.com/BerriAI/litellm/issues/17761).
"""

import hashlib
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from fledge.models.scripted import ScriptedReply
from tests.models.openai_server import FIELDS, OpenAIServer
from tests.models.serving import Body, Rejected, demand, only, pieces

SKIPPED = "skip_thought_signature_validator"


def signature(*signed: str) -> str:
    """A signature that only the server can make."""
    return f"sig_{hashlib.sha256('|'.join(signed).encode()).hexdigest()}"


def assistants(body: Body) -> list[dict[str, Any]]:
    return [message for message in body["messages"] if message["role"] == "assistant"]


class DeepSeekServer(OpenAIServer):
    """Thinks unless it is told not to, and wants its reasoning back where tools are used."""

    fields = FIELDS | {"thinking"}
    assistant_fields = OpenAIServer.assistant_fields | {"reasoning_content"}

    def check(self, headers: dict[str, str], given: Any) -> Body:
        body = super().check(headers, given)
        thinking = only(body.get("thinking", {"type": "enabled"}), {"type"}, "thinking").get("type")
        demand(thinking in ("enabled", "disabled"), "thinking.type: unknown value")
        if thinking == "enabled" and "tools" in body:
            demand(
                all(isinstance(message.get("reasoning_content"), str) for message in assistants(body)),
                "The `reasoning_content` in the thinking mode must be passed back to the API.",
            )
        return body


class MistralServer(OpenAIServer):
    """Wants a reply between the results of tools and the next message of the user's."""

    def check(self, headers: dict[str, str], given: Any) -> Body:
        body = super().check(headers, given)
        roles = [message["role"] for message in body["messages"]]
        demand(("tool", "user") not in pairwise(roles), "Unexpected role 'user' after role 'tool'")
        return body


class GeminiServer(OpenAIServer):
    """Signs the first call of each reply and wants the signature back. Calls come whole, without an index."""

    path = "/v1beta/openai/chat/completions"
    call_fields = OpenAIServer.call_fields | {"extra_content"}

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1beta/openai"

    def check(self, headers: dict[str, str], given: Any) -> Body:
        body = super().check(headers, given)
        if not re.search(r"gemini-[12]\b", body["model"]):
            for message in assistants(body):
                for call in message.get("tool_calls", [])[:1]:
                    self._check_signature(body["model"], call)
        return body

    def rejection(self, reason: Rejected) -> Any:
        return [{"error": {"code": reason.status, "message": str(reason), "status": "INVALID_ARGUMENT"}}]

    def thoughts(self, body: Body, reply: ScriptedReply) -> Iterator[dict[str, Any]]:
        """None: this endpoint does not show its thoughts."""
        yield from ()

    def calls(self, body: Body, reply: ScriptedReply) -> Iterator[dict[str, Any]]:
        for number, call in enumerate(reply.calls):
            whole: dict[str, Any] = {
                "id": call.id or f"function-call-{len(self.bodies)}{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            if number == 0:
                signed = signature(self.account, body["model"], call.name)
                whole["extra_content"] = {"google": {"thought_signature": signed}}
            yield {"tool_calls": [whole]}

    def _check_signature(self, model: str, call: dict[str, Any]) -> None:
        name = call["function"]["name"]
        given = call.get("extra_content", {}).get("google", {}).get("thought_signature")
        demand(given, f"Function call is missing a thought_signature in functionCall parts: `default_api:{name}`.")
        demand(given in (SKIPPED, signature(self.account, model, name)), "Corrupted thought signature.")


class OpenRouterServer(OpenAIServer):
    """Hands through the signed thinking of a model, in pieces; redacted thinking comes encrypted, in one."""

    path = "/api/v1/chat/completions"
    assistant_fields = OpenAIServer.assistant_fields | {"reasoning", "reasoning_details"}

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api/v1"

    def check(self, headers: dict[str, str], given: Any) -> Body:
        body = super().check(headers, given)
        for at, message in enumerate(body["messages"]):
            for detail in message.get("reasoning_details", []):
                self._check_detail(body["model"], detail, f"messages.{at}.content.0")
        return body

    def thoughts(self, body: Body, reply: ScriptedReply) -> Iterator[dict[str, Any]]:
        if not reply.thinking:
            return
        frame = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
        for piece in pieces(reply.thinking, self.piece_chars):
            yield {"reasoning": piece, "reasoning_details": [{**frame, "text": piece, "signature": None}]}
        signed = signature(self.account, body["model"], reply.thinking)
        yield {"reasoning": None, "reasoning_details": [{**frame, "signature": signed}]}
        hidden = {"type": "reasoning.encrypted", "data": f"hidden:{signed}", "format": frame["format"], "index": 1}
        yield {"reasoning_details": [hidden]}

    def _check_detail(self, model: str, detail: dict[str, Any], where: str) -> None:
        if detail["type"] == "reasoning.text":
            signed = signature(self.account, model, detail["text"])
            demand(detail.get("signature") == signed, f"{where}: Invalid `signature` in `thinking` block")
        else:
            demand(detail["data"].startswith("hidden:"), f"{where}: Invalid `data` in `redacted_thinking` block")
