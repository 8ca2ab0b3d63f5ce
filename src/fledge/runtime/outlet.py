"""What goes out of the outbox: a message to its channel, folders that a run left to be removed.

Each post is sent here once per try; retries, order and giving up are the engine's. A channel that hangs is left alone
after a while.
"""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from fledge.channels.base import Channel
from fledge.channels.webhook import Poster, WebhookChannel
from fledge.clock import Clock
from fledge.config.schema import Config, Webhook
from fledge.core.route import TERMINAL
from fledge.errors import BadInput, NotArrived
from fledge.models.keys import Key, key_in_file, read_key
from fledge.orchestrator.outbox import message_of
from fledge.store.base import Post

SEND_S = 330.0
"""No channel may take longer over one message, whatever it was set to."""


class Outlet:
    """Sends what is posted. Close it when done: it holds the channels' connections."""

    def __init__(self, channels: Mapping[str, Channel]) -> None:
        self._channels = dict(channels)

    async def call(self, post: Post) -> None:
        """Send one post. Raises if it did not arrive."""
        message = message_of(post)
        if message is not None:
            channel = self._channels.get(message.channel)
            if channel is not None:
                async with asyncio.timeout(SEND_S):
                    await channel.send(message)
            elif message.channel != TERMINAL:
                raise NotArrived(f"no channel {message.channel} is configured")
            # Else nobody is at the terminal any more: its words stand in the transcript, for whoever looks.
        elif post.kind == "remove":
            await remove(msgspec.json.decode(post.body, type=tuple[str, ...]))
        else:
            raise NotArrived(f"nothing can send {post.kind}")

    async def close(self) -> None:
        """Let go of every connection."""
        for channel in self._channels.values():
            await channel.close()


async def remove(leaves: tuple[str, ...]) -> None:
    """Remove folders that runs left; what is gone already is fine."""
    await asyncio.to_thread(_remove, leaves)


def _remove(leaves: tuple[str, ...]) -> None:
    for leaf in leaves:
        if Path(leaf).exists():
            shutil.rmtree(leaf)


def secret_of(webhook: Webhook, field: str, env: Mapping[str, str]) -> Key:
    """The secret that signs, from where the settings say. Refused: none there, or one that others can read."""
    if webhook.secret_file is not None:
        return key_in_file(f"{field}.secretFile", webhook.secret_file)
    key = read_key(webhook.secret_env or "", env)
    if key is None:
        raise BadInput(f"{field}.secretEnv", f"the variable {webhook.secret_env} is not set")
    return key


def channels_of(config: Config, env: Mapping[str, str], clock: Clock | None = None) -> dict[str, Channel]:
    """Every configured channel, by name. Refused: one whose secret is missing or weak."""
    return {
        name: WebhookChannel(
            Poster(channel.url, secret_of(channel, f"channels.{name}", env), channel.timeout_seconds, clock)
        )
        for name, channel in config.channels.items()
    }
