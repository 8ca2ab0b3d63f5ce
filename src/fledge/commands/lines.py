"""Views of runs as plain lines of text. Labels and texts of children are shown flattened: they cannot forge a line."""

import os

import msgspec

from fledge.core import events as ev
from fledge.core.announce import Completion, DeliveryTrace, announce_key
from fledge.core.asking import retry_text
from fledge.core.documents import left_out_line
from fledge.core.freeze import Stats, one_line, stats_line
from fledge.core.keys import short_id
from fledge.core.lifecycle import born, transition
from fledge.core.prompts import is_stuck
from fledge.core.run import Instant, Queued, Run
from fledge.core.transcript import Body, Noted, Replied, Resulted, Spoken, Told, from_body, joined, shown_arguments
from fledge.orchestrator import documents, views
from fledge.orchestrator.commit import Rules
from fledge.orchestrator.outbox import message_of
from fledge.orchestrator.transcripts import models_of
from fledge.store.base import Approval, Post, Row, Tx

LABEL_CHARS = 48
LINE_CHARS = 200
REASON_CHARS = 80
LONG_WAIT_S = 2.0
"""A wait for a slot longer than this is shown."""


def tree_lines(tx: Tx, session: str, now: Instant | None = None, indent: str = "") -> list[str]:
    """Everything below a session, one line a run, oldest first; with `now`, who waits long for a slot says so.

    What is archived is shown only while something below it is not.
    """
    lines = []
    runs = [run for run in map(tx.load_run, tx.children(session)) if _is_listed(tx, run)]
    for at, run in enumerate(runs):
        last = at == len(runs) - 1
        label = one_line(tx.spec(run.key).label or run.key, LABEL_CHARS)
        lines.append(f"{indent}{'└─' if last else '├─'} {label} · {status(tx, run, now)}{_waited(tx, run, now)}")
        lines += tree_lines(tx, run.key, now, indent + ("   " if last else "│  "))
    return lines


def _is_listed(tx: Tx, run: Run) -> bool:
    return run.phase.name != "archived" or any(_is_listed(tx, tx.load_run(key)) for key in tx.children(run.key))


def _waited(tx: Tx, run: Run, now: Instant | None) -> str:
    if now is None or not isinstance(run.phase, Queued) or run.phase.retry is not None:
        return ""
    waited = now - tx.events(run.key)[-1].at
    return f", {waited:.0f} s without a free slot" if waited > LONG_WAIT_S else ""


def status(tx: Tx, run: Run, now: Instant | None = None) -> str:
    """Where a run is, in a few words; with `now`, when one that pauses goes on."""
    ended = run.ended
    words = run.phase.name.replace("_", " ")
    if now is not None and isinstance(run.phase, Queued) and run.phase.retry is not None:
        words = retry_text(run.phase.retry.at, one_line(run.phase.retry.reason, REASON_CHARS), now)
    if is_stuck(run, views.progress_of(tx, run)):
        words += " (stuck)"
    if ended is not None:
        words += f" ({ended.outcome.status})"
    if run.attempt > 1:
        words += f", attempt {run.attempt}"
    return words


def timeline_lines(events: list[ev.Event]) -> list[str]:
    """The story of a run: when, what happened, where that left it."""
    first = events[0]
    assert isinstance(first, ev.Admitted)
    run = born(first)
    lines = [_line(first, first.at, run)]
    for event in events[1:]:
        run = transition(run, event).run
        lines.append(_line(event, first.at, run))
    return lines


def _line(event: ev.Event, start: float, run: Run) -> str:
    why = one_line(ev.reason(event), REASON_CHARS)
    return f"{event.at - start:8.3f} s  {type(event).__name__:<16} → {run.phase.name}{f'  ({why})' if why else ''}"


# ---- one run ---------------------------------------------------------------------------------------------------------


def info_lines(tx: Tx, key: str, now: Instant | None = None) -> list[str]:
    """A run in full: what was asked, how it stands, what it used, and its story; with `now`, whether its requester has
    left it unanswered."""
    run, spec, counts, spent = tx.load_run(key), tx.spec(key), tx.counts(key), tx.used(key)
    lines = [
        f"session   {key}",
        f"run       {run.run_id} (attempt {run.attempt})",
        f"label     {one_line(spec.label, LINE_CHARS)}",
        f"task      {one_line(spec.task, LINE_CHARS)}",
        f"status    {status(tx, run, now)}",
        f"parent    {run.terms.parent}",
    ]
    if run.ended is not None and run.ended.outcome.error:
        lines.append(f"error     {one_line(run.ended.outcome.error, LINE_CHARS)}")
    if run.delivery is not None:
        lines.append(f"delivery  {msgspec.json.encode(run.delivery).decode()}")
    lines += _ran_lines(tx, key, run)
    if counts.spawned:
        lines.append(f"children  {counts.spawned}, {counts.unsettled} unsettled")
    if spent.tokens_in is not None:
        cost = "" if spent.cost_usd is None else f", est ${spent.cost_usd:.4f}"
        cached = f", {spent.tokens_cached} cached" if spent.tokens_cached else ""
        lines.append(f"tokens    {spent.tokens_in} in, {spent.tokens_out} out{cached}{cost}")
    for late in views.unanswered(tx, now) if now is not None else ():
        if announce_key(key, run.run_id, "outcome") in late.rows:
            lines.append(f"unanswered by {late.session}, tried {late.tries} times")
    lines += [f"tried     {_try_line(at, trace, run)}" for at, trace in views.tries(tx, key)]
    return [*lines, "", *timeline_lines(tx.events(key))]


def _ran_lines(tx: Tx, key: str, run: Run) -> list[str]:
    """What it really ran with, and under which limits, as recorded while it ran."""
    lines = []
    ran, purse, answered = tx.last_ran(key), tx.purse(key), models_of(tx, key)
    if ran is not None:
        by = ", ".join(one_line(name, 60) for name in answered) or "nobody yet"
        lines.append(f"model     {one_line(ran.model, 60)}, thinking {ran.thinking}; answered by {by}")
        lines.append(f"tools     {', '.join(ran.tools) or 'none'}{' (sandboxed)' if ran.boxed else ''}")
        lines.append(f"folder    {one_line(ran.workspace, LINE_CHARS)}")
    if run.terms.timeout_s:
        lines.append(f"timeout   {run.terms.timeout_s:.0f} s")
    if purse is not None:
        used_up, budget = msgspec.to_builtins(purse.used), msgspec.to_builtins(purse.budget)
        lines.append(
            "budget    " + ", ".join(f"{used_up.get(name, 0):g} of {budget[name]:g} {name}" for name in budget)
        )
    return lines


def unanswered_lines(tx: Tx, now: Instant) -> list[str]:
    """What was read and waits for its answer for half an hour or more."""
    return [
        f"unanswered for {(now - late.since_at) / 60:.0f} min: {len(late.rows)} read by {late.session},"
        f" tried {late.tries} times"
        for late in views.unanswered(tx, now)
    ]


def _try_line(at: Instant, trace: DeliveryTrace, run: Run) -> str:
    since = "" if run.ended is None else f"{at - run.ended.ended_at:.3f} s after its end, "
    tried = ", ".join(f"{step.phase} {step.result}" for step in trace.tried) or "read through a handle"
    told = "" if trace.form == "whole" else ", in one line"
    why = f" ({one_line(trace.why, REASON_CHARS)})" if trace.why else ""
    return f"{since}{trace.requester}: {tried}{told}{why}"


def log_lines(tx: Tx, key: str, last: int = 20, tools: bool = False) -> list[str]:
    """The newest entries of a session's transcript, oldest first."""
    entries = tx.tail(key, last, () if tools else ("tool",))
    said = joined((entry.seq, from_body(entry.body)) for entry in entries)
    return [_entry_line(seq, body) for seq, body in said] or ["(empty)"]


def _entry_line(seq: int, body: Body) -> str:
    match body:
        case Spoken(text=text, kind=kind):
            said = f"{kind or 'user'}: {text}"
        case Told(text=text):
            said = f"told: {text}"
        case Replied(text=text, calls=calls):
            said = f"assistant: {text}" + "".join(f" [{call.name} {shown_arguments(call)}]" for call in calls)
        case Resulted(name=tool, text=text):
            said = f"{tool}: {text}"
        case Noted(text=text):
            said = f"note: {text}"
    return f"{seq:>5}  {one_line(said, LINE_CHARS)}"


def status_lines(tx: Tx, key: str, rules: Rules, now: Instant) -> list[str]:
    """How a session stands: what it does, the model that ran, what it used, what waits."""
    view = views.session_status(tx, key, rules, now)
    stats = Stats(None, view.tokens_in, view.tokens_out, view.cost_usd, view.tokens_cached)
    lines = [
        f"session   {key} · {view.state}"
        + (f" · {view.run_status} · run {short_id(view.run_id)}" if view.run_id else ""),
        f"model     {one_line(view.model, LINE_CHARS) or 'none has answered yet'}",
        f"used      {stats_line(stats).partition(' • ')[2]}",
        f"queue     completions {view.queue_mode}, messages {view.people_mode} · {view.unread} unread",
        f"subagents {view.children_active} active · {view.children_done} done",
    ]
    if view.context_tokens is not None:
        lines.insert(3, f"context   {view.context_tokens} tokens in the last request")
    if view.note:
        lines.append(f"note      the last reply was {view.note}")
    if view.questions:
        lines.append(f"waiting   {view.questions} tool calls wait for you: /approvals")
    ran = tx.last_ran(key)
    names = [] if ran is None else documents.left_out(tx, os.path.realpath(ran.workspace))
    return [*lines, *(f"left out  {left_out_line(name)}" for name in names)]


def question_line(approval: Approval, name: str, now: Instant) -> str:
    """A call that waits for a person: its id, what it would do, for whom, and for how long it still waits."""
    left_s = max(0.0, approval.expires_at - now)
    left = f"{left_s / 3600:.0f} h" if left_s >= 3600 else f"{left_s / 60:.0f} min"
    call = f"{approval.tool} {one_line(approval.arguments, LINE_CHARS)}"
    short = short_id(approval.id)
    return f"{short}  {call}  for {one_line(name, LABEL_CHARS)}, {left} left: /allow {short}"


# ---- results that found nobody ---------------------------------------------------------------------------------------


def undelivered_lines(tx: Tx) -> list[str]:
    """Results that found nobody, and messages that could not be sent, each kind oldest first."""
    lines = [_given_up(tx, row) for row in tx.undelivered()] + [_not_sent(post) for post in tx.undelivered_posts()]
    return lines or ["nothing is undelivered"]


def _not_sent(post: Post) -> str:
    message = message_of(post)
    words = post.kind if message is None else f'to {message.to} on {message.channel}: "{one_line(message.text, 60)}"'
    return f"{post.key}  {words}  ({one_line(post.error, LINE_CHARS)})"


def _given_up(tx: Tx, row: Row) -> str:
    told = msgspec.json.decode(row.body, type=Completion)
    why = one_line(views.why_undelivered(tx, row), LINE_CHARS)
    return f"{row.source}  {one_line(told.label or told.task, 60)}  ({told.outcome.status}; {why})"
