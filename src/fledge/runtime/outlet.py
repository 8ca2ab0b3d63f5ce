"""Sends posts of the outbox: messages to channels, events to hooks, starts and ends of subagents to the context
engine.

One call is one try; the engine decides about retries, order and giving up. A receiver that hangs is left after a
timeout, and delays no other post.
"""

import asyncio
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from fledge.cancellation import error_message, is_stop
from fledge.channels.base import Channel
from fledge.channels.terminal import NoTerminal
from fledge.channels.webhook import Poster, WebhookChannel
from fledge.config.schema import Config, Webhook
from fledge.context_engine import ContextEngine, Left
from fledge.core.hook import DeliveryTarget, HookCall, SubagentSpawning, target_in, thread_for
from fledge.core.route import TERMINAL, Address
from fledge.egress import Environment
from fledge.errors import BadInput, Refused, Undeliverable
from fledge.hooks import Listening, WebhookHook
from fledge.models.keys import SecretKey, key_in_file, read_key
from fledge.orchestrator.commit import Listener
from fledge.orchestrator.outbox import call_of, hook_post_key, message_of
from fledge.store.base import OutboxPost

SEND_S = 330.0
"""The longest time for one post, whatever timeout is set."""


class _ContextNotice(Struct, frozen=True, rename="camel"):
    """A context engine's notice that a subagent has started or ended."""

    session_key: str
    reason: Literal["started"] | Left
    requester: str = ""
    timeout_s: float = 0.0


class Outlet:
    """Sends posts. Close it when done: it holds connections."""

    def __init__(
        self,
        channels: Mapping[str, Channel],
        listening: Mapping[str, Listening] | None = None,
        context_engine: ContextEngine | None = None,
    ) -> None:
        self._channels, self._listening, self._context_engine = channels, listening or {}, context_engine

    @property
    def listeners(self) -> dict[str, tuple[Listener, ...]]:
        """The listeners of each hook, for the commits that post calls."""
        found: dict[str, tuple[Listener, ...]] = {}
        for one in self._listening.values():
            for hook in one.on:
                found[hook] = (*found.get(hook, ()), Listener(one.name, one.retries))
        return found

    @property
    def has_context_engine(self) -> bool:
        """True if a context engine hears of runs."""
        return self._context_engine is not None

    async def call(self, post: OutboxPost) -> Address | None:
        """Send one post; returns the address that a hook named, if it was asked for one. Raises if sending failed."""
        async with asyncio.timeout(SEND_S):
            message, call = message_of(post), call_of(post)
            if message is not None:
                channel = self._channels.get(message.channel)
                if channel is None and message.channel != TERMINAL:
                    raise Undeliverable(f"no channel {message.channel} is configured")
                await (channel or NoTerminal()).send(message)
            elif call is not None:
                return await self._hook(post.key, call)
            elif post.kind == "context":
                notice = msgspec.json.decode(post.body, type=_ContextNotice)
                if self._context_engine is not None:
                    await _tell(self._context_engine, notice)
            else:
                raise Undeliverable(f"nothing can send {post.kind}")
        return None

    async def _hook(self, call_id: str, call: HookCall) -> Address | None:
        """Call a listener; one that is no longer registered is skipped."""
        listening = self._listening.get(call.listener)
        if listening is None:
            return None
        answer = await listening.hooked.call(call_id, call.event)
        if not isinstance(call.event, DeliveryTarget):
            return None
        address = target_in(answer)
        return address if address is not None and address.channel in self._channels else None

    async def bind(self, asked: SubagentSpawning) -> Address:
        """The thread that a listener of `subagent_spawning` has prepared. Raises `Refused` with the reason: there is no
        listener, or one forbids it, fails, or names no thread."""
        there = [one for one in self._listening.values() if "subagent_spawning" in one.on]
        if not there:
            raise Refused(
                "error", "thread: no channel here can bind a thread: no hook is registered for subagent_spawning"
            )
        found: Address | None = None
        for one in there:
            call_id = hook_post_key("subagent_spawning", one.name, asked.child_session_key)
            try:
                async with asyncio.timeout(SEND_S):
                    answer = await one.hooked.call(call_id, asked)
            except BaseException as error:
                if is_stop(error):
                    raise
                why = error_message(error)
                raise Refused("error", f"thread: the subagent_spawning hook {one.name} failed: {why}") from error
            found = found or thread_for(asked, answer)
        if found is None:
            raise Refused("error", "thread: the subagent_spawning hook made no thread ready")
        return found

    async def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            await channel.close()
        for one in self._listening.values():
            await one.hooked.close()


async def _tell(engine: ContextEngine, notice: _ContextNotice) -> None:
    if notice.reason == "started":
        await engine.subagent_started(notice.session_key, notice.requester, notice.timeout_s)
    else:
        await engine.subagent_ended(notice.session_key, notice.reason)


# ---- from settings ---------------------------------------------------------------------------------------------------


def secret_of(webhook: Webhook, field: str, env: Environment) -> SecretKey:
    """The signing secret, from the place that the settings name. Raises `BadInput` if it is missing or if others can
    read it."""
    if webhook.secret_file is not None:
        return key_in_file(f"{field}.secretFile", webhook.secret_file)
    key = read_key(webhook.secret_env or "", env)
    if key is None:
        raise BadInput(f"{field}.secretEnv", f"the variable {webhook.secret_env} is not set")
    return key


def _poster(webhook: Webhook, field: str, env: Environment) -> Poster:
    return Poster(webhook.url, secret_of(webhook, field, env), webhook.timeout_seconds)


def channels_of(config: Config, env: Environment) -> dict[str, Channel]:
    """The configured channels by name. Raises `BadInput` if a secret is missing or weak."""
    return {
        name: WebhookChannel(_poster(channel, f"channels.{name}", env)) for name, channel in config.channels.items()
    }


def hooks_of(config: Config, env: Environment) -> dict[str, Listening]:
    """The configured hooks by name. Raises `BadInput` if a secret is missing or weak."""
    return {
        name: Listening(name, hook.on, WebhookHook(_poster(hook, f"hooks.{name}", env)), hook.retries)
        for name, hook in config.hooks.items()
    }
