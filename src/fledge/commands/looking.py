"""From rows to what the verbs answer, and from words to what they mean. Reads only."""

import os

from msgspec.structs import replace

from fledge.api import views as api
from fledge.commands.listing import budget_of
from fledge.commands.params import AskerParams, One
from fledge.commands.values import Overview, RanWith, Rest, RunWorkspace, SessionStanding, Story, Try
from fledge.core.announce import announce_key
from fledge.core.keys import agent_of, is_main_key, main_key, project_key
from fledge.core.prompts import flattened
from fledge.core.run import Instant, Run
from fledge.core.standing import Above, Limit, limits, next_due
from fledge.core.targets import pick
from fledge.errors import NotFound
from fledge.orchestrator import transcripts, views
from fledge.orchestrator.commit import Rules
from fledge.orchestrator.transcripts import models_of
from fledge.store.base import Approval, SessionFacts, Tx

MOST_SHOWN = 300


# ---- what a word means -----------------------------------------------------------------------------------------------


def session_of(tx: Tx, asker: AskerParams) -> str:
    """The key of the session in which words are meant."""
    if not asker.folder:
        return api.session_key(asker.requester, "requester")
    return begun_or_main(tx, project_key(asker.folder))


def begun_or_main(tx: Tx, session: str) -> str:
    """This conversation, or the main one if this has not begun."""
    return session if is_begun(tx, session) else main_key()


def is_begun(tx: Tx, session: str) -> bool:
    """True of a session that there is and that was not deleted."""
    known = tx.sessions.get(session)
    return known is not None and not known.deleted


def found(tx: Tx, one: One) -> str:
    """The key of the run that parameters mean."""
    return run_meant(tx, one.target, session_of(tx, one))


def run_meant(tx: Tx, word: str, session: str) -> str:
    """The key of the run that a word means to somebody in this session: a key or a run id of any; a number, a label or
    the beginning of a run id of those below the session; from a main conversation, of all others after these.
    NotFound: unknown, or ambiguous."""
    if tx.runs.find(word) is not None:
        return word
    known = tx.runs.named(word.strip())
    if known is not None:
        return known[0]
    try:
        return views.find_run(tx, session, word)
    except NotFound as unknown:
        rows = [
            row for root in tx.sessions.roots() for row in (*views.child_rows(tx, root), *views.rows_below(tx, root))
        ]
        others = [row for row in rows if not views.is_below(tx, session, row.key)]
        own = tx.sessions.get(session)
        is_main = is_main_key(session) if own is None else own.is_main
        if not is_main or not others or "ambiguous" in str(unknown) or word.strip().lstrip("#").isdecimal():
            raise
        return pick(word, (), others).key


def session_meant(tx: Tx, word: str, session: str) -> str:
    """The key of the session that a word means to somebody in this one: `main`, a key, the name of a conversation, or a
    word for a run; no word: this session."""
    if not word.strip():
        return session
    if word.strip().lower() == "main" or word.strip().startswith("agent:"):
        return api.session_key(word, "target")
    try:
        return run_meant(tx, word, session)
    except NotFound as unknown:
        known = None if ":" in word else tx.sessions.get(f"agent:{agent_of(session)}:{word.strip()}")
        if known is not None and not known.deleted and known.kind in ("main", "named"):
            return known.key
        if ":" in word or word.strip().lstrip("#").isdecimal() or "ambiguous" in str(unknown):
            raise
        raise NotFound(f"no conversation or subagent {flattened(word, 80)!r}") from None


# ---- runs ------------------------------------------------------------------------------------------------------------


def story(tx: Tx, key: str, now: Instant) -> Story:
    """A run in full."""
    run, ran = tx.runs.load(key), tx.turns.last_ran(key)
    below = api.forest(tx, [key], MOST_SHOWN)
    told = announce_key(key, run.run_id, "outcome")
    questions = tuple(api.question(tx, one) for one in tx.approvals.of(key)[-MOST_SHOWN:])
    handover = api.handed_over(tx, key)
    return Story(
        now_at=now,
        run=replace(api.run_info(tx, key), children=tuple(below.runs), left_out=below.left_out),
        timeline=tuple(api.timeline(tx.events.of(key))),
        tries=tuple(Try(at=at, trace=trace) for at, trace in views.tries(tx, key)),
        text=api.result(tx, key).text,
        stats=api.stats_of(tx, run),
        models=tuple(models_of(tx, key)),
        ran=None
        if ran is None
        else RanWith(model=ran.model, thinking=ran.thinking, tools=ran.tools, boxed=ran.boxed, folder=ran.workspace),
        timeout_s=run.terms.timeout_s or 0.0,
        budget=budget_of(tx, key),
        spawned=tx.sessions.counts(key).spawned,
        unanswered=tuple(late for late in views.unanswered(tx, now) if told in late.rows),
        questions=questions,
        question=next((one for one in questions if one.state == "waiting"), None),
        limits=_limits(tx, run),
        workspace=_workspace(tx, key),
        artifacts=handover.artifacts,
        more_artifacts=handover.more,
        due=next_due(run),
    )


def _limits(tx: Tx, run: Run) -> tuple[Limit, ...]:
    spec, account = tx.runs.spec(run.key), tx.budgets.get(run.key)
    above = [
        Above(name=one.facts.label or one.key, budget=found.budget)
        for one in tx.sessions.lineage(run.key)[1:]
        if (found := tx.budgets.get(one.key)) is not None
    ]
    return limits(spec.asked, spec.agent_id, run.terms.timeout_s, None if account is None else account.budget, above)


def _workspace(tx: Tx, key: str) -> RunWorkspace:
    session, kind = tx.sessions.get(key), tx.runs.spec(key).asked.get("workspace", "inherit")
    facts = SessionFacts() if session is None else session.facts
    return RunWorkspace(kind=kind, folder=facts.workspace, cwd=facts.cwd, is_sandboxed=facts.boxed)


# ---- sessions --------------------------------------------------------------------------------------------------------


def standing(tx: Tx, key: str, rules: Rules, now: Instant) -> SessionStanding:
    """How a session stands."""
    ran = tx.turns.last_ran(key)
    names = () if ran is None else transcripts.left_out_documents(tx, os.path.realpath(ran.workspace))
    return SessionStanding(session_key=key, view=views.session_status(tx, key, rules, now), left_out=tuple(names))


def unfinished_roots(tx: Tx) -> list[str]:
    """Conversations and programs for which something is left to do. What a program has not read waits for it."""
    found = []
    for root in tx.sessions.roots():
        known = tx.sessions.get(root)
        if tx.sessions.counts(root).unsettled or (known is not None and known.is_main and not api.is_at_rest(tx, root)):
            found.append(root)
    return found


def asked_below(tx: Tx, session: str) -> list[Approval]:
    """Tool calls of a session, and of what is below it, that wait for a person."""
    return [one for one in tx.approvals.open() if is_below(tx, session, one.session)]


def rest(tx: Tx, session: str, whole_folder: bool, rules: Rules, patience_s: float, now: Instant) -> Rest:
    """Whether a session, or the whole folder with it, is at rest, and whether only a person can let it go on: nothing
    is driven, and nothing in the queue can be. With the whole folder, what programs have started counts as the
    session's own. Another conversation that waits for a person holds nothing up: its question is asked there."""
    sending = whole_folder and bool(tx.outbox.count_waiting(but=transcripts.SWEEP_IMAGES))
    moving = [one.session for one in tx.drivers.all() if one.release_at is None]
    moving += [place.session for place in tx.queue.claimable(rules.widths, now, MOST_SHOWN)]
    turn = tx.turns.get(session)
    goes_on = sending or any(whole_folder or is_below(tx, session, one) for one in moving)
    asked = tx.approvals.open()
    blocked = {session, *(() if goes_on else (tx.sessions.lineage(one.session)[-1].key for one in asked))}
    others = set(unfinished_roots(tx)) - blocked if whole_folder else ()

    def is_own(key: str) -> bool:
        return is_below(tx, session, key) or (whole_folder and tx.sessions.lineage(key)[-1].kind == "program")

    return Rest(
        settled=api.is_at_rest(tx, session) and not others and not sending,
        questions=() if goes_on else tuple(api.question(tx, one) for one in asked if is_own(one.session)),
        plans=tuple(one for one in api.plans(tx) if is_own(one.session_key)),
        failures=0 if turn is None else turn.failures,
        patience_seconds=patience_s,
    )


def is_below(tx: Tx, session: str, key: str) -> bool:
    """True of the session itself, too."""
    return any(above.key == session for above in tx.sessions.lineage(key))


def overview(tx: Tx, now: Instant, drives: bool, session: str, limit: int = MOST_SHOWN) -> Overview:
    """What goes on in a folder: in this conversation, or in the main one if this has not begun; and what waits for a
    person, wherever it does."""
    shown = begun_or_main(tx, session)
    turn = tx.turns.get(shown)
    state = views.waits_for(tx, shown, now) or "idle"
    if turn is not None:
        state = "a turn is open" + (f", failed {turn.failures} times" if turn.failures else "")
    below, unfinished = api.forest(tx, [shown], limit), unfinished_roots(tx)
    return Overview(
        now_at=now,
        is_driven=views.is_driven(tx, drives, now),
        is_unfinished=bool(unfinished) and not tx.approvals.open(),
        session_key=shown,
        elsewhere=sum(tx.sessions.counts(root).unsettled for root in unfinished if root != shown),
        state=state,
        unread=len(tx.inbox.unread(shown)),
        runs=tuple(below.runs),
        left_out=below.left_out,
        unanswered=tuple(views.unanswered(tx, now)),
        questions=tuple(api.questions(tx)),
        plans=tuple(api.plans(tx)),
        undelivered=views.count_undelivered(tx),
    )
