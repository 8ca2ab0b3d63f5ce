"""Values as plain lines of text, for every door that shows text: command line, chat, slash commands.

Labels and texts of models and children are shown flattened: they cannot forge a line. A call or plan that a person is
asked to allow is shown whole.
"""

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fledge.api.values import GivenUp, Message, Plan, Question, RunInfo, TimelineEvent
from fledge.commands.values import Ends, Overview, RunRow, SessionRow, Story, Try
from fledge.core.asking import retry_text
from fledge.core.documents import left_out_line
from fledge.core.figures import count_text, duration, elapsed, money
from fledge.core.file_change import change_lines
from fledge.core.freeze import Stats, one_line, stats_line
from fledge.core.keys import NAME_CHARS, conversation_name, short_id
from fledge.core.permission import Permission
from fledge.core.printable import printable, quoted_lines, whole_call
from fledge.core.run import Instant
from fledge.core.standing import StatusView, UnansweredTurn

if TYPE_CHECKING:  # `fledge ps` needs nothing of these
    from fledge.config.effective_settings import AgentView
    from fledge.orchestrator.effects import Killing
    from fledge.orchestrator.messenger import Sent

LINE_CHARS = 200
REASON_CHARS = 80
LONG_WAIT_S = 2.0
"""A wait for a slot longer than this is shown."""
NOBODY_DRIVES = "no process is at work here: `fledge run --continue` continues"


def name_of(run: RunInfo | RunRow) -> str:
    """The name of a run for people: its label, else the beginning of its task, else its session key."""
    return one_line(run.label or run.task or run.session_key, NAME_CHARS)


def numbered(name: str, run: RunInfo | RunRow, session: str) -> str:
    """The name after the number of the run, if it is a run of this session, in which the number means it."""
    return f"#{run.number} {name}" if run.requester == session else name


def tree(
    runs: Sequence[RunInfo], now: Instant, left_out: int = 0, numbered_for: str = "", indent: str = ""
) -> list[str]:
    """Runs with what is below them, one line each; a run that waits long for a slot says so. Those of the session
    `numbered_for` have their numbers."""
    lines = []
    for at, run in enumerate(runs):
        last = at == len(runs) - 1 and not left_out
        name = numbered(name_of(run), run, numbered_for)
        lines.append(f"{indent}{'└─' if last else '├─'} {name} · {status(run, now)}{_waited(run, now)}")
        lines += tree(run.children, now, run.left_out, numbered_for, indent + ("   " if last else "│  "))
    return [*lines, f"{indent}└─ and {left_out} more"] if left_out else lines


def _waited(run: RunInfo, now: Instant) -> str:
    if run.queued_at is None or run.retry_at is not None:
        return ""
    waited = now - run.queued_at
    return f", {waited:.0f} s without a free slot" if waited > LONG_WAIT_S else ""


def status(run: RunInfo, now: Instant) -> str:
    """The phase and outcome of a run, in a few words, and when a paused one goes on."""
    words = run.phase.replace("_", " ")
    if run.retry_at is not None:
        words = retry_text(run.retry_at, one_line(run.retry_reason, REASON_CHARS), now)
    if run.stuck:
        words += " (stuck)"
    if run.ended_at is not None:
        words += f" ({'killed' if run.ended_reason == 'killed' else run.status})"
    if run.attempt > 1:
        words += f", attempt {run.attempt}"
    return words


# ---- rows ------------------------------------------------------------------------------------------------------------


def row_name(row: RunRow, numbered_for: str = "") -> str:
    """The name of a run for people: its label, else the beginning of its task; after its number, if it is a run of the
    session `numbered_for`."""
    return numbered(printable(name_of(row)), row, numbered_for)


def row_state(row: RunRow) -> str:
    """The state of a run, and the reason or its present activity."""
    state = _standing(row)
    if row.now is not None:
        why = printable(one_line(row.now.text, LINE_CHARS))
        state = {"stuck": f"stuck: {why}", "you": why, "queue": why, "retry": why}.get(row.now.kind, f"{state}: {why}")
    if row.attempt > 1:
        state += f", attempt {row.attempt}"
    if row.crashes:
        state += f", {'1 crash' if row.crashes == 1 else f'{row.crashes} crashes'}"
    return state


def row_status(row: RunRow) -> str:
    """The state of a run, in words that change only with it."""
    words = _standing(row)
    if row.stuck_at is not None:
        words += " (stuck)"
    return f"{words}, attempt {row.attempt}" if row.attempt > 1 else words


def _standing(row: RunRow) -> str:
    if row.ended_at is None:
        return row.phase.replace("_", " ")
    if row.ended_reason == "killed":
        return "killed"
    if row.status == "ok":
        return "done"
    return f"{'timed out' if row.status == 'timeout' else 'failed'}: {printable(one_line(row.error, LINE_CHARS))}"


def row_cells(row: RunRow, now: Instant, numbered_for: str = "") -> tuple[str, ...]:
    """A run in columns: name, state, how long it works or has worked, model, tokens, cost, id."""
    tokens = row.tokens_in + row.tokens_out + row.tokens_cached
    costs = [cost for cost in (row.cost_usd, row.cost_below_usd) if cost is not None]
    return (
        row_name(row, numbered_for),
        row_state(row),
        elapsed((row.ended_at or now) - (row.started_at or row.created_at)),
        printable(one_line(row.model, NAME_CHARS)),
        count_text(tokens) if tokens else "",
        money(sum(costs)) if costs else "",
        short_id(row.run_id),
    )


def ends(told: Ends) -> list[str]:
    """The runs that a kill would end, one line each."""
    more = [f"and {told.left_out} more"] if told.left_out else []
    return [f"{row_name(row)} · {row_state(row)}" for row in told.rows] + more or ["nothing would end"]


def timeline(events: Sequence[TimelineEvent]) -> list[str]:
    """The events of a run, one line each: the time, the event, the phase after it, the reason."""
    return [_happened(event, events[0].at) for event in events]


def _happened(event: TimelineEvent, start: Instant) -> str:
    why = one_line(event.reason, REASON_CHARS)
    phase = event.phase.replace("_", " ")
    return f"{event.at - start:8.3f} s  {event.words:<18} → {phase}{f'  ({why})' if why else ''}"


# ---- one run ---------------------------------------------------------------------------------------------------------


def story(told: Story) -> list[str]:
    """A run in full: its task, its state, its usage, its questions, its tries at delivery, and its timeline."""
    run, stats = told.run, told.stats
    lines = [
        f"session   {run.session_key}",
        f"run       {run.run_id} (attempt {run.attempt})",
        f"label     {one_line(run.label, LINE_CHARS)}",
        f"task      {one_line(run.task, LINE_CHARS)}",
        f"status    {status(run, told.now_at)}",
        f"parent    {run.requester}",
        f"mode      {run.mode}, cleanup {run.cleanup}",
    ]
    if run.controller != run.requester:
        lines.append(f"control   by {run.controller}")
    if run.origin:
        lines.append(f"origin    {one_line(run.origin, LINE_CHARS)}")
    if run.archive_at is not None:
        lines.append(f"archived  in {duration(run.archive_at - told.now_at)}")
    if run.error:
        lines.append(f"error     {one_line(run.error, LINE_CHARS)}")
    if run.delivery:
        lines.append(f"delivery  {run.delivery}")
    if told.ran is not None:
        by = ", ".join(one_line(name, 60) for name in told.models) or "no model yet"
        lines.append(f"model     {one_line(told.ran.model, 60)}, thinking {told.ran.thinking}; answered by {by}")
        lines.append(f"tools     {', '.join(told.ran.tools) or 'none'}{' (sandboxed)' if told.ran.boxed else ''}")
        lines.append(f"folder    {one_line(told.ran.folder, LINE_CHARS)}")
    if told.timeout_s:
        lines.append(f"timeout   {told.timeout_s:.0f} s")
    if told.budget:
        lines.append("budget    " + ", ".join(f"{one.used:g} of {one.most:g} {one.name}" for one in told.budget))
    lines += [f"cut       {one.name} {one.applied:g} of {one.asked:g}: {one.rule}" for one in told.limits if one.is_cut]
    if told.due is not None and run.ended_at is None:
        lines.append(f"next      {told.due.what}, in {max(0.0, told.due.at - told.now_at):.0f} s")
    if told.spawned:
        lines.append(f"children  {told.spawned}, {run.unsettled} unsettled")
    if stats.tokens_in is not None:
        cost = "" if stats.cost_usd is None else f", est ${stats.cost_usd:.4f}"
        cached = f", {stats.tokens_cached} cached" if stats.tokens_cached else ""
        lines.append(f"tokens    {stats.tokens_in} in, {stats.tokens_out} out{cached}{cost}")
    lines += [f"asked     {decided(one)}" for one in told.questions]
    lines += [f"read      {late.words(told.now_at)}, by {late.session}" for late in told.unanswered]
    lines += [f"turn      {one.words(told.now_at)}" for one in told.failing]
    lines += [f"tried     {_try(one, run)}" for one in told.tries]
    return [*lines, "", *timeline(told.timeline)]


def _try(one: Try, run: RunInfo) -> str:
    trace = one.trace
    since = "" if run.ended_at is None else f"{one.at - run.ended_at:.3f} s after its end, "
    tried = ", ".join(f"{step.phase} {step.result}" for step in trace.tried) or "read through a handle"
    told = "" if trace.form == "whole" else ", in one line"
    why = f" ({one_line(trace.why, REASON_CHARS)})" if trace.why else ""
    return f"{since}{trace.requester}: {tried}{told}{why}"


def log(messages: Sequence[Message]) -> list[str]:
    """Entries of a transcript, one line each."""
    return [f"{one.seq:>5}  {one_line(_said(one), LINE_CHARS)}" for one in messages] or ["(empty)"]


def _said(one: Message) -> str:
    by = {"user": one.kind or "user", "event": "told", "tool": one.kind}.get(one.role, one.role)
    return f"{by}: {one.text}" + "".join(f" [{call}]" for call in one.calls)


def killing(done: "Killing", names: Mapping[str, str]) -> str:
    """The result of a kill, after the wait for it; `names` by session key."""
    parts = {"killed": done.killed, "finished before the kill": done.finished, "did not stop": done.stopping}
    told = [f"{how}: {', '.join(names[key] for key in keys)}" for how, keys in parts.items() if keys]
    return "; ".join(told) or "nothing was running"


def sent(name: str, told: "Sent") -> str:
    """The result of a message to the run of this name."""
    match told.status:
        case "ok":
            return f"{name}: {told.reply}" if told.reply else f"{name} has nothing to say"
        case "accepted":
            return f"sent to {name}: {told.delivery}"
        case "timeout":
            return f"sent to {name}: it is still at it; its answer will be in its log"
        case _:
            return f"{name}: {told.error}"


# ---- sessions --------------------------------------------------------------------------------------------------------


def overview(told: Overview, runs: Sequence[str]) -> list[str]:
    """The present work in a folder, with lines of its runs, and everything that waits for a person."""
    unread = f" · {told.unread} unread" if told.unread else ""
    lines = [f"{conversation_name(told.session_key)} · {told.state}{unread}", *runs]
    if told.elsewhere:
        lines.append(f"and {told.elsewhere} at work in other conversations: fledge tree")
    if told.is_unfinished and not told.is_driven:
        lines.append(NOBODY_DRIVES)
    lines += unanswered(told.unanswered, told.now_at)
    lines += [question(one) for one in told.questions]
    lines += [plan(one) for one in told.plans]
    if told.undelivered:
        lines.append(f"{told.undelivered} undelivered: fledge undelivered")
    return lines


def unanswered(late: Sequence[UnansweredTurn], now: Instant) -> list[str]:
    """Turns that have read something and have had no answer for half an hour or more, one line each."""
    return [f"{len(one.rows)} read by {one.session}: {one.words(now)}" for one in late]


def sessions(rows: Sequence[SessionRow]) -> list[str]:
    """Sessions, one line each."""
    return [f"{one.key}  {one_line(one.label, 40) or one.kind}  {one.status}".rstrip() for one in rows] or [
        "no sessions"
    ]


def agents(known: "Sequence[AgentView]", bound: Sequence[str]) -> list[str]:
    """Agents that a person may start, and subagents that are bound to a thread."""
    lines = ["Agents you may start:"]
    for agent in known:
        about = f" · {one_line(agent.description, 120)}" if agent.description else ""
        lines.append(f"  {agent.id}{about}" + (f" · {agent.model}" if agent.model else ""))
    return lines + (["Bound to a thread:", *(f"  {one}" for one in bound)] if bound else [])


def standing(view: StatusView, left_out: Sequence[str], now: Instant) -> list[str]:
    """The status of a session: its state, the model that answered last, its usage, its queue, its subagents, its
    questions, and the documents of its workspace that are left out."""
    stats = Stats(None, view.tokens_in, view.tokens_out, view.cost_usd, view.tokens_cached)
    lines = [
        f"session   {view.session_key} · {_stands(view, now)}"
        + (f" · {view.run_status} · run {short_id(view.run_id)}" if view.run_id else ""),
        f"model     {one_line(view.model, LINE_CHARS) or 'none has answered yet'}",
        f"used      {stats_line(stats).partition(' • ')[2]}",
        f"queue     completions {view.queue_mode}, messages {view.people_mode} · {view.unread} unread",
    ]
    if view.children_active or view.children_done:
        lines.append(f"subagents {view.children_active} active · {view.children_done} done")
    if view.context_tokens is not None:
        lines.insert(3, f"context   {view.context_tokens} tokens in the last request")
    if view.unanswered:
        lines.append(f"turn      {view.unanswered}")
    if view.failing:
        lines.append(f"turn      {view.failing}")
    if view.note:
        lines.append(f"note      the last reply was {view.note}")
    if view.questions:
        lines.append(f"waiting   {view.questions} tool calls wait for you: /approvals")
    return [*lines, *(f"left out  {left_out_line(name)}" for name in left_out)]


def _stands(view: StatusView, now: Instant) -> str:
    """The state of a session; of one that waits for children, for how many, and until when."""
    if view.state != "waiting" or not view.waits_for:
        return view.state
    if view.waits_until is None:
        return view.waits_for
    due = time.localtime(view.waits_until / 1000)
    is_today = due[:3] == time.localtime(now)[:3]
    return f"{view.waits_for}, until {time.strftime('%H:%M' if is_today else '%Y-%m-%d %H:%M', due)}"


# ---- what waits for a person -----------------------------------------------------------------------------------------


def question(asked: Question) -> str:
    """A tool call that waits for approval, and the command that answers it."""
    short = short_id(asked.id)
    always = f"; --always: {_granted(asked)}" if asked.always else ""
    call = whole_call(asked.tool, asked.arguments)
    return f"waits for approval {short}: {call}  (fledge approve {short}, or reject{always}){_changed(asked)}"


def question_left(asked: Question, name: str, now: Instant) -> str:
    """A tool call that waits for approval, the name of its session, the time left, and the slash command that answers
    it."""
    left_s = max(0.0, asked.expires_at - now)
    left = f"{left_s / 3600:.0f} h" if left_s >= 3600 else f"{left_s / 60:.0f} min"
    short = short_id(asked.id)
    call = whole_call(asked.tool, asked.arguments)
    always = f", always: {_granted(asked)}" if asked.always else ""
    return f"{short}  {call}  for {one_line(name, NAME_CHARS)}, {left} left: /allow {short}{always}{_changed(asked)}"


def _changed(asked: Question) -> str:
    """The change of a file that the call would make, as marked lines below it."""
    return "" if asked.change is None else quoted_lines(printable("\n".join(change_lines(asked.change))))


def _granted(asked: Question) -> str:
    """The commands that an *always* would allow."""
    return f"`{asked.always}` here from now on{', by subagents too' if asked.for_subagents else ''}"


def decided(asked: Question) -> str:
    """The state of a call that needed approval, the person or rule that decided it, the reason, and the call."""
    rule = f" {short_id(asked.rule)}" if asked.rule else ""
    by = f" by {one_line(asked.answered_by, NAME_CHARS)}{rule}" if asked.answered_by else ""
    words = f' ("{one_line(asked.words, REASON_CHARS)}")' if asked.words else ""
    return f"{asked.state}{by}{words}: {one_line(whole_call(asked.tool, asked.arguments), LINE_CHARS)}"


def permissions(rules: Sequence[Permission]) -> list[str]:
    """The rules by which commands run without a question, one line each."""
    return [permission(rule) for rule in rules] or ["no rule lets a command run without a question"]


def permission(rule: Permission) -> str:
    """A rule: its id, the words it covers, its agent and folder, and the person who made it."""
    whom = f"{rule.agent}{' and its subagents' if rule.children else ''}"
    by = one_line(rule.made_by, NAME_CHARS)
    old = "" if rule.counts else "; it does not count any more, because any paths could follow: revoke it"
    return f"{short_id(rule.id)}  `{rule.shown}`  by {whom} in {rule.folder}, allowed by {by}{old}"


def plan(waits: Plan) -> str:
    """A plan that waits for approval, whole, and the command that answers it."""
    name = one_line(waits.label or waits.session_key, NAME_CHARS)
    how = f"the plan of {name} waits for your answer: fledge approve {short_id(waits.run_id)}, or reject"
    return how + quoted_lines(waits.text)


def undelivered(given_up: Sequence[GivenUp]) -> list[str]:
    """Undelivered results and messages, one line each."""
    return [_lost(one) for one in given_up] or ["nothing is undelivered"]


def _lost(one: GivenUp) -> str:
    why = one_line(one.reason, LINE_CHARS)
    if one.kind == "message":
        return f'{one.key}  to {one_line(one.label, 60)}: "{one_line(one.text, 60)}"  ({why})'
    return f"{one.key}  {one_line(one.label, 60) or one.kind}  ({one.status}; {why})"
