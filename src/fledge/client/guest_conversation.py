"""A conversation of a folder that another process may hold."""

import asyncio
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins
from msgspec.structs import asdict

from fledge.api.carried import GivenFile, GivenImage, for_wire, read_files
from fledge.api.conversation import Conversation
from fledge.api.values import Accepted, Message, Reply
from fledge.client.asking import VerbCaller, deadline
from fledge.commands.sessions import Done, HeartbeatOf, Posted
from fledge.commands.values import Rest
from fledge.commands.wire import camel
from fledge.core.params import as_written
from fledge.core.route import Address
from fledge.errors import FledgeError, NotFound, check_text
from fledge.orchestrator.effects import Killing
from fledge.store.base import Wishes

MOST_ENTRIES = 1000
"""How many of the newest entries are searched for text that the stream missed."""
_WIRE = {name: camel("timeout_seconds" if name == "timeout_s" else name) for name in Wishes.__struct_fields__}
"""The options of a turn (the fields of `Wishes`), each with its name on the wire."""
_WRITTEN = {camel(name): name for name in ("extra_system_prompt", "timeout_seconds", "idempotency_key")}


class GuestConversation(Conversation):
    """The same as `Conversation`, by calls of verbs. Times are those of `time.monotonic`."""

    def __init__(self, asking: VerbCaller, key: str, address: Address | None = None) -> None:
        self._asking, self._address = asking, address
        self._feed = self._moves = asking
        self.key = key

    async def reply(
        self, run_id: str, *, timeout: float | None = None, failures: int = 0, asks: bool | None = None
    ) -> Reply:
        """Wait for the answer to an earlier message, which may have been sent by an earlier process."""
        return await self._answer(run_id, failures, deadline(timeout), asks)

    def _check_thinks(self) -> None:
        """Does nothing: the holder of the folder checks the agent."""

    async def _accept(
        self,
        message: str,
        images: Sequence[GivenImage],
        attachments: Sequence[GivenFile],
        wishes: Wishes | None = None,
        idempotency_key: str = "",
    ) -> Accepted:
        given: dict[str, Any] = {} if wishes is None else {_WIRE[name]: one for name, one in asdict(wishes).items()}
        if images:
            given["images"] = to_builtins(await asyncio.to_thread(read_files, images))
        if attachments:
            given["attachments"] = to_builtins(await asyncio.to_thread(for_wire, attachments))
        if self._address is not None:
            given["address"] = self._address
        given["idempotencyKey"] = idempotency_key
        try:
            return await self._asking.call(Accepted, "agent", session=self.key, message=message, **given)
        except FledgeError as error:
            raise as_written(error, _WRITTEN if wishes is None else {**_WRITTEN, "session": "session_key"}) from None

    async def _answer(self, run_id: str, failures: int, at: float | None, asks: bool | None = None) -> Reply:
        def waits() -> bool:
            return self._asking.asks if asks is None else asks

        async def look(wait_ms: int) -> Reply | None:
            found = await self._asking.call(
                Reply, "reply", session=self.key, run=run_id, timeoutMs=wait_ms, failures=failures, asks=waits()
            )
            # A function that answers questions may have come during the call.
            is_asked = bool(found.questions) and not waits()
            return found if found.status != "pending" or is_asked else None

        return await self._asking.in_slices(look, at) or Reply(status="pending", run_id=run_id)

    def _deadline(self, timeout: float | None) -> float | None:
        return deadline(timeout)

    def _check_open(self) -> None:
        self._asking.check_heard()

    async def _last_entry(self) -> int:
        newest = await self.history(limit=1, tools=True)
        return newest[-1].seq if newest else 0

    async def _entries(self, after: int) -> list[Message]:
        return await self.history(limit=MOST_ENTRIES, after=after)

    async def post_event(self, text: str) -> bool:
        """Post a system event; False if the last event that waits has the same text."""
        check_text("text", text)
        return (await self._asking.call(Posted, "system.event", session=self.key, text=text)).posted

    async def request_heartbeat(self, reason: str = "") -> str:
        """Request a heartbeat; returns the key of the session that gets it."""
        check_text("reason", reason)
        asked = await self._asking.call(HeartbeatOf, "heartbeat.request", once=False, session=self.key, reason=reason)
        return asked.session_key

    async def history(self, *, limit: int = 100, after: int = 0, tools: bool = False) -> list[Message]:
        """The newest entries of the transcript, oldest first; those numbered above `after`."""
        try:
            return await self._asking.call(
                list[Message], "sessions.history", session=self.key, limit=limit, after=after, tools=tools
            )
        except NotFound:
            return []  # it has no messages yet

    async def settled(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do. False after `timeout` seconds."""

        async def look(wait_ms: int) -> bool | None:
            rest = await self._asking.call(Rest, "sessions.wait", session=self.key, timeoutMs=wait_ms)
            return rest.settled or None

        return await self._asking.in_slices(look, deadline(timeout)) is not None

    async def stop(self) -> Killing:
        """Stop the current turn and all subagents below it. The messages of that turn count as answered."""
        return await self._asking.call(Killing, "sessions.stop", once=False, session=self.key)

    async def delete(self) -> None:
        """Delete the conversation and its transcript. Results still to come from its subagents become undelivered."""
        await self._asking.call(Done, "sessions.delete", session=self.key)
