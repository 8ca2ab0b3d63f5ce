"""Budgets: what a run and its tree may use. Reserved in the commit that opens a model step, settled with its reply.

A budget belongs to a session and holds for everything below it: a step is charged to its own session and to every
ancestor that has one. Overshoot is at most what was reserved too little for one step. Seconds are those in which a
driver works: model steps and tools, each charged when it is committed; waiting costs none.
"""

from msgspec.structs import replace

from fledge.core import policy
from fledge.core.policy import Budget, Spent
from fledge.core.transcript import Replied
from fledge.orchestrator import inbox
from fledge.orchestrator.commit import Commit
from fledge.store.base import BudgetAccount


def give(c: Commit, session: str, budget: Budget) -> None:
    """Set what a session and everything below it may use; asked for below a parent with a budget, it is tightened."""
    for above in c.tx.sessions.lineage(session)[1:]:
        account = c.tx.budgets.get(above.key)
        if account is not None:
            budget = policy.inherit(account.budget, budget)
    c.tx.budgets.save(BudgetAccount(session, budget))


def _accounts(c: Commit, session: str) -> list[BudgetAccount]:
    found = (c.tx.budgets.get(above.key) for above in c.tx.sessions.lineage(session))
    return [account for account in found if account is not None]


def is_spent(c: Commit, session: str) -> bool:
    """True if a budget that holds for this session is used up: nothing more may be started below it."""
    if not c.tx.budgets.any():
        return False
    return any(policy.budget_state(account.budget, account.used) == "spent" for account in _accounts(c, session))


def reached(c: Commit, session: str) -> str | None:
    """The ceilings of the session's own budget that are reached, in words; None if it has none, or something is left
    of each."""
    account = c.tx.budgets.get(session)
    return None if account is None else policy.reached_ceilings(account.budget, account.used) or None


def reserve(c: Commit, session: str, step: Spent) -> str | None:
    """Reserve the cost of a step. Answers None, or in words which budget is used up; then nothing is reserved."""
    release(c, session)
    accounts = _accounts(c, session)
    for account in accounts:
        reached = policy.reached_ceilings(account.budget, account.used.plus(account.reserved))
        if reached:
            whose = "its budget" if account.session == session else f"the budget of {account.session}, above it,"
            return f"{whose} is used up ({reached})"
    for account in accounts:
        c.tx.budgets.save(replace(account, reserved=account.reserved.plus(step)))
    if accounts:
        c.tx.budgets.swap_reserve(session, step)
    return None


def release(c: Commit, session: str) -> None:
    """Give back the reservation of a step that will never be settled, because its driver is gone."""
    if not c.tx.budgets.any():
        return
    step = c.tx.budgets.swap_reserve(session, None)
    if step is not None:
        for account in _accounts(c, session):
            c.tx.budgets.save(replace(account, reserved=account.reserved.minus(step)))


def settle(c: Commit, session: str, reply: Replied) -> None:
    """Charge what the step used, and give back its reservation."""
    if not c.tx.budgets.any():
        return
    release(c, session)
    used_s = _since_progress(c, session)
    _charge(c, session, Spent(sum(reply.usage.values()), reply.cost_usd or 0.0, 1, used_s))


def worked(c: Commit, session: str) -> None:
    """Charge the time that tools took since the last commit of the session's driver."""
    if c.tx.budgets.any():
        _charge(c, session, Spent(seconds=_since_progress(c, session)))


def _since_progress(c: Commit, session: str) -> float:
    driver = c.tx.drivers.get(session)
    return 0.0 if driver is None else max(0.0, c.at - driver.progress_at)


def _charge(c: Commit, session: str, cost: Spent) -> None:
    for account in _accounts(c, session):
        used = account.used.plus(cost)
        warns = not account.warned and policy.budget_state(account.budget, used) != "within"
        if warns:
            share = policy.budget_share(account.budget, used)
            words = f"{account.session} has used {share:.0%} of its budget"
            inbox.notice(c, _heard_by(c, account.session), f"budget:{account.session}", words)
        c.tx.budgets.save(replace(account, used=used, warned=account.warned or warns))


def _heard_by(c: Commit, session: str) -> str:
    run = c.find(session)
    target = None if run is None else inbox.receiver_of(c, run.terms.parent).session
    return target or session
