"""Events taken up, and what each effect does to rows, in the commit of the decision that asked for it.

`apply` is how a command changes a run: the event is decided by `core.lifecycle` and recorded, its effects are carried
out, and then all that follows from them, in two fixed orders. A session's events to itself come at once: an outcome and
the closing of its own turn are one decision. All else waits until everything that the command orders is done (all kills
of a tree before any parent hears that its children have settled), first in, first out. `APPLIED_BY` names the function
of each effect; where it is more than a line, the doing itself lives with its noun.
"""

from collections.abc import Callable
from typing import Any, Final, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fledge.core import effects as fx
from fledge.core import events as ev
from fledge.core import policy
from fledge.core.announce import announce_key
from fledge.core.child_files import RemovalMoment, files_to_remove_at
from fledge.core.effects import Step
from fledge.core.images import with_names
from fledge.core.lifecycle import transition
from fledge.core.prompts import BLOCK_ROWS, overdue_message, wake_message
from fledge.core.run import CleanupPending, Ending, Gone, Instant, Queued, Run, Waiting
from fledge.core.transcript import Carried, Noted, carried_body
from fledge.core.turn import (
    OVER,
    YIELDED,
    Arrived,
    AskingPerson,
    CloseTurn,
    CutCalls,
    Driven,
    Due,
    Idle,
    Looked,
    PostWake,
    TellCrashed,
    TellFailing,
    TellGivenUp,
    Turn,
    TurnEffect,
    TurnEnd,
    TurnFacts,
    TurnFailed,
    TurnInput,
    TurnLost,
    TurnOver,
    TurnStopped,
    TurnYielded,
    Wait,
    WishHeartbeat,
    transition_turn,
)
from fledge.orchestrator import bindings, budget, exchanges, heartbeat, inbox, outbox, transcripts
from fledge.orchestrator.commit import Commit, added
from fledge.orchestrator.views import name_of


def apply(c: Commit, key: str, event: ev.Event) -> Step:
    """Apply a command's event: decide, record the event, carry out its effects and all events that follow."""
    step = order(c, key, event)
    settle(c)
    return step


def order(c: Commit, key: str, event: ev.Event) -> Step:
    """Apply an event, but leave events for other sessions in the queue, for `settle`: the command may order more
    first."""
    before = c.run(key)
    step = transition(before, event)
    if step.ignored is not None:
        return step
    run = step.run
    if type(run.phase) is not Gone:
        c.tx.runs.save(before, run, event)
    hints = c.hints
    hints.moves = added(hints.moves, (before, run, event))
    if not hints.look and run.due_at is not None:
        hints.look = True
    queue, waiting = c.queue, len(c.queue)
    for effect in step.effects:
        APPLIED_BY[type(effect)](c, run, effect)
    if len(queue) > waiting:
        follows = queue[waiting:]
        del queue[waiting:]
        queue.extend([one for one in follows if one[0] != key])
        for own, event_after in follows:
            if own == key:
                _take_up(c, key, event_after)
    return step


def settle(c: Commit) -> None:
    """Apply the events in the queue, and those that follow from them, until none is left."""
    while c.queue or c.settled:
        taken, c.queue = c.queue, []
        for key, event in taken:
            _take_up(c, key, event)
        if not c.queue and c.settled:
            parent = next(iter(c.settled))
            _children_settled(c, parent, c.settled.pop(parent))


_OF_TURNS: Final = frozenset(get_args(TurnInput))


def _take_up(c: Commit, key: str, event: ev.Event | TurnInput) -> None:
    # By its type alone: to ask for each of many types in a row costs more than all the rest.
    if type(event) in _OF_TURNS:
        order_turn(c, key, cast(TurnInput, event))
    elif c.find(key) is not None:
        order(c, key, cast(ev.Event, event))


# ---- turns -----------------------------------------------------------------------------------------------------------


def move_turn(c: Commit, session: str, event: TurnInput, before: Turn | None = None) -> Turn | None:
    """Take up an event of a session's turns with all that follows, and return the state of the turns afterwards.
    Nothing happens to a session that takes no turns (a live run, a program, a deleted session), and None is returned.
    `before`: the state before its place in the queue was taken."""
    after = order_turn(c, session, event, before)
    settle(c)
    return after


def order_turn(c: Commit, session: str, event: TurnInput, before: Turn | None = None) -> Turn | None:
    """Move a session's turn as `move_turn` does, but leave events that follow in the queue."""
    before = before or c.tx.turns.state(session)
    if before is None:
        return None
    step = transition_turn(before, event, _turn_facts(c, session, before, event))
    after = step.turn
    opened, known = after.at.open, before.at.open
    if opened is not None and opened is not known:
        if known is None:
            c.tx.turns.open(session, opened.generations, c.at)
        c.tx.turns.save(opened)
    if after.wait is not before.wait:
        c.tx.turns.save_wait(session, after.wait)
    for effect in step.effects:
        _apply_turn_effect(c, session, effect)
    _save_place(c, session, before, after)
    if after is not before and after != before:
        c.moved(session)
    return after


_ENDS: Final = frozenset([TurnOver, TurnYielded, TurnFailed, TurnLost, TurnStopped])


def _turn_facts(c: Commit, session: str, turn: Turn, event: TurnInput) -> TurnFacts:
    """The facts for the decision. This runs in every commit, so it reads only the rows that the event needs."""
    at = turn.at
    if at.open is not None and type(event) not in _ENDS:
        return TurnFacts(at=c.at)
    if type(event) is Arrived and turn.wait is None and (type(at) is Idle or at == Due()):
        return TurnFacts(at=c.at, rows_at=c.at)
    counts, wish = c.tx.sessions.counts(session), heartbeat.is_wanted(c, session)
    unread = inbox.unread_facts(c, session)
    return replace(unread, unsettled=counts.unsettled, settled=counts.settled, wish=wish)


def _save_place(c: Commit, session: str, before: Turn, after: Turn) -> None:
    """Queue the session as its state says, or not at all."""
    match after.at:
        case Driven():
            return
        case Idle():
            c.tx.queue.remove(session)
        case Due(from_at=due_at) | AskingPerson(due_at=due_at):
            if after.at != before.at:
                is_suspect = after.open is not None and policy.is_suspect(after.open.crashes)
                exchanges.enqueue(c, session, session, due_at, is_suspect)


def _apply_turn_effect(c: Commit, session: str, effect: TurnEffect) -> None:
    match effect:
        case fx.FreeDriver():
            _free(c, session)
        case fx.SupersedeDriver(until_at=until_at):
            _supersede(c, session, until_at)
        case CloseTurn(end=end, owes=owes):
            exchanges.close_turn(c, session, end, owes)
        case CutCalls(reason=reason):
            transcripts.close_calls(c, session, reason)
        case PostWake(wait=wait):
            _post_wake_of_turn(c, session, wait)
        case WishHeartbeat():
            heartbeat.request(c, session, "something came in that nobody waits for", "default")
        case TellCrashed(crashes=crashes, turn=turn):
            key = f"crashed:{session}:{turn.turn}"
            if not turn.heartbeat:  # a notice would open the next heartbeat turn, which would crash too
                inbox.notice(c, session, key, f"the last turn crashed {crashes} times and was given up")
            outbox.tell(c, session, key, f"a turn crashed {crashes} times: given up")
        case TellFailing(reason=reason):
            c.hints.failing = added(c.hints.failing, (c.at, session, reason))
        case TellGivenUp(reason=reason, turn=turn):
            inbox.forward_read(c, turn, transcripts.of_turn(c.tx, turn))
            words = f"the turn ended: {reason}"
            transcripts.write(c, session, Noted(words))
            outbox.tell(c, session, f"failed:{session}:{turn.turn}", words)


# ---- effects ---------------------------------------------------------------------------------------------------------


def _call_hook(c: Commit, run: Run, effect: fx.CallHook) -> None:
    if effect.hook == "subagent_spawned":
        outbox.call_spawned_hooks(c, run)
        outbox.tell_context_engine(c, run.key, "started")
    else:
        bindings.run_ended(c, run)


def _release_driver(c: Commit, run: Run, effect: fx.ReleaseDriver) -> None:
    _free(c, run.key)
    exchanges.close_turn(c, run.key, YIELDED if effect.owes == "all" else OVER, effect.owes)


def _clean_up(c: Commit, run: Run, effect: fx.CleanUp) -> None:
    if not files_to_remove_at(run, "cleanup"):
        clean_now(c, run.key)


def _stop_driver(c: Commit, run: Run, effect: fx.StopDriver) -> None:
    c.tx.drivers.stop(run.key, effect.until_at)
    c.stop(run.key)


def _close_calls(c: Commit, run: Run, effect: fx.CloseCalls) -> None:
    """Releasing its driver has closed its turn, perhaps with calls that are still open."""
    transcripts.close_calls(c, run.key, effect.reason)
    exchanges.close_turn(c, run.key, TurnEnd("interrupted", effect.reason))


def _revive_row(c: Commit, run: Run, effect: fx.ReviveRow) -> None:
    for waiting in inbox.open_rows(c, run.key, "outcome"):
        c.tx.inbox.reopen(waiting)
    inbox.readdress(c, run, effect.to)


def _tell(c: Commit, run: Run, effect: fx.Tell) -> None:
    target = inbox.receiver_of(c, run.terms.parent).session
    if target is not None:
        words = f"{name_of(c.tx, run.key)}: {effect.notice}"
        inbox.notice(c, target, f"notice:{run.key}:{run.version}", words)
        outbox.tell(c, target, f"{run.key}:{run.version}", words)


def _archive(c: Commit, run: Run, effect: fx.Archive) -> None:
    outbox.tell_context_engine(c, run.key, effect.reason)
    bindings.unbind(c, run.key)
    _remove(c, run, "archive")
    if c.rules.delete_kept:
        _delete_session(c, run)


def _delete_session(c: Commit, run: Run) -> None:
    transcripts.delete_session(c, run.key)
    _remove(c, run, "end")


def _forget(c: Commit, run: Run, effect: fx.Forget) -> None:
    route = c.tx.routes.get(run.key)
    if route is not None:
        # A thread was made ready for a child that will never be.
        outbox.call_ended_hooks(c, run, route.address, "spawn-failed", "error")
    _remove(c, run, "end")
    transcripts.release_images(c, run.key)
    c.tx.runs.forget(run.key)


def _enqueue(c: Commit, run: Run, effect: fx.Enqueue) -> None:
    is_suspect = policy.is_suspect(run.crashes)
    if isinstance(run.phase, Queued) and run.phase.serving is not None:
        exchanges.enqueue(c, run.key, run.terms.parent, effect.due_at, is_suspect)
        return
    # No session waits in its own turn for what an attempt says: its requester gets the result.
    c.tx.queue.put(run.key, run.terms.lane, run.terms.parent, is_suspect, effect.due_at)
    c.hints.look = True


def _remove(c: Commit, run: Run, moment: RemovalMoment) -> None:
    """Post what the run leaves outside the database to be removed; tried until it is gone."""
    files = files_to_remove_at(run, moment)
    body = msgspec.json.encode(files).decode()
    if files and c.tx.outbox.post(
        f"remove:{run.key}:{moment}", "remove", None, body, c.at, retries=transcripts.FOR_EVER
    ):
        c.hints.look = True


def _free(c: Commit, key: str) -> None:
    budget.release(c, key)
    driver = c.tx.drivers.get(key)
    if driver is not None:
        c.release(key, driver.epoch)


def _supersede(c: Commit, key: str, until_at: Instant) -> None:
    budget.release(c, key)
    c.tx.drivers.supersede(key, until_at)
    _free_slot(c, key)
    c.stop(key)


def _free_slot(c: Commit, key: str) -> None:
    """A superseded driver keeps its slot until it exits or its time is up; one superseded earlier keeps that time."""
    driver = c.tx.drivers.get(key)
    if driver is not None and driver.release_at is not None and driver.release_at <= c.at:
        c.release(key, driver.epoch)


def _post(c: Commit, run: Run, effect: fx.Post) -> None:
    match effect.kind:
        case "task":
            _post_task(c, run, f"task:{run.key}", is_new=True)
        case "wake":
            _post_wake(c, run, wake_message(inbox.silent_children(c, run.key)))
        case "overdue":
            _post_wake(c, run, _overdue_words(c, run.key))


def _revive_inbox(c: Commit, run: Run, effect: fx.ReviveInbox) -> None:
    c.tx.turns.save_wait(run.key, None)
    inbox.revive(c, run.key)
    has_task = any(row.kind == "task" for row in c.tx.inbox.unread(run.key))
    if not has_task and not transcripts.has_begun(c.tx, run.key):
        _post_task(c, run, f"task:{run.key}:{run.run_id}")  # an earlier version voided the first


def _post_task(c: Commit, run: Run, row_key: str, is_new: bool = False) -> None:
    spec = c.tx.runs.spec(run.key)
    words, carried = with_names(spec.task, spec.images), carried_body(Carried(spec.images))
    c.tx.inbox.put(row_key, run.key, "task", run.terms.parent, words, c.at, carried=carried, is_new=is_new)


def _post_wake(c: Commit, run: Run, words: str) -> None:
    c.tx.inbox.put(announce_key(run.key, run.run_id, "wake"), run.key, "wake", None, words, c.at)


def _post_wake_of_turn(c: Commit, session: str, wait: Wait) -> None:
    """Results tell by themselves that the wait is over, but not who ended silently or is missing."""
    silent = [] if wait.over == "past" else inbox.silent_children(c, session)
    if wait.over == "settled" and not silent and c.tx.inbox.count_unread(session)[0]:
        return
    words = _overdue_words(c, session) if wait.over == "past" else wake_message(silent)
    c.tx.inbox.put(f"wake:{session}:{c.ids.unique()}", session, "wake", None, words, c.at, origin=wait.origin)


def _overdue_words(c: Commit, key: str) -> str:
    """The children that had answered when the yield's time ran out, and those that had not."""
    sources = [row.source for row in c.tx.inbox.unread_by_child(key, inbox.WINDOW) if row.announces and row.source]
    answered = inbox.named(c, dict.fromkeys(sources))
    missing = inbox.named(c, c.tx.runs.unsettled(key, BLOCK_ROWS))
    return overdue_message(answered, inbox.silent_children(c, key), missing, c.tx.sessions.counts(key).unsettled)


def _give_up_row(c: Commit, run: Run, effect: fx.GiveUpRow) -> None:
    inbox.close_rows(c, run.key, "outcome", c.tx.inbox.give_up)
    target = inbox.receiver_of(c, run.terms.parent).session
    if target is not None and not inbox.is_program(c, target):
        inbox.tell_undelivered(c, target)


def _count_down(c: Commit, run: Run, effect: fx.CountDown) -> None:
    parent = run.terms.parent
    c.tx.sessions.child_settled(parent)
    c.settled.pop(parent, None)
    c.settled[parent] = run.key


def _children_settled(c: Commit, parent: str, last: str) -> None:
    """Tell a waiting run or conversation that children have settled, if its condition holds now."""
    above, counts = c.find(parent), c.tx.sessions.counts(parent)
    until = above.phase.until_settled if above is not None and isinstance(above.phase, Waiting) else None
    if above is not None and policy.holds(until, counts.unsettled, counts.settled):
        event = ev.ChildrenSettled(
            at=c.at, unsettled=counts.unsettled, settled=counts.settled, next_run_id=c.ids.unique()
        )
        order(c, parent, event)
    # The last completion is in no inbox while a hook is asked for its address.
    aims = c.tx.turns.wait(parent) is not None and inbox.is_aiming(c, last)
    if c.tx.turns.wait(parent) is not None and not aims:
        order_turn(c, parent, Looked())


def _count_up(c: Commit, parent: str) -> None:
    c.tx.sessions.child_unsettled(parent)
    unsettle_above(c, parent)


def unsettle_above(c: Commit, parent: str) -> None:
    """A child became unsettled: a parent that has ended counts as unsettled again, and so on upwards."""
    above = c.find(parent)
    if above is not None and above.concluded and c.tx.sessions.counts(parent).unsettled == 1:
        _count_up(c, above.terms.parent)


def clean_now(c: Commit, key: str) -> bool:
    """Finish a cleanup that needs nothing outside the database; False if an accepted message is still unanswered."""
    run = c.run(key)
    if not isinstance(run.phase, CleanupPending):
        return True
    if run.terms.cleanup == "delete":
        if c.tx.turns.get(key) is not None or c.tx.inbox.count_unread(key)[1]:
            c.then(key, ev.CleanupFailed(at=c.at, error="a message is being answered"))
            return False
        c.tx.queue.remove(key)
        transcripts.delete_session(c, key)
        for notice in c.tx.inbox.unread(key):
            c.tx.inbox.void(notice.key, c.at)
    c.then(key, ev.CleanedUp(at=c.at))
    outbox.tell_context_engine(c, key, "deleted" if run.terms.cleanup == "delete" else "completed")
    return True


APPLIED_BY: Final[dict[type[fx.Effect], Callable[[Commit, Run, Any], object]]] = {
    fx.Enqueue: _enqueue,
    fx.Dequeue: lambda c, run, effect: c.tx.queue.remove(run.key),
    fx.ReleaseDriver: _release_driver,
    fx.FreeDriver: lambda c, run, effect: _free(c, run.key),
    fx.SupersedeDriver: lambda c, run, effect: _supersede(c, run.key, effect.until_at),
    fx.StopDriver: _stop_driver,
    fx.CloseCalls: _close_calls,
    fx.Post: _post,
    fx.Drain: lambda c, run, effect: inbox.consume_completions(c, run.key),
    fx.Announce: lambda c, run, effect: inbox.announce(c, run, effect.row, effect.text),
    fx.RefreshRow: lambda c, run, effect: inbox.refresh(c, run, effect.text),
    fx.WithdrawPlan: lambda c, run, effect: inbox.close_rows(c, run.key, "plan", c.tx.inbox.suppress),
    fx.Readdress: lambda c, run, effect: inbox.readdress(c, run),
    fx.Trace: lambda c, run, effect: inbox.tried_in_vain(c, run, effect.result, effect.why),
    fx.GiveUpRow: _give_up_row,
    fx.ReviveRow: _revive_row,
    fx.DismissRow: lambda c, run, effect: inbox.close_rows(c, run.key, "outcome", c.tx.inbox.dismiss),
    fx.HandOver: lambda c, run, effect: inbox.hand_over(c, run.key),
    fx.ReadOn: lambda c, run, effect: inbox.read_on(c, run.key),
    fx.SuppressInbox: lambda c, run, effect: inbox.suppress(c, run),
    fx.ReviveInbox: _revive_inbox,
    fx.CountDown: _count_down,
    fx.CountUp: lambda c, run, effect: _count_up(c, run.terms.parent),
    fx.KillBelow: lambda c, run, effect: kill_below(c, run.key),
    fx.CallHook: _call_hook,
    fx.CleanUp: _clean_up,
    fx.Tell: _tell,
    fx.Archive: _archive,
    fx.DeleteSession: lambda c, run, effect: _delete_session(c, run),
    fx.Forget: _forget,
}
"""The function that carries out each effect of a run's decisions on rows. Work outside the database becomes a hint, and
stays readable from rows."""


# ---- kills -----------------------------------------------------------------------------------------------------------


class Killing(Struct, frozen=True, omit_defaults=True):
    """The result of a kill, by session keys. False if there was nothing left to end."""

    killed: tuple[str, ...]
    """Sessions that are over."""
    stopping: tuple[str, ...]
    """Sessions whose driver has not acknowledged the stop. Their results count for nothing, unless a run is
    complete within 5 s; the driver may still be at work."""
    finished: tuple[str, ...] = ()
    """Runs that were complete before they stopped: their results count. Known once a caller has waited for it."""

    def __bool__(self) -> bool:
        return bool(self.killed or self.stopping or self.finished)


def kill_below(c: Commit, key: str) -> Killing:
    """End everything below a session."""
    c.tx.sessions.raise_generation(key)
    return kill_tree(c, key, named=False)


def kill_tree(c: Commit, root: str, named: bool) -> Killing:
    """Order the end of everything below a session, and of its own run where a kill named that."""
    killed: list[str] = []
    stopping: list[str] = []
    todo = [root] if named else c.tx.runs.children(root)
    while todo:
        key = todo.pop()
        below = c.tx.runs.children(key)
        before = c.find(key)
        if before is not None:
            exchanges.drop_begun(c, key, "its sender was killed")
            step = order(c, key, _kill_order(c, key, named and key == root))
            if before.ended is None:
                (stopping if isinstance(step.run.phase, Ending) else killed).append(key)
            else:
                stopping += [key] if c.tx.turns.get(key) is not None else []
                order_turn(c, key, TurnStopped(TurnEnd("stopped")))
            if before.ended is not None and named and key == root and bindings.unbind(c, key, "killed", "killed"):
                killed.append(key)  # a session that stayed open in its thread
        todo.extend(below)
    return Killing(tuple(killed), tuple(stopping))


def _kill_order(c: Commit, key: str, named: bool) -> ev.KillOrdered:
    driver = c.tx.drivers.get(key)
    driven = driver is not None and driver.release_at is None
    partial = None if driven else transcripts.progress_so_far(c, key)
    return ev.KillOrdered(
        at=c.at, named=named, driven=driven, unsettled=c.tx.sessions.counts(key).unsettled, partial=partial
    )
