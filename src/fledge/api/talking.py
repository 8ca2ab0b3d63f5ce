"""Talking from code: conversations, commissions by run id, and what happens inside turns."""

from collections.abc import Callable, Sequence
from typing import get_args

from msgspec import UNSET

from fledge.api import views
from fledge.api.conversation import Conversation
from fledge.api.images import GivenFile, GivenImage, carried
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
        """A conversation with a model that can spawn: `main`, a name, or a whole key. It begins with the first message.
        It is `main` in every folder: a program is no person in a project, whose commands use the folder's own.

        `address` is where whoever speaks is reached: answers are sent there besides being returned. Without it they
        go to where the conversation was last spoken to from, if that was a channel.

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
        """Say something to a session, with wishes for the turn that answers; returns at once, with a run id.

        Model, thinking and prompt hold for that turn; it is stopped after `timeout_seconds`. With `compact` the model
        first summarises what was said before, and goes on from its notes. Without `deliver` its reply goes to no
        channel. The same `idempotency_key` finds the same run id, also after a restart. `images` and
        `attachments`: as of `Conversation.send`; `address`: as of `session`.

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
                turn = c.tx.turn(session.key)
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
        """Wait for what `agent` accepted, or for any run: how it ended, or `pending` if it has not by then.

        An old run id of a run follows to the attempt that stands now, and the answer names that.

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
        """Hear what happens inside turns from now on: words, tools, retries, of every session. Close it when done.

        At most `size` events wait for a slow listener. `poke`, if given, is called at each; it must not block. Called
        before the folder is open, nothing of what is taken up there is missed.

        >>> heard = fl.listen()
        >>> reply = await fl.session("main").send("Hello")
        >>> heard.close()
        >>> [event.kind async for event in heard]
        ['start', 'model:start', 'assistant:text', 'usage', 'end']
        """
        return self._parts.agent.feed.listen(size, poke)
