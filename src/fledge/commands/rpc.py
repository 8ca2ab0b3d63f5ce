"""JSON-RPC 2.0, whatever carries it: read a request or a batch, call the methods that it names, write the answer.

A mistake of a caller is an error of its own kind that names the field; an internal error is logged, and the answer has
no details of it. Nothing here knows HTTP, sockets, or what the methods do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from fledge.cancellation import trace
from fledge.commands.wire import WireObject, camel
from fledge.core.redact import error_words
from fledge.errors import BadInput, FledgeError, NotFound, Refused, StoreError

PARSE: Final = -32700
INVALID: Final = -32600
NO_METHOD: Final = -32601
BAD_PARAMS: Final = -32602
INTERNAL: Final = -32603
REFUSED: Final = -32000
NOT_FOUND: Final = -32001
UNAVAILABLE: Final = -32002
TOO_MANY: Final = -32003

MOST_BATCH: Final = 50

CallMethod = Callable[[str, WireObject], Awaitable[object]]
"""Carries out a method; its answer is written as JSON."""

log = logging.getLogger("fledge.gateway")
_encode = msgspec.json.Encoder().encode


class RpcFault(Exception):
    """An error in the form of JSON-RPC."""

    def __init__(self, code: int, message: str, **data: object) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def fault_of(error: Exception) -> RpcFault:
    """Maps exceptions to JSON-RPC errors; hides internal details."""
    match error:
        case RpcFault():
            return error
        case BadInput():
            field = ".".join(camel(part) for part in error.field.split("."))
            words = error_words(error).replace(error.field, field, 1)
            return RpcFault(BAD_PARAMS, words, field=field, expected=error.expected)
        case NotFound():
            return RpcFault(NOT_FOUND, error_words(error), status=error.status)
        case Refused():
            return RpcFault(REFUSED, error_words(error), status=error.status)
        case StoreError():
            log.error("store error: %s", error_words(error))
            return RpcFault(UNAVAILABLE, "the store cannot take it now: try again")
        case FledgeError():
            return RpcFault(REFUSED, error_words(error), status="error")
        case _:
            log.error("a method failed\n%s", trace(error))
            return RpcFault(INTERNAL, "internal error: see the gateway's log")


async def answer(raw: bytes | str, call: CallMethod) -> bytes | None:
    """The answer to a request or a batch of them; None if all of them are notifications, which have no answer."""
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _encode(_failed(None, RpcFault(PARSE, "must be JSON")))
    if not isinstance(document, list):
        told = await _one(document, call)
        return None if told is None else _encode(told)
    if not 1 <= len(document) <= MOST_BATCH:
        return refusal(f"a batch has 1 to {MOST_BATCH} requests")
    answers = [one for one in await asyncio.gather(*(_one(ask, call) for ask in document)) if one is not None]
    return _encode(answers) if answers else None


async def _one(ask: object, call: CallMethod) -> WireObject | None:
    """One request; None if it is a notification, which is carried out all the same."""
    if not isinstance(ask, dict) or ask.get("jsonrpc") != "2.0" or not isinstance(ask.get("method"), str):
        known = ask.get("id") if isinstance(ask, dict) else None
        return _failed(known, RpcFault(INVALID, 'must be {"jsonrpc": "2.0", "method": …, "params": {…}, "id": …}'))
    name = ask.get("id")
    if isinstance(name, bool) or not isinstance(name, str | int | float | None):
        return _failed(None, RpcFault(INVALID, "id: must be text or a number"))
    unknown = set(ask) - {"jsonrpc", "method", "params", "id"}
    params = ask.get("params", {})
    try:
        if unknown:
            raise RpcFault(INVALID, f"there is no {', '.join(sorted(unknown))[:80]!r} in a request")
        if not isinstance(params, dict):
            raise RpcFault(BAD_PARAMS, "params: must be an object, by name", field="params")
        result = await call(ask["method"], params)
        told: WireObject = {"jsonrpc": "2.0", "result": result, "id": name}
        _encode(told)
    except Exception as error:
        told = _failed(name, fault_of(error))
    return told if "id" in ask else None


def _failed(name: object, fault: RpcFault) -> WireObject:
    known = name if isinstance(name, str | int | float) and not isinstance(name, bool) else None
    error: WireObject = {"code": fault.code, "message": fault.message}
    return {"jsonrpc": "2.0", "error": error | ({"data": fault.data} if fault.data else {}), "id": known}


def refusal(words: str) -> bytes:
    """The answer to a message that is no request, or that is not carried out."""
    return _encode(_failed(None, RpcFault(INVALID, words)))


def notification(method: str, params: object) -> bytes:
    """A message that answers no request: this method, with these parameters."""
    return _encode({"jsonrpc": "2.0", "method": method, "params": params})
