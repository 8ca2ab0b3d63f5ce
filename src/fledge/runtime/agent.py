"""The durable loop: read the inbox, ask the model, append the reply, run its tools, append the results, repeat.

Every append is a commit fenced by the driver's epoch, so a crash costs at most the step that was under way, and a
driver that was superseded stops by itself. Resuming is reading the transcript: a committed reply is never asked for
again, a call with a result is kept, one that never started is run, one that was started runs again only if it is
repeatable. A step that is called off (queue mode `interrupt`) is left where it stands: its calls are already closed,
and the turn goes on with what came in. Everything this starts is owned by the turn and ends with it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Concatenate, Literal, ParamSpec, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from fledge.cancellation import Leavable
from fledge.core import asking
from fledge.core.access import AsksBecause, tool_name, why_asked
from fledge.core.attachments import text_of
from fledge.core.freeze import to_valid_utf8
from fledge.core.handover import Handover
from fledge.core.heartbeat import is_idle_round, is_silence, spoken
from fledge.core.images import ImageEntry
from fledge.core.permission import Offer, Permission
from fledge.core.policy import Spent, YieldTerms
from fledge.core.prompts import READING_TOOLS, FilesShown, inline_files, not_run
from fledge.core.route import Address
from fledge.core.run import Instant
from fledge.core.transcript import (
    SPAWN,
    YIELD,
    CallEntry,
    Line,
    OpenCall,
    Replied,
    Resulted,
    begun_text,
    files_of,
    follows_cut,
    from_body,
    is_in_doubt,
    last_step,
    open_calls,
)
from fledge.errors import Interrupted, NeedsProgram, Refused, StaleWrite, StoreError, StoreLost
from fledge.models.base import Broke, Call, ModelMessage, Opaque, ReplyEnded, Request, Text, Thought, Usage, UserMessage
from fledge.models.retry import Retrying, RetryTold, close_stream
from fledge.orchestrator import budget, steps, transcripts, turns
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawn_params import NATIVE, names_a_runtime
from fledge.orchestrator.turns import Drive
from fledge.runtime import context
from fledge.runtime.child_files import look_for_handover
from fledge.runtime.feed import Feed, TurnEvent, TurnEventKind
from fledge.runtime.foreign import Foreign, RuntimePlaces, may_be_foreign
from fledge.runtime.profile import Profile, Profiles
from fledge.store.base import Approval, ApprovalState, Entry, OutboxPost, TurnRan, Tx
from fledge.store.entry_files import FileHold
from fledge.tools.base import ToolContext, ToolResult
from fledge.tools.search import SEARCH
from fledge.tools.sessions import yield_terms
from fledge.workspaces.documents import JUDGED, digest

T = TypeVar("T")
P = ParamSpec("P")

GRACE_PAUSE_S = 4.0
"""How soon a model is asked again within the grace of a provisional error."""
DISK_S = 1.0
"""How long a step waits before it tries again to be written."""
UNKNOWN_OUTCOME = ToolResult(
    "interrupted; outcome unknown: it may or may not have taken effect. Look before you repeat it.", is_error=True
)
"""The result of a call that a process died in, if it may not be made again."""


def _model_failed(
    c: Commit, drive: Drive, failure: asking.Failure, patience_s: float, handover: Handover | None
) -> turns.ModelFailed:
    steps.hand_over(c, drive, handover)
    return turns.model_failed(c, drive, failure, patience_s)


def _gave_up(c: Commit, drive: Drive, error: str, handover: Handover | None, reply: Replied) -> None:
    """The model answered, and nothing can be made of it. It is paid for all the same."""
    budget.settle(c, drive.session, reply)
    steps.hand_over(c, drive, handover)
    turns.fail(c, drive, error, "limit")


ApprovalsByCall = Mapping[tuple[int, int], Approval]
"""Questions to a person, by entry and index of the call."""


def _state(call: OpenCall, answers: ApprovalsByCall) -> ApprovalState | None:
    found = answers.get((call.entry, call.index))
    return None if found is None else found.state


NO_CONTEXT = ToolContext(session="", entry=0, index=0, workspace=Path())
"""For tools that take none."""


class _Answer(Struct, frozen=True):
    """A whole reply, and why it ended."""

    reply: Replied
    stop: asking.StopReason
    dropped: str


def _with_cost(reply: Replied, earlier: Replied | None) -> Replied:
    """The reply, charged also for one of which nothing was kept."""
    if earlier is None:
        return reply
    names = dict.fromkeys((*earlier.usage, *reply.usage))
    usage = {name: earlier.usage.get(name, 0) + reply.usage.get(name, 0) for name in names}
    costs = [cost for cost in (earlier.cost_usd, reply.cost_usd) if cost is not None]
    return replace(reply, usage=usage, cost_usd=sum(costs) if costs else None)


class AgentLoop:
    """The performer that thinks. Give it to an engine. `places`: where children of other runtimes do their work."""

    def __init__(self, profiles: Profiles, feed: Feed | None = None, places: RuntimePlaces | None = None) -> None:
        self.profiles = profiles
        self.feed = feed or Feed()
        self.foreign = Foreign(places, self.feed)

    async def drive(self, engine: Engine, drive: Drive) -> None:
        """Drive one turn to its end: by the model, or by the runtime that the child was spawned for. A run that needs
        something of a program that is not here pauses instead."""
        try:
            await self._drive(engine, drive)
        except NeedsProgram as needs:
            reason = needs.reason
            pause_s = await engine.commit(lambda c: turns.needs_program(c, drive, reason))
            self.feed.emit(TurnEvent("retry", drive.session, reason, drive.turn, cause=reason, retry_in_s=pause_s))

    async def _drive(self, engine: Engine, drive: Drive) -> None:
        if may_be_foreign(drive):
            spec = drive.snapshot.spec if drive.snapshot is not None else None
            if spec is None:
                spec = await engine.store.read(lambda tx: tx.runs.spec(drive.session))
            if spec.runtime != NATIVE:
                await self.foreign.drive(engine, drive, spec)
                return
        try:
            profile = await self.profiles.profile(engine, drive)
        except NeedsProgram:
            raise
        except Refused as refused:
            reason = refused.reason
            await engine.commit(lambda c: turns.fail(c, drive, reason))
            self.feed.emit(TurnEvent("error", drive.session, reason, drive.turn))
            return
        if is_idle_round(drive.heartbeat, profile.checklist):
            await engine.commit(lambda c: turns.let_go(c, drive, "nothing to look after"))
            return
        await _Turn(self.feed, engine, drive, profile).run()

    async def remove(self, leaves: tuple[str, ...]) -> None:
        """Remove what a run left outside the database."""
        await self.profiles.remove(leaves)

    async def call(self, post: OutboxPost) -> Address | None:
        """Send one thing from the outbox."""
        return await self.profiles.call(post)


class _Turn:
    """One drive. Holds the transcript as it grows; the store holds the truth."""

    def __init__(self, feed: Feed, engine: Engine, drive: Drive, profile: Profile) -> None:
        self.feed, self.engine, self.drive, self.profile = feed, engine, drive, profile
        self.lines: list[Line] = []
        self.own: set[tuple[int, int]] = set()
        """Calls that this very driver has committed, and so knows not to have been started before."""
        self.step = Leavable()
        """The step under way."""
        self.called_off = False
        """Something was read into the transcript that this driver has not seen."""
        self.ran: TurnRan | None = TurnRan(
            profile.model_name,
            profile.thinking,
            tuple(sorted(profile.tools.names)),
            profile.boxed,
            str(profile.workspace),
        )
        """What this drive runs with, until that is recorded with its first reply."""
        self.handed_over = Handover()
        """What is recorded of it, as far as this drive knows."""
        self.is_at_work = False
        """It is recorded that this drive may write."""
        self.failed_at: Instant | None = None
        """When the step under way first failed."""
        self.is_in_grace = False
        """Its patience is over, and a provisional error is committed."""
        self.wrote: dict[str, str] = {}
        """Digests of documents that it wrote and that are not recorded yet."""
        self.has_compacted = False
        """What was said before was summarised, because somebody wished it."""
        self.file_texts: dict[str, str | None] = {}
        """Texts of small files of messages, by name, where the model has no tool that reads; None of binary ones."""
        self.hold: FileHold | None = None
        """Images of tool results, until the turn is over; None where images are not kept."""

    def tell(self, kind: TurnEventKind, text: str = "", call: str = "", entry: int = 0, arguments: str = "") -> None:
        if self.feed.is_heard:
            told = TurnEvent(kind, self.drive.session, text, self.drive.turn, call, entry=entry, arguments=arguments)
            self.feed.emit(told)

    def tell_retry(self, text: str, cause: str, in_s: float) -> None:
        """The model is asked again, or the store is, after a pause."""
        told = TurnEvent("retry", self.drive.session, text, self.drive.turn, cause=cause, retry_in_s=in_s)
        self.feed.emit(told)

    async def commit(self, act: Callable[Concatenate[Commit, Drive, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Commit a step that has happened: a full disk must not make the model or a tool do it again.

        It is written with the lease that this driver holds now, however late the store comes to it.
        """
        drive = self.drive
        while True:
            try:
                return await self.engine.commit(lambda c: act(c, drive, *args, **kwargs))
            except StoreError as error:
                await self._wait_for_disk(error)

    async def read(self, view: Callable[[Tx], T]) -> T:
        """Look at the store, as soon as it can be looked at."""
        while True:
            try:
                return await self.engine.store.read(view)
            except StoreError as error:
                await self._wait_for_disk(error)

    async def _wait_for_disk(self, error: StoreError) -> None:
        """Wait until the store may be asked again. Raises the error if that would not help."""
        if isinstance(error, StaleWrite | StoreLost):
            raise error
        self.tell_retry(str(error), str(error), DISK_S)
        await self.engine.clock.wait_until(self.engine.clock.now() + DISK_S, asyncio.Event())

    @property
    def last(self) -> int:
        return self.lines[-1].seq if self.lines else 0

    async def run(self) -> None:
        if self.profile.images is None:
            await self._drive()
            return
        with self.profile.images.holding() as self.hold:
            await self._drive()

    async def _drive(self) -> None:
        with self.engine.interruptible(self.drive, self._leave_step):
            known = None if self.drive.snapshot is None else self.drive.snapshot.lines
            if known is None:
                await self._look()
            else:
                self.lines = list(known)
                await asyncio.sleep(0)  # a stop that came while the profile was made is heard before anything is asked
            self.tell("start", entry=self.last)
            while await self._go_on():
                pass

    async def _look(self) -> None:
        """Read the transcript, as far as it is not known, and how many steps were called off by then.

        A driver that was superseded reads nothing: the session may be gone, or another's.
        """
        self.called_off = False
        session, epoch, last = self.drive.session, self.drive.epoch, self.last

        def look(tx: Tx) -> tuple[list[Entry], int]:
            interrupts = tx.drivers.fence(session, epoch).interrupts
            return transcripts.visible(tx, session, last), interrupts

        entries, interrupts = await self.read(look)
        self.lines += [Line(entry.seq, from_body(entry.body)) for entry in entries]
        self.drive = replace(self.drive, interrupts=interrupts)

    async def _go_on(self) -> bool:
        """One step; False if the turn is over. Of one that is called off nothing is left but what was committed."""
        while self.called_off:  # again if more came in while it looked
            self.tell("interrupt")
            await self._look()
        try:
            with self.step:
                return await self._step()
        except Interrupted:
            self.called_off = True
        return True

    def _leave_step(self, times: int) -> None:
        if times <= self.drive.interrupts:
            return  # what was read then is known here: this is another step
        self.called_off = True
        self.step.leave()

    async def _step(self) -> bool:
        calls = open_calls(self.lines)
        return await self._work(calls) if calls else await self._think()

    # ---- thinking

    async def _think(self) -> bool:
        """One model step; False if the turn is over."""
        self.tell("model:start", entry=self.last)
        if self.profile.compacts and not self.has_compacted:
            self.has_compacted = True
            await self._compact(0)
        request = await self._request()
        length = context.length(request.system, request.messages)
        if length > context.COMPACT_AT * self.profile.window:
            await self._compact(self.profile.window)
            request = await self._request()
        answer = await self._ask(request)
        # The provider knows better than our estimate: make room within what we thought would fit.
        if isinstance(answer, Broke) and answer.trouble == "overflow":
            length = context.length(request.system, request.messages)
            if await self._compact(min(self.profile.window, length)):
                request = await self._request()
                answer = await self._ask(request)
        return await self._follow(request, answer)

    async def _follow(self, request: Request, answer: _Answer | Broke | None, earlier: Replied | None = None) -> bool:
        """Do what follows the answer to a request; False if the turn is over. `earlier`: a reply to the same question
        of which nothing could be kept."""
        if answer is None:
            return False
        if isinstance(answer, Broke):
            return await self._fail(answer)
        await self._recover()
        reply = _with_cost(answer.reply, earlier)
        heard = asking.Heard(stop=answer.stop, text=reply.text, calls=len(reply.calls), dropped=answer.dropped)
        limits = (request.max_tokens, self.profile.max_tokens, self.profile.most_tokens)
        match asking.after_reply(heard, follows_cut(self.lines), *limits):
            case asking.Keep(is_cut=is_cut, notice=notice) if reply.calls:
                await self._call(replace(reply, cut=is_cut), notice)
                return True
            case asking.Keep(is_cut=is_cut):
                return await self._finish(replace(reply, cut=is_cut))
            case asking.Continue(words=words):
                return await self._go_on_after(reply, words, "continue")
            case asking.CallAgain(words=words):
                return await self._go_on_after(reply, words, "dropped")
            case asking.AskAgain(max_tokens=limit):
                cause = "only thinking, no words"
                self.tell_retry(f"{cause}; {request.model} is asked again for up to {limit} tokens", cause, 0.0)
                higher = replace(request, max_tokens=limit)
                return await self._follow(higher, await self._ask(higher), reply)
            case asking.GiveUp(error=error):
                await self.commit(_gave_up, error, await self._look_at_handover(finally_=True), reply)
                self.tell("error", error)
                return False
            case follows:
                assert_never(follows)

    async def _finish(self, reply: Replied) -> bool:
        """Commit a reply without calls; False if the turn is over."""
        handover = await self._look_at_handover(finally_=True)
        begun = begun_text(self.lines)
        goes = await self.commit(steps.finish, reply, self.last, self.ran, handover, begun)
        self.ran = None
        return self._goes_on(goes, self._spoken(begun + reply.text))

    async def _go_on_after(self, reply: Replied, words: str, kind: Literal["continue", "dropped"]) -> bool:
        """Commit a reply that the token limit cut, and let the model go on."""
        self.lines += await self.commit(steps.cut, reply, words, kind, self.last, self.ran)
        self.ran = None
        return True

    async def _request(self) -> Request:
        profile = self.profile
        messages = context.messages(self.lines, profile.task_head, await self._files_shown())
        images: Mapping[str, bytes] = {}
        if profile.images is None or not profile.sees:
            messages = context.in_words(messages)
        elif context.images_in(messages):
            messages = context.with_newest_images(messages)
            images = await profile.images.load(context.images_in(messages))
            messages = context.without_lost_images(messages, images)
        return Request(
            model=profile.model_name,
            system=profile.system,
            messages=messages,
            images=images,
            tools=profile.tools.specs(),
            search=SEARCH in profile.tools.hosted,
            thinking=profile.thinking,
            max_tokens=profile.max_tokens,
        )

    async def _files_shown(self) -> FilesShown | None:
        """How the model sees files of messages: by their paths if its tools can read, else small texts whole."""
        messages = [files for line in self.lines if (files := files_of(line.body))]
        kept = self.profile.images
        if not messages or kept is None:
            return None
        if self.profile.tools.names & READING_TOOLS:
            return FilesShown(folder=str(kept.attached_to(self.drive.session)))
        wanted = [file for files in messages for file in inline_files(files) if file.name not in self.file_texts]
        read = await kept.read_attached(self.drive.session, wanted)
        self.file_texts |= {name: text_of(data) for name, data in read.items()}
        return FilesShown(texts=self.file_texts)

    async def _ask(self, request: Request, aloud: bool = True) -> _Answer | Broke | None:
        """The model's whole reply, or its trouble; None if the budget does not allow to ask. `aloud`: its words are for
        whoever watches."""
        if self.profile.is_budgeted:
            estimate = context.length(request.system, request.messages) + request.max_tokens
            reserve = Spent(tokens=estimate, usd=self._price(estimate), turns=1)
            if not await self.commit(steps.open_step, reserve):
                self.tell("error", "budget")
                return None
        return await self._listen(request, aloud)

    def _price(self, tokens: int) -> float:
        return self.profile.cost_usd(self.profile.model_name, Usage(input_tokens=tokens)) or 0.0

    async def _listen(self, request: Request, aloud: bool) -> _Answer | Broke:
        """The whole reply. What was heard of a try that broke is forgotten, by us and by whoever watches."""
        texts: list[str] = []
        thoughts: list[str] = []
        opaque: list[str] = []
        calls: list[Call] = []
        usage = Usage()

        def start_over(retry: RetryTold) -> None:
            self._note_failure()
            for heard in (texts, thoughts, opaque, calls):
                heard.clear()
            cause = retry.broke.message
            self.tell_retry(f"{cause}; {retry.model} is asked in {retry.pause_s:.1f} s", cause, retry.pause_s)

        model = self.profile.model
        stream = model.stream(request, start_over) if isinstance(model, Retrying) else model.stream(request)
        try:
            async for event in stream:
                match event:  # what comes most often first: a case that does not fit costs as much as a call
                    case Text(text=text):
                        texts.append(text)
                        if aloud and not self.drive.heartbeat:
                            self.tell("assistant:text", text)
                    case Thought(text=text):
                        thoughts.append(text)
                    case Call():
                        calls.append(event)
                    case Usage():
                        usage = event
                    case ReplyEnded(stop=stop, model=answered, dropped=dropped):
                        if aloud:
                            self._tell_held("".join(texts), bool(calls))
                        reply = self._reply("".join(texts), thoughts, opaque, calls, usage, answered)
                        self._tell_usage(usage, reply.cost_usd)
                        return _Answer(reply, stop, dropped)
                    case Opaque(data=data):
                        opaque.append(data)
                    case Broke():
                        return event
            return Broke("interrupted", "the model's stream ended without an end")
        finally:
            await close_stream(stream)

    def _tell_usage(self, usage: Usage, cost_usd: float | None) -> None:
        if self.feed.is_heard:
            words = f"{usage.input_tokens} in, {usage.output_tokens} out"
            told = TurnEvent("usage", self.drive.session, words, self.drive.turn, cost_usd=cost_usd)
            self.feed.emit(replace(told, tokens_in=usage.input_tokens, tokens_out=usage.output_tokens))

    def _tell_held(self, text: str, has_calls: bool) -> None:
        """What a heartbeat says is told only when all of it is known: it may mean that there is nothing to hear."""
        if not self.drive.heartbeat or not text:
            return
        if has_calls or not is_silence(text, self.engine.rules.heartbeat.ack_chars):
            self.tell("assistant:text", text if has_calls else self._spoken(text))

    def _spoken(self, text: str) -> str:
        return spoken(text, self.engine.rules.heartbeat.ack_chars) if self.drive.heartbeat else text

    def _reply(
        self, text: str, thoughts: list[str], opaque: list[str], calls: list[Call], usage: Usage, model: str
    ) -> Replied:
        counted = {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cacheRead": usage.cache_read_tokens,
            "cacheWrite": usage.cache_write_tokens,
            "reasoning": usage.reasoning_tokens,
        }
        return Replied(
            text=to_valid_utf8(text),
            calls=tuple([self._entry(call) for call in calls]),
            thinking="".join(thoughts),
            opaque="".join(opaque[-1:]),
            model=model,
            usage={name: count for name, count in counted.items() if count},
            cost_usd=self.profile.cost_usd(model, usage),
        )

    def _entry(self, call: Call) -> CallEntry:
        """A call as it is recorded: what must not be run twice is marked as started before it is."""
        if self._asks_because(call.name, call.arguments) is not None:
            return CallEntry(call.id, call.name, call.arguments, "asked")
        tool = self.profile.tools.get(call.name)
        if tool is None or tool.repeatable:
            return CallEntry(call.id, call.name, call.arguments)
        return CallEntry(call.id, call.name, call.arguments, "started")

    def _asks_because(self, called: str, arguments: str) -> AsksBecause | None:
        """Why a person must be asked about a call; None if nobody must."""
        asks, name = self.profile.asks, tool_name(called)
        if name in asks:
            return "settings"
        # Whoever must be asked before a command must be asked before a program is started in a child's place.
        if "exec" in asks and name == SPAWN and names_a_runtime(arguments):
            return "program"
        tool = self.profile.tools.get(called)
        if tool is None or tool.asks is None or tool.name in self.profile.unasked:
            return None
        return "tool" if tool.needs_person(arguments, self._context()) else None

    def _why_asked(self, calls: Sequence[CallEntry]) -> dict[int, str]:
        """Of calls that ask, by index: why, in words for the person."""
        found: dict[int, str] = {}
        for index, call in enumerate(calls):
            because = self._asks_because(call.name, call.arguments) if call.state == "asked" else None
            if because is not None:
                found[index] = why_asked(tool_name(call.name), because, self._context().boxed)
        return found

    async def _call(self, reply: Replied, notice: str) -> None:
        wait_s = self.profile.approval_s
        tools_s = self._longest(call for call in reply.calls if call.state != "asked")
        in_doubt, works_in = is_in_doubt(self.lines), self._works_in()
        rules, whys = self._rules(reply.calls), self._why_asked(reply.calls)
        self.lines += await self.commit(
            steps.replied, reply, self.last, wait_s, self.ran, tools_s, in_doubt, works_in, notice, rules, whys
        )
        self.ran = None
        entry = last_step(self.lines)[0]
        self.own.update([(entry, index) for index in range(len(reply.calls))])

    def _rules(self, calls: Sequence[CallEntry]) -> dict[int, Permission | Offer]:
        """Of commands that ask, by index: the rule that covers one, or the rule that an *always* would make of it."""
        found: dict[int, Permission | Offer] = {}
        for index, call in enumerate(calls):
            tool = self.profile.tools.get(call.name) if call.state == "asked" else None
            command = "" if tool is None else tool.command(call.arguments)
            rule = self.profile.rule_for(command) if command else None
            if rule is not None:
                found[index] = rule
        return found

    async def _fail(self, broke: Broke) -> bool:
        """No model could answer; False if this driver is done, for now or for good."""
        failure = asking.Failure(
            trouble=broke.trouble,
            message=broke.words,
            first_at=self._note_failure(),
            retry_after_s=broke.retry_after_s,
        )
        handover = await self._look_at_handover(finally_=True)
        failed = await self.commit(_model_failed, failure, self.profile.patience_s, handover)
        if failed.state == "grace":
            self.is_in_grace = True
            self.tell_retry(asking.retry_text(GRACE_PAUSE_S, broke.message, 0.0), broke.message, GRACE_PAUSE_S)
            await self.engine.clock.wait_until(self.engine.clock.now() + GRACE_PAUSE_S, asyncio.Event())
            return True
        if failed.state == "later" and self.drive.run is not None:
            self.tell_retry(asking.retry_text(failed.in_s, broke.message, 0.0), broke.message, failed.in_s)
        else:
            told = TurnEvent("error", self.drive.session, broke.words, self.drive.turn, remedy=broke.remedy)
            self.feed.emit(replace(told, retry_in_s=failed.in_s))
        return False

    def _note_failure(self) -> Instant:
        """When the step under way first failed: now, if it had not."""
        if self.failed_at is None:
            self.failed_at = self.engine.clock.now()
        return self.failed_at

    async def _recover(self) -> None:
        """The model has answered: what went wrong in this step counts no more."""
        self.failed_at = None
        if self.is_in_grace:
            self.is_in_grace = False
            await self.commit(turns.recovered)

    async def _look_at_handover(self, finally_: bool = False) -> Handover | None:
        """What there is to hand over, if that is not yet recorded."""
        found = await look_for_handover(self.profile.handover, finally_)
        if found is None or found == self.handed_over:
            return None
        self.handed_over = found
        return found

    async def _compact(self, window: int) -> bool:
        """Let the model summarise what is old, as a step of its own; False if there is nothing to leave out."""
        cut = context.cut(self.lines, window, await self._files_shown())
        if cut is None:
            return False
        asked: tuple[ModelMessage, ...] = (*cut.old, UserMessage(context.COMPACT_PROMPT))
        request = replace(await self._request(), messages=asked, images={})
        answer = await self._ask(request, aloud=False)
        if not isinstance(answer, _Answer) or answer.stop == "refused" or not answer.reply.text.strip():
            return False
        self.lines += await self.commit(steps.noted, answer.reply, cut.covers, self.last)
        return True

    # ---- working

    async def _work(self, calls: list[OpenCall]) -> bool:
        """Run the calls that may be run, side by side; False if the turn now waits for a person."""
        answers: ApprovalsByCall = {}
        if any(call.call.state == "asked" for call in calls):
            answers = await self.read(lambda tx: steps.answers(tx, self.drive.session, calls))
        waiting = [call for call in calls if _state(call, answers) == "waiting"]
        yields = {call.index: terms for call in calls if (terms := self._yield_terms(call, answers)) is not None}
        if len(yields) == len(calls):  # a yield comes after all other calls of its step
            return await self._yield(calls, yields[calls[-1].index])
        ready = [call for call in calls if call not in waiting and call.index not in yields]
        started = [call for call in ready if _state(call, answers) == "allowed"]
        until_at = self.engine.clock.now() + self._longest(call.call for call in ready)
        if started or any((call.entry, call.index) not in self.own for call in ready):
            works_in = self._works_in()
            await self.commit(lambda c, drive: steps.started(c, drive, started, max(0.0, until_at - c.at), works_in))
        if len(calls) == len(ready) == 1:  # no need for a task of its own
            return await self._append([await self._alone(ready[0], answers)], True, 0.0)
        running = {asyncio.ensure_future(self._run(call, answers)) for call in ready}
        missing, goes_on = len(calls), True
        try:
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                results = sorted((task.result() for task in done), key=lambda result: result.index)
                missing -= len(results)
                goes_on = await self._append(results, missing == 0, until_at if running else 0.0)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        if waiting:
            await self.commit(steps.ask)
            return False
        return goes_on

    def _yield_terms(self, call: OpenCall, answers: ApprovalsByCall) -> YieldTerms | None:
        """What a yield that may be carried out asks for; None of any other call."""
        tool = self.profile.tools.get(call.call.name)
        if tool is None or tool.name != YIELD or _state(call, answers) not in (None, "allowed"):
            return None
        return yield_terms(tool, call.call.arguments)

    async def _yield(self, calls: list[OpenCall], terms: YieldTerms) -> bool:
        """End the turn to wait for children; True if it goes on instead."""
        for call in calls:
            self.tell("tool:start", call.call.name, call.call.id, self.last, call.call.arguments)
        handover = await self._look_at_handover()
        goes = await self.commit(steps.wait, calls, terms, self.last, self._step_end(), handover)
        for call in calls:
            self.tell("tool:end", goes.text, call.call.id)
        return self._goes_on(goes, terms.message)

    def _step_end(self) -> steps.StepEnd:
        _, reply, results = last_step(self.lines)
        return steps.StepEnd(reply, results, self.profile.step_limits)

    def _goes_on(self, goes: steps.StepOutcome, last_words: str) -> bool:
        """Take up what a commit came to; False if the turn is over, which is told."""
        self.lines += goes.lines
        if goes.over:
            self.tell("error" if goes.error else "end", goes.error or last_words, entry=goes.last or self.last)
        return not goes.over

    async def _alone(self, call: OpenCall, answers: ApprovalsByCall) -> Resulted:
        """The result of a call that nothing runs beside. A stop that its tool kept to itself still stops the turn."""
        result = await self._run(call, answers)
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return result

    def _longest(self, calls: Iterable[CallEntry]) -> float:
        """How long the slowest of these calls may take, as far as tools have a limit."""
        longest = 0.0
        for call in calls:
            tool = self.profile.tools.get(call.name)
            if tool is not None and tool.timeout_s is not None:
                longest = max(longest, tool.timeout_s)
        return longest

    async def _append(self, results: list[Resulted], complete: bool, until_at: float) -> bool:
        """Commit results, with the last of a step what follows from it; False if the turn is over."""
        last = self.last
        handover = await self._look_at_handover() if complete else None
        in_doubt = is_in_doubt([*self.lines, *(Line(0, result) for result in results)])
        wrote, self.wrote = self.wrote, {}
        end = self._step_end() if complete else None

        def append(c: Commit, drive: Drive) -> steps.StepOutcome:
            if wrote:
                transcripts.accept_documents(c, self.profile.place, wrote)
            return steps.resulted(c, drive, results, last, end, max(0.0, until_at - c.at), handover, in_doubt)

        return self._goes_on(await self.commit(append), "")

    def _works_in(self) -> str:
        """Where this drive may write, once: that is recorded before its first tool runs."""
        was_at_work, self.is_at_work = self.is_at_work, True
        return "" if was_at_work else self.profile.works_in

    def _note_writing(self, inner: str, data: bytes) -> None:
        if inner in JUDGED:
            self.wrote[inner] = digest(data)

    async def _run(self, call: OpenCall, answers: ApprovalsByCall) -> Resulted:
        name, place = call.call.name, (call.entry, call.index)
        self.tell("tool:start", name, call.call.id, self.last, call.call.arguments)
        result = await self._result(call, answers.get(place))
        unknown = result is UNKNOWN_OUTCOME
        text, images = await self._keep_images(result)
        if self.feed.is_heard:
            told = TurnEvent("tool:end", self.drive.session, text, self.drive.turn, call.call.id)
            self.feed.emit(replace(told, is_error=result.is_error))
        return Resulted(call.entry, call.index, call.call.id, name, text, result.is_error, unknown, images)

    async def _keep_images(self, result: ToolResult) -> tuple[str, tuple[ImageEntry, ...]]:
        """The text of a result, and its images once their files are there."""
        if not result.images or self.hold is None:
            return result.text, ()
        try:
            return result.text, await self.hold.keep(result.images)
        except OSError as error:
            return f"{result.text}\n[its images could not be kept: {error.strerror or error}]", ()

    async def _result(self, call: OpenCall, answer: Approval | None) -> ToolResult:
        state = None if answer is None else answer.state
        if answer is not None and state in ("denied", "expired"):
            return ToolResult(not_run(call.call.name, state == "expired", answer.words), is_error=True)
        profile = self.profile
        tool = profile.tools.get(call.call.name)
        if tool is None:
            return profile.tools.unknown(call.call.name)
        begun = state == "started" or (call.call.state == "started" and (call.entry, call.index) not in self.own)
        if begun and not tool.repeatable:
            return UNKNOWN_OUTCOME
        by_person = answer is not None and state == "allowed" and not answer.by_rule
        context = self._context(call.entry, call.index, approved=by_person) if tool.takes_context else NO_CONTEXT
        return await tool.call(call.call.arguments, context)

    def _attached(self) -> tuple[Path, ...]:
        """The folder for files of its messages. It may be read before it is there: a file may come during the turn."""
        kept = self.profile.images
        return () if kept is None else (kept.attached_to(self.drive.session),)

    def _context(self, entry: int = 0, index: int = 0, approved: bool = False) -> ToolContext:
        """Where and for whom a tool runs; the call itself is named where it is known."""
        profile = self.profile
        return ToolContext(
            session=self.drive.session,
            entry=entry,
            index=index,
            workspace=profile.workspace,
            cwd=profile.cwd,
            readable=(*profile.readable, *self._attached()),
            protected=profile.protected,
            approved=approved,
            wrote=self._note_writing if profile.accepts else None,
            env=profile.env,
            tools=profile.tools.names,
            boxed=profile.boxed,
            offline=profile.offline,
            generations=self.drive.generations,
            epoch=self.drive.epoch,
            interrupts=self.drive.interrupts,
        )
