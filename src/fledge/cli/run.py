"""`fledge run`: a conversation without an input. It sends a prompt, prints the answers, shows the progress
(`progress`), and returns when everything has settled. With `--json` it prints events (`stream`).

The process that holds the folder does the work: another one, or this one, which then drives all work that is
unfinished. If the other one leaves, this one goes on. If this process is killed at any moment, `run --continue` goes on
where it stood.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from fledge.api.values import Message as Entry
from fledge.api.values import Plan, Question
from fledge.channels.terminal import HERE
from fledge.cli import stream
from fledge.cli.activity import Activity, begun_call, card_of, retrying
from fledge.cli.answers import called_lines, may_be_silence
from fledge.cli.ending import AWAITS_A_PERSON, FAILED, first_code
from fledge.cli.opening import conversation_client
from fledge.cli.printing import note
from fledge.cli.progress import ProgressView, progress_here
from fledge.cli.term.plain import card_line
from fledge.cli.term.shown import Called
from fledge.cli.where import OWN_CONVERSATION, Where
from fledge.client.connection import WireEvent
from fledge.client.folder import Client
from fledge.commands import lines
from fledge.commands.reading import from_wire, turn_event
from fledge.commands.values import Below, Story
from fledge.commands.wire import WireObject
from fledge.config import SingleSettings
from fledge.core.asking import CUT, is_worth_waiting
from fledge.core.attachments import Attachment
from fledge.core.freeze import one_line
from fledge.core.images import Image
from fledge.core.keys import agent_of, conversation_name
from fledge.core.live import TurnEvent
from fledge.core.route import ChannelMessage, is_of_another, is_worth_sending
from fledge.errors import FledgeError

WAIT_MS = 2000
"""How long one request waits; then it is made again."""
PAGE = 1000
LOOK_S: Final = 1.0
"""The least time between two looks at the subagents at work."""
NOT_YET: Final = ("spawning", "queued")
"""Phases of a run that has not begun to work."""
OTHERS_CHARS: Final = 200
"""How many characters are printed of a message in another conversation."""


class RunRequest(Struct, frozen=True):
    """The request of a command line."""

    prompt: str | None
    """None: only continue unfinished work."""
    model: str | None = None
    images: tuple[Image, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    session: str = ""
    """The conversation: its key; empty: the one of the folder the command is given in."""
    json: bool = False
    """Events for a program, instead of answers for a person."""
    quiet: bool = False
    """Show only answers, and notes that a person must see."""
    draws: bool = True
    """False: there is no live region, because a log is written to the terminal, too."""


class RunOutput:
    """The output of a run, for the person or for a program that reads events; also the terminal of the run, as a
    channel.

    Each answer of the conversation is printed once: when it becomes an entry; or, if it was an entry before this run
    and an earlier process has not sent it, when this process sends it as a message. Questions are reported as they
    come, and shown to the person at the end of the run. Slash commands cannot be typed, so notices name commands of
    `fledge`."""

    def __init__(self, session: str, *, streams: bool) -> None:
        """`streams`: a program reads events."""
        self._session, self._streams = session, streams
        self.progress: ProgressView | None = None
        """The view that shows the output; None before and after the run."""
        self.run_id = ""
        """The run id of the prompt, once it is accepted."""
        self._first: int | None = None
        """The newest entry when this run began; None until that is known."""
        self._heard: int | None = None
        """The newest entry at the first event of a turn; None until one came."""
        self.last = 0
        """The newest entry that was read."""
        self._sent: set[int] = set()
        self.has_begun = asyncio.Event()
        """Set once it is known which entries are printed, and so of each message whether it is one of them."""
        self.notices: list[str] = []

    def _shown(self) -> ProgressView:
        """The view. Raises OSError when the run is over: a message that comes then is sent by the next run."""
        if self.progress is None:
            raise OSError("the run is over")
        return self.progress

    def note(self, text: str) -> None:
        """Print a note about the command itself; possible at any time."""
        note(text)  # the view shows the lines of standard error while it is open
        if self.progress is not None:
            self.event(stream.NoticeLine(text=text))

    def answer(self, text: str, *, is_cut: bool = False) -> None:
        """Print a whole answer. Raises if it cannot be printed."""
        self._shown().words("")
        if self._streams:
            self.event(stream.AnswerLine(session_key=self._session, text=text, is_cut=is_cut))
        else:
            self._shown().print(f"{text.rstrip()}\n\n[{CUT}]" if is_cut else text.rstrip())

    def event(self, event: stream.StreamEvent | WireEvent | None) -> None:
        """Print an event, for a program only. An event of the feed is printed unchanged."""
        if self._streams and event is not None:
            self._shown().print(stream.line(event))

    # ---- entries

    def begin(self, newest: int) -> None:
        """Print entries after this one; and those that a turn has added since its first event, because a turn may go on
        before this entry is known."""
        self._first = self.last = newest if self._heard is None else min(newest, self._heard)
        self.has_begun.set()

    def hear(self, entry: int) -> None:
        """A turn reports this entry as the newest; only the first report counts."""
        if self._heard is None:
            self._heard = entry
            if self._first is not None and self.last == self._first > entry:
                self._first = self.last = entry

    def add(self, entries: list[Entry]) -> None:
        """Print the answers and tool calls of entries that were added."""
        for entry in entries:
            if entry.role == "assistant" and entry.seq not in self._sent and is_worth_sending(entry.text):
                self.answer(entry.text, is_cut=entry.is_cut)
            for call in called_lines(entry):
                self._shown().tell(f"{agent_of(self._session)} · {call}", Called(call))
            self.last = entry.seq

    # ---- as a channel

    async def send(self, message: ChannelMessage) -> None:
        """Show the message; a slash command in it is replaced by the command of `fledge` that does the same."""
        await self.has_begun.wait()
        if message.about == "notice":
            text = message.text.replace("/reload takes it in", "`fledge trust` takes it in")
            self.notices.append(text)
            self.note(text)
        elif message.about == "approval":
            return
        elif is_of_another(message, self._session):
            name = conversation_name(message.session_key)
            self.note(f"in {name}: {one_line(message.text, OTHERS_CHARS)}")
        elif self._is_new(message):
            self.answer(message.text)

    async def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def _is_new(self, message: ChannelMessage) -> bool:
        """True if a message must be printed here, because it is not printed as an entry, before or after it is sent."""
        if not message.is_entry or message.session_key != self._session:
            return True
        is_told = self._first is not None and message.entry > self._first
        if is_told or not message.entry or message.entry in self._sent:
            return False
        self._sent.add(message.entry)
        return True


async def converse(where: Where, request: RunRequest, settings: SingleSettings = (), **options: Any) -> int:
    """Send the prompt and wait until everything has settled; returns 0, 1 after an error, 3 if something waits for a
    person. `options` go to `fledge.open` if this process drives the folder."""
    request = replace(request, session=request.session or where.session)
    told = RunOutput(request.session, streams=request.json)

    def goes_on() -> bool:
        """True if nothing new is sent: there is no prompt, or it is accepted already."""
        return request.prompt is None or bool(told.run_id)

    async with conversation_client(where, request.model, settings, told, told.note, goes_on, **options) as client:
        # The folder is opened before anything is drawn, because opening may ask the person and may refuse.
        begun = await where.begin(client, request.session)
        async with progress_here(quiet=request.quiet, is_stream=request.json, draws=request.draws) as progress:
            told.progress = progress
            if begun["earlier"]:
                name = conversation_name(begun["earlier"])
                told.note(f"{OWN_CONVERSATION}; --session {name} goes on with the earlier one")
            try:
                return await PromptRun(client, where, request, told, progress).run()
            finally:
                told.progress = None


class PromptRun:
    """One prompt, or the continuation of unfinished work, until everything has settled."""

    def __init__(
        self, client: Client, where: Where, request: RunRequest, told: RunOutput, progress: ProgressView
    ) -> None:
        self._client, self._where, self._request, self._session = client, where, request, request.session
        self._told, self._progress = told, progress
        self._heard = asyncio.Event()
        """Set once the feed has begun: no event after that is missed."""
        self._failing_since: float | None = None
        self._printing = asyncio.Lock()
        self._activity = Activity()
        self._words = ""
        """The answer in progress."""
        self._changed = asyncio.Event()
        """Set when something happened below the conversation."""
        self._names: dict[str, str] = {}
        """The names of subagents, by session key."""
        self._begun: set[str] = set()
        self._ended: set[str] = set()
        self._asked: set[str] = set()
        """Session keys of subagents that have begun, run ids of those that ended, ids of questions and plans: each is
        reported once."""

    async def run(self) -> int:
        """Returns the exit code: 0, 1 after an error, 3 if something waits for a person."""
        try:
            return await first_code((self._listen(), self._converse(), self._look_around()))
        except FledgeError as error:
            if not self._told.run_id:
                raise
            self._told.note(str(error))
            goes_on = "it is answered there: `fledge log` shows it" if self._client.is_held else _CONTINUE
            self._told.note(f"nothing is lost: {goes_on}")
            return FAILED

    async def _converse(self) -> int | None:
        await self._heard.wait()
        begun = await self._where.begin(self._client, self._session)
        self._told.begin(begun["entry"])
        if self._request.prompt is not None:
            self._told.run_id = (await self._say(self._request.prompt))["runId"]
        else:
            await self._client.call("sessions.open", once=False, session=self._session, address=HERE)
        while True:
            whole = not self._client.is_held
            rest = await self._client.call(
                "sessions.wait", session=self._session, timeoutMs=WAIT_MS, orAsked=True, wholeFolder=whole
            )
            await self._print_new()
            if rest["questions"] or (rest["settled"] and whole == (not self._client.is_held)):
                return await self._come_to_rest(rest)

    async def _say(self, prompt: str) -> Any:
        carried = {"images": self._request.images, "attachments": self._request.attachments}
        files = {field: to_builtins(given) for field, given in carried.items() if given}
        # Where this process drives, the model is the one it has opened the folder with.
        model = (self._request.model or "") if self._client.is_held else ""
        return await self._client.call(
            "agent",
            message=prompt,
            session=self._session,
            address=HERE,
            defaultModel=model,
            **files,
        )

    async def _come_to_rest(self, rest: WireObject) -> int:
        if rest["settled"] and self._told.run_id:
            reply = await self._client.call("reply", session=self._session, run=self._told.run_id, timeoutMs=0)
            if reply["status"] in ("error", "stopped"):
                error = reply["error"] or reply["status"]
                if not any(error in notice for notice in self._told.notices):
                    self._told.note(error)
                return FAILED
        unsent = [one for one in await self._client.call("undelivered.list") if one["kind"] == "message"]
        if unsent:
            self._told.note(f"{len(unsent)} could not be delivered outside: see `fledge undelivered`")
        questions = from_wire(list[Question], rest["questions"])
        for one in questions:
            await self._learn_name(one.session_key)
        plans = from_wire(list[Plan], rest["plans"])
        self._tell_asked(questions, plans)
        waits = [*map(lines.question, questions), *map(lines.plan, plans)]
        if waits:
            self._progress.note("\n".join(waits))
        return AWAITS_A_PERSON if waits else 0

    # ---- what happens meanwhile

    async def _listen(self) -> int | None:
        """Print answers as they come, and show the progress; ends if the model cannot answer and the run waits no
        longer for it."""
        async with aclosing(self._client.events(session=self._session)) as feed:
            async for event in feed:
                if await self._hear(event):
                    return FAILED
        raise AssertionError("a feed goes on with the next holder")

    async def _hear(self, event: WireEvent) -> bool:
        """Handle an event; True if the run waits no longer for the conversation."""
        match event["type"]:
            case "from" | "lost" as kind:
                self._heard.set()
                self._forget_words()
                await self._print_new()
                if kind == "lost":
                    self._told.event(event)
            case "run":
                self._told.event(event)
                await self._hear_run(event)
            case "approvals":
                await self._print_new()
                told = await self._client.value(list[Question], "approvals.list")
                asked = [one for one in told if one.id in event["open"]]
                for one in asked:
                    await self._learn_name(one.session_key)
                self._tell_asked(asked, ())
            case "turn":
                told_turn = turn_event(event)
                self._told.event(stream.of_turn(told_turn, self._session))
                if told_turn.session == self._session:
                    return await self._hear_turn(told_turn)
                await self._learn_name(told_turn.session)
                self._hear_below(told_turn)
        self._changed.set()
        return False

    async def _hear_turn(self, event: TurnEvent) -> bool:
        if event.entry:
            self._told.hear(event.entry)
        match event.kind:
            case "assistant:text":
                self._words += event.text
                if not may_be_silence(self._words):
                    self._progress.words(self._words)
            case "end" | "tool:start" | "model:start":
                await self._print_new()
                self._forget_words()
            case "usage":
                self._failing_since = None
            case "error":
                self._forget_words()
                if await self._is_over(event):
                    return True
            case _:
                self._forget_words()
        self._activity.hear(event, self._progress.now())
        self._progress.turn(self._activity.turn)
        return False

    def _forget_words(self) -> None:
        """The answer in progress has become an entry, or will not become one."""
        self._words = ""
        self._progress.words("")

    async def _is_over(self, event: TurnEvent) -> bool:
        """True if the run waits no longer for a failed turn: only a change can help, or the turn has failed for too
        long."""
        rest = await self._client.call("sessions.wait", session=self._session, timeoutMs=0)
        if not rest["failures"]:
            return False  # it ended with this error, or goes on already
        now = asyncio.get_running_loop().time()
        self._failing_since = now if self._failing_since is None else self._failing_since
        if is_worth_waiting(event.may_pass, self._failing_since, now, rest["patienceSeconds"]):
            return False
        await self._print_new()
        self._told.note(event.text)
        self._told.note(f"nothing is lost: {f'after that change {_CONTINUE}' if event.remedy else _AGAIN}")
        return True

    async def _print_new(self) -> None:
        async with self._printing:
            if self._told.has_begun.is_set():
                session, after = self._session, self._told.last
                new = self._client.value(list[Entry], "sessions.history", session=session, after=after, limit=PAGE)
                self._told.add(await new)

    # ---- subagents

    async def _hear_run(self, event: WireEvent) -> None:
        """Handle an event of a subagent: its beginning, its waiting for a person and its end are shown."""
        key, run_id, phase = event["sessionKey"], event["runId"], event["phase"]
        await self._learn_name(key, event["label"])
        if key not in self._begun and phase not in NOT_YET:
            self._begun.add(key)
            self._progress.tell(f"{self._names[key]} · started")
        if phase == "awaiting_approval":
            plans = await self._client.value(list[Plan], "plans.list")
            self._tell_asked((), [plan for plan in plans if plan.session_key == key])
        if event["endedReason"] is not None and run_id not in self._ended:
            self._ended.add(run_id)
            self._tell_end(await self._story(key), event)

    async def _learn_name(self, key: str, label: str = "") -> None:
        if key != self._session and key not in self._names:
            self._names[key] = label or lines.name_of((await self._story(key)).run)

    async def _story(self, key: str) -> Story:
        return await self._client.value(Story, "runs.info", target=key, requester=self._session)

    def _tell_end(self, story: Story, event: WireEvent) -> None:
        card = card_of(story)
        self._progress.tell(card_line(card), card if event["requester"] == self._session else None)
        self._told.event(
            stream.ResultLine(
                session_key=event["sessionKey"],
                run_id=event["runId"],
                label=card.label,
                status=event["status"],
                ended_reason=event["endedReason"],
                seconds=round(card.seconds, 3),
                tokens=card.tokens,
                cost_usd=story.run.cost_usd,
                text=card.text,
            )
        )

    def _who(self, key: str) -> str:
        return agent_of(self._session) if key == self._session else self._names.get(key, "a subagent")

    def _hear_below(self, event: TurnEvent) -> None:
        self._activity.hear_below(event)
        who = self._who(event.session)
        match event.kind:
            case "tool:start":
                self._progress.tell(f"{who} · {begun_call(event)}")
            case "retry" | "error":
                self._progress.tell(f"{who} · {retrying(event)}")

    def _tell_asked(self, questions: Sequence[Question], plans: Sequence[Plan]) -> None:
        """Report questions and plans that wait for a person, each once."""
        for one in questions:
            line = stream.QuestionLine(id=one.id, session_key=one.session_key, tool=one.tool, arguments=one.arguments)
            self._tell_once(one.id, self._who(one.session_key), line)
        for plan in plans:
            key, name = plan.session_key, self._names.get(plan.session_key, plan.label)
            planned = stream.Planned(run_id=plan.run_id, session_key=key, label=name, text=plan.text)
            self._tell_once(plan.run_id, name, planned)

    def _tell_once(self, asked: str, who: str, event: stream.StreamEvent) -> None:
        if asked not in self._asked:
            self._asked.add(asked)
            self._progress.tell(f"{who} · waits for you")
            self._told.event(event)

    async def _look_around(self) -> None:
        """Show all subagents at work, at most once a second, if the view has a place for them."""
        await self._heard.wait()
        while self._progress.looks:
            await self._changed.wait()
            self._changed.clear()
            heard, progress = self._activity.heard, self._progress
            below = await self._client.value(Below, "sessions.below", session=self._session)
            progress.children(self._activity.look(below, progress.now(), heard, is_talked_with=True))
            progress.turn(self._activity.turn)
            await asyncio.sleep(LOOK_S)
        await asyncio.Event().wait()  # the view has no place for subagents


_CONTINUE = "`fledge run --continue` goes on"
_AGAIN = "`fledge run --continue` tries again"
