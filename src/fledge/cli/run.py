"""`fledge run`: a conversation without a terminal. It says a prompt to a conversation, prints the answers, and
returns when everything has settled.

Whoever holds the folder carries it out: another process, or this one, which then drives whatever is unfinished. If the
other one leaves, this one goes on. Killed at any moment, `run --continue` goes on where it stood.
"""

import asyncio
import sys
from contextlib import aclosing
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from fledge.api.values import Message as Entry
from fledge.api.values import Plan, Question
from fledge.channels.terminal import HERE, TerminalChannel
from fledge.cli.opening import opening
from fledge.cli.printing import note, say
from fledge.cli.where import OWN_CONVERSATION, Where
from fledge.client.driving import Driving
from fledge.client.folder import Client
from fledge.commands import lines
from fledge.commands.reading import from_wire
from fledge.core.asking import CUT, is_worth_waiting, retry_text
from fledge.core.freeze import one_line
from fledge.core.images import Image
from fledge.core.keys import conversation_name
from fledge.core.route import Message, is_of_another, is_worth_sending
from fledge.errors import FledgeError
from fledge.ids import RandomIds

FAILED, AWAITS_A_PERSON = 1, 3
WAIT_MS = 2000
"""How long one request waits; then it is made again."""
PAGE = 1000
OTHERS_CHARS = 200
"""How much is printed of what is said in another conversation."""


class Request(Struct, frozen=True):
    """What was asked on the command line."""

    prompt: str | None
    """None: only go on."""
    model: str | None = None
    images: tuple[Image, ...] = ()
    session: str = ""
    """The conversation: its key; empty: the one of the folder the command is given in."""


class Printed:
    """What the conversation says, each answer once. It is printed as it becomes an entry; an answer that was one
    before, and that an earlier process has left unsent, as the message that this process sends."""

    def __init__(self, session: str) -> None:
        self.session = session
        self._first: int | None = None
        """The newest entry when this began; None until that is known."""
        self.last = 0
        """The newest entry that was looked at."""
        self._sent: set[int] = set()

    @property
    def has_begun(self) -> bool:
        """Entries are printed from here on."""
        return self._first is not None

    def begin(self, newest: int) -> None:
        """Entries that come after this one are printed."""
        self._first = self.last = newest

    def add(self, entries: list[Entry]) -> None:
        """These entries have been added."""
        for entry in entries:
            if entry.role == "assistant" and entry.seq not in self._sent and is_worth_sending(entry.text):
                say(f"{entry.text.rstrip()}\n\n[{CUT}]" if entry.is_cut else entry.text.rstrip())
            self.last = entry.seq

    def is_new(self, message: Message) -> bool:
        """True of a message that is not printed as an entry, before or after it is sent."""
        if not message.is_entry or message.session_key != self.session:
            return True
        is_printed = self._first is not None and message.entry > self._first
        if is_printed or not message.entry or message.entry in self._sent:
            return False
        self._sent.add(message.entry)
        return True


class RunChannel(TerminalChannel):
    """The terminal of a run, at which no slash command can be typed."""

    def __init__(self, printed: Printed) -> None:
        super().__init__(sys.stdout, sys.stderr, left_out=frozenset({"approval"}))
        self._printed = printed
        self.notices: list[str] = []

    async def send(self, message: Message) -> None:
        """Print the message, with the command that does what a slash command would."""
        if message.about == "notice":
            text = message.text.replace("/reload takes it in", "`fledge trust` takes it in")
            self.notices.append(text)
            await super().send(replace(message, text=text))
        elif is_of_another(message, self._printed.session):
            note(f"in {conversation_name(message.session_key)}: {one_line(message.text, OTHERS_CHARS)}")
        elif self._printed.is_new(message):
            await super().send(message)


async def converse(where: Where, request: Request, settings: tuple[str, ...] = (), **options: Any) -> int:
    """Say the prompt and wait until everything has settled: 0, 1 after an error, 3 if a person is awaited. `options`
    are of `fledge.open`, where this process drives the folder."""
    request = replace(request, session=request.session or where.session)
    printed = Printed(request.session)
    terminal = RunChannel(printed)
    run: list[Run] = []
    opened = opening(where.state, request.model, settings, terminal, note, lambda: run[0].goes_on, **options)
    async with where.client(Driving(opened), settings) as client:
        run.append(Run(client, request, terminal, printed, where.project))
        return await run[0].run()


class Run:
    """One prompt, or what is unfinished, until everything has settled."""

    def __init__(
        self, client: Client, request: Request, terminal: RunChannel, printed: Printed, project: str = ""
    ) -> None:
        self._client, self._request, self._terminal, self._printed = client, request, terminal, printed
        self._project = project
        self._run_id = ""
        """Of the prompt, once it is accepted."""
        self._heard = asyncio.Event()
        """The feed has begun: what happens from here on is heard."""
        self._failing_since: float | None = None
        self._printing = asyncio.Lock()

    @property
    def goes_on(self) -> bool:
        """Nothing is said that was not said before."""
        return self._request.prompt is None or bool(self._run_id)

    async def run(self) -> int:
        """0, 1 after an error, 3 if a person is awaited."""
        listening = asyncio.ensure_future(self._listen())
        waiting = asyncio.ensure_future(self._converse())
        try:
            await asyncio.wait((listening, waiting), return_when=asyncio.FIRST_COMPLETED)
            return await (listening if listening.done() else waiting)
        except FledgeError as error:
            if not self._run_id:
                raise
            note(str(error))
            goes_on = "it is answered there: `fledge log` shows it" if self._client.is_held else _CONTINUE
            note(f"nothing is lost: {goes_on}")
            return FAILED
        finally:
            for task in (listening, waiting):
                task.cancel()
            await asyncio.gather(listening, waiting, return_exceptions=True)

    async def _converse(self) -> int:
        await self._heard.wait()
        session = self._request.session
        begun = await self._client.call("sessions.open", once=False, session=session, folder=self._project)
        if begun["earlier"]:
            note(f"{OWN_CONVERSATION}; --session {conversation_name(begun['earlier'])} goes on with the earlier one")
        self._printed.begin(begun["entry"])
        if self._request.prompt is not None:
            self._run_id = (await self._say(self._request.prompt))["runId"]
        else:
            await self._client.call("sessions.open", once=False, session=session, address=HERE)
        while True:
            whole = not self._client.is_held
            rest = await self._client.call(
                "sessions.wait", session=session, timeoutMs=WAIT_MS, orAsked=True, wholeFolder=whole
            )
            await self._print_new()
            if rest["questions"] or (rest["settled"] and whole == (not self._client.is_held)):
                return await self._come_to_rest(rest)

    async def _say(self, prompt: str) -> Any:
        images = {"images": to_builtins(self._request.images)} if self._request.images else {}
        # Where this process drives, the model is the one it has opened the folder with.
        model = (self._request.model or "") if self._client.is_held else ""
        key = RandomIds().unique()
        given = {"message": prompt, "session": self._request.session, "defaultModel": model, **images}
        return await self._client.call("agent", once=False, address=HERE, idempotencyKey=key, **given)

    async def _come_to_rest(self, rest: dict[str, Any]) -> int:
        if rest["settled"] and self._run_id:
            reply = await self._client.call("reply", session=self._request.session, run=self._run_id, timeoutMs=0)
            if reply["status"] in ("error", "stopped"):
                error = reply["error"] or reply["status"]
                if not any(error in notice for notice in self._terminal.notices):
                    note(error)
                return FAILED
        unsent = [one for one in await self._client.call("undelivered.list") if one["kind"] == "message"]
        if unsent:
            note(f"{len(unsent)} could not be delivered outside: see `fledge undelivered`")
        waits = [lines.question(one) for one in from_wire(list[Question], rest["questions"])]
        waits += [lines.plan(one) for one in from_wire(list[Plan], rest["plans"])]
        if waits:
            say("\n".join(waits), sys.stderr)
        return AWAITS_A_PERSON if waits else 0

    # ---- what happens meanwhile

    async def _listen(self) -> int:
        """Print answers as they come; ends if the model cannot answer and is not waited for any longer."""
        session = self._request.session
        async with aclosing(self._client.events(session=session)) as feed:
            async for event in feed:
                if event["type"] in ("from", "lost"):
                    self._heard.set()
                    await self._print_new()
                elif event["type"] == "turn" and event["sessionKey"] == session and await self._gives_up(event):
                    return FAILED
        raise AssertionError("a feed goes on with the next holder")

    async def _gives_up(self, event: dict[str, Any]) -> bool:
        match event["kind"]:
            case "end" | "tool:start":
                await self._print_new()
            case "usage":
                self._failing_since = None
            case "error":
                return await self._is_over(event["text"], event.get("remedy", ""), event.get("retryInS", 0.0))
            case _:
                pass
        return False

    async def _is_over(self, error: str, remedy: str, retry_in_s: float) -> bool:
        """Whether the turn that has failed is left alone: nothing but a change can help, or patience is over."""
        rest = await self._client.call("sessions.wait", session=self._request.session, timeoutMs=0)
        if not rest["failures"]:
            return False  # it ended with this error, or goes on already
        now = asyncio.get_running_loop().time()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if is_worth_waiting(retry_in_s, self._failing_since, now, rest["patienceSeconds"]):
            note(retry_text(retry_in_s, error, 0.0))
            return False
        await self._print_new()
        note(error)
        note(f"nothing is lost: {'after that change ' if remedy else ''}{_CONTINUE if remedy else _AGAIN}")
        return True

    async def _print_new(self) -> None:
        async with self._printing:
            if self._printed.has_begun:
                session, after = self._request.session, self._printed.last
                told = await self._client.call("sessions.history", session=session, after=after, limit=PAGE)
                self._printed.add(from_wire(list[Entry], told))


_CONTINUE = "`fledge run --continue` goes on"
_AGAIN = "`fledge run --continue` tries again"
