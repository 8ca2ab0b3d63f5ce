"""The commits of a driver with a model: replies, results, notes, questions to a person. Each is fenced by the driver's
lease.

A step's commits are few: the reply with its calls; each group of results as they are ready; the last of them also reads
the rows that may enter at that boundary. A final reply is the commit that ends the turn, and for a run its attempt.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec.structs import replace

from fledge.core.freeze import classify_reply
from fledge.core.handover import Handover
from fledge.core.keys import short_id
from fledge.core.permission import Offer, Permission
from fledge.core.policy import Refusal, Spent, YieldTerms
from fledge.core.printable import whole_call
from fledge.core.progress import StepLimits, advance, is_told, refuse_next_step, step_digest
from fledge.core.prompts import empty_nudge, nudge, repeating_notice, yield_answer
from fledge.core.run import Instant, Running
from fledge.core.transcript import DROPPED, NUDGE, Line, Noted, OpenCall, Replied, Resulted, Spoken, Told, was_nudged
from fledge.core.value import Value
from fledge.errors import NotFound, Refused
from fledge.orchestrator import budget, inbox, outbox, transcripts, turns
from fledge.orchestrator.commit import Commit
from fledge.orchestrator.transcripts import new_lines
from fledge.orchestrator.turns import Drive
from fledge.store.base import Approval, ApprovalState, TurnRan, Tx

RULE: Final = "a rule"
"""The name that stands for a rule as the one that answered a question."""


class StepOutcome(Value):
    """The outcome of a commit that may end the turn: the lines it added, and whether the turn is over."""

    lines: list[Line]
    over: bool
    text: str = ""
    """Of a yield: its calls' result."""
    error: str = ""
    """The limit that ended the turn, if one did."""
    last: int = 0
    """Of a reply that ended it: the newest entry of the transcript."""


def open_step(c: Commit, drive: Drive, reserve: Spent) -> bool:
    """Reserve what the next model step may cost; False, and the turn is over, if a budget does not allow it."""
    turns.fence(c, drive)
    spent = budget.reserve(c, drive.session, reserve)
    if spent is None:
        return True
    turns.fail(c, drive, f"budget: {spent}", "budget")
    return False


def replied(
    c: Commit,
    drive: Drive,
    reply: Replied,
    last: int,
    approval_s: float,
    ran: TurnRan | None = None,
    tools_s: float = 0.0,
    in_doubt: bool = False,
    works_in: str = "",
    notice: str = "",
    rules: Mapping[int, Permission | Offer] | None = None,
    whys: Mapping[int, str] | None = None,
) -> list[Line]:
    """Append a reply that calls tools, which may take `tools_s` and write in the workspace `works_in`; a person is
    asked in the same commit, if need be. `notice`: words for the model about a call that the token limit cut. `rules`:
    by index of a call that asks, the permission that allows it, or the offer that an *always* would accept. `whys`: by
    index, why a call asks.

    `in_doubt`: the reply answers a call whose outcome a crash left unknown, and may make that call anew. That is no
    progress: the count of crashes is reset only once a whole step is committed.
    """
    turns.fence(c, drive)
    _at_work(c, drive, works_in)
    _record(c, drive, ran)
    seq = transcripts.write(c, drive.session, reply)
    budget.settle(c, drive.session, reply)
    for index, call in enumerate(reply.calls):
        if call.state == "asked":
            rule = (rules or {}).get(index)
            is_covered = isinstance(rule, Permission)
            approval = Approval(
                id=c.ids.unique(),
                session=drive.session,
                entry=seq,
                index=index,
                tool=call.name,
                arguments=call.arguments,
                digest=digest(call.name, call.arguments),
                state="allowed" if is_covered else "waiting",
                asked_at=c.at,
                expires_at=c.at + approval_s,
                answered_by=RULE if is_covered else "",
                offer=rule if isinstance(rule, Offer) else None,
                rule=rule.id if isinstance(rule, Permission) else "",
                why=(whys or {}).get(index, ""),
            )
            c.tx.approvals.ask(approval)
            if not is_covered:
                outbox.tell(c, drive.session, approval.id, question(approval), "approval")
    if notice:
        transcripts.write(c, drive.session, Spoken(notice, kind=DROPPED))
    _work_on(c, drive, tools_s, not in_doubt)
    return new_lines(c, drive.session, last)


def cut(
    c: Commit,
    drive: Drive,
    reply: Replied,
    words: str,
    kind: Literal["continue", "dropped"],
    last: int,
    ran: TurnRan | None,
) -> list[Line]:
    """Append a reply that the token limit cut, and the words that ask the model for the rest. No waiting row is read
    before that has come."""
    turns.fence(c, drive)
    _record(c, drive, ran)
    said = turns.kind_of(c, drive.session).as_said(c, drive.session, replace(reply, cut=True))
    transcripts.write(c, drive.session, said, Spoken(words, kind=kind))
    budget.settle(c, drive.session, reply)
    turns.progressed(c, drive.session)
    return new_lines(c, drive.session, last)


def _at_work(c: Commit, drive: Drive, works_in: str) -> None:
    if works_in:
        c.tx.drivers.begin_work(drive.session, works_in, c.at)


def _work_on(c: Commit, drive: Drive, tools_s: float, is_progress: bool) -> None:
    (turns.progressed if is_progress else turns.at_work)(c, drive.session, tools_s)


def hand_over(c: Commit, drive: Drive, handover: Handover | None) -> None:
    """Store what the session hands over besides its words, if the driver looked for it."""
    if handover is not None:
        c.tx.sessions.keep_handover(drive.session, handover)


def _record(c: Commit, drive: Drive, ran: TurnRan | None) -> None:
    if ran is not None:
        c.tx.turns.ran(drive.session, ran)


def question(approval: Approval) -> str:
    """The question to a person, in one line."""
    return f"waits for approval {short_id(approval.id)}: {whole_call(approval.tool, approval.arguments)}"


def digest(tool: str, arguments: str) -> str:
    """The digest of a call, to which an approval is bound."""
    return hashlib.sha256(f"{tool}\n{arguments}".encode("utf-8", "replace")).hexdigest()


def started(c: Commit, drive: Drive, approved: Sequence[OpenCall], until_at: Instant, works_in: str) -> None:
    """Calls are about to run, until then at the longest, that a person approved, or that an earlier driver left: after
    a crash the approved ones are not run again. They have no results yet, so this is no progress."""
    turns.fence(c, drive)
    _at_work(c, drive, works_in)
    for call in approved:
        c.tx.approvals.move(drive.session, call.entry, call.index, "started")
    turns.at_work(c, drive.session, max(0.0, until_at - c.at))


class StepEnd(Value):
    """The facts by which the end of a step is judged: its reply, the results committed before, the limits."""

    reply: Replied
    earlier: tuple[Resulted, ...] = ()
    limits: StepLimits = StepLimits()


class Wrote(Value):
    """Documents of a workspace that a step wrote: their digests by name."""

    place: str
    digests: dict[str, str]


def resulted(
    c: Commit,
    drive: Drive,
    results: Sequence[Resulted],
    last: int,
    step: StepEnd | None = None,
    until_at: Instant = 0.0,
    handover: Handover | None = None,
    in_doubt: bool = False,
    wrote: Wrote | None = None,
) -> StepOutcome:
    """Append results, and store what there is to hand over now. The last results of a step come with `step`: the turn
    is over if it makes no progress, else it reads the rows that may enter at this boundary. Other calls may run until
    `until_at`. `in_doubt`: as in `replied`. `wrote`: documents that the step wrote; they are accepted as they are."""
    turns.fence(c, drive)
    if wrote is not None:
        transcripts.accept_documents(c, wrote.place, wrote.digests)
    hand_over(c, drive, handover)
    budget.worked(c, drive.session)
    transcripts.write(c, drive.session, *results)
    if step is not None:
        limit = _advance(c, drive, step, results)
        if limit is not None:
            return StepOutcome([], over=True, error=limit)
        inbox.consume_waiting(c, drive.session, at_boundary=True)
    _work_on(c, drive, max(0.0, until_at - c.at), not in_doubt)
    return StepOutcome(new_lines(c, drive.session, last), over=False)


def _advance(c: Commit, drive: Drive, step: StepEnd, results: Sequence[Resulted]) -> str | None:
    """Count a step whose results are all in, and tell the model once if it repeats itself. At a limit the turn is over,
    for the reason that is answered."""
    turn = c.tx.turns.get(drive.session)
    if turn is None:
        raise NotFound(f"{drive.session} has no open turn")
    digest = step_digest(step.reply.calls, (*step.earlier, *results))
    progress = advance(turn.progress, digest, turn.opened_at, c.at)
    c.tx.turns.save(replace(turn, progress=progress))
    refusal = refuse_next_step(progress, step.limits)
    if refusal is not None:
        turns.fail(c, drive, refusal, "limit")
        return refusal
    if is_told(progress):
        words = repeating_notice(progress.repeated, step.limits.max_repeated)
        transcripts.write(c, drive.session, Spoken(words, kind="notice"))
    return None


def noted(c: Commit, drive: Drive, answer: Replied, covers: int, last: int) -> list[Line]:
    """Append the model's summary as a note that stands for older entries, and charge the step that made it.

    Keys of children are kept verbatim, whatever the model wrote.
    """
    turns.fence(c, drive)
    budget.settle(c, drive.session, answer)
    keys = [key for key in c.tx.runs.children(drive.session) if key not in answer.text]
    text = answer.text if not keys else f"{answer.text}\n\nChildren: {', '.join(keys)}"
    transcripts.write(c, drive.session, Noted(text, covers))
    c.tx.transcripts.cover(drive.session, covers)
    turns.progressed(c, drive.session)
    return new_lines(c, drive.session, last)


def finish(
    c: Commit,
    drive: Drive,
    reply: Replied,
    last: int,
    ran: TurnRan | None = None,
    handover: Handover | None = None,
    begun: str = "",
) -> StepOutcome:
    """A reply without calls ends the turn, unless completions have to be read first, it is to be JSON and is not, or it
    has no words although its caller waits for some. `begun`: the reply before it, of which it is the rest."""
    budget.settle(c, drive.session, reply)
    _record(c, drive, ran)
    hand_over(c, drive, handover)
    whole = begun + reply.text
    if not _asked_for_words(c, drive, reply, whole):
        fitted = turns.kind_of(c, drive.session).fitted(c, drive.session, whole)
        error, result = (None, None) if fitted is None else (fitted.error, fitted.text)
        goes_on = error is not None and _nudged(c, drive, reply, error)
        if not goes_on and turns.finish(c, drive, reply, result, begun) == "over":
            return StepOutcome([], over=True, last=c.tx.transcripts.last(drive.session))
    return StepOutcome(new_lines(c, drive.session, last), over=False)


def _asked_for_words(c: Commit, drive: Drive, reply: Replied, whole: str) -> bool:
    """Ask the model of a conversation for words, if its turn would end without any; False if there are some, no
    caller waits for them, or the model was asked before."""
    turn = c.tx.turns.get(drive.session)
    if turn is None or classify_reply(whole) != "empty":
        return False
    bodies = transcripts.of_turn(c.tx, turn)
    if was_nudged(bodies) or not turns.kind_of(c, drive.session).lacks_words(c, turn, bodies):
        return False
    turns.fence(c, drive)
    words = empty_nudge(any(isinstance(body, Told) for body in bodies))
    transcripts.write(c, drive.session, reply, Spoken(words, f"nudge:{drive.session}:{turn.turn}", NUDGE))
    inbox.consume_waiting(c, drive.session, at_boundary=True)
    c.tx.drivers.progress(drive.session, c.at, step_open=True)
    return True


def _nudged(c: Commit, drive: Drive, reply: Replied, wrong: str) -> bool:
    """Tell the model why its answer does not meet the schema, and let the same attempt go on; False if that
    was done before, or if the run does not end with this answer anyway."""
    run, facts = c.run(drive.session), c.facts(drive.session)
    row = f"nudge:{run.run_id}"
    if not isinstance(run.phase, Running) or facts["unsettled"] or facts["unread"]:
        return False
    if any(isinstance(line.body, Spoken) and line.body.row == row for line in transcripts.lines(c.tx, drive.session)):
        return False
    turns.fence(c, drive)
    transcripts.write(c, drive.session, reply, Spoken(nudge(wrong), row, NUDGE))
    turns.progressed(c, drive.session)
    return True


def wait(
    c: Commit,
    drive: Drive,
    calls: Sequence[OpenCall],
    terms: YieldTerms,
    last: int,
    step: StepEnd,
    handover: Handover | None = None,
) -> StepOutcome:
    """Yield as the last of these calls asks, now that all other results of the step are in.

    The result of the calls says what happened. The turn is over and waits, or goes on: completions were unread, there
    is nothing to wait for, or a rule forbids it.
    """
    verdict = turns.judge_yield(c, drive, terms)
    refusal = verdict.reason if isinstance(verdict, Refusal) else None
    if verdict == "wait":
        text = terms.message.strip() or "Turn yielded."
    else:
        text = yield_answer(refusal, inbox.silent_children(c, drive.session))
    results = [transcripts.result_of(call, text, refusal is not None) for call in calls]
    hand_over(c, drive, handover)
    budget.worked(c, drive.session)
    transcripts.write(c, drive.session, *results)
    limit = None if verdict == "wait" else _advance(c, drive, step, results)
    if limit is not None:
        return StepOutcome([], over=True, text=text, error=limit)
    if verdict == "wait":
        turns.wait(c, drive, terms)
        return StepOutcome([], over=True, text=text)
    if verdict == "read":
        inbox.consume_completions(c, drive.session)
    inbox.consume_waiting(c, drive.session, at_boundary=True)
    turns.progressed(c, drive.session)
    return StepOutcome(new_lines(c, drive.session, last), over=False, text=text)


def ask(c: Commit, drive: Drive) -> None:
    """Nothing is left but questions to a person: wait for the answers without a slot.

    A conversation is claimed again at the latest when the first question expires; so is one that was answered between
    looking and asking, at once.
    """
    turns.fence(c, drive)
    waiting = [asked.expires_at for asked in c.tx.approvals.of(drive.session) if asked.state == "waiting"]
    due_at = min(waiting, default=c.at)
    turns.ask(c, drive, due_at)


def open_question(tx: Tx, approval_id: str, at: Instant, digest_seen: str | None = None) -> Approval:
    """A question that can be answered. Refused: an unknown or decided one, one that expired, or another call than was
    seen."""
    asked = tx.approvals.get(approval_id)
    if asked is None:
        raise NotFound(f"no question {approval_id}")
    if digest_seen is not None and digest_seen != asked.digest:
        raise Refused("error", f"{approval_id} is about a different call than the one that was shown")
    if asked.state != "waiting" or asked.expires_at <= at:
        raise Refused("done", f"{approval_id} is {'expired' if asked.state == 'waiting' else asked.state}")
    return asked


def answer(
    c: Commit,
    approval_id: str,
    allow: bool,
    answered_by: str,
    digest_seen: str | None = None,
    words: str = "",
    rule: str = "",
) -> None:
    """A person's answer to an open question: with a no, words for the model; with a yes, the rule that was made."""
    asked = open_question(c.tx, approval_id, c.at, digest_seen)
    state: ApprovalState = "allowed" if allow else "denied"
    c.tx.approvals.move(asked.session, asked.entry, asked.index, state, answered_by, words, rule)
    if any(other.state == "waiting" for other in c.tx.approvals.of(asked.session)):
        return
    turns.answered(c, asked.session)


def answers(tx: Tx, session: str, calls: Sequence[OpenCall]) -> dict[tuple[int, int], Approval]:
    """The questions about these calls, as they stand."""
    wanted = {(call.entry, call.index) for call in calls}
    return {(a.entry, a.index): a for a in tx.approvals.of(session) if (a.entry, a.index) in wanted}
