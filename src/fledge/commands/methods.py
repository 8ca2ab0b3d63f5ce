"""Every method, by name: the table that the gateway, the private socket and the command line call, and its schema."""

from typing import Any

import fledge
from fledge.commands import (  # noqa: F401  (they fill the table)
    events,
    listing,
    login,
    people,
    queries,
    runs,
    sessions,
    signins,
    system,
)
from fledge.commands.dispatch import call
from fledge.commands.feed import FeedEvent
from fledge.commands.table import METHODS
from fledge.commands.wire import schemas

__all__ = ["METHODS", "call", "schema"]


def schema() -> dict[str, Any]:
    """The schema of all methods and of the events of feeds, for people and programs."""
    kinds: dict[str, Any] = {}
    for name, one in METHODS.items():
        kinds[f"{name} params"], kinds[f"{name} result"] = one.params, one.result
    made, parts = schemas({**kinds, "events": FeedEvent})
    methods = {
        name: {"description": one.meaning, "params": made[f"{name} params"], "result": made[f"{name} result"]}
        | ({"formerly": one.formerly} if one.formerly else {})
        for name, one in sorted(METHODS.items())
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "fledge gateway",
        "version": fledge.__version__,
        "protocol": "JSON-RPC 2.0: POST /rpc, or messages on the WebSocket /ws; events: GET /events (event stream)",
        "methods": methods,
        "events": made["events"],
        "$defs": parts,
    }
