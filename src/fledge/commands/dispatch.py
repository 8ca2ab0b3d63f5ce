"""Calling a verb by its name. Only the module that the verb is in is imported; `methods` imports all of them."""

from functools import partial
from importlib import import_module
from typing import Any

from fledge.commands.index import HOMES
from fledge.commands.rpc import NO_METHOD, RpcFault
from fledge.commands.table import FORMER, METHODS, Method, Reader, carry_out, log
from fledge.commands.wire import WireObject, to_wire
from fledge.core.params import near


async def call(gateway: Reader, name: str, given: WireObject) -> object:
    """Carry out a verb, and answer as it stands on the wire. Raises as `value_of` does."""
    return to_wire(await value_of(gateway, name, given))


async def value_of(gateway: Reader, name: str, given: WireObject) -> Any:
    """Carry out a verb; every verb but a query needs a whole `GatewayState`. Raises RpcFault for a name that no verb
    has, and BadInput for parameters that do not fit."""
    found = _find(name)
    if found is None:
        meant = near(name, METHODS)
        hint = f"did you mean {meant}?" if meant else "GET /schema lists them"
        raise RpcFault(NO_METHOD, f"no method {name[:80]!r}; {hint}")
    if found.name != name and (found.name, name) not in gateway.old_names:
        gateway.old_names.add((found.name, name))
        log.warning("%s is deprecated: it is called %s", name, found.name)
    return await carry_out(gateway, found, given, partial(found.do, gateway))


def _find(name: str) -> Method | None:
    """The verb of this name, present or former. The index has present names only, so any other name imports all
    modules."""
    for home in {HOMES[name]} if name in HOMES else {*HOMES.values()}:
        import_module(f"fledge.commands.{home}")
    return METHODS.get(FORMER.get(name, name))
