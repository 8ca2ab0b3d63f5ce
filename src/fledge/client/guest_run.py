"""A handle on a run of a folder that another process may hold."""

import time
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from fledge.api.handle import Handle, HandleSeen, shown
from fledge.api.spawn_options import budget_given
from fledge.api.streams import RunLook
from fledge.api.values import Message, Plan, Reply, Result, RunInfo
from fledge.api.views import read_value, with_kills_as
from fledge.client.asking import VerbCaller, deadline
from fledge.commands.runs import NextAttempt, RemovedRun
from fledge.commands.values import Story
from fledge.core.policy import Budget
from fledge.errors import NotFound
from fledge.orchestrator.effects import Killing

T = TypeVar("T")

MOST_REPLIES = 1000
"""How many of the newest entries are searched for text that the stream missed."""


def is_settled(run: RunInfo) -> bool:
    """True once nothing more will come from the run or from the runs below it. The same rule as `views.is_settled`,
    which reads rows."""
    return run.unsettled == 0 and (run.ended_at is not None or run.phase == "awaiting_approval")


class GuestHandle(Handle[T]):
    """The same as `Handle`, by calls of verbs."""

    def __init__(
        self, asking: VerbCaller, session_key: str, run_id: str, output_type: type[T] | None = None, label: str = ""
    ) -> None:
        self._asking, self.output_type, self.label = asking, output_type, label
        self._feed = self._moves = asking
        self.session_key, self.run_id = session_key, run_id
        self._seen: HandleSeen | None = None

    def __repr__(self) -> str:
        return shown(self.label, self.run_id, self._seen, time.time())

    async def result(self, timeout: float | None = None) -> Result[T]:
        """The result, as soon as there is an outcome; `pending` after `timeout` seconds."""

        async def over() -> Result[T] | None:
            found = await self._result(peek=False)
            return found if found.done else None

        return await self._asking.until(self.session_key, over, deadline(timeout)) or await self.peek()

    async def peek(self) -> Result[T]:
        """The result so far, without waiting. This does not count as delivery."""
        return await self._result(peek=True)

    async def _result(self, peek: bool) -> Result[T]:
        found: Result[Any] = await self._asking.call(
            Result[Any], "runs.result", run=self.session_key, timeoutMs=0, peek=peek
        )
        if found.ended_reason == "killed":
            found = replace(found, status="killed")
        if self.output_type is not None and found.status == "ok" and found.value_error is None:
            value, error = read_value(found.text, None, self.output_type)
            found = replace(found, value_=value, value_error=error)
        return found

    async def info(self) -> RunInfo:
        """The current state of the run."""
        found = with_kills_as((await self._story()).run, "killed")
        self._seen = HandleSeen(found.status, found.created_at, found.ended_at)
        return found

    async def _story(self) -> Story:
        return await self._asking.call(Story, "runs.info", target=self.session_key)

    async def _look(self, told: int, after: int) -> RunLook:
        self._asking.check_heard()
        replies = await self._replies(after)  # first, so that the timeline contains the turns of these replies
        story = await self._story()
        is_over = is_settled(story.run)
        return RunLook(story.timeline[told:], await self._replies(after) if is_over else replies, is_over)

    async def _replies(self, after: int) -> list[Message]:
        try:
            return await self._asking.call(
                list[Message], "sessions.history", session=self.session_key, limit=MOST_REPLIES, after=after
            )
        except NotFound:
            return []  # its session is gone

    async def plan(self, timeout: float | None = None) -> Plan | None:
        """The plan that waits for approval, as soon as there is one; None if the run ends first, or after `timeout`
        seconds."""

        async def planned() -> Plan | Literal[False] | None:
            """False: the run has ended."""
            for plan in await self._asking.call(list[Plan], "plans.list"):
                if plan.session_key == self.session_key:
                    return plan
            return None if (await self._story()).run.ended_at is None else False

        found: Plan | Literal[False] | None = await self._asking.until(self.session_key, planned, deadline(timeout))
        return found or None

    async def steer(self, message: str) -> str:
        """Stop the current work and give the run new instructions; returns the run id of the new attempt."""
        return (await self._asking.call(NextAttempt, "runs.steer", target=self.session_key, message=message)).run_id

    async def send(self, message: str) -> str:
        """Send the run a message without stopping it; returns its run id."""
        return (await self._asking.call(Reply, "runs.send", target=self.session_key, message=message)).run_id

    async def _kill(self) -> Killing:
        return await self._asking.call(Killing, "runs.kill", target=self.session_key)

    async def resume(self, words: str = "", *, budget: Budget | None = None) -> str:
        """Let a run that was killed, failed or timed out continue; it reads `words` as a message. Returns the run id of
        the new attempt."""
        asked = {} if budget is None else {"budget": msgspec.to_builtins(budget_given(budget))}
        told = await self._asking.call(NextAttempt, "runs.resume", target=self.session_key, words=words, **asked)
        return told.run_id

    async def remove(self) -> None:
        """Take the finished run off the lists before its time."""
        await self._asking.call(RemovedRun, "runs.remove", target=self.session_key)
