"""Commands on a folder that another process holds are done by that process, a gateway or a chat: here is how it is
found, and `run` through it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fledge.api.views import is_at_rest
from fledge.cli import inspect
from fledge.core.freeze import said
from fledge.core.keys import main_key, short_id
from fledge.core.transcript import Replied, from_body
from fledge.errors import StoreError
from fledge.gateway.client import Remote, find
from fledge.store.base import Tx

T = TypeVar("T")
LOOK_MS = 2000
AWAITS_A_PERSON = 3

__all__ = ["Remote", "converse", "here_or_there"]


def here_or_there(folder: Path, here: Callable[[], T], there: Callable[[Remote], T]) -> T:
    """What is done with the folder itself; by whoever holds it, if they can be asked."""
    client = find(folder)
    return here() if client is None else there(client)


def converse(client: Remote, folder: Path, prompt: str | None, model: str = "") -> int:
    """Say the prompt, print what the main conversation answers, return when everything has settled."""
    heard = _Heard(client)
    run_id = None if prompt is None else client.call("agent", message=prompt, model=model)["runId"]
    try:
        return _until_settled(client, heard, run_id)
    except StoreError as error:
        # It may have finished what was asked, and have left with that.
        rest = inspect.look(folder, heard.rest)
        if not rest:
            print(f"fledge: {error}; nothing is lost: `fledge run --continue` goes on", file=sys.stderr)
        return 0 if rest else 1


def _until_settled(client: Remote, heard: "_Heard", run_id: str | None) -> int:
    while True:
        settled: bool = client.call("sessions.wait", timeoutMs=LOOK_MS)["settled"]
        heard.print_new()
        if run_id is not None:
            reply: dict[str, Any] = client.call("reply", sessionKey="main", runId=run_id, timeoutMs=0)
            if reply["status"] in ("error", "stopped"):
                print(f"fledge: {reply['error']}", file=sys.stderr)
                return 1
            for question in reply["questions"]:
                call, short = f"{question['tool']} {question['arguments']}", short_id(question["id"])
                print(f"waits for approval {short}: {call}  (fledge approve {short}, or reject)", file=sys.stderr)
            if reply["questions"]:
                return AWAITS_A_PERSON
        if settled:
            return 0


class _Heard:
    """What the main conversation has said, as far as it was printed."""

    def __init__(self, client: Remote) -> None:
        self._client = client
        entries = self._entries(limit=1)
        self._last = int(entries[-1]["seq"]) if entries else 0

    def print_new(self) -> None:
        """Print what came since."""
        entries = self._entries(after=self._last, limit=1000)
        for entry in entries:
            if entry["role"] == "assistant" and not entry["calls"] and said(entry["text"]) == "text":
                print(entry["text"], flush=True)
        self._last = int(entries[-1]["seq"]) if entries else self._last

    def rest(self, tx: Tx) -> bool:
        """The same from the folder itself; True if nothing is left to do there."""
        for entry in tx.entries(main_key(), after=self._last):
            match from_body(entry.body):
                case Replied(text=text, calls=()) if said(text) == "text":
                    print(text, flush=True)
                case _:
                    continue
        return is_at_rest(tx, main_key())

    def _entries(self, **which: int) -> list[dict[str, Any]]:
        if not self._client.call("sessions.list", kinds=["main"], limit=1):
            return []
        entries: list[dict[str, Any]] = self._client.call("sessions.history", key="main", **which)
        return entries
