"""Budgets of sessions with everything below them, and the amounts reserved for current steps."""

from fledge.core.policy import Budget, Spent
from fledge.store.records import BudgetAccount
from fledge.store.unit import Noun, json_decoder, to_json

_budget = json_decoder(Budget)
_spent = json_decoder(Spent)


class Budgets(Noun):
    """Budget accounts by session."""

    def any(self) -> bool:
        """True if any session has a budget."""
        return not self._unit.is_empty("purses")

    def get(self, session: str) -> BudgetAccount | None:
        """The session's own budget account, if it has one."""
        row = self._unit.one("SELECT budget, used, reserved, warned FROM purses WHERE session = ?", session)
        if row is None:
            return None
        budget, used, reserved, warned = row
        return BudgetAccount(session, _budget(budget), _spent(used), _spent(reserved), bool(warned))

    def save(self, account: BudgetAccount) -> None:
        """Store a budget account."""
        self._unit.execute(
            "INSERT INTO purses (session, budget, used, reserved, warned) VALUES (?,?,?,?,?)"
            " ON CONFLICT (session) DO UPDATE SET budget = excluded.budget, used = excluded.used,"
            " reserved = excluded.reserved, warned = excluded.warned",
            *(
                account.session,
                to_json(account.budget),
                to_json(account.used),
                to_json(account.reserved),
                int(account.warned),
            ),
        )

    def swap_reserve(self, session: str, step: Spent | None) -> Spent | None:
        """Reserve an amount for the session's step, or nothing; returns the amount reserved before."""
        row = self._unit.one("DELETE FROM reserves WHERE session = ? RETURNING step", session)
        if step is not None:
            self._unit.execute("INSERT INTO reserves (session, step) VALUES (?,?)", session, to_json(step))
        return None if row is None else _spent(row[0])
