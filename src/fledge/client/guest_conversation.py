"""A conversation of a folder that another process may hold."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from msgspec import to_builtins

from fledge.api.carried import GivenFile, GivenImage, for_wire, read_files
from fledge.api.conversation import Conversation
from fledge.api.streams import answer_events
from fledge.api.values import Accepted, Message, Reply
from fledge.client.asking import VerbCaller
from fledge.commands.sessions import Done, HeartbeatOf, Posted
from fledge.commands.values import Rest
from fledge.core.route import Address
from fledge.errors import BadInput, NotFound
from fledge.ids import RandomIds
from fledge.orchestrator.effects import Killing
from fledge.runtime.feed import TurnEvent

MOST_ENTRIES = 1000
"""So many of the newest entries are looked at for words that were not heard."""


class GuestConversation(Conversation):
    """The same as `Conversation`, in verbs."""

    def __init__(self, asking: VerbCaller, key: str, address: Address | None = None) -> None:
        self._asking, self._address = asking, address
        self.key = key

    async def send(
        self,
        message: str,
        *,
        images: Sequence[GivenImage] = (),
        attachments: Sequence[GivenFile] = (),
        timeout: float | None = None,
    ) -> Reply:
        """Say something and wait for the answer; `pending` after `timeout` seconds, or if a person is asked first."""
        said = await self._accepted(message, images, attachments)
        return await self._replied(said.run_id, said.failures or 0, timeout, None)

    async def post(
        self, message: str, *, images: Sequence[GivenImage] = (), attachments: Sequence[GivenFile] = ()
    ) -> str:
        """Say something without waiting; answers the run id under which its answer can be waited for."""
        return (await self._accepted(message, images, attachments)).run_id

    async def reply(
        self, run_id: str, *, timeout: float | None = None, failures: int = 0, asks: bool | None = None
    ) -> Reply:
        """Wait for the answer to what was said before, by this process or an earlier one."""
        return await self._replied(run_id, failures, timeout, asks)

    async def _accepted(self, message: str, images: Sequence[GivenImage], attachments: Sequence[GivenFile]) -> Accepted:
        if not isinstance(message, str):
            raise BadInput("message", "must be text", message)
        given: dict[str, Any] = {"images": to_builtins(await asyncio.to_thread(read_files, images))} if images else {}
        if attachments:
            given["attachments"] = to_builtins(await asyncio.to_thread(for_wire, attachments))
        if self._address is not None:
            given["address"] = self._address
        return await self._asking.call(
            Accepted,
            "agent",
            once=False,
            session=self.key,
            message=message,
            idempotencyKey=RandomIds().unique(),
            **given,
        )

    async def _replied(self, run_id: str, failures: int, timeout: float | None, asks: bool | None) -> Reply:
        waits = self._asking.asks if asks is None else asks

        async def look(wait_ms: int) -> Reply | None:
            found = await self._asking.call(
                Reply, "reply", session=self.key, run=run_id, timeoutMs=wait_ms, failures=failures, asks=waits
            )
            return found if found.status != "pending" or found.questions else None

        return await self._asking.in_slices(look, timeout) or Reply(status="pending", run_id=run_id)

    async def stream(
        self, message: str, *, images: Sequence[GivenImage] = (), attachments: Sequence[GivenFile] = ()
    ) -> AsyncGenerator[TurnEvent | Reply, None]:
        """Say something and watch the answer come: words, tools, retries; the last event is the `Reply`, whole."""
        before = await self.history(limit=1, tools=True)
        after = before[-1].seq if before else 0
        heard = self._asking.listen()
        try:
            said = await self._accepted(message, images, attachments)
            answer = asyncio.ensure_future(self._replied(said.run_id, said.failures or 0, None, None))
        except BaseException:
            heard.close()
            raise

        async def entries() -> list[Message]:
            return await self.history(limit=MOST_ENTRIES, after=after)

        async with aclosing(answer_events(self.key, said.run_id, after, heard, answer, entries)) as events:
            async for event in events:
                yield event

    async def post_event(self, text: str) -> bool:
        """Post a system event; False if the last event that waits says the same."""
        if not isinstance(text, str):
            raise BadInput("text", "must be text", text)
        return (await self._asking.call(Posted, "system.event", session=self.key, text=text)).posted

    async def request_heartbeat(self, reason: str = "") -> str:
        """Ask for a heartbeat; answers the key of the session that has it."""
        if not isinstance(reason, str):
            raise BadInput("reason", "must be text", reason)
        asked = await self._asking.call(HeartbeatOf, "heartbeat.request", once=False, session=self.key, reason=reason)
        return asked.session_key

    async def history(self, *, limit: int = 100, after: int = 0, tools: bool = False) -> list[Message]:
        """The newest entries of the transcript, oldest first; those numbered above `after`."""
        try:
            return await self._asking.call(
                list[Message], "sessions.history", session=self.key, limit=limit, after=after, tools=tools
            )
        except NotFound:
            return []  # nothing was said yet

    async def settled(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do. False: time is up."""

        async def look(wait_ms: int) -> bool | None:
            rest = await self._asking.call(Rest, "sessions.wait", session=self.key, timeoutMs=wait_ms)
            return rest.settled or None

        return await self._asking.in_slices(look, timeout) is not None

    async def stop(self) -> Killing:
        """Stop its turn and everything below it. What it was asked counts as answered by that."""
        return await self._asking.call(Killing, "sessions.stop", once=False, session=self.key)

    async def delete(self) -> None:
        """Delete it with its transcript. What its children have yet to say is kept as undelivered."""
        await self._asking.call(Done, "sessions.delete", session=self.key)
