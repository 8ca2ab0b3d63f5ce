"""The durable loop: read the inbox, ask the model, append the reply, run its tools, append the results, repeat.

Every append is a commit fenced by the driver's epoch, so a crash costs at most the step that was under way, and a
superseded driver stops by itself. A turn resumes from its transcript: a committed reply is not requested again, a call
with a result is kept, a call that never started is run, and a call that started runs again only if it is repeatable. An
interrupted step (queue mode `interrupt`) stays as it is: its calls are closed, and the turn goes on with the new
messages. Every task belongs to its turn and ends with it.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import astuple, replace

from fledge.cancellation import Leavable, end_tasks
from fledge.clock import pause
from fledge.core import asking
from fledge.core.access import AsksBecause, tool_name, why_asked
from fledge.core.attachments import FileEntry, text_of
from fledge.core.diff import replaced
from fledge.core.file_change import Replaced
from fledge.core.freeze import to_valid_utf8
from fledge.core.handover import Handover
from fledge.core.heartbeat import is_idle_round, is_silence, spoken
from fledge.core.images import ImageEntry
from fledge.core.live import OpenReply
from fledge.core.permission import Offer, Permission
from fledge.core.policy import Spent, YieldTerms
from fledge.core.prompts import READING_TOOLS, FilesShown, inline_files, not_run
from fledge.core.redact import error_words
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
    is_in_doubt,
    kept_arguments,
    last_step,
    open_calls,
    why_left_out,
)
from fledge.errors import Interrupted, NeedsProgram, StoreError
from fledge.models.base import (
    Broke,
    Call,
    ModelEvent,
    ModelMessage,
    Opaque,
    ReplyEnded,
    Request,
    Text,
    Thought,
    Usage,
    UserMessage,
)
from fledge.models.retry import NO_END, Retrying, RetryTold, close_stream
from fledge.orchestrator import budget, steps, transcripts, turns
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.spawn_params import NATIVE, names_a_runtime
from fledge.orchestrator.turns import Drive
from fledge.runtime import context
from fledge.runtime.child_files import look_for_handover
from fledge.runtime.feed import Feed, TurnEvent, TurnEventKind
from fledge.runtime.foreign import drive_foreign
from fledge.runtime.profile import Profile, Profiles
from fledge.store.base import Approval, ApprovalState, TurnRan, Tx
from fledge.tools.base import Replacement, ToolContext, ToolResult
from fledge.tools.search import SEARCH
from fledge.tools.sessions import yield_terms
from fledge.workspaces.documents import JUDGED, digest

T = TypeVar("T")
P = ParamSpec("P")

GRACE_PAUSE_S = 4.0
"""Pause before the next request to the model, within the grace period of a provisional error."""
UNKNOWN_OUTCOME = ToolResult(
    "interrupted; outcome unknown: it may or may not have taken effect. Look before you repeat it.", is_error=True
)
"""The result of a call during which the process died, if the call is not repeatable."""


def _model_failed(c: Commit, drive: Drive, failure: asking.Failure, handover: Handover | None) -> turns.ModelFailed:
    steps.hand_over(c, drive, handover)
    return turns.model_failed(c, drive, failure)


def _gave_up(c: Commit, drive: Drive, error: str, handover: Handover | None, reply: Replied) -> None:
    """End the turn after a reply that cannot be used. Its cost is charged."""
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


def _with_cost(reply: Replied, earlier: Replied) -> Replied:
    """The reply, with the cost of an earlier one that was discarded added to it."""
    usage = Counter(earlier.usage) + Counter(reply.usage)
    costs = [cost for cost in (earlier.cost_usd, reply.cost_usd) if cost is not None]
    return replace(reply, usage=dict(usage), cost_usd=sum(costs) if costs else None)


def _check_cancelled() -> None:
    """Raise `CancelledError` if this task was cancelled and a tool that it ran swallowed that."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class AgentLoop:
    """Runs turns for an engine."""

    def __init__(self, profiles: Profiles, feed: Feed | None = None) -> None:
        self.profiles = profiles
        self.feed = feed or Feed()
        self.remove, self.call = profiles.remove, profiles.call

    async def drive(self, engine: Engine, drive: Drive) -> None:
        """Run one turn to its end, with the model or with the child's runtime. A run pauses if it needs a function or
        runtime of a program that this process does not have. Raises `Refused` if the turn cannot begin."""
        spec = drive.snapshot.spec
        try:
            if spec is not None and spec.needs:
                self.profiles.check_needs(spec)
        except NeedsProgram as needs:
            reason = needs.reason
            pause_s = await engine.until_it_works(lambda: engine.commit(turns.needs_program, drive, reason))
            self.feed.emit(TurnEvent("retry", drive.session, reason, drive.turn, cause=reason, retry_in_s=pause_s))
            return
        if spec is not None and spec.runtime != NATIVE:
            await drive_foreign(self.profiles, self.feed, engine, drive, spec)
            return
        profile = await self.profiles.profile(engine, drive)
        if is_idle_round(drive.heartbeat, profile.checklist):
            await engine.until_it_works(lambda: engine.commit(turns.let_go, drive))
            return
        await _Turn(self.feed, engine, drive, profile).run()

    def failed(self, drive: Drive, error: str, retry_in_s: float) -> None:
        """Tell listeners that a driver has failed."""
        self.feed.emit(TurnEvent("error", drive.session, error, drive.turn, retry_in_s=retry_in_s))


class _Turn:
    """One turn in one driver. `lines` is a copy of the transcript; the rows in the store are authoritative."""

    def __init__(self, feed: Feed, engine: Engine, drive: Drive, profile: Profile) -> None:
        self.feed, self.engine, self.drive, self.profile = feed, engine, drive, profile
        self.lines: list[Line] = []
        self.own: set[tuple[int, int]] = set()
        """Calls that this driver has committed. No earlier driver can have started them."""
        self.step = Leavable()
        """The current step."""
        self.called_off = False
        """The transcript has new entries that this driver has not read."""
        self.ran: TurnRan | None = TurnRan(
            profile.model_name,
            profile.thinking,
            profile.tools.sorted_names,
            profile.boxed,
            str(profile.workspace),
        )
        """Model, tools and folder of this turn; None once they are stored, with the first reply."""
        self.handed_over = Handover()
        """The handover as it was last stored by this driver."""
        self.is_at_work = False
        """True once the store knows where this turn can write."""
        self.said: OpenReply | None = None
        """The newest reply that listeners hear while it comes."""
        self.failed_at: Instant | None = None
        """When the current step first failed."""
        self.is_in_grace = False
        """The model's time to recover is over, and a provisional error is stored."""
        self.wrote: dict[str, str] = {}
        """Digests of documents that this turn wrote and has not stored yet."""
        self.has_compacted = False
        """The transcript was summarised on request (`/compact`)."""
        self.file_texts: dict[str, str | None] = {}
        """Texts of small attached files by name, for models without a reading tool; None for a binary file."""
        self.hold = profile.images.holding()
        """Keeps the image files of tool results until the turn ends."""

    def tell(
        self,
        kind: TurnEventKind,
        text: str = "",
        call: str = "",
        entry: int = 0,
        arguments: str = "",
        remedy: str = "",
        retry_in_s: float = 0.0,
        cause: str = "",
        is_error: bool = False,
        may_pass: bool = False,
        offset: int = 0,
    ) -> None:
        if self.feed.is_heard:
            event = TurnEvent(
                kind,
                self.drive.session,
                text,
                self.drive.turn,
                call,
                entry=entry,
                arguments=arguments,
                remedy=remedy,
                retry_in_s=retry_in_s,
                cause=cause,
                is_error=is_error,
                may_pass=may_pass,
                offset=offset,
            )
            self.feed.emit(event)

    async def commit(self, act: Callable[Concatenate[Commit, Drive, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Commit a step that has happened. Retries while the disk is full, so that no model call or tool is repeated.

        The commit uses the lease that this driver holds now, also if it is retried.
        """
        engine, drive = self.engine, self.drive
        return await engine.until_it_works(lambda: engine.commit(act, drive, *args, **kwargs), self._tell_store_error)

    async def read(self, view: Callable[[Tx], T]) -> T:
        """Read from the store. Retries while the store cannot be read."""
        return await self.engine.until_it_works(lambda: self.engine.store.read(view), self._tell_store_error)

    def _tell_store_error(self, error: StoreError, pause_s: float) -> None:
        self.tell("retry", str(error), retry_in_s=pause_s)

    def last(self) -> int:
        """The number of the newest entry. Often asked for, so no property: those cost more than a call."""
        return self.lines[-1].seq if self.lines else 0

    async def run(self) -> None:
        """Run the turn to its end."""
        with self.hold, self.engine.interruptible(self.drive, self._leave_step):
            known = self.drive.snapshot.lines
            if known is None:
                await self._look()
            else:
                self.lines = list(known)
                await asyncio.sleep(0)  # a cancellation during `profile` takes effect before the first model call
            self.tell("start", entry=self.last())
            while await self._go_on():
                pass

    async def _look(self) -> None:
        """Read the new entries of the transcript, and the number of interrupts so far.

        Raises for a superseded driver: its session may be gone, or driven by another.
        """
        self.called_off = False
        session, epoch, last = self.drive.session, self.drive.epoch, self.last()

        def look(tx: Tx) -> tuple[list[Line], int]:
            interrupts = tx.drivers.fence(session, epoch).interrupts
            return transcripts.lines(tx, session, last), interrupts

        lines, interrupts = await self.read(look)
        self.lines += lines
        self.drive = replace(self.drive, interrupts=interrupts)

    async def _go_on(self) -> bool:
        """Run one step; False if the turn is over. An interrupted step leaves only what it has committed."""
        while self.called_off:  # another interrupt may come during `_look`
            self.tell("interrupt")
            await self._look()
        try:
            with self.step:
                calls = open_calls(self.lines)
                return await self._work(calls) if calls else await self._think()
        except Interrupted:
            self.called_off = True
        return True

    def _leave_step(self, times: int) -> None:
        if times <= self.drive.interrupts:
            return  # this driver has already read the messages of that interrupt
        self.called_off = True
        self.step.leave()

    # ---- thinking

    async def _think(self) -> bool:
        """Run one model step; False if the turn is over."""
        self.tell("model:start", entry=self.last())
        try:
            return await self._step()
        finally:
            self.feed.open.end(self.said)  # it is committed, or given up

    async def _step(self) -> bool:
        if self.profile.compacts and not self.has_compacted:
            self.has_compacted = True
            await self._compact(0)
        request = await self._request()
        length = context.length(request.system, request.messages)
        if length > context.COMPACT_AT * self.profile.window:
            await self._compact(self.profile.window)
            request = await self._request()
        answer = await self._ask(request)
        # The provider's count is exact, ours is an estimate: shrink the context below the estimate.
        if type(answer) is Broke and answer.trouble == "overflow":
            length = context.length(request.system, request.messages)
            if await self._compact(min(self.profile.window, length)):
                request = await self._request()
                answer = await self._ask(request)
        return await self._follow(request, answer)

    async def _follow(self, request: Request, answer: _Answer | Broke | None, earlier: Replied | None = None) -> bool:
        """Handle the answer to a request; False if the turn is over. `earlier`: a discarded reply to the same request,
        whose cost is added."""
        if answer is None:
            return False
        if not isinstance(answer, _Answer):
            return await self._fail(answer)
        self.failed_at = None
        if self.is_in_grace:
            # The model has answered within the grace period: clear the provisional error.
            self.is_in_grace = False
            await self.commit(turns.recovered)
        reply = answer.reply if earlier is None else _with_cost(answer.reply, earlier)
        heard = asking.Heard(stop=answer.stop, text=reply.text, calls=len(reply.calls), dropped=answer.dropped)
        limits = (request.max_tokens, self.profile.max_tokens, self.profile.most_tokens)
        match asking.after_reply(heard, follows_cut(self.lines), *limits):
            case asking.Keep(is_cut=is_cut, notice=notice) if reply.calls:
                await self._call(replace(reply, cut=True) if is_cut else reply, notice)
                return True
            case asking.Keep(is_cut=is_cut):
                return await self._finish(replace(reply, cut=True) if is_cut else reply)
            case asking.GoOn(words=words, kind=kind):
                self.lines += await self.commit(steps.cut, reply, words, kind, self.last(), self.ran)
                self.ran = None
                return True
            case asking.AskAgain(max_tokens=limit):
                cause = "only thinking, no words"
                self.tell("retry", f"{cause}; {request.model} is asked again for up to {limit} tokens", cause=cause)
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
        goes = await self.commit(steps.finish, reply, self.last(), self.ran, handover, begun)
        self.ran = None
        return self._goes_on(goes, self._spoken(begun + reply.text))

    async def _request(self) -> Request:
        profile = self.profile
        files = self._attached_files()
        messages = context.messages(self.lines, profile.task_head, await self._files_shown(files) if files else None)
        images: Mapping[str, bytes] = {}
        if not profile.sees:
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
            tools=profile.tools.specs,
            search=SEARCH in profile.tools.hosted,
            thinking=profile.thinking,
            max_tokens=profile.max_tokens,
        )

    def _attached_files(self) -> list[tuple[FileEntry, ...]]:
        """The files of each message that has some."""
        return [files for line in self.lines if (files := files_of(line.body))]

    async def _files_shown(self, messages: list[tuple[FileEntry, ...]]) -> FilesShown:
        """How attached files are shown to the model: as paths if it has a reading tool, else small texts whole."""
        kept = self.profile.images
        if self.profile.tools.names & READING_TOOLS:
            return FilesShown(folder=str(kept.attached_to(self.drive.session)))
        wanted = [file for files in messages for file in inline_files(files) if file.name not in self.file_texts]
        read = await kept.read_attached(self.drive.session, wanted)
        self.file_texts |= {name: text_of(data) for name, data in read.items()}
        return FilesShown(texts=self.file_texts)

    async def _ask(self, request: Request, aloud: bool = True) -> _Answer | Broke | None:
        """The model's reply or its error; None if the budget does not allow the request. `aloud`: emit the text."""
        if self.profile.is_budgeted:
            estimate = context.length(request.system, request.messages) + request.max_tokens
            usd = self.profile.cost_usd(self.profile.model_name, Usage(input_tokens=estimate)) or 0.0
            reserve = Spent(tokens=estimate, usd=usd, turns=1)
            if not await self.commit(steps.open_step, reserve):
                self.tell("error", "budget")
                return None
        return await self._listen(request, aloud)

    async def _listen(self, request: Request, aloud: bool) -> _Answer | Broke:
        """The complete reply. Pieces of a failed try are discarded, and a `retry` event says so."""
        model = self.profile.model
        if not isinstance(model, Retrying):
            return await self._hear(model.stream(request), aloud)
        tries = model.tries(request)
        while True:
            heard = await self._hear(tries.stream(), aloud)
            if isinstance(heard, _Answer):
                return heard
            broke = await tries.after(heard, self._start_over)
            if broke is not None:
                return broke

    def _start_over(self, retry: RetryTold) -> None:
        """The model broke and is asked again."""
        self.feed.open.end(self.said)
        self._note_failure()
        cause = retry.broke.message
        words = f"{cause}; {retry.model} is asked in {retry.pause_s:.1f} s"
        self.tell("retry", words, cause=cause, retry_in_s=retry.pause_s)

    async def _hear(self, stream: AsyncIterator[ModelEvent], aloud: bool) -> _Answer | Broke:
        """The reply that this stream brings, or why it brings none. While it comes, and until `_think` has ended,
        listeners that come get its text so far."""
        is_shown = aloud and not self.drive.heartbeat
        said = OpenReply(self.drive.session, self.drive.turn, self.last())
        if is_shown:
            self.feed.open.begin(said)
            self.said = said
        thoughts: list[str] = []
        opaque: list[str] = []
        calls: list[Call] = []
        usage = Usage()
        try:
            async for event in stream:
                # By type: `isinstance` of a struct that does not fit takes as long as a call.
                if type(event) is Text:
                    if is_shown:
                        self.tell("assistant:text", event.text, entry=said.entry, offset=said.ends_at)
                    said.add(event.text)
                elif type(event) is Thought:
                    thoughts.append(event.text)
                elif type(event) is Call:
                    calls.append(event)
                elif type(event) is Usage:
                    usage = event
                elif type(event) is ReplyEnded:
                    text = "".join(said.texts)
                    if aloud and self.drive.heartbeat:
                        self._tell_held(text, bool(calls))
                    reply = self._reply(text, thoughts, opaque, calls, usage, event.model)
                    self._tell_usage(usage, reply.cost_usd)
                    return _Answer(reply, event.stop, event.dropped)
                elif type(event) is Opaque:
                    opaque.append(event.data)
                elif type(event) is Broke:
                    return event
            return NO_END
        finally:
            await close_stream(stream)

    def _tell_usage(self, usage: Usage, cost_usd: float | None) -> None:
        if self.feed.is_heard:
            words = f"{usage.input_tokens} in, {usage.output_tokens} out"
            event = TurnEvent(
                "usage",
                self.drive.session,
                words,
                self.drive.turn,
                tokens_in=usage.input_tokens,
                tokens_out=usage.output_tokens,
                cost_usd=cost_usd,
            )
            self.feed.emit(event)

    def _tell_held(self, text: str, has_calls: bool) -> None:
        """Emit the text of a heartbeat reply, once it is complete: it may be the word for silence."""
        if text and (has_calls or not is_silence(text, self.engine.rules.heartbeat.ack_chars)):
            self.tell("assistant:text", text if has_calls else self._spoken(text), entry=self.last())

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
        """A call as it is stored. A call that is not repeatable is stored as started before it runs."""
        kept = kept_arguments(tool_name(call.name), call.arguments)
        if kept != call.arguments:
            return CallEntry(call.id, call.name, kept)
        if self._asks_because(call.name, call.arguments) is not None:
            return CallEntry(call.id, call.name, call.arguments, "asked")
        tool = self.profile.tools.get(call.name)
        if tool is None or tool.repeatable:
            return CallEntry(call.id, call.name, call.arguments)
        return CallEntry(call.id, call.name, call.arguments, "started")

    def _asks_because(self, called: str, arguments: str) -> AsksBecause | None:
        """Why a call needs a person's approval; None if it needs none."""
        asks, name = self.profile.asks, tool_name(called)
        if name in asks:
            return "settings"
        # A child in another runtime is a program that is started: it needs the approval that a command needs.
        if "exec" in asks and name == SPAWN and names_a_runtime(arguments):
            return "program"
        tool = self.profile.tools.get(called)
        if tool is None or tool.asks is None or tool.name in self.profile.unasked:
            return None
        return "tool" if tool.needs_person(arguments, self._context()) else None

    async def _call(self, reply: Replied, notice: str) -> None:
        wait_s = self.profile.approval_s
        tools_s = self._longest([call for call in reply.calls if call.state != "asked"])
        in_doubt, works_in = is_in_doubt(self.lines), self._works_in()
        rules, whys = self._questions(reply.calls)
        reply = replace(reply, calls=await self._with_changes(reply.calls)) if whys else reply
        self.lines += await self.commit(
            steps.replied, reply, self.last(), wait_s, self.ran, tools_s, in_doubt, works_in, notice, rules, whys
        )
        self.ran = None
        entry = last_step(self.lines)[0]
        self.own.update([(entry, index) for index in range(len(reply.calls))])

    async def _with_changes(self, calls: Sequence[CallEntry]) -> tuple[CallEntry, ...]:
        """The calls; those about which a person is asked, with the change that each would make in a file."""
        changed: list[CallEntry] = []
        for call in calls:
            tool = self.profile.tools.get(call.name)
            if call.state == "asked" and tool is not None and tool.changes is not None:
                call = replace(call, change=await asyncio.to_thread(tool.change, call.arguments, self._context()))
            changed.append(call)
        return tuple(changed)

    def _questions(self, calls: Sequence[CallEntry]) -> tuple[dict[int, Permission | Offer], dict[int, str]]:
        """Of the calls that need approval, by index: for commands, the rule that covers it, or the rule that *always*
        would add; for each, the reason, in words for the person."""
        rules: dict[int, Permission | Offer] = {}
        whys: dict[int, str] = {}
        for index, call in enumerate(calls):
            if call.state != "asked":
                continue
            because = self._asks_because(call.name, call.arguments)
            if because is not None:
                whys[index] = why_asked(tool_name(call.name), because, self.profile.boxed)
            tool = self.profile.tools.get(call.name)
            command = "" if tool is None else tool.command(call.arguments)
            rule = self.profile.rule_for(command) if command else None
            if rule is not None:
                rules[index] = rule
        return rules, whys

    async def _fail(self, broke: Broke) -> bool:
        """Handle a model error that retries did not solve; False if this driver stops."""
        failure = asking.Failure(
            trouble=broke.trouble,
            message=broke.words,
            first_at=self._note_failure(),
            retry_after_s=broke.retry_after_s,
        )
        handover = await self._look_at_handover(finally_=True)
        failed = await self.commit(_model_failed, failure, handover)
        if failed.state == "grace":
            self.is_in_grace = True
            words = asking.retry_text(GRACE_PAUSE_S, broke.message, 0.0)
            self.tell("retry", words, cause=broke.message, retry_in_s=GRACE_PAUSE_S)
            await pause(self.engine.clock, GRACE_PAUSE_S)
            return True
        if failed.state == "later" and self.drive.run is not None:
            words = asking.retry_text(failed.in_s, broke.message, 0.0)
            self.tell("retry", words, cause=broke.message, retry_in_s=failed.in_s)
        else:
            self.tell(
                "error",
                broke.words,
                remedy=broke.remedy,
                retry_in_s=failed.in_s,
                cause=broke.message,
                may_pass=failure.may_pass,
            )
        return False

    def _note_failure(self) -> Instant:
        """Note a failure; return the time of the step's first one."""
        if self.failed_at is None:
            self.failed_at = self.engine.clock.now()
        return self.failed_at

    async def _look_at_handover(self, finally_: bool = False) -> Handover | None:
        """The current handover; None if it is stored already."""
        found = await look_for_handover(self.profile.handover, finally_)
        if found is None or found == self.handed_over:
            return None
        self.handed_over = found
        return found

    async def _compact(self, window: int) -> bool:
        """Replace old entries by a summary, in a model step of its own; False if nothing was replaced."""
        files = self._attached_files()
        cut = context.cut(self.lines, window, await self._files_shown(files) if files else None)
        if cut is None:
            return False
        asked: tuple[ModelMessage, ...] = (*cut.old, UserMessage(context.COMPACT_PROMPT))
        request = replace(await self._request(), messages=asked, images={})
        answer = await self._ask(request, aloud=False)
        if not isinstance(answer, _Answer) or answer.stop == "refused" or not answer.reply.text.strip():
            return False
        self.lines += await self.commit(steps.noted, answer.reply, cut.covers, self.last())
        return True

    # ---- working

    async def _work(self, calls: list[OpenCall]) -> bool:
        """Run the calls that need no approval any more, concurrently; False if the turn now waits for a person."""
        answers: ApprovalsByCall = {}
        if "asked" in [call.call.state for call in calls]:
            answers = await self.read(lambda tx: steps.answers(tx, self.drive.session, calls))
        ready, yields, is_asking = self._sorted_out(calls, answers)
        if len(yields) == len(calls):  # a yield comes after all other calls of its step
            return await self._yield(calls, yields[-1])
        until_at = self.engine.clock.now() + self._longest([call.call for call in ready])
        allowed = [call for call in ready if _state(call, answers) == "allowed"] if answers else []
        if allowed or not self.own.issuperset([(call.entry, call.index) for call in ready]):
            await self.commit(steps.started, allowed, until_at, self._works_in())
        if len(calls) == len(ready) == 1:  # a single call needs no task
            result = await self._run(ready[0], answers)
            _check_cancelled()
            return await self._append([result], True, 0.0)
        goes_on = await self._run_all(ready, answers, len(calls), until_at)
        if is_asking:
            await self.commit(steps.ask)
            return False
        return goes_on

    def _sorted_out(
        self, calls: list[OpenCall], answers: ApprovalsByCall
    ) -> tuple[list[OpenCall], list[YieldTerms], bool]:
        """The calls that run now, the terms of yields, and whether a person is still asked about a call."""
        ready: list[OpenCall] = []
        yields: list[YieldTerms] = []
        is_asking = False
        for call in calls:
            terms = self._yield_terms(call, answers)
            if terms is not None:
                yields.append(terms)
            elif _state(call, answers) == "waiting":
                is_asking = True
            else:
                ready.append(call)
        return ready, yields, is_asking

    async def _run_all(self, ready: list[OpenCall], answers: ApprovalsByCall, missing: int, until_at: Instant) -> bool:
        """Run calls concurrently and commit each result as it comes; False if the turn is over. `missing`: how many
        results the step still lacks."""
        running = {asyncio.ensure_future(self._run(call, answers)) for call in ready}
        goes_on = True
        try:
            while running:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                results = sorted((task.result() for task in done), key=lambda result: result.index)
                missing -= len(results)
                goes_on = await self._append(results, missing == 0, until_at if running else 0.0)
        finally:
            await end_tasks(running)
        return goes_on

    def _yield_terms(self, call: OpenCall, answers: ApprovalsByCall) -> YieldTerms | None:
        """The terms of a yield that may run; None for any other call."""
        tool = self.profile.tools.get(call.call.name)
        if tool is None or tool.name != YIELD or _state(call, answers) not in (None, "allowed"):
            return None
        return yield_terms(tool, call.call.arguments)

    async def _yield(self, calls: list[OpenCall], terms: YieldTerms) -> bool:
        """End the turn to wait for children; True if it goes on instead."""
        for call in calls:
            self.tell("tool:start", call.call.name, call.call.id, self.last(), call.call.arguments)
        handover = await self._look_at_handover()
        goes = await self.commit(steps.wait, calls, terms, self.last(), self._step_end(), handover)
        for call in calls:
            self.tell("tool:end", goes.text, call.call.id)
        return self._goes_on(goes, terms.message)

    def _step_end(self) -> steps.StepEnd:
        _, reply, results = last_step(self.lines)
        return steps.StepEnd(reply, results, self.profile.step_limits)

    def _goes_on(self, goes: steps.StepOutcome, last_words: str) -> bool:
        """Add the lines of a commit; False if the turn is over, with an event that says so."""
        self.lines += goes.lines
        if goes.over:
            self.tell("error" if goes.error else "end", goes.error or last_words, entry=goes.last or self.last())
        return not goes.over

    def _longest(self, calls: Iterable[CallEntry]) -> float:
        """The longest timeout among the tools of these calls; 0 if none has one."""
        longest = 0.0
        for call in calls:
            tool = self.profile.tools.get(call.name)
            if tool is not None and tool.timeout_s is not None:
                longest = max(longest, tool.timeout_s)
        return longest

    async def _append(self, results: list[Resulted], complete: bool, until_at: Instant) -> bool:
        """Commit results; with the last result of a step, also end the step. False if the turn is over."""
        handover = await self._look_at_handover() if complete else None
        in_doubt = is_in_doubt([*self.lines, *[Line(0, result) for result in results]])
        end = self._step_end() if complete else None
        wrote = steps.Wrote(self.profile.place, self.wrote) if self.wrote else None
        self.wrote = {}
        goes = await self.commit(steps.resulted, results, self.last(), end, until_at, handover, in_doubt, wrote)
        stored = {one.body.index: one.seq for one in goes.lines if isinstance(one.body, Resulted)}
        for result in results:
            entry = stored.get(result.index, 0)
            self.tell("tool:end", result.text, result.call_id, entry, is_error=result.is_error)
        return self._goes_on(goes, "")

    def _works_in(self) -> str:
        """Where this turn can write, at the first call; empty afterwards. It is stored before the first tool runs."""
        was_at_work, self.is_at_work = self.is_at_work, True
        return "" if was_at_work else self.profile.works_in

    def _note_writing(self, inner: str, data: bytes) -> None:
        if inner in JUDGED:
            self.wrote[inner] = digest(data)

    async def _run(self, call: OpenCall, answers: ApprovalsByCall) -> Resulted:
        name, place = call.call.name, (call.entry, call.index)
        self.tell("tool:start", name, call.call.id, self.last(), call.call.arguments)
        replacements: list[Replacement] = []
        result = await self._result(call, answers.get(place), replacements.append)
        unknown = result is UNKNOWN_OUTCOME
        text, images = await self._keep_images(result) if result.images else (result.text, ())
        kept = await self._keep_content(replacements[-1]) if replacements else None
        return Resulted(call.entry, call.index, call.call.id, name, text, result.is_error, unknown, images, kept)

    async def _keep_content(self, replacement: Replacement) -> Replaced:
        """The record of a replaced file; its content is kept first, if it can be."""
        record, content = await asyncio.to_thread(replaced, *astuple(replacement))
        if content is not None:
            with suppress(OSError):  # the call is done: its result counts without the content, too
                record = replace(record, kept=await self.hold.keep_content(content))
        return record

    async def _keep_images(self, result: ToolResult) -> tuple[str, tuple[ImageEntry, ...]]:
        """The text of a result, and its images, whose files are written first."""
        try:
            return result.text, await self.hold.keep(result.images)
        except OSError as error:
            return f"{result.text}\n[its images could not be kept: {error.strerror or error_words(error)}]", ()

    async def _result(
        self, call: OpenCall, answer: Approval | None, note_replaced: Callable[[Replacement], None]
    ) -> ToolResult:
        state = None if answer is None else answer.state
        if answer is not None and state in ("denied", "expired"):
            return ToolResult(not_run(call.call.name, state == "expired", answer.words), is_error=True)
        profile = self.profile
        if told := why_left_out(call.call.arguments):
            return ToolResult(told, is_error=True)
        tool = profile.tools.get(call.call.name)
        if tool is None:
            return profile.tools.unknown(call.call.name)
        begun = state == "started" or (call.call.state == "started" and (call.entry, call.index) not in self.own)
        if begun and not tool.repeatable:
            return UNKNOWN_OUTCOME
        by_person = answer is not None and state == "allowed" and not answer.by_rule
        if not tool.takes_context:
            return await tool.call(call.call.arguments, NO_CONTEXT)
        context = self._context(call.entry, call.index, approved=by_person)
        if tool.changes is not None:
            agreed = call.call.change.digest if by_person and call.call.change is not None else ""
            context = replace(context, replaced=note_replaced, agreed=agreed)
        return await tool.call(call.call.arguments, context)

    def _context(self, entry: int = 0, index: int = 0, approved: bool = False) -> ToolContext:
        """The context of a tool call; without an entry, the context that all calls of the turn share."""
        profile = self.profile
        return ToolContext(
            session=self.drive.session,
            entry=entry,
            index=index,
            workspace=profile.workspace,
            cwd=profile.cwd,
            # The folder of attached files is readable before it exists: a file may arrive during the turn.
            readable=(*profile.readable, profile.images.attached_to(self.drive.session)),
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
