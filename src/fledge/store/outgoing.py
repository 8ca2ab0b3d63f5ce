"""The part of the store's contract that is about what leaves: the outbox, and the routes of sessions."""

from typing import Protocol

from fledge.core.run import Instant
from fledge.store.records import Post, Route


class OutgoingTx(Protocol):
    """The outbox and the routes, in one transaction."""

    # -- outbox
    def post(
        self,
        key: str,
        kind: str,
        run: str | None,
        body: str,
        due_at: Instant,
        *,
        lane: str = "",
        retries: int = 3,
        expires_at: Instant | None = None,
    ) -> bool:
        """Put something into the outbox; False, and nothing changes, if this key was ever posted."""
        ...

    def find_post(self, key: str) -> Post | None:
        """A post by its key, whatever its state."""
        ...

    def is_due(self, key: str) -> bool:
        """True if this post still waits to be sent."""
        ...

    def due_posts(self, at: Instant, limit: int) -> list[Post]:
        """What is due, the longest overdue first: to be sent, of each lane only the oldest that waits; or, if
        undelivered, to be taken off that list."""
        ...

    def waiting_posts(self) -> int:
        """How many wait to be sent, due or not."""
        ...

    def post_done(self, key: str, at: Instant) -> None:
        """It was sent."""
        ...

    def post_failed(self, key: str, error: str, due_at: Instant, at: Instant) -> None:
        """It was not sent: try again at `due_at`; those behind it in its lane wait for that."""
        ...

    def give_up_post(self, key: str, error: str, until: Instant, at: Instant) -> None:
        """It was not sent, and is undelivered: on that list until it is retried or dismissed, or `until`."""
        ...

    def retry_post(self, key: str, at: Instant, expires_at: Instant | None) -> bool:
        """An undelivered post waits again, as if just posted, in its old place; False if it is not undelivered."""
        ...

    def dismiss_post(self, key: str, at: Instant) -> bool:
        """Take a post off the undelivered list; False if it is not on it."""
        ...

    def undelivered_posts(self, lane: str | None = None) -> list[Post]:
        """Every post that was given up on, oldest first; only those of a lane if it is named."""
        ...

    # -- routes
    def route(self, session: str) -> Route | None:
        """Where the session's words go, if that is known."""
        ...

    def set_route(self, route: Route) -> None:
        """From now on the session's words go there. Refused if another session is bound to the same place."""
        ...

    def drop_route(self, session: str) -> bool:
        """The session's words go nowhere any more; False if they went nowhere before."""
        ...

    def bound_at(self, channel: str, place: str) -> Route | None:
        """The binding of this place, if a session is bound to it."""
        ...

    def bindings(self) -> list[Route]:
        """Every binding, by session."""
        ...

    def due_routes(self, at: Instant, limit: int) -> list[str]:
        """Sessions whose binding has come to its end, the longest overdue first."""
        ...
