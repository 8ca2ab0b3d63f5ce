"""Opening a state folder for a conversation, `fledge` or `fledge run`: its settings, its model, the terminal."""

import os
from collections.abc import Callable
from functools import cache
from typing import Any

import fledge
from fledge.channels.base import Channel
from fledge.channels.terminal import NoTerminal
from fledge.cli.settings import settings_to_drive
from fledge.cli.where import Where
from fledge.client.driving import Driving
from fledge.client.folder import Client
from fledge.config import Config, SingleSettings
from fledge.core.route import TERMINAL
from fledge.runtime.model_choice import choose_model
from fledge.store.ways import CONTROL_SOCKET


def conversation_client(
    where: Where,
    model: str | None,
    settings: SingleSettings,
    terminal: Channel,
    tell: Callable[[str], None],
    goes_on: Callable[[], bool] = lambda: False,
    **options: Any,
) -> Client:
    """A client that opens the folder in this process if no other process holds it. Refused at that moment, and nothing
    is created: no model is set, or it cannot be used. `tell` gets the warnings of the settings, and a notice of a model
    that fledge chose by itself; `goes_on` returns True if only unfinished work continues. The settings are read
    once."""

    @cache
    def config() -> Config:
        return settings_to_drive(settings, tell).config

    async def opened() -> fledge.Fledge:
        chosen = await choose_model(config(), os.environ, model, state=where.state, goes_on=goes_on())
        if chosen.is_new:
            tell(chosen.words)
        # On a server another worker may send the messages to the terminal, so they are shown from the feed alone.
        channel = NoTerminal() if where.store else terminal
        fl = fledge.open(
            where.state,
            model=chosen.given,
            config=config(),
            channels={TERMINAL: channel},
            address=CONTROL_SOCKET,
            store=where.store or None,
            **options,
        )
        fl.check()
        return fl

    return where.client(Driving(opened, on_server=bool(where.store)), settings)
