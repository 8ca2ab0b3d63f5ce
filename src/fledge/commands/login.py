"""`page.link`: an address that signs a browser in once, without the token in it.

The address has a one-time code in its fragment, which browsers send to no server. The page posts the code and is
signed in. A code is good once, for a minute, and only its digest is kept. The verb is answered on the private
socket alone: a process that can open the socket could read the token as well.
"""

import hashlib
import hmac
import secrets
from collections import deque
from typing import Final

from fledge.commands.gateway_state import GatewayState
from fledge.commands.params import Nothing
from fledge.commands.table import method
from fledge.core.run import Instant
from fledge.core.value import NamedValue
from fledge.errors import Refused

CODE_BYTES: Final = 16
GOOD_S: Final = 60.0
MOST_CODES: Final = 16
"""So many codes are good at once; one more makes the oldest void."""


class LoginCodes:
    """The codes that are good now."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._held: deque[tuple[bytes, Instant]] = deque(maxlen=MOST_CODES)

    def make(self, now: Instant) -> str:
        """A new code."""
        code = secrets.token_urlsafe(CODE_BYTES)
        self._held.append((_digest(code), now + GOOD_S))
        return code

    def take(self, code: str, now: Instant) -> bool:
        """True if this code is good; it is void afterwards. How long this takes reveals nothing about any code."""
        given = _digest(code)
        same = [hmac.compare_digest(given, digest) for digest, _ in self._held]
        found = [one for one, is_same in zip(self._held, same, strict=True) if is_same]
        for one in found:
            self._held.remove(one)
        return any(now < ends_at for _, ends_at in found)


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode("utf-8", "replace")).digest()


class PageLink(NamedValue):
    """An address of the page that signs a browser in once."""

    address: str
    expires_at: Instant


@method("page.link")
async def page_link(gateway: GatewayState, params: Nothing) -> PageLink:
    """Make an address of the web page that signs a browser in once, within a minute. Answered on the private socket
    alone."""
    if gateway.logins is None:
        raise Refused("error", "no gateway serves this folder: start one with `fledge serve`")
    now = gateway.now()
    code = gateway.logins.make(now)
    return PageLink(address=f"{gateway.logins.address}/#code={code}", expires_at=now + GOOD_S)
