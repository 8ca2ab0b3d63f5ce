"""Routes: the address to which a session's words go; and bindings of sessions to threads.

A route is the address from which the last message to a session came. A binding is a route that stays, and that brings
messages from its address to its session, until it is unbound, its session ends, or no message has come for long.
Nothing here sends.
"""

from typing import Literal

from msgspec.structs import replace

from fledge.core.hook import EndedOutcome
from fledge.core.route import Address, check_address
from fledge.core.run import Archived, Killed, Run
from fledge.errors import NotFound, Refused
from fledge.orchestrator import outbox
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.views import name_of
from fledge.store.base import Route, Tx


def session_at(tx: Tx, address: Address) -> str | None:
    """The session that is bound to this address; None if there is none that still reads messages."""
    binding = tx.routes.bound_at(address.channel, address.place)
    session = None if binding is None else tx.sessions.get(binding.session)
    if session is None or session.deleted:
        return None
    run = tx.runs.find(session.key)
    return None if run is not None and isinstance(run.phase, Archived) else session.key


def follow(c: Commit, session: str, address: Address) -> None:
    """A message to the session came from this address: its replies go there, unless it is bound elsewhere."""
    route = c.tx.routes.get(session)
    if route is None or route.kind == "last":
        c.tx.routes.set(Route(session=session, kind="last", address=address, used_at=c.at))
    elif route.address.place == address.place and route.address.channel == address.channel:
        c.tx.routes.set(replace(route, used_at=c.at))


# ---- binding ---------------------------------------------------------------------------------------------------------


def bind(
    c: Commit, session: str, address: Address, owner: str = "", made_by: Literal["spawn", "focus"] = "spawn"
) -> Route:
    """Bind the session to this address: messages from there go to it, and its replies go there.

    Refused: bindings are switched off, the session is gone, another session is bound there.
    """
    if not c.rules.binds:
        raise Refused("forbidden", "session.threadBindings.enabled is false")
    c.session(session)
    limit_s = c.rules.binding_max_age_s
    route = Route(
        session=session,
        kind="bound",
        address=check_address(address),
        used_at=c.at,
        owner=owner,
        idle_s=c.rules.binding_idle_s,
        ends_at=c.at + limit_s if limit_s else None,
        made_by=made_by,
    )
    held = c.tx.routes.bound_at(address.channel, address.place)
    if held is not None and session_at(c.tx, address) is None:
        unbind(c, held.session, "deleted")
    c.tx.routes.set(route)
    c.hints.look = True
    return route


def unbind(c: Commit, session: str, reason: str = "unbound", outcome: EndedOutcome = "reset") -> Route | None:
    """End the session's binding, and call the hooks that listen for its end. None if it was not bound."""
    route = c.tx.routes.get(session)
    if route is None or route.kind != "bound":
        return None
    run = c.find(session)
    if run is not None and run.terms.mode == "session":
        outbox.call_ended_hooks(c, run, route.address, reason, outcome)
    c.tx.routes.drop(session)
    return route


def run_ended(c: Commit, run: Run) -> None:
    """The run is over: call the hooks that listen for that. Its session leaves the thread that was made for it; it
    keeps an address that a person focused on it, unless it was killed."""
    route = c.tx.routes.get(run.key)
    if route is not None and route.kind == "bound" and (route.made_by == "spawn" or _is_killed(run)):
        outbox.call_ended_hooks(c, run, route.address)
        c.tx.routes.drop(run.key)
    else:
        outbox.call_ended_hooks(c, run)


def _is_killed(run: Run) -> bool:
    return run.ended is not None and isinstance(run.ended.outcome, Killed)


def come_due(c: Commit, session: str) -> bool:
    """Unbind a session whose binding has expired, and say so at its address; False if the binding has not expired after
    all."""
    route = c.tx.routes.get(session)
    if route is None or route.due_at is None or route.due_at > c.at:
        return False
    aged = route.ends_at is not None and route.ends_at <= c.at
    unbind(c, session, "max-age" if aged else "idle")
    why = "the binding reached its maximum age" if aged else "there was no message here for a long time"
    words = f"this place is not bound to {name_of(c.tx, session)} any more: {why}"
    outbox.say(c, session, route.address, f"unbound:{session}:{route.used_at}", words)
    return True


# ---- /focus and /unfocus ---------------------------------------------------------------------------------------------


def focus(c: Commit, session: str, target: str, address: Address | None = None, owner: str = "") -> Route:
    """Bind an address to another session: messages from there go to `target` from now on.

    The address is `address`, else the one from which the last message to `session` came. Refused: there is no such
    address, another owner has bound it or the target, the target is gone, bindings are switched off.
    """
    place = address or _place(c, session)
    held = c.tx.routes.bound_at(place.channel, place.place)
    own = c.tx.routes.get(target)
    for route in (held, own if own is not None and own.kind == "bound" else None):
        if route is not None:
            _check_owner(route, owner)
    if held is not None and held.session != target:
        unbind(c, held.session)
    return bind(c, target, place, owner, "focus")


def unfocus(c: Commit, session: str, address: Address | None = None, owner: str = "") -> Route:
    """End the binding of an address: `address`, else the one that `session` is bound to. Later messages from there go
    to the main conversation. Refused: nothing is bound there, or another owner has bound it."""
    if address is not None:
        held = c.tx.routes.bound_at(address.channel, address.place)
    else:
        held = c.tx.routes.get(session)
    if held is None or held.kind != "bound":
        raise NotFound("nothing is bound here")
    _check_owner(held, owner)
    unbind(c, held.session)
    return held


def _place(c: Commit, session: str) -> Address:
    route = c.tx.routes.get(session)
    if route is None:
        name = name_of(c.tx, session)
        raise Refused("error", f"{name} has received no message from a channel: there is no place to bind")
    return route.address


def _check_owner(route: Route, owner: str) -> None:
    if route.owner and route.owner != owner:
        raise Refused("forbidden", f"{route.session} was bound by another owner")
