"""Control of running work, by people and controllers: steer, send, kill, stop, answer a plan, retry, dismiss.

Each is one commit. A refusal raises `Refused` with the status and reason for the caller, and changes nothing. The
caller has checked who may do it (`core.access`).
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core import policy
from fledge.core.exchange import plan_answer, plan_words
from fledge.core.freeze import to_valid_utf8
from fledge.core.images import with_names
from fledge.core.keys import is_main_key
from fledge.core.policy import enforce
from fledge.core.route import address_of
from fledge.core.run import AnnounceDeferred, AwaitingApproval, Run
from fledge.core.transcript import NOTHING_CARRIED, Carried, carried_body
from fledge.core.turn import TurnEnd, TurnStopped
from fledge.errors import BadInput, Refused
from fledge.orchestrator import bindings, effects, exchanges, inbox, outbox, transcripts, views
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.effects import Killing


def steer(c: Commit, key: str, message: str, row_key: str | None = None) -> Run:
    """Redirect live work: a new attempt that starts with the message; the old one is silent from now on."""
    run, message = c.run(key), to_valid_utf8(message)
    enforce(policy.refuse_steer(run, views.name_of(c.tx, key), message, c.at))
    c.tx.inbox.put(row_key or f"steer:{key}:{c.ids.unique()}", key, "steer", run.terms.parent, message, c.at)
    return effects.apply(
        c, key, ev.Steered(at=c.at, next_run_id=c.ids.unique(), text=transcripts.last_words(c, key))
    ).run


def send(
    c: Commit,
    key: str,
    message: str,
    source: str | None = None,
    row_key: str | None = None,
    origin: str = "",
    carried: Carried = NOTHING_CARRIED,
) -> str:
    """Add a message, with images and files whose bytes are on disk, without stopping anything; answers the row's key.
    The same row key twice is one message.

    The reply goes to where the message came from (`origin`), and an address there becomes the session's route; without
    one it goes to that route, if there is one.
    Where the session's plan awaits its answer, a message that is one answers it (`core.exchange.plan_answer`).
    Refused, besides where the run takes none, while too many wait (`messages.queue.cap`, if `drop` is `new`).
    """
    said = to_valid_utf8(message)
    message = with_names(said, (*carried.images, *carried.files))
    if not message.strip():
        raise BadInput("message", "must not be empty")
    c.session(key)
    run = c.find(key)
    if run is not None:
        enforce(policy.refuse_send(run, views.name_of(c.tx, key)))
    row_key = row_key or f"send:{key}:{c.ids.unique()}"
    answer = plan_answer(said) if may_answer_plan(c, run, source) else None
    if answer is not None and c.tx.inbox.get(row_key) is None:
        words = with_names(plan_words(answer.approves, answer.reason), (*carried.images, *carried.files))
        answer_plan(c, key, answer.approves, words, row_key=row_key, carried=carried)
    elif inbox.put_message(c, key, row_key, "send", source, message, origin, carried):
        if run is not None:
            effects.apply(c, key, ev.SendArrived(at=c.at))
        address = address_of(origin)
        if address is not None:
            bindings.follow(c, key, address)
        inbox.arrived(c, key, inbox.mode_of(c, key, "send", origin))
        c.hints.look = True
    return row_key


def kill(c: Commit, key: str) -> Killing:
    """End a run and everything below it, silently, in this one commit. `done` if there is nothing left to end."""
    c.run(key)
    c.tx.sessions.raise_generation(key)
    done = effects.kill_tree(c, key, named=True)
    effects.settle(c)
    if not done.killed and not done.stopping:
        raise Refused("done", f"{views.name_of(c.tx, key)} has ended, and nothing below it is running")
    return done


def kill_each(c: Commit, keys: Sequence[str]) -> Killing:
    """End these runs and everything below them, each as if it alone were killed; none is fine."""
    done = [kill(c, key) for key in keys]
    return Killing(tuple(key for one in done for key in one.killed), tuple(key for one in done for key in one.stopping))


def kill_all(c: Commit, session: str) -> Killing:
    """End every run of a session that is not over, and everything below it. NotFound: no such session; the main
    conversation need not have begun."""
    if not is_main_key(session):
        c.session(session)
    return kill_each(c, views.active_children(c.tx, session))


def stop(c: Commit, session: str) -> Killing:
    """Stop a conversation's turn and its whole tree. The turn counts as answered by that."""
    c.session(session)
    if c.live_run(session) is not None:
        return kill(c, session)
    effects.order_turn(c, session, TurnStopped(TurnEnd("stopped")))
    exchanges.drop_begun(c, session, "its sender was stopped")
    done = effects.kill_below(c, session)
    effects.settle(c)
    return done


def interrupt(c: Commit, session: str) -> None:
    """Stop a conversation's turn and nothing else. Unread rows get the next turn."""
    effects.move_turn(c, session, TurnStopped(TurnEnd("stopped")))


def patch_session(c: Commit, key: str, patch: Mapping[str, str]) -> None:
    """Set a session's label, or the model and thinking level of its next turns."""
    facts = c.session(key).facts
    c.tx.sessions.change(key, replace(facts, **{name: to_valid_utf8(value) for name, value in patch.items()}))


def delete_session(c: Commit, key: str, *, keep_transcript: bool = False, hooks: bool = True) -> None:
    """Delete a conversation. Results of its children go to its requester, or are kept as undelivered.

    With `hooks`, listeners for the ends of runs are called for a session that stayed open for its thread until now.
    Refused while a run of its own is alive: kill that first.
    """
    c.session(key)
    run = c.live_run(key)
    if run is not None:
        raise Refused("error", f"{views.name_of(c.tx, key)} is {run.phase.name}: kill it first")
    c.tx.sessions.raise_generation(key)
    effects.move_turn(c, key, TurnStopped(TurnEnd("stopped")))
    for child in c.tx.runs.children_in(key, "spawning"):
        effects.apply(c, child, ev.Withdrawn(at=c.at, reason="its requester was deleted"))
    c.tx.queue.remove(key)
    if hooks:
        bindings.unbind(c, key, "deleted", "deleted")
    else:
        c.tx.routes.drop(key)
    transcripts.delete_session(c, key, keep_transcript)
    inbox.hand_over(c, key)
    for row in c.tx.inbox.unread(key):
        c.tx.inbox.void(row.key, c.at)
        exchanges.drop_row(c, row.key, f"{views.name_of(c.tx, key)} was deleted before it read your message")
    exchanges.drop_begun(c, key, "its sender was deleted")


def may_answer_plan(c: Commit, run: Run | None, sender: str | None) -> bool:
    """A plan of this run awaits its answer, and the sender may give it: a person or a program (None), the requester or
    the controller."""
    if run is None or not isinstance(run.phase, AwaitingApproval):
        return False
    return sender in (None, run.terms.parent, c.tx.runs.spec(run.key).controller)


def answer_plan(
    c: Commit,
    key: str,
    approve: bool,
    words: str,
    run_id_seen: str = "",
    *,
    row_key: str = "",
    carried: Carried = NOTHING_CARRIED,
) -> Run:
    """Approve or reject the plan that awaits it; a new attempt follows, which reads these words. Refused: another plan
    than the one that was seen."""
    run = c.run(key)
    enforce(policy.refuse_answer(run, views.name_of(c.tx, key)))
    if run_id_seen and run_id_seen != run.run_id:
        raise Refused("error", "the plan has changed since it was shown")
    next_id = c.ids.unique()
    words = to_valid_utf8(words) or ("APPROVED: proceed" if approve else "REJECTED")
    transcripts.hold_files(c, key, carried)
    c.tx.inbox.put(
        row_key or f"approval:{key}:{next_id}", key, "approval", None, words, c.at, carried=carried_body(carried)
    )
    answered = ev.PlanApproved if approve else ev.PlanRejected
    unsettled = c.tx.sessions.counts(key).unsettled
    return effects.apply(c, key, answered(at=c.at, next_run_id=next_id, unsettled=unsettled)).run


def retry(c: Commit, key: str, to: str | None = None) -> Run:
    """Announce a run's undelivered rows again: the result, late results and expired plans; to the conversation `to`
    instead of the run's requester."""
    if to is not None:
        known = c.tx.sessions.get(to)
        if known is None or known.deleted or known.kind not in ("main", "named"):
            raise BadInput("to", "must be a conversation that exists", to)
    reopened = inbox.offer_again(c, c.run(key), to)
    step = effects.apply(c, key, ev.Retried(at=c.at, to=to))
    if step.ignored and not reopened:
        raise Refused("done", f"{views.name_of(c.tx, key)}: {step.ignored}")
    return c.run(key)


def dismiss(c: Commit, key: str) -> Run:
    """Take a run's rows off the undelivered list."""
    put_away = inbox.dismiss_rows(c, key)
    step = effects.apply(c, key, ev.Dismissed(at=c.at))
    if step.ignored and not put_away:
        raise Refused("done", f"{views.name_of(c.tx, key)}: {step.ignored}")
    return step.run


def take_up(c: Commit, action: Literal["retry", "dismiss"], name: str, to: str | None = None) -> None:
    """Retry or dismiss an undelivered message, by its key, or the undelivered rows of a run, by its session key. A
    result may be retried to another conversation."""
    if c.tx.outbox.get(name) is not None:
        if to is not None:
            raise BadInput("to", "is for results: a message goes where it was addressed", to)
        (outbox.retry if action == "retry" else outbox.dismiss)(c, name)
    elif action == "retry":
        retry(c, name, to)
    else:
        dismiss(c, name)


def remove(c: Commit, key: str) -> Run:
    """Take a settled run off the lists at once. Refused while it has anything to do or to tell, with what that is."""
    step = effects.apply(c, key, ev.Removed(at=c.at, held_by=held_by(c, key)))
    if step.ignored:
        raise Refused("error", f"{views.name_of(c.tx, key)}: {step.ignored}")
    return step.run


def held_by(c: Commit, key: str) -> str | None:
    """Why this run may not be archived yet; None if it may."""
    return policy.held_by(
        rows=len(c.tx.inbox.of_run(key)) + len(c.tx.inbox.unread(key, 1)),
        has_turn=c.tx.turns.get(key) is not None or c.tx.queue.place(key) is not None,
        unsettled=c.tx.sessions.counts(key).unsettled,
    )


def read_result(c: Commit, key: str) -> str | None:
    """The frozen result of a run; None while there is no outcome yet.

    A program receives its runs' results this way, and those of runs that were left to it: the first read consumes the
    row, later reads change nothing. A result for a conversation can be read, and still arrives there.
    """
    run = c.run(key)
    ended = run.ended
    if ended is None or (isinstance(run.phase, AnnounceDeferred) and run.phase.reason == "descendants-active"):
        return None
    for row in c.tx.inbox.of_run(key):
        if row.announces and inbox.is_program(c, row.session) and c.tx.inbox.consume(row.key, c.at):
            inbox.traced(c, row.session or run.terms.parent, row, "direct")
            effects.apply(c, key, ev.RowConsumed(at=c.at, row=row.announces, path="direct"))
    return "" if ended.result is None else c.tx.texts.get(ended.result)
