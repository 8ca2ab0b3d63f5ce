"""Who may ask the gateway: the token, the names and pages under which it may be asked, and how often.

Pure. Nothing here knows a web framework.
"""

import hmac
import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from fledge.core.value import NamedValue, Value
from fledge.errors import BadInput

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
ANY_ADDRESS: Final = ("", "0.0.0.0", "::")
MOST_CLIENTS: Final = 10_000
"""How many clients' rates are remembered."""
BURST: Final = 4
"""How many seconds' worth of requests may come at once."""
STRANGERS_PER_SECOND: Final = 10.0
"""Rate limit for unauthenticated requests."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")

RawHeaders = Sequence[tuple[bytes, bytes]]


# ---- the door --------------------------------------------------------------------------------------------------------


class Rejection(Value):
    """Why a request is not let in, as an HTTP status and words that tell nothing about what would be."""

    status: int
    words: str


class Door(NamedValue):
    """What a request must show to be let in."""

    token: str
    hosts: frozenset[str]
    """Names under which the gateway may be asked for, in lower case."""
    origins: frozenset[str] = frozenset()
    """Origins of web pages that may ask, besides its own."""
    by_address: bool = False
    """It may also be asked for by any numeric address: it listens to more than this machine."""

    def refuse(self, headers: RawHeaders, proven: bool = False, opens: bool = False) -> Rejection | None:
        """None if the request may come in. `proven`: it shows who it is in another way than by the token; `opens`: it
        is for the page itself, to which other sites may lead."""
        host = _only(headers, b"host")
        if host is None or not self._is_ours(host):
            # A page that lets its own name point to this machine still says that name here.
            return Rejection(421, "this gateway is not asked for under that name")
        if not self._may_ask(headers, host) and not (opens and _leads_here(headers)):
            return Rejection(403, "pages of that origin may not use this gateway")
        if not proven and not self._has_token(headers):
            return Rejection(401, "a bearer token is needed: it is in the file gateway.token of the state folder")
        return None

    def _is_ours(self, host: str) -> bool:
        name = _hostname(host)
        return name is not None and (name in self.hosts or (self.by_address and _is_address(name)))

    def _may_ask(self, headers: RawHeaders, host: str) -> bool:
        origins = [value for name, value in headers if name == b"origin"]
        if not origins:
            # Browsers say so where a request comes from another site without naming its origin.
            site = _only(headers, b"sec-fetch-site")
            return site in (None, "same-origin", "none")
        origin = _only(headers, b"origin") or ""
        if origin in self.origins:
            return True
        parts = urlsplit(origin)
        return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()

    def _has_token(self, headers: RawHeaders) -> bool:
        shown = _only(headers, b"authorization") or ""
        scheme, _, token = shown.partition(" ")
        same = hmac.compare_digest(token.strip().encode("utf-8", "replace"), self.token.encode())
        return same and scheme.lower() == "bearer"


def _leads_here(headers: RawHeaders) -> bool:
    """True of a link that somebody followed: a browser opens the page at the top, and no script of the other site can
    read what it is given, or had any say in what is asked besides the address."""
    said = (_only(headers, b"sec-fetch-mode"), _only(headers, b"sec-fetch-dest"))
    return said == ("navigate", "document") and not any(name == b"origin" for name, _ in headers)


def door(token: str, host: str, allowed_hosts: Iterable[str], allowed_origins: Iterable[str]) -> Door:
    """The door of a gateway that listens on `host`. Refused: names and origins that could never be matched."""
    names = [_checked_name(name) for name in allowed_hosts]
    for origin in allowed_origins:
        parts = urlsplit(origin)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query or parts.fragment:
            raise BadInput("gateway.allowedOrigins", "must be like https://example.org, without a path", origin)
    local = _hostname(host if ":" not in host else f"[{host}]") in LOOPBACK
    return Door(
        token=token,
        hosts=LOOPBACK | frozenset(names) | (frozenset() if host in ANY_ADDRESS else {host.lower()}),
        origins=frozenset(origin.lower() for origin in allowed_origins),
        by_address=not local,
    )


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadInput("gateway.allowedHosts", "must be a host name, without a port", name)
    return name.lower()


def _only(headers: RawHeaders, wanted: bytes) -> str | None:
    """The value of a header that is there once; None if it is not, or more than once."""
    found = [value for name, value in headers if name == wanted]
    return found[0].decode("latin-1").strip() if len(found) == 1 else None


def _hostname(host: str) -> str | None:
    """The name in a Host header, without its port; None if it is no such thing."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    if parts.username is not None or parts.path or parts.query or parts.fragment or not parts.hostname:
        return None
    return parts.hostname


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# ---- how often -------------------------------------------------------------------------------------------------------


class Rate:
    """So many per second for each client, and so many at once."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, client: str, now: float) -> bool:
        """Count one more; True if that is too many, and it does not count. `now` only ever grows."""
        left, since = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        self._left[client] = (left - 1.0 if left >= 1.0 else left, now)
        if len(self._left) > MOST_CLIENTS:
            # Whoever was heard of longest ago has the most left, so forgetting costs nothing.
            del self._left[next(iter(self._left))]
        return left < 1.0

    def give_back(self, client: str) -> None:
        """Do not count the last one of this client after all."""
        if client in self._left:
            left, since = self._left[client]
            self._left[client] = (min(self._burst, left + 1.0), since)


class Rates:
    """How often each kind of client may ask. Nobody can use up what others have: on one machine all come from one
    address."""

    def __init__(self, per_second: float) -> None:
        self.owner = Rate(per_second, BURST * per_second)
        """Requests with the token, and what channels post once its signature holds."""
        self.readers = Rate(per_second, BURST * per_second)
        """Requests for the page's files."""
        self.unproven = Rate(per_second, BURST * per_second)
        """Posts to channels, until their signature holds."""
        self.logins = Rate(STRANGERS_PER_SECOND, BURST * STRANGERS_PER_SECOND)
        """Posts of a code that signs in."""
        self.strangers = Rate(STRANGERS_PER_SECOND, BURST * STRANGERS_PER_SECOND)
        """Requests that are not let in."""
