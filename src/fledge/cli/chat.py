"""`fledge` without a command: a conversation with an agent, while its subagents work.

The behaviour of the chat, for every screen that shows it (`term`) and every holder of the folder: another process, or
this one. Answers stream, subagents end and ask while the person types, and Esc stops the turn, not the program. Closing
it loses nothing: the next start opens the same conversation. If the process that holds the folder leaves, the sitting
goes on with the next holder, or this process drives.
"""

import asyncio
import time
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins

import fledge
from fledge.api.carried import for_wire, read_files
from fledge.api.entries import EntriesPage
from fledge.api.values import Forest, Plan, Question, RunInfo
from fledge.api.values import Message as Entry
from fledge.cancellation import end_tasks
from fledge.channels.terminal import HERE
from fledge.cli import chat_commands
from fledge.cli.activity import Activity, card_of, cards_of
from fledge.cli.answers import NOT_SHOWN, Answers, UnreadWords, attachment_line
from fledge.cli.chat_commands import Completions, key_of
from fledge.cli.chat_questions import Questions
from fledge.cli.ending import first_code
from fledge.cli.opening import conversation_client
from fledge.cli.term.opening import screen_here
from fledge.cli.term.shown import (
    AnswerItem,
    ChatItem,
    ErrorItem,
    Leave,
    NoticeItem,
    OutputItem,
    QuestionAnswered,
    Screen,
    SpokenItem,
    StopWanted,
    WordsSent,
)
from fledge.cli.where import OWN_CONVERSATION, Where
from fledge.client.connection import WireEvent
from fledge.client.folder import Client
from fledge.clock import wait_for_event
from fledge.commands import slash
from fledge.commands.lines import name_of as run_name
from fledge.commands.queries import MOST_ENTRIES
from fledge.commands.reading import turn_event
from fledge.commands.slash import WordChoice
from fledge.commands.values import Below, SessionPage, Story
from fledge.commands.wire import WireObject
from fledge.config import SingleSettings
from fledge.config.places import user_folder
from fledge.core.doing import call_line
from fledge.core.entries import CompletionsEntry, HistoryEntry, MessageEntry, ReplyEntry
from fledge.core.freeze import one_line, to_valid_utf8
from fledge.core.keys import agent_of, conversation_name, main_key
from fledge.core.live import TurnEvent
from fledge.core.route import ChannelMessage, is_of_another
from fledge.errors import FledgeError
from fledge.plain_file import write_private

HISTORY, COPIED = "chat_history", "last-answer.md"
LOOK_S: Final = 1.0
"""The least time between two regular looks at the subagents while something goes on."""
IDLE_S: Final = 30.0
WAIT_MS: Final = 2000
LEAVE_S: Final = 2.0
"""How long the chat waits for the lines typed last when the person leaves."""
PAGE: Final = 1000
ERROR_CHARS: Final = 400
LOOK_BACK, LOOK_BACK_ENTRIES = 2, 40
"""How many messages of the person in an earlier sitting are shown again, with all that followed them, and in how many
entries at most."""
KEPT = "the part that arrived is kept: `fledge log` shows it, `fledge` continues it"
EDITED = "carry out the plan as I have edited it:\n\n"
THE_AGENT = "the agent"


async def sit(
    where: Where,
    model: str | None,
    settings: SingleSettings,
    session: str | None,
    started: Callable[[], object],
) -> int:
    """Run a sitting, in the conversation of this folder unless one is named; `started` is called once the screen is
    open. Refused, if this process opens the folder: no model is set, or it cannot be used."""
    channel, completions = ScreenChannel(), Completions()
    kept = where.state if where.gateway is None else user_folder()
    async with conversation_client(where, model, settings, channel, channel.note, program="chat") as client:
        # The folder is opened before the screen, because opening may ask the person and may refuse.
        begun = await where.begin(client, session or "")
        if begun["earlier"]:
            channel.note(f"{OWN_CONVERSATION}; /resume {conversation_name(begun['earlier'])} opens the earlier one")
        completions.models = UsableModels(client)
        async with screen_here(kept / HISTORY, completions) as screen:
            client.on_silence = channel.note
            started()
            chat = Chat(client, screen, channel, where, begun["sessionKey"], model or "", completions, kept)
            return await chat.run()


class ScreenChannel:
    """The chat as a channel of the process that drives. The chat shows questions and the answers of the session that
    the person talks to as they come; this channel shows the rest. Messages that come before the screen is open wait for
    it."""

    def __init__(self) -> None:
        self._waiting: list[ChatItem] = []
        self._say: Callable[[ChatItem], None] = self._waiting.append
        self.conversation = self.streams = ""
        """The conversation, and the session that the person talks to: the conversation or one of its subagents."""

    def show_on(self, screen: Screen) -> None:
        """Show items on this screen from now on, first those that waited for it."""
        self._say = screen.say
        for item in self._waiting:
            screen.say(item)
        self._waiting.clear()

    async def send(self, message: ChannelMessage) -> None:
        """Show the message, unless the chat shows it already."""
        if message.is_entry and message.session_key == self.streams:
            return
        if is_of_another(message, self.conversation):
            self.note(f"in {conversation_name(message.session_key)}: {message.text}")
        elif message.about in ("reply", "result"):
            self._say(AnswerItem(message.text))
        elif message.about != "approval":
            self.note(message.text)

    def note(self, text: str) -> None:
        """Show something that the person should know."""
        self._say(NoticeItem(text))

    async def close(self) -> None:
        """Does nothing: there is nothing to release."""


class UsableModels:
    """The models that can be used, for completion, as the process or gateway that answers lists them; requested when
    they are first needed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._looking: asyncio.Task[list[WordChoice]] | None = None

    def __call__(self) -> Sequence[WordChoice]:
        """The models that are known by now."""
        if self._looking is None:
            self._looking = asyncio.ensure_future(self._look())
        return self._looking.result() if self._looking.done() and not self._looking.exception() else ()

    async def _look(self) -> list[WordChoice]:
        return [(one["name"], one["because"]) for one in await self._client.call("models.list")]


class Chat:
    """One sitting of a person at the chat."""

    def __init__(
        self,
        client: Client,
        screen: Screen,
        channel: ScreenChannel,
        where: Where,
        session: str,
        model: str,
        completions: Completions,
        kept: Path,
    ) -> None:
        self._client, self._screen, self._channel, self._where, self._model = client, screen, channel, where, model
        self._completions, self._kept = completions, kept
        self._answers = Answers(screen)
        self._sits = asyncio.Event()
        """Set once the greeting is shown: events are shown from here on."""
        self._listed: list[str] = []
        """Keys of the conversations in the list that was shown last, in its order."""
        self._showing = asyncio.Lock()
        """Held while a message is sent or entries are shown, so that the chat knows which entries were typed here."""
        self._saying = asyncio.Lock()
        """Held while a message is being sent, and while the turn is stopped: at a stop each message is read, unread, or
        not sent."""
        self._ended: set[str] = set()
        """Run ids of the subagents whose end is shown, or came before the sitting."""
        self._news: set[str] = set()
        """What to read and show next: `ends` (runs that have ended) and `asked` (questions and plans)."""
        self._telling = asyncio.Lock()
        """Held while these are read and shown."""
        self._changed = asyncio.Event()
        self._typed: asyncio.Queue[WordsSent] = asyncio.Queue()
        self._following: asyncio.Task[None] | None = None
        self._enter(session)
        channel.show_on(screen)

    def _enter(self, session: str) -> None:
        """Make this the conversation of the chat; nothing is known of it yet."""
        self._session = self._channel.conversation = self._channel.streams = session
        """The conversation. The session that the person talks to (`channel.streams`) is this one or one of its
        subagents."""
        self._activity = Activity()
        self._asked = Questions()
        self._answers.unread = {}
        self._names: dict[str, str] = {}
        """The names of the subagents, by session key."""
        self._turn = self._stopped = 0
        """The number of the newest turn in the feed, and of the last one that was stopped: later events of that are not
        shown."""
        self._late = self._trouble = ""
        """The report of an unanswered turn at the last look (empty: none), and the error that was shown last."""

    async def run(self) -> int:
        """Talk until the person leaves; returns the exit code, 1 if no process answers any more."""
        try:
            return await first_code((self._talk(), self._type(), self._listen(), self._watch()))
        except FledgeError as error:
            if not self._sits.is_set():
                raise
            self._error(f"{error}; {KEPT}")
            return 1
        finally:
            self._answers.forget("")

    @property
    def _is_talked_with(self) -> bool:
        """True if the person talks to the conversation, not to one of its subagents."""
        return self._channel.streams == self._session

    def _notice(self, text: str) -> None:
        self._screen.say(NoticeItem(text))

    def _reply(self, text: str) -> None:
        """Answer something that the person typed or pressed."""
        self._screen.say(NoticeItem(text, is_asked_for=True))

    def _error(self, text: str) -> None:
        self._screen.say(ErrorItem(text))

    # ---- what the person wants

    async def _talk(self) -> int:
        """Carry out the person's wishes as they come. `_type` carries out typed lines at the same time, one after the
        other: a command may take long, and the person can stop the turn meanwhile."""
        await self._sits.wait()
        while True:
            wish = await self._screen.wish()
            match wish:
                case StopWanted():
                    await self._refusable(self._stop())
                case QuestionAnswered():
                    await self._refusable(self._answer(wish))
                case WordsSent(text=text) if chat_commands.read(text) != ("quit", ""):
                    self._typed.put_nowait(wish)
                case _:
                    return await self._leave(is_input_over=isinstance(wish, Leave))

    async def _leave(self, *, is_input_over: bool) -> int:
        """Wait until the typed lines are carried out, in a terminal for at most `LEAVE_S`; in a pipe, at the end of the
        input, also until everything has come to rest. Show how many subagents are left at work if this process drove
        them."""
        in_turns = self._screen.in_turns
        with suppress(TimeoutError):
            async with asyncio.timeout(None if in_turns else LEAVE_S):
                await self._typed.join()
        if in_turns and is_input_over:
            await self._come_to_rest()
        if not self._client.is_held:
            rows = (await self._conversations()).rows
            left = next((row.unsettled for row in rows if row.key == self._session), 0)
            at_work = "1 subagent is" if left == 1 else f"{left} subagents are"
            if left:
                self._reply(f"{at_work} still at work: `fledge` or `fledge run --continue` goes on with them.")
        return 0

    async def _type(self) -> None:
        while True:
            sent = await self._typed.get()
            await self._refusable(self._take(sent))
            self._changed.set()
            self._typed.task_done()

    async def _refusable(self, deed: Awaitable[None]) -> None:
        """Await something that may be refused; a refusal is shown as an error."""
        try:
            await deed
        except FledgeError as error:
            self._error(str(error))

    async def _take(self, sent: WordsSent) -> None:
        """Carry out a typed line: a command, or a message for the agent that the person talks to."""
        line = sent.text
        if not line.strip():
            return
        own = chat_commands.read(line)
        if own is not None:
            await self._command(*own)
            return
        order = slash.read_file_order(line)
        if order is None and slash.is_command(line):
            await self._slash(line)
            return
        given: WireObject = {"message": line}
        attached = ""
        if order is not None:
            given, attached = await asyncio.to_thread(_with_file, order)
        run_id = await self._say(given, sent)
        if attached:
            self._reply(attached)
        if self._screen.in_turns:
            await self._answered(run_id)

    async def _slash(self, line: str) -> None:
        done = await self._client.call("slash.run", session=self._session, line=line, address=HERE)
        self._reply(done["text"])
        if done["verb"] == "help":
            self._reply(chat_commands.help_text())
        await self._turn_to_bound()

    async def _say(self, given: WireObject, sent: WordsSent) -> str:
        async with self._saying:
            await self._turn_to_bound()
            # Where this process drives, the model is the one it has opened the folder with.
            given["defaultModel"] = self._model if self._client.is_held else ""
            is_queued = self._activity.turn is not None
            if is_queued:
                self._show_queued(sent.shown)
            else:
                self._screen.say(SpokenItem(sent.shown, is_typed_here=True))
            async with self._showing:
                try:
                    accepted = await self._client.call("agent", session=self._channel.streams, address=HERE, **given)
                except FledgeError:
                    self._show_queued()
                    self._screen.put_back(sent.text)
                    raise
                run_id = str(accepted["runId"])
                self._answers.unread[run_id] = UnreadWords(sent.text, sent.shown, is_queued)
            return run_id

    def _show_queued(self, *more: str) -> None:
        self._screen.queued((*(one.shown for one in self._answers.unread.values() if one.is_queued), *more))

    async def _turn_to_bound(self) -> None:
        """Talk to the session that `/focus` has bound this terminal to, else to the conversation's agent."""
        bound = await self._open(address=HERE)
        if bound["sessionKey"] != self._channel.streams:
            async with self._showing:
                self._talk_with(bound)
                self._answers.begin(bound["entry"])

    def _talk_with(self, bound: Any) -> None:
        self._channel.streams = bound["sessionKey"]
        self._activity.stop()
        self._show_turn()
        name = "" if self._session == self._where.session else conversation_name(self._session)
        self._screen.talks_to(name if self._is_talked_with else bound["name"])

    async def _open(self, **given: Any) -> Any:
        return await self._client.call("sessions.open", once=False, session=self._session, **given)

    async def _answered(self, run_id: str) -> None:
        """Wait until the message is answered, or a question waits for a person; show the new entries."""
        while True:
            session = self._channel.streams
            reply = await self._client.call("reply", session=session, run=run_id, timeoutMs=WAIT_MS)
            if reply["status"] != "pending" or reply["questions"]:
                break
        await self._show()
        if reply["status"] == "stopped":
            self._error(reply["error"])

    async def _come_to_rest(self) -> None:
        """The input is over: wait until everything has settled, or a person must answer a question first."""
        while True:
            rest = await self._client.call("sessions.wait", session=self._session, orAsked=True, timeoutMs=WAIT_MS)
            if rest["settled"] or rest["questions"]:
                break
        self._asked.open = tuple(one["id"] for one in rest["questions"])  # the feed may not have reported them yet
        await self._heal()

    async def _stop(self) -> None:
        """Stop the turn; messages that it has not read, and lines that are still to be sent, go back into the input."""
        if not self._is_talked_with:
            self._reply("a subagent is not stopped by this: /kill ends it, /unfocus goes back")
            return
        unsent = []
        while not self._typed.empty():
            unsent.append(self._typed.get_nowait().text)
            self._typed.task_done()
        if unsent:
            self._screen.put_back("\n".join(unsent))
        async with self._saying:
            unread = self._answers.unread
            asked = list(unread)
            done = await self._client.call("sessions.stop", session=self._session, below=False, withdraw=asked)
        self._stopped = self._turn
        self._answers.forget("")
        self._activity.stop()
        self._show_turn()
        await self._show()
        at_work = await self._client.value(Below, "sessions.below", session=self._session)
        self._reply("stopped; subagents go on (/stop stops them too)" if at_work.children else "stopped")
        back = [unread.pop(one).text for one in asked if one in done.get("withdrawn", ()) and one in unread]
        self._show_queued()
        if back:
            self._screen.put_back("\n".join(back))
        self._changed.set()

    # ---- questions

    async def _answer(self, answered: QuestionAnswered) -> None:
        """Carry out the person's answer to a question or plan. If it is refused, the question is shown again as long as
        it is open."""
        asked = self._asked.answered(answered.id)
        try:
            if isinstance(asked, Question):
                await self._answer_question(asked, answered)
            elif isinstance(asked, Plan):
                await self._answer_plan(asked, answered)
        finally:
            self._news.add("asked")
            self._changed.set()

    async def _answer_question(self, asked: Question, answered: QuestionAnswered) -> None:
        call = f"{call_line(asked.tool, asked.arguments)}, for {self._who(asked.session_key)}"
        method, given = "approvals.approve", WireObject()
        match answered.verdict:
            case "once":
                said = f"allowed: {call}"
            case "always":
                given = {"always": True}
                said = f"allowed, and `{asked.always}` from now on: {call}; /permissions revokes that"
            case _:
                method, given = "approvals.deny", {"words": answered.words}
                said = f"denied: {call}" + (f": {answered.words}" if answered.words else "")
        await self._client.call(method, id=asked.id, digest=asked.digest, **given)
        self._reply(said)

    async def _answer_plan(self, plan: Plan, answered: QuestionAnswered) -> None:
        method, given = "plans.approve", WireObject()
        match answered.verdict:
            case "carry out":
                done = "approved"
            case "edited":
                given, done = {"words": EDITED + answered.words}, "approved, as you have edited it"
            case _:
                method, given = "plans.reject", {"reason": answered.words or "the person gave no reason"}
                done = "rejected"
        await self._client.call(method, target=plan.session_key, requester=self._session, run=plan.run_id, **given)
        self._reply(f"the plan of {self._who(plan.session_key)} is {done}")

    def _who(self, key: str) -> str:
        return THE_AGENT if key == self._session else self._names.get(key, "a subagent")

    # ---- commands of the chat

    async def _command(self, name: chat_commands.Name, rest: str) -> None:
        match name:
            case "open":
                await self._open_result(rest)
            case "expand":
                await self._expand(rest)
            case "cost":
                below = await self._client.value(Below, "sessions.below", session=self._session)
                forest = await self._client.value(Forest, "runs.tree", requester=self._session, limit=PAGE)
                self._reply("\n".join(chat_commands.cost_lines(below, forest.runs)))
            case "copy":
                self._copy()
            case "new":
                rows = (await self._conversations()).rows
                base = conversation_name(self._where.session) if self._where.project else ""
                known = [conversation_name(row.key) for row in rows]
                found = rest or chat_commands.new_name(known, time.localtime(), base)
                await self._switch(key_of(found, agent_of(self._session)))
            case "resume":
                await self._resume(rest)
            case "clear":
                self._screen.clear()
            case "quit":
                self._reply("write it like this: /quit")

    async def _open_result(self, word: str) -> None:
        """Show the whole result of a subagent."""
        named = [run.session_key for run in await self._runs() if run_name(run) == word]  # the newest of several
        target = named[-1] if named else word or "last"
        story = await self._story(target)
        name = run_name(story.run)
        if not story.text:
            self._reply(f"{name} has no result{': ' + story.run.error if story.run.error else ' yet'}")
            return
        self._reply(f"{name} · the whole result")
        self._screen.say(AnswerItem(story.text, is_asked_for=True))

    async def _expand(self, word: str) -> None:
        """Show the result of the last tool call, here or in a subagent."""
        session = (await self._story(word)).run.session_key if word else self._channel.streams
        given = WireObject(session=session, limit=PAGE, tools=True)
        entries = await self._client.value(list[Entry], "sessions.history", **given)
        last = next((one for one in reversed(entries) if one.role == "tool"), None)
        if last is None:
            self._reply("no tool has given anything back")
        else:
            self._screen.say(OutputItem(last.kind, last.text, is_asked_for=True))

    def _copy(self) -> None:
        """Put the last answer into the clipboard, and into a file, because the terminal does not confirm a copy."""
        text = self._answers.last_answer
        if not text:
            self._reply("nothing was answered yet")
            return
        is_asked = self._screen.copy(text)
        words = "the terminal was asked to copy the last answer" if is_asked else "the terminal cannot copy this"
        file = self._kept / COPIED
        try:
            write_private(file, to_valid_utf8(text))
            words += f"; it is also in {file}"
        except OSError as error:
            words += f"; it could not be written to {file}: {error.strerror}"
        self._reply(words)

    # ---- conversations

    async def _conversations(self) -> SessionPage:
        return await self._client.value(SessionPage, "sessions.query", kinds=["main", "named"], limit=PAGE)

    async def _resume(self, word: str) -> None:
        """List the conversations, or go on with one."""
        known = await self._conversations()
        choices = chat_commands.conversations(known)
        if not word:
            self._listed = [row.key for row in known.rows]
            lines = [f"{number}) {name} · {about}" for number, (name, about) in enumerate(choices, 1)]
            self._reply("\n".join([*lines, "/resume and a name or number goes on with one"]))
            return
        listed = self._listed or [row.key for row in known.rows]
        key = chat_commands.resumed(word, known.rows, listed, agent_of(self._session))
        if key is None:
            self._error(f"there is no conversation {word}: /resume lists them, /new {word} begins it")
            return
        await self._switch(key)

    async def _switch(self, session: str) -> None:
        """Move to another conversation; the work of the one before goes on."""
        opened = await self._where.begin(self._client, session)
        async with self._showing:
            self._sits.clear()
            self._answers.forget(NOT_SHOWN)
            self._enter(opened["sessionKey"])
            self._show_turn()
            self._show_queued()
            self._screen.ask(())
            self._screen.children(())
            if self._following is not None:
                self._following.cancel()
        await self._sits.wait()

    # ---- what happens meanwhile

    async def _listen(self) -> None:
        """Follow the events of the conversation, and of another one when the person moves to it."""
        while True:
            following = self._following = asyncio.ensure_future(self._follow(self._session))
            try:
                await asyncio.wait([following])
            finally:
                await end_tasks([following])
            if not following.cancelled():
                following.result()

    async def _follow(self, session: str) -> None:
        async with aclosing(self._client.events(session=session)) as feed:
            async for event in feed:
                await self._hear(event)

    async def _hear(self, event: WireEvent) -> None:
        match event["type"]:
            case "from" if not self._sits.is_set():
                await self._sit_down()
            case "from":
                who = "another one answers" if self._client.is_held else "this one goes on with it"
                self._notice(f"the process that held the folder has left; {who}")
                await self._heal()
            case "closing":
                self._answers.miss()
            case "lost":
                self._answers.miss()
                await self._heal()
            case "approvals":
                await self._show()  # the words before the call that waits
                self._asked.open = tuple(event["open"])
                self._news.add("asked")
            case "run":
                self._hear_run(event)
            case "turn" if event["sessionKey"] == self._channel.streams:
                await self._hear_turn(turn_event(event))
                return
            case "turn" if event["sessionKey"] != self._session:
                self._activity.hear_below(turn_event(event))
        self._changed.set()

    def _hear_run(self, event: WireEvent) -> None:
        if event["endedReason"] is not None and event["requester"] == self._session:
            self._news.add("ends")
        if event["phase"] == "awaiting_approval" or self._asked.has_plan_of(event["sessionKey"]):
            self._news.add("asked")

    async def _heal(self) -> None:
        """Events may have been missed: read the state again."""
        self._news.add("asked")
        await self._show()

    async def _hear_turn(self, event: TurnEvent) -> None:
        kind, text = event.kind, event.text
        if self._is_talked_with:
            self._turn = event.turn
            if event.turn <= self._stopped and kind != "start":
                return
        match kind:
            case "assistant:text" if event.entry >= self._answers.seen:
                self._answers.hear(text)
            case "start" | "model:start" | "tool:start" | "tool:end" | "end":
                if kind == "tool:end":
                    self._screen.say(OutputItem(self._activity.begun_call(event.call), text))
                if event.entry > self._answers.seen:
                    await self._show(event.entry)
                self._answers.reach(event.entry)
                # The turn may have read the end of a subagent: its card stands before the turn's answer.
                await self._tell_news()
            case "retry" | "interrupt":
                self._answers.forget()
            case "error":
                self._answers.forget()
                if text != self._trouble:
                    self._error(one_line(text, ERROR_CHARS))
                self._trouble = text
        if kind in ("assistant:text", "end"):
            self._trouble = ""
        self._activity.hear(event, self._screen.now())
        self._show_turn()
        if kind in ("end", "error"):
            self._changed.set()

    def _show_turn(self) -> None:
        self._screen.turn(self._activity.turn)

    async def _show(self, newest: int | None = None) -> None:
        """Show the new entries of the transcript, up to `newest`. Without it, runs that have ended are shown first: the
        entries may contain the result of a subagent whose end the feed has not reported yet."""
        async with self._showing:
            found = await self._entries(self._channel.streams, self._answers.known)
            if newest is None:
                self._news.add("ends")
                await self._tell_news()
            self._answers.take(found, newest)
            self._show_queued()

    async def _entries(self, session: str, after: int) -> list[HistoryEntry]:
        """The entries of a transcript that follow this one, with whole messages and replies."""
        found: list[HistoryEntry] = []
        while True:
            given = WireObject(session=session, view="entries", after=after, limit=MOST_ENTRIES)
            page = await self._client.value(EntriesPage, "sessions.history", **given)
            found += [await self._whole(session, one) for one in page.entries]
            if not page.newer or page.last <= after:
                return found
            after = page.last

    async def _whole(self, session: str, entry: HistoryEntry) -> HistoryEntry:
        is_cut = isinstance(entry, MessageEntry | ReplyEntry) and entry.size > 0
        if not is_cut and not (isinstance(entry, ReplyEntry) and any(call.size for call in entry.calls)):
            return entry
        kind: Any = HistoryEntry
        whole: HistoryEntry = await self._client.value(kind, "sessions.entry", session=session, seq=entry.seq)
        return whole

    async def _sit_down(self) -> None:
        """Greet, and show the last messages of the sitting before, if there was one."""
        own, bound = await self._open(), await self._open(address=HERE)
        is_asked = self._client.is_held and not self._where.store
        held = " · held by another process, which answers" if is_asked else ""
        name = conversation_name(self._session)
        place = self._where.words if self._session == main_key() else f"{self._where.words} · {name}"
        self._notice(f"fledge {fledge.__version__} · {place}{held} · /help for commands, Ctrl-D to leave")
        await self._restore(own["entry"])
        self._talk_with(bound)
        if not self._is_talked_with:
            self._answers.begin(bound["entry"])
            self._notice(f"messages from here go to {bound['name']}; /unfocus ends that")
        self._ended = {run.run_id for run in await self._runs() if run.ended_at is not None}
        self._completions.conversations = chat_commands.conversations(await self._conversations())
        await self._look()
        self._news.add("asked")
        self._sits.set()

    async def _restore(self, newest: int) -> None:
        """Show the last messages of the sitting before, and all that stood between them, as it looked."""
        after = max(0, newest - LOOK_BACK_ENTRIES)
        entries = await self._entries(self._session, after)
        shown = [one.seq for one in entries if isinstance(one, MessageEntry) and one.kind == "send"][-LOOK_BACK:]
        first = shown[0] if len(shown) == LOOK_BACK else after + 1
        self._answers.begin(first - 1)
        for read in [one for one in entries if isinstance(one, CompletionsEntry) and one.seq >= first]:
            self._answers.take(entries, read.seq)
            given = WireObject(session=self._session, seq=read.seq)
            for card in cards_of(await self._client.value(CompletionsEntry, "sessions.entry", **given)):
                self._screen.say(card)
        self._answers.take(entries)

    async def _story(self, target: str) -> Story:
        return await self._client.value(Story, "runs.info", target=target, requester=self._session)

    async def _runs(self) -> list[RunInfo]:
        return await self._client.value(list[RunInfo], "runs.list", requester=self._session)

    async def _watch(self) -> None:
        """Show ends, plans and questions as they come, and look at the subagents at most once a second."""
        look_at, goes_on = self._screen.now() + LOOK_S, True
        while True:
            await self._sits.wait()
            self._changed.clear()
            await self._tell_news()
            if self._screen.now() >= look_at:
                look_at = self._screen.now() + LOOK_S
                goes_on = await self._look()
                await self._end_open_answer()
            next_s = look_at - self._screen.now() if goes_on else IDLE_S
            goes_on = await wait_for_event(self._changed, next_s) or goes_on

    async def _end_open_answer(self) -> None:
        """If no turn is open any more, nothing continues the words on the screen, whatever the feed has missed."""
        if self._activity.turn is None and self._answers.is_open:
            await self._show()
            if self._activity.turn is None:
                self._answers.forget()

    async def _look(self) -> bool:
        """Show the turn and the subagents at work, and update the completions; False if nothing is at work."""
        session, heard = self._session, self._activity.heard
        below = await self._client.value(Below, "sessions.below", session=session)
        if session != self._session:
            return True
        self._names |= {child.session_key: child.label or "a subagent" for child in below.children}
        now = self._screen.now()
        children = self._activity.look(below, now, heard, is_talked_with=self._is_talked_with)
        self._completions.targets = [(one.word, one.meaning) for one in below.targets]
        self._screen.children(children)
        self._show_turn()
        if below.unanswered and not self._late:
            self._error(f"{below.unanswered}; it is tried again by itself, Esc stops that")
        self._late = below.unanswered
        if below.failing is not None and not self._trouble:
            self._trouble = below.failing.reason
            self._error(one_line(self._trouble, ERROR_CHARS))
        return bool(children) or self._activity.turn is not None

    async def _tell_news(self) -> None:
        """Show ends, plans and questions that were not shown yet, each once. Two calls never overlap: when a call
        returns, everything that either of them found is shown."""
        async with self._telling:
            news, self._news = self._news, set()
            if "ends" in news:
                for run in await self._runs():
                    self._names[run.session_key] = run_name(run)
                    if run.ended_at is not None and run.run_id not in self._ended:
                        self._ended.add(run.run_id)
                        self._screen.say(card_of(await self._story(run.session_key)))
            if "asked" in news:
                await self._look()
                questions = await self._client.value(list[Question], "approvals.list")
                plans = await self._client.value(list[Plan], "plans.list")
                self._asked.questions = [one for one in questions if one.id in self._asked.open]
                self._asked.plans = [one for one in plans if one.session_key in self._names]
                self._screen.ask(self._asked.shown(self._who))


def _with_file(order: slash.Order) -> tuple[WireObject, str]:
    """A message with the image or the file that the person named, and the line that shows the file. BadInput: it cannot
    be read."""
    if order.verb == "image":
        images = read_files([order.target])
        return {"message": order.words or images[0].name, "images": to_builtins(images)}, ""
    [file] = for_wire([order.target.removeprefix("@")])  # the input completes files as `@file`
    shown = attachment_line(file.name, len(b64decode(file.content)))
    return {"message": order.words or file.name, "attachments": to_builtins([file])}, shown
