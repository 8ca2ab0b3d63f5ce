"""The conversation in a terminal while another process holds the folder: a gateway, or another chat.

What is typed goes there, and what is new there is shown as soon as it is an entry. What the holder does with it, and
the words of the commands, are the holder's; how it is shown is `screen`'s.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

import fledge
from fledge.api.images import read_files
from fledge.client.remote import Remote
from fledge.commands import slash
from fledge.core.freeze import one_line, said
from fledge.core.keys import main_key, short_id
from fledge.core.printable import quoted_lines, whole_call
from fledge.errors import FledgeError, StoreError

if TYPE_CHECKING:
    from fledge.cli.chat import Screen

MAIN = main_key()
LOOK_S = 0.5
LOOK_BACK = 4
WAIT_MS = 2000
SHOWN_CHARS = 160
KEPT = "what it had heard by then is kept: `fledge log` shows it, `fledge` goes on with it"


class Visit:
    """One sitting at somebody else's folder."""

    def __init__(self, remote: Remote, screen: "Screen", state: Path, model: str = "") -> None:
        self._remote, self._screen, self._state, self._model = remote, screen, state, model
        self._seen = 0
        """The number of the last entry that was shown."""
        self._told: set[str] = set()
        self._leaving = False
        self._looking = asyncio.Lock()

    async def run(self, leave: tuple[str, ...], keys: str) -> int:
        """Talk until the user leaves, or the holder of the folder does; answers the exit code. Raises HolderLeft only
        before anything was said."""
        self._screen.say(
            f"fledge {fledge.__version__} · {self._state} · held by another process, which answers ·"
            " /help for commands, Ctrl-D to leave",
            "note",
        )
        await self._look(first=True)
        watching = asyncio.ensure_future(self._watch())
        reading = asyncio.ensure_future(self._screen.read())
        try:
            while True:
                await asyncio.wait((watching, reading), return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    watching.result()
                line = reading.result()
                if line is None:
                    await self._settled()
                    return 0
                if line.strip().lower() in leave:
                    return 0
                await self._take(line, keys)
                reading = asyncio.ensure_future(self._screen.read())
        except FledgeError as error:
            self._screen.say(f"{error}; {KEPT}", "error")
            return 1
        finally:
            for task in (watching, reading):
                task.cancel()
            await asyncio.gather(watching, reading, return_exceptions=True)

    async def interrupt(self) -> bool:
        """Ctrl-C: stop the turn; with none, ask before leaving, and the second time leave. True: leave now."""
        try:
            rows = await self._ask("sessions.list", kinds=["main"], limit=100)
            if any(row["key"] == MAIN and row["state"] != "idle" for row in rows):
                await self._ask("sessions.stop", session=MAIN, below=False)
                self._screen.say("stopped; subagents go on (/stop stops them too)", "note")
                return False
        except FledgeError as error:
            self._screen.say(f"{error}; {KEPT}", "error")
            return True
        if self._leaving:
            return True
        self._leaving = True
        self._screen.say("Ctrl-C again to leave; nothing is lost by it", "note")
        return False

    async def _ask(self, method: str, **params: object) -> Any:
        return await asyncio.to_thread(self._remote.call, method, **params)

    async def _take(self, line: str, keys: str) -> None:
        self._leaving = False
        if not line.strip():
            return
        try:
            shown = slash.read_image_order(line)
            if shown is None and slash.is_command(line):
                told = await self._ask("slash.run", session=MAIN, line=line)
                self._screen.say(told["text"], "note" if told["ok"] else "error")
                if told["verb"] == "help":
                    self._screen.say(keys, "note")
                return
            given: dict[str, object] = {"message": line}
            if shown is not None:
                images = await asyncio.to_thread(read_files, [shown.target])
                given = {"message": shown.words or images[0].name, "images": to_builtins(images)}
            run_id = (await self._ask("agent", session=MAIN, defaultModel=self._model, **given))["runId"]
            if self._screen.in_turns:
                await self._answered(run_id)
        except StoreError:
            raise  # nobody answers any more: the sitting is over
        except FledgeError as error:
            self._screen.say(str(error), "error")

    async def _answered(self, run_id: str) -> None:
        """Wait until what was said is answered, and shown."""
        while True:
            reply = await self._ask("reply", session=MAIN, run=run_id, timeoutMs=WAIT_MS)
            if reply["status"] != "pending" or reply["questions"]:
                break
        await self._look()
        if reply["status"] in ("error", "stopped"):
            self._screen.say(reply["error"] or reply["status"], "error")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()

    async def _settled(self) -> None:
        """The input is over: what was asked is still answered, unless a person must say something first."""
        while self._screen.in_turns:
            rest = await self._ask("sessions.wait", session=MAIN, timeoutMs=WAIT_MS)
            await self._look()
            if rest["settled"] or await self._ask("approvals.list"):
                return

    async def _look(self, first: bool = False) -> None:
        """Show what is new, once, whoever asks for it."""
        async with self._looking:
            await self._show(first)

    async def _show(self, first: bool) -> None:
        entries = await self._entries()
        self._seen = entries[-1]["seq"] if entries else self._seen
        for text, style in [line for entry in entries if (line := _shown(entry, first))][-LOOK_BACK if first else 0 :]:
            self._screen.say(text, style)
        runs = await self._ask("runs.list", requester=MAIN)
        news = [*_ends(runs, first), *_plans(await self._ask("plans.list"))]
        news += _questions(await self._ask("approvals.list"))
        for key, words, style in news:
            if key not in self._told:
                self._told.add(key)
                if words:
                    self._screen.say(words, style)
        active = [run for run in runs if run["endedAt"] is None]
        own = await self._ask("sessions.list", kinds=["main"], limit=100)
        late = [row["unanswered"] for row in own if row["key"] == MAIN and row["unanswered"]]
        below = [f"{_name(run)} {run['status'].replace('_', ' ')}" for run in active[:4]]
        self._screen.status("  ·  ".join([*late, *below]))
        self._screen.offer([(_name(run), run["status"]) for run in runs if run["label"]])

    async def _entries(self) -> list[dict[str, Any]]:
        try:
            entries: list[dict[str, Any]] = await self._ask(
                "sessions.history", session=MAIN, after=self._seen, limit=1000
            )
        except fledge.NotFound:
            return []  # nothing has been said yet
        return entries


def _shown(entry: dict[str, Any], earlier: bool) -> tuple[str, str] | None:
    """An entry for reading; None if there is nothing to read in it. What was typed here stands here already."""
    if entry["role"] == "assistant" and said(entry["text"]) == "text":
        return entry["text"], ""
    if entry["role"] == "assistant" and entry["calls"] and not earlier:
        return "\n".join(f"· {one_line(call, SHOWN_CHARS)}" for call in entry["calls"]), "note"
    if entry["role"] == "user" and entry["kind"] == "send" and earlier:
        return f"› {entry['text']}", "you"
    return None


News = tuple[str, str, str]
"""A key, so that it is told once; the words; a style."""


def _ends(runs: list[dict[str, Any]], before: bool) -> list[News]:
    ended = [run for run in runs if run["endedAt"] is not None]
    how = {run["runId"]: "killed" if run["endedReason"] == "killed" else run["status"] for run in ended}
    return [(f"end {run['runId']}", "" if before else f"● {_name(run)}: {how[run['runId']]}", "note") for run in ended]


def _plans(plans: list[dict[str, Any]]) -> list[News]:
    return [
        (
            f"plan {plan['runId']}",
            f"{plan['label']} has a plan: /subagents approve or reject it{quoted_lines(plan['text'])}",
            "ask",
        )
        for plan in plans
    ]


def _questions(asked: list[dict[str, Any]]) -> list[News]:
    told = []
    for one in asked:
        short = short_id(one["id"])
        words = f"? {whole_call(one['tool'], one['arguments'])}\n  /allow {short} or /deny {short}"
        told.append((f"ask {one['id']}", words, "ask"))
    return told


def _name(run: dict[str, Any]) -> str:
    return one_line(run["label"] or run["task"], 60)
