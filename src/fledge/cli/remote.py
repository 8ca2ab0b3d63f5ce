"""Commands on a folder that another process holds are done by that process: a gateway, a chat, a `fledge run`.

`here_or_there` finds it, and goes on when it leaves: what it did not do is done by the next holder, or here. `Converse`
is `fledge run` through it.
"""

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from msgspec import to_builtins

from fledge.api.views import is_at_rest
from fledge.cli import inspect
from fledge.cli.printing import note, say
from fledge.cli.run import ask_person, plans_waiting
from fledge.client.folder import MOVES_S, PAUSE_S, moves, refuse_settings
from fledge.client.remote import Remote, find
from fledge.core.freeze import said
from fledge.core.images import Image
from fledge.core.keys import main_key, short_id
from fledge.core.transcript import Replied, from_body, joined
from fledge.errors import HolderLeft, StoreLocked
from fledge.ids import RandomIds
from fledge.store.base import Tx

T = TypeVar("T")
LOOK_MS = 2000
AWAITS_A_PERSON = 3

__all__ = ["Converse", "Remote", "here_or_there", "refuse_settings"]


def here_or_there(folder: Path, here: Callable[[], T], there: Callable[[Remote], T], *, may_repeat: bool = True) -> T:
    """Do something with a folder: through the process that holds it, if there is one, else here.

    The holder may come or leave at any moment. What it surely did not do is tried again; what it may have done only if
    `there` and `here` may be repeated, because they know what was done. Raises HolderLeft otherwise, and StoreLocked if
    the holder cannot be asked, or neither comes nor leaves in time.
    """
    patience_at = time.monotonic() + MOVES_S
    while True:
        began = time.monotonic()
        remote = find(folder)
        try:
            return here() if remote is None else there(remote)
        except StoreLocked:
            if not moves(folder) or began > patience_at:
                raise
        except HolderLeft as left:
            if (left.acted and not may_repeat) or began > patience_at:
                raise
        now = time.monotonic()
        if now - began > 1.0:
            patience_at = now + MOVES_S  # it was there for a while, and leaves only now
        time.sleep(PAUSE_S)


class Converse:
    """`fledge run` beside the process that holds the folder: say the prompt, print what the main conversation answers,
    until everything has settled."""

    def __init__(self, folder: Path, prompt: str | None, model: str | None, images: Sequence[Image] = ()) -> None:
        self._folder, self._prompt, self._model = folder, prompt, model
        self._images = {"images": to_builtins(images)} if images else {}
        self._key = RandomIds().unique()
        """Names this prompt, so that it is said once, whoever holds the folder."""
        self._run_id = ""
        self._heard: _Heard | None = None

    def there(self, client: Remote) -> int:
        """The same, through this process; going on where another one left."""
        self._heard = self._heard or _Heard(_last(client))
        if self._prompt is not None and not self._run_id:
            self._run_id = client.call(
                "agent",
                message=self._prompt,
                defaultModel=self._model or "",
                idempotencyKey=self._key,
                **self._images,
            )["runId"]
        while True:
            settled: bool = client.call("sessions.wait", timeoutMs=LOOK_MS)["settled"]
            self._heard.print_new(client)
            code = self._code(client)
            if code is not None or settled:
                return code or ask_person(inspect.look(self._folder, plans_waiting))

    def _code(self, client: Remote) -> int | None:
        """How it ends if the prompt cannot be answered, or a person must say something first; None if neither."""
        if not self._run_id:
            return None
        reply: dict[str, Any] = client.call("reply", session="main", run=self._run_id, timeoutMs=0)
        if reply["status"] in ("error", "stopped"):
            note(f"{reply['error']}")
            return 1
        for question in reply["questions"]:
            call, short = f"{question['tool']} {question['arguments']}", short_id(question["id"])
            say(f"waits for approval {short}: {call}  (fledge approve {short}, or reject)", sys.stderr)
        return AWAITS_A_PERSON if reply["questions"] else None

    def here(self, begin: Callable[[], int]) -> int:
        """What is left to do when nobody holds the folder: all of it, by `begin`, unless the prompt was said already.
        Then the answers that are there are printed, and how to go on is said."""
        heard = self._heard
        if heard is None:
            return begin()
        if self._prompt is not None and inspect.look(self._folder, lambda tx: tx.commission_keyed(self._key)) is None:
            return begin()
        if inspect.look(self._folder, heard.rest):
            return ask_person(inspect.look(self._folder, plans_waiting))
        words = "the process that held the folder has left; nothing is lost: `fledge run --continue` goes on"
        note(f"{words}")
        return 1


class _Heard:
    """What the main conversation has said, as far as it was printed."""

    def __init__(self, last: int) -> None:
        self._last = last

    def print_new(self, client: Remote) -> None:
        """Print what came since."""
        entries = _entries(client, after=self._last, limit=1000)
        for entry in entries:
            if entry["role"] == "assistant" and not entry["calls"] and said(entry["text"]) == "text":
                say(entry["text"])
        self._last = int(entries[-1]["seq"]) if entries else self._last

    def rest(self, tx: Tx) -> bool:
        """The same from the folder itself; True if nothing is left to do there."""
        entries = tx.entries(main_key(), after=self._last)
        for _, body in joined((entry.seq, from_body(entry.body)) for entry in entries):
            match body:
                case Replied(text=text, calls=()) if said(text) == "text":
                    say(text)
                case _:
                    continue
        return is_at_rest(tx, main_key())


def _last(client: Remote) -> int:
    entries = _entries(client, limit=1)
    return int(entries[-1]["seq"]) if entries else 0


def _entries(client: Remote, **which: int) -> list[dict[str, Any]]:
    if not client.call("sessions.list", kinds=["main"], limit=1):
        return []
    entries: list[dict[str, Any]] = client.call("sessions.history", session="main", **which)
    return entries
