"""The state that the gateway's methods work with: the open folder, the limits, and whether it is about to close."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, TypeVar

from fledge.api.fledge import Fledge
from fledge.commands.feed import Watch
from fledge.commands.rpc import TOO_MANY, RpcFault
from fledge.config.layers import Layers
from fledge.core.run import Instant
from fledge.core.value import NamedValue
from fledge.orchestrator.commit import Commit
from fledge.runtime.feed import Subscription, TurnEvent
from fledge.store.base import Tx

if TYPE_CHECKING:
    from fledge.commands.login import LoginCodes
    from fledge.commands.signins import SignIns

T = TypeVar("T")
P = ParamSpec("P")

RESTS: Final = 4.0
"""How much longer than their work feeds that are far behind rest."""
SHOWN_S: Final = 20.0
"""How long a session counts as shown after a client said so."""


class Patience(NamedValue):
    """Time limits for a client."""

    head_s: float = 10.0
    """For the head of a request to arrive."""
    body_s: float = 30.0
    """For the body of a request to arrive."""
    stuck_s: float = 10.0
    """For the client to read a message; then it is disconnected, and resumes with the cursor it last saw."""
    quiet_s: float = 15.0
    """After so long without an event a feed sends a line without content, so that a dead connection is found."""


class GatewayState:
    """One gateway at work."""

    client: Final = "gateway"
    """The client's name in the record of answers. A client holds the token, or can open the folder's socket."""

    def __init__(self, fl: Fledge, patience: Patience | None = None, *, layers: Layers = ()) -> None:
        self.fl, self.limits, self.patience = fl, fl.config.gateway, patience or Patience()
        self.layers = layers
        """The documents that the settings were made of, where they are known."""
        self.logins: LoginCodes | None = None
        """Codes that sign in at the gateway's page; None where no gateway serves one."""
        self.sign_ins: SignIns | None = None
        """The browsers that are signed in there; None where no gateway serves one."""
        self.started_at = self.now()
        self.closing = asyncio.Event()
        """Set when it takes no more requests; those that wait are then answered at once, with the present state."""
        self.watches: set[Watch] = set()
        self._catching_up = asyncio.Lock()
        self._shown: dict[str, tuple[Subscription, asyncio.TimerHandle]] = {}
        """By session that a client shows: the subscription to its live events, and the timer that ends it."""
        self.old_names: set[tuple[str, str]] = set()
        """Former names that callers have used, of methods and of their parameters: each is logged once."""
        self.requests = 0
        self.rejections = 0

    @property
    def drives(self) -> bool:
        """True if unfinished work continues in this process."""
        return self.fl.drives

    def signed(self, by: str) -> str:
        """The name in the record of answers: the client, which no caller can choose, and behind it the person that the
        client names."""
        return f"{self.client}: {by}" if by else self.client

    def now(self) -> Instant:
        """The time."""
        return self.fl.engine.clock.now()

    async def read(self, look: Callable[[Tx], T]) -> T:
        """The answer of `look`, which reads the rows of one moment."""
        return await self.fl.engine.store.read(look)

    async def commit(self, act: Callable[Concatenate[Commit, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Commit a decision."""
        return await self.fl.engine.commit(act, *args, **kwargs)

    def subscribe(self, watch: Watch) -> None:
        """One more feed is watched. Refused: there are too many."""
        if len(self.watches) >= self.limits.max_subscriptions:
            raise RpcFault(TOO_MANY, f"{len(self.watches)} feeds are watched already: gateway.maxSubscriptions")
        self.watches.add(watch)

    def unsubscribe(self, watch: Watch) -> None:
        """Close a feed; it no longer counts towards the limit."""
        self.watches.discard(watch)
        watch.close()

    @asynccontextmanager
    async def slice_for(self, watch: Watch) -> AsyncIterator[None]:
        """Read and encode one page of a feed in this block. Feeds that are far behind take turns, and after each page
        they rest: all of them together take a bounded share of the store, the event loop and the processor."""
        if not watch.is_far_behind:
            yield
            return
        async with self._catching_up:
            loop = asyncio.get_running_loop()
            began = loop.time()
            yield
            await asyncio.sleep(RESTS * (loop.time() - began))

    def watch_session(self, session: str) -> float:
        """Get the live events of this session from other processes, for a while; answers after how many seconds to call
        again, 0 if the store is not shared with other processes. Refused: too many sessions are shown."""
        if self.fl.engine.store.cluster is None:
            return 0.0
        if session in self._shown:
            watch, timer = self._shown[session]
            timer.cancel()
        elif len(self._shown) >= self.limits.max_subscriptions:
            raise RpcFault(TOO_MANY, f"{len(self._shown)} sessions are shown already: gateway.maxSubscriptions")
        else:
            watch = self.fl.listen(1, session=session)
        self._shown[session] = watch, asyncio.get_running_loop().call_later(SHOWN_S, self._unwatch, session)
        return SHOWN_S / 2

    def text_so_far(self, session: str) -> TurnEvent | None:
        """The text so far of the open reply of this session, as one piece; None if there is none."""
        heard = self.fl.listen()
        heard.close()
        return next((event for event in heard.waiting() if event.session == session), None)

    def _unwatch(self, session: str) -> None:
        watch, timer = self._shown.pop(session)
        watch.close()
        timer.cancel()

    def close(self) -> None:
        """Take no more requests, answer those that wait, end the feeds."""
        self.closing.set()
        for session in (*self._shown,):
            self._unwatch(session)
        for watch in self.watches:
            watch.poke()
