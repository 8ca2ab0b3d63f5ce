"""`fledge serve`: the gateway from the command line."""

import asyncio
import gc
import logging
import os
import sys

from fledge.cli.printing import say
from fledge.cli.settings import settings_to_drive
from fledge.cli.where import Where, ignored_store
from fledge.config import Config, SingleSettings, model_for_conversation, with_default_model
from fledge.errors import BadInput, StoreError
from fledge.runtime.model_choice import settled_model
from fledge.runtime.model_settings import configured_registry

LOG = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def serve(
    where: Where,
    model: str | None,
    settings: SingleSettings,
    drives: bool,
    host: str | None,
    port: int | None,
) -> int:
    """Serve until stopped; without `drives` no agent runs here. Refused: the web parts are not installed (the error
    says what to install); a state folder, if no agent runs here."""
    if not drives and not where.store:
        words = "needs --store: a state folder has no other process that runs its agents"
        raise BadInput("--no-drive", words + ignored_store())
    try:
        from fledge.gateway import serve as gateway
    except ModuleNotFoundError as error:
        raise StoreError(f"{error.name} is not installed: pip install 'fledge[gateway]'") from None
    logging.basicConfig(level=logging.INFO, format=LOG, stream=sys.stderr)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    loaded = settings_to_drive(settings)
    config = gateway.with_options(loaded.config, host, port)

    def ready(address: str, gateway: object) -> None:
        collect_less()
        say(f"fledge serves {where.words} at {address}; the token is in {where.state / 'gateway.token'}")

    serving = gateway.serve(
        where.state,
        config,
        model=usable_model(config, model),
        store=where.store or None,
        drives=drives,
        ready=ready,
        layers=loaded.layers,
    )
    asyncio.run(serving)
    return 0


def collect_less() -> None:
    """Reduce the work of the cycle collector in a process that runs for long: it does not examine the objects of the
    start again, and it examines new ones when there are 5000 more, not 700. With 1000 subagents at once that work took
    6 % of the CPU."""
    gc.freeze()
    gc.set_threshold(5000, *gc.get_threshold()[1:])


def usable_model(config: Config, model: str | None) -> str | None:
    """The named model, or the remembered one if the settings have none; None if the settings name it. Refused: a named
    model whose key is missing."""
    settled = settled_model(config, os.environ, model)
    used = None if model is None else model_for_conversation(with_default_model(config, model), "main")
    if used is not None:
        configured_registry(config, os.environ).check_key(used.name)
    return None if settled is None else settled.given
