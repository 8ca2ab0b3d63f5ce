"""`fledge worker`: an engine without a gateway, on a store on a server, until it is stopped.

Once it is ready, it prints its store, lanes and agents. SIGTERM and Ctrl-C release every session, which another worker
then takes over, and end the process with exit code 0.
"""

import asyncio
import json as jsons
import logging
import os
import sys
from typing import Final

import fledge
from fledge.cli.printing import say
from fledge.cli.serving import LOG, collect_less, usable_model
from fledge.cli.settings import settings_to_drive
from fledge.cli.where import Where, ignored_store
from fledge.config import Config, SingleSettings
from fledge.errors import BadInput
from fledge.signals import set_on_signals

NEEDS_STORE: Final = (
    "must be the address of a PostgreSQL server, or set FLEDGE_STORE; "
    "one process works with a state folder: `fledge serve`"
)


def work(where: Where, model: str | None, settings: SingleSettings, json: bool) -> int:
    """Run agents until stopped. Refused: no store, or no model that can be used."""
    logging.basicConfig(level=logging.INFO, format=LOG, stream=sys.stderr)
    config = settings_to_drive(settings).config
    named = usable_model(config, model)
    if not where.store:
        raise BadInput("--store", f"{NEEDS_STORE} ({where.state}){ignored_store()}")
    asyncio.run(_work(where, config, named, json))
    return 0


async def _work(where: Where, config: Config, model: str | None, json: bool) -> None:
    stop = asyncio.Event()
    with set_on_signals(stop):
        worker = fledge.open(where.state, model=model, config=config, store=where.store)
        worker.check()
        async with worker as fl:
            lanes = dict(fl.engine.rules.widths)
            agents = list(dict.fromkeys(["main", *(one.id for one in fl.config.agents.list)]))
            told = {
                "type": "worker",
                "pid": os.getpid(),
                "store": where.words,
                "files": str(fl.state),
                "lanes": lanes,
                "agents": agents,
            }
            ready = [
                f"fledge worker {os.getpid()} runs agents of {where.words}",
                f"files: {fl.state}",
                f"lanes: {', '.join(f'{name} {width}' for name, width in lanes.items())}",
                f"agents: {', '.join(agents)}",
            ]
            collect_less()
            _say(ready, told, json)
            await stop.wait()
    _say(["ended; other workers go on with its sessions"], {"type": "ended"}, json)


def _say(lines: list[str], value: dict[str, object], json: bool) -> None:
    say(jsons.dumps(value, ensure_ascii=False) if json else "\n".join(lines))
