"""The verbs of `Tx` that lists of runs and sessions are made of. None of them costs more the more runs are finished:
they follow indexes, or read counters that are kept in the commit that changes them.
"""

from typing import Protocol

from fledge.core.run import Instant
from fledge.store.records import AgentDay, ListedRun, ListedSession, RunCounts, RunMark, RunWalk


class RowsTx(Protocol):
    """Lists of runs and sessions, a page at a time."""

    def listed_runs(self, walk: RunWalk, behind: RunMark | None, limit: int) -> list[ListedRun]:
        """The next runs of a walk, the newest first: those behind a mark, or from the beginning."""
        ...

    def run_counts(self, root: str = "", requester: str = "") -> RunCounts:
        """How many runs each filter finds: in the folder, below a root, or among a requester's own children."""
        ...

    def child_numbers(self, parent: str, limit: int) -> dict[str, int]:
        """By key, the numbers that a list of this session's children shows: those of the first active ones and of the
        newest done ones, so many of each."""
        ...

    def listed_run(self, run: str) -> ListedRun | None:
        """Where this run is in lists, archived or not; None if there is no such run."""
        ...

    def stuck_runs(self) -> list[str]:
        """Keys of runs that were told as stuck and have not moved since, oldest first."""
        ...

    def lane_order(self, lane: str, limit: int) -> list[str]:
        """The first sessions in a lane's queue, in the order in which they are claimed."""
        ...

    def cost_below(self, session: str) -> float | None:
        """What everything below this session has cost, in dollars, deleted sessions included; None if no price was
        known."""
        ...

    def agent_days(self, since: int) -> list[AgentDay]:
        """What each agent began and spent on each day from this one on, by day."""
        ...

    def listed_sessions(
        self, agent_id: str, roots_only: bool, behind: tuple[Instant, str] | None, limit: int
    ) -> list[ListedSession]:
        """The next open sessions, the latest active first: those behind a time and key, or from the beginning; of one
        agent, or of all if none is named; conversations and programs only, if that is wanted."""
        ...

    def miscounted(self) -> list[str]:
        """What is wrong with the counters, by counting every run: for checks, since it reads all of them."""
        ...
