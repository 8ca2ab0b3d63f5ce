"""Commands on a folder that another process holds are done by that process, a gateway or a chat: here is how it is
found, and `run` through it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fledge.core.freeze import said
from fledge.gateway.client import Remote, find

T = TypeVar("T")
LOOK_MS = 2000
AWAITS_A_PERSON = 3

__all__ = ["Remote", "converse", "here_or_there"]


def here_or_there(folder: Path, here: Callable[[], T], there: Callable[[Remote], T]) -> T:
    """What is done with the folder itself; by whoever holds it, if they can be asked."""
    client = find(folder)
    return here() if client is None else there(client)


def converse(client: Remote, prompt: str | None, model: str = "") -> int:
    """Say the prompt, print what the main conversation answers, return when everything has settled."""
    told = _last(client)
    run_id = None if prompt is None else client.call("agent", message=prompt, model=model)["runId"]
    while True:
        settled: bool = client.call("sessions.wait", timeoutMs=LOOK_MS)["settled"]
        told = _print_new(client, told)
        if run_id is not None:
            reply: dict[str, Any] = client.call("reply", sessionKey="main", runId=run_id, timeoutMs=0)
            if reply["status"] in ("error", "stopped"):
                print(f"fledge: {reply['error']}", file=sys.stderr)
                return 1
            for question in reply["questions"]:
                print(f"{question['tool']} {question['arguments']} waits for you", file=sys.stderr)
            if reply["questions"]:
                return AWAITS_A_PERSON
        if settled:
            return 0


def _last(client: Remote) -> int:
    newest = client.call("sessions.list", kinds=["main"], limit=1)
    entries = client.call("sessions.history", key="main", limit=1) if newest else []
    return int(entries[-1]["seq"]) if entries else 0


def _print_new(client: Remote, after: int) -> int:
    if not client.call("sessions.list", kinds=["main"], limit=1):
        return after
    entries = client.call("sessions.history", key="main", after=after, limit=1000)
    for entry in entries:
        if entry["role"] == "assistant" and not entry["calls"] and said(entry["text"]) == "text":
            print(entry["text"], flush=True)
    return int(entries[-1]["seq"]) if entries else after
