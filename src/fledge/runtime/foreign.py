"""Runs the turns of children in foreign runtimes, with the same commits that our own loop makes.

The work is stored in the transcript as a started call. After a crash, repeatable work is done again, and other work
ends with an error that says so. An error of a runtime is provisional for a grace period; a result that comes after the
outcome was fixed is recorded as late. This file does not know how any runtime works.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from msgspec import Struct

from fledge.cancellation import describe, is_stop, trace
from fledge.clock import pause
from fledge.core.freeze import one_line, to_valid_utf8
from fledge.core.handover import Handover, HandoverLook
from fledge.core.live import OpenReply
from fledge.core.reconcile import GRACE_S
from fledge.core.redact import error_words
from fledge.core.transcript import CallEntry, Line, Replied, Spoken, open_calls
from fledge.egress import Environment
from fledge.errors import Refused, StaleWrite
from fledge.orchestrator import steps, transcripts, turns
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.engine import Engine
from fledge.orchestrator.turns import Drive
from fledge.runtime.base import Faltered, Runtime, Work
from fledge.runtime.child_files import look_for_handover
from fledge.runtime.feed import Feed, TurnEvent, TurnEventKind
from fledge.runtime.profile import Profiles
from fledge.store.base import Spec

T = TypeVar("T")
P = ParamSpec("P")

RETRY_S = 1.0
PROGRESS_S = 10.0
"""The least time between two commits of progress."""
LINE_CHARS = 2000
RESULT_CHARS = 200
INTERRUPTED = "interrupted by a restart; outcome unknown: it may or may not have taken effect"

log = logging.getLogger("fledge.runtime")


async def drive_foreign(profiles: Profiles, feed: Feed, engine: Engine, drive: Drive, spec: Spec) -> None:
    """Run one turn of a session in a foreign runtime to its end. Raises `Refused` if it cannot begin."""
    runtime = profiles.runtime(spec.runtime)
    if runtime is None:
        raise Refused("error", f'runtime "{spec.runtime}" is not configured any more: runtimes')
    session = drive.snapshot.session
    folder, env = profiles.work_place(session)
    look = profiles.handover(session, drive.run)
    await _Turn(feed, engine, drive, spec, runtime, folder, env, look).run()


class _Turn(Struct):
    """One turn in one driver."""

    feed: Feed
    engine: Engine
    drive: Drive
    spec: Spec
    runtime: Runtime
    folder: Path
    env: Environment
    look: HandoverLook | None
    said_at: float = 0.0
    last: int = 0
    """The newest entry of the transcript."""
    writing: asyncio.Task[None] | None = None
    said: OpenReply | None = None
    """The lines of progress so far."""

    def tell(self, kind: TurnEventKind, text: str = "", entry: int = 0, offset: int = 0) -> TurnEvent:
        event = TurnEvent(kind, self.drive.session, text, self.drive.turn, entry=entry, offset=offset)
        self.feed.emit(event)
        return event

    async def _commit(self, act: Callable[Concatenate[Commit, Drive, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Commit what has happened; retries while the disk is full."""
        return await self.engine.until_it_works(lambda: self.engine.commit(act, self.drive, *args, **kwargs))

    async def run(self) -> None:
        session = self.drive.session
        lines = await self.engine.store.read(lambda tx: transcripts.lines(tx, session))
        self.tell("start", entry=lines[-1].seq if lines else 0)
        begun = open_calls(lines)
        if begun and not self.runtime.repeatable:
            await self._fail(INTERRUPTED, provisional=False)
            return
        prompt = begun[0].call.arguments if begun else prompt_of(self.spec.task, lines)
        self.last = await self._commit(_begin, self.spec.runtime, prompt, bool(begun))
        try:
            await self._work(prompt)
        finally:
            self.feed.open.end(self.said)
            if self.writing is not None:
                self.writing.cancel()
                await asyncio.wait([self.writing])

    async def _work(self, prompt: str) -> None:
        run = self.drive.run
        work = Work(
            session=self.drive.session,
            run_id="" if run is None else run.run_id,
            attempt=0 if run is None else run.attempt,
            task=self.spec.task,
            label=self.spec.label,
            prompt=prompt,
            workspace=self.folder,
            env=self.env,
            say=self._say,
        )
        for left in range(self.runtime.retries, -1, -1):
            self.said = OpenReply(work.session, self.drive.turn, self.last)
            self.feed.open.begin(self.said)
            try:
                text = await self.runtime.run(work)
            except Faltered as faltered:
                error, aborted = faltered.error, faltered.aborted
            except BaseException as raised:
                if is_stop(raised):
                    raise
                log.error("runtime %s of %s failed\n%s", self.spec.runtime, self.drive.session, trace(raised))
                error, aborted = describe(raised), False
            else:
                await self._finish(str(text))
                return
            if not left or run is None:
                await self._fail(error, aborted=aborted)
                return
            self.tell("retry", error)
            await self._commit(turns.falter, error)
            await pause(self.engine.clock, RETRY_S)
            await self._commit(turns.recovered)

    def _say(self, line: str) -> None:
        """Emit a line of progress, and store a sign of life now and then, so that the run does not count as stuck."""
        assert self.said is not None
        words = one_line(to_valid_utf8(line), LINE_CHARS)
        self.said.put(self.tell("assistant:text", words, self.last, self.said.ends_at))
        now = self.engine.clock.now()
        if now - self.said_at >= PROGRESS_S and (self.writing is None or self.writing.done()):
            self.said_at = now
            self.writing = asyncio.ensure_future(self._write_sign_of_life())

    async def _write_sign_of_life(self) -> None:
        try:
            await self.engine.commit(_at_work, self.drive)
        except Exception as error:
            # The next line of progress, or the end, is stored regardless.
            log.info("progress of %s was not stored: %s", self.drive.session, error_words(error))

    async def _finish(self, text: str) -> None:
        run = self.drive.run
        handover, last = await look_for_handover(self.look, finally_=True), 0
        try:
            last = await self._commit(_finish, text, handover)
        except StaleWrite:
            if run is None:
                raise
            # The outcome was fixed meanwhile: record the result as late.
            await self.engine.commit_with_retry(turns.completed_late, self.drive.session, run.attempt, text)
        self.tell("end", text, last)

    async def _fail(self, error: str, *, aborted: bool = False, provisional: bool = True) -> None:
        self.tell("error", error)
        if self.drive.run is None:
            # There is no run whose outcome could be an error: reply with the error to the message.
            await self._commit(_finish, f"[{self.spec.runtime} failed: {error}]")
            return
        if not provisional:
            await self._commit(turns.fail, error)
            return
        await self._commit(turns.falter, error, aborted)
        await pause(self.engine.clock, 2 * GRACE_S)  # the engine stops this driver when the grace period is over


def prompt_of(task: str, lines: list[Line]) -> str:
    """The prompt: the task; later with the last reply and the messages since then."""
    replies = [(line.seq, line.body) for line in lines if isinstance(line.body, Replied) and not line.body.calls]
    after, last = replies[-1] if replies else (0, Replied())
    heard = [line.body for line in lines if line.seq > after and isinstance(line.body, Spoken)]
    new = "\n\n".join(spoken.text for spoken in heard if spoken.kind != "task")
    if not new:
        return task
    so_far = f"\n\nSo far you said:\n{last.text}" if last.text else ""
    return f"{task}{so_far}\n\nNow:\n{new}"


# ---- commits ---------------------------------------------------------------------------------------------------------


def _begin(c: Commit, drive: Drive, runtime: str, prompt: str, is_again: bool) -> int:
    """Record that the work has begun; answers the newest entry. The program is not sandboxed: it can write anywhere."""
    turns.fence(c, drive)
    c.tx.drivers.begin_work(drive.session, "/", c.at)
    if not is_again:
        transcripts.write(
            c, drive.session, Replied(calls=(CallEntry("work", runtime, to_valid_utf8(prompt), "started"),))
        )
    turns.at_work(c, drive.session)
    return c.tx.transcripts.last(drive.session)


def _at_work(c: Commit, drive: Drive) -> None:
    """Record a sign of life. No part of the work is stored, so a later crash still counts as a crash without
    progress."""
    turns.fence(c, drive)
    turns.at_work(c, drive.session)


def _finish(c: Commit, drive: Drive, text: str, handover: Handover | None = None) -> int:
    """Store the runtime's answer; return the number of the newest entry."""
    c.tx.drivers.fence(drive.session, drive.epoch)
    steps.hand_over(c, drive, handover)
    for call in open_calls(transcripts.lines(c.tx, drive.session)):
        summary = one_line(to_valid_utf8(text), RESULT_CHARS)
        transcripts.write(c, drive.session, transcripts.result_of(call, summary))
    turns.finish(c, drive, Replied(to_valid_utf8(text)))
    return c.tx.transcripts.last(drive.session)
