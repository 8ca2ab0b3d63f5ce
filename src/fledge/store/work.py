"""The store's contract, second part: the verbs on questions to a person, commissions, budgets, exchanges and
heartbeats.

`base.Tx` is these and all others. Nothing here knows SQL, rules or time.
"""

from typing import Protocol

from fledge.core.documents import Workspace
from fledge.core.exchange import Exchange
from fledge.core.goods import Goods
from fledge.core.policy import Spent
from fledge.core.run import Instant
from fledge.store.records import Approval, ApprovalState, Commission, Heartbeat, Purse


class WorkTx(Protocol):
    """What one transaction can do about work that waits for somebody, and what it may cost."""

    # -- what is handed over
    def keep_goods(self, session: str, goods: Goods) -> None:
        """This is what the session hands over besides its words, as far as is known now."""
        ...

    def goods(self, session: str) -> Goods | None:
        """What the session hands over; None if nobody looked."""
        ...

    def children_with_leaves(self, session: str, limit: int) -> list[str]:
        """Keys of the session's newest children that left something outside the database; no archived ones."""
        ...

    # -- documents of workspaces
    def workspace(self, path: str) -> Workspace | None:
        """What is known of a workspace, by its real path."""
        ...

    def save_workspace(self, workspace: Workspace) -> None:
        """Store what is known of a workspace."""
        ...

    def begin_work(self, session: str, workspace: str, at: Instant) -> None:
        """The session's drive may write in this workspace from now on; one that does so already changes nothing."""
        ...

    def end_work(self, session: str) -> tuple[str, Instant] | None:
        """The session's drive is over: where it could write, and since when; None if it could nowhere."""
        ...

    def at_work(self) -> list[tuple[str, Instant]]:
        """Workspaces in which drives may write now, and since when, by session."""
        ...

    # -- questions to a person
    def ask_approval(self, approval: Approval) -> None:
        """Store a question; asking about the same call again changes nothing."""
        ...

    def approval(self, approval_id: str) -> Approval | None:
        """A question by its id."""
        ...

    def approvals(self, session: str, first: int = 0, last: int | None = None) -> list[Approval]:
        """All questions of a session, oldest first; those about calls of the entries `first` to `last`."""
        ...

    def open_approvals(self) -> list[Approval]:
        """Questions of all sessions that wait for an answer, oldest first."""
        ...

    def decided_approvals(self, limit: int) -> list[Approval]:
        """Questions of all sessions that wait for nobody, the newest first."""
        ...

    def move_approval(
        self,
        session: str,
        entry: int,
        index: int,
        state: ApprovalState,
        answered_by: str = "",
        words: str = "",
        rule: str = "",
    ) -> bool:
        """Move the question about this call on, with what was said; False if there is none, or it is already decided
        otherwise."""
        ...

    # -- commissions
    def put_commission(self, commission: Commission) -> None:
        """Store a commission that was accepted. Refused if its run id, row or key was ever used."""
        ...

    def commission(self, run_id: str) -> Commission | None:
        """A commission by its run id."""
        ...

    def commission_keyed(self, key: str) -> Commission | None:
        """The commission that this key means."""
        ...

    def take_up(self, row: str, at: Instant) -> None:
        """The open turn of its session has read this row: it serves the row's commission, if there is one."""
        ...

    def end_commission(self, row: str, ended: str, at: Instant) -> None:
        """The row's commission, if there is one that has not ended, has ended so: it was answered, or will not be."""
        ...

    def commissions(self, session: str) -> list[Commission]:
        """The commissions that a turn of the session has read and none has answered, in order of acceptance."""
        ...

    def overdue_commissions(self, at: Instant, limit: int) -> list[str]:
        """Run ids of commissions whose turn has taken longer than was wished, the longest overdue first."""
        ...

    # -- budgets
    def has_purses(self) -> bool:
        """True if any session has a budget."""
        ...

    def purse(self, session: str) -> Purse | None:
        """The session's own purse, if it has one."""
        ...

    def save_purse(self, purse: Purse) -> None:
        """Store a purse."""
        ...

    def swap_reserve(self, session: str, step: Spent | None) -> Spent | None:
        """Set aside for the session's step, or nothing; answers what was set aside before."""
        ...

    # -- messages between sessions
    def save_exchange(self, exchange: Exchange, at: Instant) -> None:
        """Store an exchange as it stands at this time."""
        ...

    def forget_exchanges(self, before: Instant, limit: int) -> int:
        """Forget some of those that were over before this time; answers how many. What came of one message goes
        together, and not while anything of it is open, younger or unread."""
        ...

    def exchange(self, exchange_id: str) -> Exchange | None:
        """An exchange by its id."""
        ...

    def exchange_about(self, row: str) -> Exchange | None:
        """The exchange whose message, the one that is to be answered now, has this row key."""
        ...

    def answering(self, session: str) -> list[Exchange]:
        """Exchanges that await this session's answer to a message it has read."""
        ...

    def exchanges_begun(self, session: str) -> list[Exchange]:
        """Exchanges that this session began and that are not over."""
        ...

    def is_waited_for(self, session: str, at: Instant) -> bool:
        """True if another session waits, at this time, for this one's answer."""
        ...

    def hops_made(self, root: str) -> int:
        """How many messages were sent in all exchanges under this root."""
        ...

    # -- heartbeats
    def heartbeat(self, session: str) -> Heartbeat | None:
        """What is wanted of this conversation by itself, if anything ever was."""
        ...

    def save_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Store what is wanted."""
        ...

    def due_heartbeats(self, at: Instant, limit: int) -> list[str]:
        """Sessions whose wake or periodic heartbeat is due, the longest overdue first."""
        ...

    def set_heartbeat(self, session: str, cause: str) -> None:
        """The open turn is one that nobody spoke for, or, if the cause is empty, one that somebody did after all."""
        ...
