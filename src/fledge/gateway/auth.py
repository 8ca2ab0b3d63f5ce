"""Access to the gateway: the token, the host names and web origins that are accepted, and the rate limits.

Pure. Nothing here knows a web framework.
"""

import hmac
import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from urllib.parse import urlsplit

from fledge.core.value import NamedValue, Value
from fledge.errors import BadInput

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
ANY_ADDRESS: Final = ("", "0.0.0.0", "::")
USUAL_PORTS: Final = {"http": 80, "https": 443}
MOST_CLIENTS: Final = 10_000
"""How many clients' rates are remembered."""
BURST: Final = 4
"""How many seconds' worth of requests may come at once."""
PAGE_REQUESTS: Final = 1000
"""How many requests for the page's files may come at once: each new tab sends some fifty."""
STRANGERS_PER_SECOND: Final = 10.0
"""Rate limit for unauthenticated requests."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")

RawHeaders = Sequence[tuple[bytes, bytes]]


# ---- the door --------------------------------------------------------------------------------------------------------


class Rejection(Value):
    """The reason to reject a request: an HTTP status, and words that do not reveal what would be accepted."""

    status: int
    words: str


class Door(NamedValue):
    """The conditions under which a request is let in."""

    token: str
    hosts: frozenset[str]
    """Host names to which requests may be addressed, in lower case."""
    origins: frozenset[str] = frozenset()
    """Origins of web pages that may send requests, besides the gateway's own, as `_origin` writes them."""
    by_address: bool = False
    """True if requests may also be addressed to any numeric address: it listens to more than this machine."""

    def refuse(
        self,
        headers: RawHeaders,
        proven: bool = False,
        opens: bool = False,
        signed_in: Callable[[str], bool] = lambda credential: False,
    ) -> Rejection | None:
        """None if the request may come in. `proven`: it needs no token, because it proves itself in another way or only
        reads the page's files; `opens`: it is for the page itself, to which other sites may lead; `signed_in` tells
        whether a browser's credential counts for it."""
        host = _only(headers, b"host")
        if host is None or not self._is_ours(host):
            # A web page whose host name was pointed at this machine (DNS rebinding) still sends that name here.
            return Rejection(421, "this gateway is not asked for under that name")
        if not self._may_ask(headers, host) and not (opens and _leads_here(headers)):
            return Rejection(403, "pages of that origin may not use this gateway")
        if not proven and not self.has_token(headers) and not _is_own_page(headers, host, signed_in):
            return Rejection(401, "a bearer token is needed: it is in the file gateway.token of the state folder")
        return None

    def _is_ours(self, host: str) -> bool:
        name = _hostname(host)
        return name is not None and (name in self.hosts or (self.by_address and _is_address(name)))

    def _may_ask(self, headers: RawHeaders, host: str) -> bool:
        origins = [value for name, value in headers if name == b"origin"]
        if not origins:
            # Browsers send this header where a request from another site does not name its origin.
            site = _only(headers, b"sec-fetch-site")
            return site in (None, "same-origin", "none")
        return _is_own(headers, host) or _origin(_only(headers, b"origin") or "") in self.origins

    def has_token(self, headers: RawHeaders) -> bool:
        """True if the request shows the token."""
        scheme, token = _authorization(headers)
        same = hmac.compare_digest(token.encode("utf-8", "replace"), self.token.encode())
        return same and scheme == "bearer"


def _authorization(headers: RawHeaders) -> tuple[str, str]:
    scheme, _, shown = (_only(headers, b"authorization") or "").partition(" ")
    return scheme.lower(), shown.strip()


def _is_own(headers: RawHeaders, host: str) -> bool:
    """True if the request names the origin of the gateway's own page, as the browser does for a script of that page."""
    origin = _origin(_only(headers, b"origin") or "")
    return origin is not None and origin in (_origin(f"{scheme}://{host}") for scheme in USUAL_PORTS)


def _is_own_page(headers: RawHeaders, host: str, signed_in: Callable[[str], bool]) -> bool:
    """True if a browser that is signed in sends the request from the gateway's own page."""
    scheme, credential = _authorization(headers)
    return scheme == "browser" and _is_own(headers, host) and signed_in(credential)


def _leads_here(headers: RawHeaders) -> bool:
    """True of a link from another site that a person followed: the browser opens the page at the top, so no script of
    that site can read the response, or has chosen anything in the request besides the address."""
    said = (_only(headers, b"sec-fetch-mode"), _only(headers, b"sec-fetch-dest"))
    return said == ("navigate", "document") and not any(name == b"origin" for name, _ in headers)


def door(token: str, host: str, allowed_hosts: Iterable[str], allowed_origins: Iterable[str]) -> Door:
    """The door of a gateway that listens on `host`. Refused: names and origins that could never be matched."""
    names = [_checked_name(name) for name in allowed_hosts]
    origins = [_checked_origin(origin) for origin in allowed_origins]
    local = _hostname(host if ":" not in host else f"[{host}]") in LOOPBACK
    return Door(
        token=token,
        hosts=LOOPBACK | frozenset(names) | (frozenset() if host in ANY_ADDRESS else {host.lower()}),
        origins=frozenset(origins),
        by_address=not local,
    )


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadInput("gateway.allowedHosts", "must be a host name, without a port", name)
    return name.lower()


def _checked_origin(origin: str) -> str:
    checked = _origin(origin)
    if checked is None:
        raise BadInput("gateway.allowedOrigins", "must be like https://example.org, without a path", origin)
    return checked


def _origin(text: str) -> str | None:
    """An origin as browsers write it: in lower case, without the usual port of its scheme. None if it is malformed or
    no origin of a web page."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    name = _hostname(parts.netloc)
    if parts.scheme not in USUAL_PORTS or name is None or parts.path or parts.query or parts.fragment:
        return None
    host = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, USUAL_PORTS[parts.scheme]) else "")


def _only(headers: RawHeaders, wanted: bytes) -> str | None:
    """The value of a header that is there once; None if it is not, or more than once."""
    found = [value for name, value in headers if name == wanted]
    return found[0].decode("latin-1").strip() if len(found) == 1 else None


def _hostname(host: str) -> str | None:
    """The name in a Host header, without its port; None if the header is malformed."""
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
    """A rate limit for each client: so many requests per second, and so many at once."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, client: str, now: float) -> bool:
        """Count one more request; True if that is too many, and then it does not count. `now` only ever grows."""
        left, since = self._left.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        self._left[client] = (left - 1.0 if left >= 1.0 else left, now)
        if len(self._left) > MOST_CLIENTS:
            # The client whose last request is oldest has the most left, so forgetting it costs nothing.
            del self._left[next(iter(self._left))]
        return left < 1.0

    def give_back(self, client: str) -> None:
        """Do not count the last request of this client after all."""
        if client in self._left:
            left, since = self._left[client]
            self._left[client] = (min(self._burst, left + 1.0), since)


class Rates:
    """The rate limits of each kind of request. Requests of one kind cannot use up the rate of another: on one machine
    all come from one address."""

    def __init__(self, per_second: float) -> None:
        self.owner = Rate(per_second, BURST * per_second)
        """Requests with the token, and posts of channels once their signature holds."""
        self.readers = Rate(per_second, max(BURST * per_second, PAGE_REQUESTS))
        """Requests for the page's files."""
        self.unproven = Rate(per_second, BURST * per_second)
        """Posts of channels, until their signature holds."""
        self.logins = Rate(STRANGERS_PER_SECOND, BURST * STRANGERS_PER_SECOND)
        """Posts of a sign-in code."""
        self.strangers = Rate(STRANGERS_PER_SECOND, BURST * STRANGERS_PER_SECOND)
        """Requests that are not let in."""
