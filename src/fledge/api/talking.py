"""Talking from code: conversations, commissions by run id, and what happens inside turns."""

from collections.abc import Callable, Sequence
from typing import get_args

from msgspec import UNSET

from fledge.api import views
from fledge.api.carried import GivenFile, GivenImage, carried
from fledge.api.conversation import Conversation
from fledge.api.opened import Opened
from fledge.api.values import Accepted, Waited
from fledge.core.keys import parse_key
from fledge.core.route import Address, check_address, origin_of
from fledge.errors import BadInput
from fledge.models.base import Thinking
from fledge.orchestrator import commission
from fledge.orchestrator.changes import deadline
from fledge.orchestrator.commit import Commit
from fledge.runtime.feed import Subscription
from fledge.store.base import Tx, Wishes


class Talking(Opened):
    """The part of `Fledge` that is about conversations."""

    def session(self, key: str = "main", *, address: Address | None = None) -> Conversation:
        """Return a conversation with a model that can spawn subagents. It is created by its first message.

        `key` is `main`, another name, or a whole session key. `address` names a channel and a person: answers are sent
        there as well as returned. Without it they go to the address of the last message, if that came from a channel.

        >>> (await fl.session("main").send("Hello")).text
        'echo: Hello'
        """
        return self._conversation(key, "key", address)

    def _conversation(self, given: str, field: str, address: Address | None = None) -> Conversation:
        name = views.session_key(given, field)
        if name == self.program:
            raise BadInput(field, "is this program's own name: no model answers there", given)
        parts = self._parts
        return Conversation(
            self.engine,
            self._watch,
            parts.agent.feed,
            parse_key(name),
            parts.profiles,
            self._check_thinks,
            is_asked=self._is_asked,
            origin="" if address is None else origin_of(check_address(address)),
        )

    async def agent(
        self,
        message: str,
        *,
        session_key: str = "main",
        deliver: bool = True,
        lane: str = "",
        extra_system_prompt: str = "",
        model: str = "",
        thinking: str = "",
        timeout_seconds: float = 0,
        idempotency_key: str = "",
        images: Sequence[GivenImage] = (),
        attachments: Sequence[GivenFile] = (),
        address: Address | None = None,
        compact: bool = False,
    ) -> Accepted:
        """Send a message to a session, with options for the turn that answers it; return a run id at once.

        - `model`, `thinking`, `extra_system_prompt`: for this turn only.
        - `timeout_seconds`: stop the turn after this time.
        - `compact`: the model first summarises the conversation and continues from its summary.
        - `deliver`: with `False` the reply is sent to no channel.
        - `idempotency_key`: the same key returns the same run id, also after a restart.
        - `images` and `attachments` as in `Conversation.send`, `address` as in `Fledge.session`.

        >>> accepted = await fl.agent("Hello", session_key="main", idempotency_key="greeting")
        >>> accepted.status
        'accepted'
        >>> (await fl.agent_wait(accepted.run_id)).status
        'ok'
        """
        given = {"message": message, "extra_system_prompt": extra_system_prompt, "idempotency_key": idempotency_key}
        for field, words in given.items():
            if not isinstance(words, str):
                raise BadInput(field, "must be text", words)
        session = self._conversation(session_key, "session_key", address)
        wishes = self._wishes(model, thinking, lane, timeout_seconds, extra_system_prompt, deliver, compact)
        if not model:
            self._check_thinks(parse_key(session.key).agent_id)
        async with carried(self._parts.profiles, session.key, images, attachments) as files:

            def accept(c: Commit) -> Accepted:
                turn = c.tx.turns.get(session.key)
                asked = commission.accept(c, session.key, message, wishes, idempotency_key, session.origin, files)
                failures = UNSET if turn is None or not turn.failures else turn.failures
                return Accepted(run_id=asked.run_id, failures=failures)

            return await self.engine.commit(accept)

    def _wishes(
        self, model: str, thinking: str, lane: str, timeout_s: float, prompt: str, deliver: bool, compact: bool
    ) -> Wishes:
        levels = get_args(Thinking)
        if thinking and thinking not in levels:
            raise BadInput("thinking", f"must be one of {', '.join(levels)}", thinking)
        if model:
            self._parts.profiles.check_model(model, thinking or None)
        lanes = tuple(self._parts.rules.widths)
        if lane and lane not in lanes:
            raise BadInput("lane", f"must be one of {', '.join(lanes)}", lane)
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 <= timeout_s < 1e9:
            raise BadInput("timeout_seconds", "must be seconds, 0 for no limit", timeout_s)
        for field, given in (("deliver", deliver), ("compact", compact)):
            if not isinstance(given, bool):
                raise BadInput(field, "must be True or False", given)
        return Wishes(model, thinking, prompt, lane, float(timeout_s), deliver, compact)

    async def agent_wait(self, run_id: str, timeout_ms: float = 30_000) -> Waited:
        """Wait for the turn that `agent` started, or for any run: how it ended, or `pending` after `timeout_ms`.

        The id of an earlier attempt of a run leads to its current attempt, whose id is returned.

        >>> run = await fl.spawn("Say hello")
        >>> (await fl.agent_wait(run.run_id, timeout_ms=60_000)).status
        'ok'
        """
        if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int | float) or not timeout_ms >= 0:
            raise BadInput("timeout_ms", "must be milliseconds, 0 or more", timeout_ms)
        at = deadline(self.engine, timeout_ms / 1000)
        stands = await self.engine.store.read(lambda tx: commission.standing(tx, run_id))

        def over(tx: Tx) -> bool:
            return commission.standing(tx, run_id).status != "pending"

        await self._watch.until(lambda tx: over(tx) or None, [stands.session], at)
        stands = await self.engine.store.read(lambda tx: commission.standing(tx, run_id))
        return Waited(
            status=stands.status,
            run_id=stands.run_id,
            started_at=stands.started_at,
            ended_at=stands.ended_at,
            error=stands.error,
        )

    def listen(self, size: int = 1000, poke: Callable[[], None] | None = None) -> Subscription:
        """Subscribe to the events inside the turns of every session: text, tools, retries. Close it when done.

        A slow listener has at most `size` waiting events. `poke`, if given, is called at each event and must not block.
        Subscribe before the folder is opened to miss nothing that continues there.

        >>> heard = fl.listen()
        >>> reply = await fl.session("main").send("Hello")
        >>> heard.close()
        >>> [event.kind async for event in heard]
        ['start', 'model:start', 'assistant:text', 'usage', 'end']
        """
        return self._parts.agent.feed.listen(size, poke)
