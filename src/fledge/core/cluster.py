"""Several engines on one store: who is alive, how many sessions each takes, whether their settings fit together, and
the news that one tells the others.

An engine is alive while it was seen within its lease, by the time of the database. News is a shortcut to asking the
rows, cut into messages that PostgreSQL takes. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from fledge.core.run import Instant
from fledge.core.value import Value

T = TypeVar("T")

LEASE_S: Final = 15.0
"""How long an engine counts as alive after it was last seen."""
BEATS_A_LEASE: Final = 5
"""How often an engine is seen within its lease."""
PATIENCE_S: Final = 0.2
"""How long sessions that are the share of others may wait before any engine takes them."""
MOST_BYTES: Final = 7900
"""The size of a message: PostgreSQL takes less than 8000 bytes."""


class Member(Value):
    """An engine that works with the store, or a gateway that only reads and commits."""

    id: str
    """The owner of its drivers, errands and reservations."""
    host: str
    pid: int
    started_at: Instant
    seen_at: Instant
    lease_s: float = LEASE_S
    drives: bool = True
    drains: bool = False
    """It is closing, and takes nothing more."""
    settings: Mapping[str, str] = {}
    """Digests of its settings, by section."""
    limits: Mapping[str, str] = {}
    """Settings that all engines must have in common, by name."""
    name: str = ""
    """The command, for people."""
    version: str = ""
    """Of fledge."""
    machine: str = ""
    """The boot and the namespaces in which its pid means a process; empty if that is not known."""
    born: str = ""
    """When its process began, as its machine counts."""

    @property
    def until_at(self) -> Instant:
        """When it counts as dead, unless it is seen again."""
        return self.seen_at + self.lease_s

    @property
    def shown(self) -> str:
        """For people: which process it is."""
        return f"process {self.pid} on {self.host}"


def is_alive(member: Member, at: Instant, up_at: Instant = 0.0) -> bool:
    """True while its lease lasts. No engine can be seen while the store cannot be reached: a lease lasts at least so
    long after `up_at`, when the engine that judges could reach it again."""
    return at < max(member.until_at, up_at + member.lease_s)


def is_proved_dead(member: Member, own: Member, born: str | None) -> bool:
    """True of an engine of this very machine whose process is gone. `born` says when the process began that has its pid
    here now: empty if there is none, None if that is not certain. Between machines or containers nothing is proved."""
    is_here = bool(member.machine and member.born) and (member.machine, member.host) == (own.machine, own.host)
    return is_here and born is not None and born != member.born


def count_drivers(members: Iterable[Member], at: Instant) -> int:
    """How many of them share the work now."""
    return sum(one.drives and not one.drains and is_alive(one, at) for one in members)


def share(width: int, engines: int) -> int:
    """How many sessions of a lane one engine takes while others may take the rest."""
    return -(-width // max(1, engines))


def clashes(own: Member, others: Iterable[Member]) -> list[str]:
    """Limits of others that are not this engine's, in words: a limit that two engines know differently is none. A name
    that only one of them knows, as the lane of an agent that the other does not bring, is no limit of the other's."""
    return [
        f"{one.shown} works with {name} = {one.limits[name]}, not {own.limits[name]}"
        for one in others
        for name in sorted(own.limits.keys() & one.limits.keys())
        if one.limits[name] != own.limits[name]
    ]


def differences(own: Member, other: Member) -> list[str]:
    """Sections of settings in which two engines differ."""
    names = sorted({*own.settings, *other.settings})
    return [name for name in names if own.settings.get(name) != other.settings.get(name)]


# ---- news ------------------------------------------------------------------------------------------------------------


class News(Struct, array_like=True, omit_defaults=True):
    """News that the commits of one engine have for the others."""

    look: bool = False
    """Something became due or claimable."""
    stop: list[tuple[str, int]] = []
    """Sessions whose drivers, up to this epoch, should stop."""
    interrupted: list[tuple[str, int, int]] = []
    """Sessions and epochs whose driver should leave its step, and how many of its steps are called off by now."""
    ended: list[str] = []
    """Runs whose outcome or delivery was decided."""
    moved: list[str] = []
    """Sessions of which anything changed."""
    everything: bool = False
    """Look at all rows: news was lost, or there is too much of it."""
    expelled: bool = False
    """The others count the engine that hears this as dead."""
    watched: list[str] = []
    """Sessions that clients of another process watch: it wants to hear the words of their turns."""
    begun: list[str] = []
    """Those of them that it watches from now on: it wants the text so far of their open replies."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(News).decode


def merged(news: Sequence[News]) -> News:
    """All of it as one message."""
    if len(news) == 1:
        return news[0]
    return News(
        look=any(one.look for one in news),
        stop=_each_once(one.stop for one in news),
        interrupted=_each_once(one.interrupted for one in news),
        ended=_each_once(one.ended for one in news),
        moved=_each_once(one.moved for one in news),
        everything=any(one.everything for one in news),
        watched=_each_once(one.watched for one in news),
        begun=_each_once(one.begun for one in news),
    )


def _each_once(lists: Iterable[list[T]]) -> list[T]:
    return list(dict.fromkeys(chain.from_iterable(lists)))


def to_messages(news: News) -> list[str]:
    """The news as messages that fit. News that fits into none becomes "look at everything"."""
    message = _encode(news)
    if len(message) <= MOST_BYTES:
        return [message.decode()]
    lists: dict[str, Any] = {name: items for name, items in asdict(news).items() if isinstance(items, list)}
    if max(map(len, lists.values())) < 2:
        return [_encode(News(look=True, everything=True)).decode()]
    first = {name: items[: len(items) // 2] for name, items in lists.items()}
    rest = {name: items[len(items) // 2 :] for name, items in lists.items()}
    return [*to_messages(News(news.look, everything=news.everything, **first)), *to_messages(News(**rest))]


def from_message(message: str) -> News:
    """The news in a message. One that cannot be read is from another version: look at everything."""
    try:
        return _decode(message)
    except msgspec.DecodeError:
        return News(look=True, everything=True)
