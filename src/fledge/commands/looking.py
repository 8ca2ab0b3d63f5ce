"""From rows to what the verbs answer, and from words to what they mean. Reads only."""

import os

from msgspec.structs import replace

from fledge.api import views as api
from fledge.commands.listing import budget_of
from fledge.commands.params import One
from fledge.commands.values import Overview, Ran, Rest, Standing, Story, Try, Workspace
from fledge.core.announce import announce_key
from fledge.core.freeze import Stats
from fledge.core.keys import main_key
from fledge.core.limits import Above, Limit, limits, next_due
from fledge.core.run import Instant, Run
from fledge.core.targets import pick
from fledge.errors import NotFound
from fledge.orchestrator import documents, views
from fledge.orchestrator.commit import Rules
from fledge.orchestrator.transcripts import models_of
from fledge.store.base import Approval, SessionFacts, Tx

MOST_SHOWN = 300
FIRST_CHARS = 80
"""How much of the first words of a session its row has."""


# ---- what a word means -----------------------------------------------------------------------------------------------


def found(tx: Tx, one: One) -> str:
    """The key of the run that parameters mean."""
    return run_meant(tx, one.target, api.session_key(one.requester, "requester"))


def run_meant(tx: Tx, word: str, session: str) -> str:
    """The key of the run that a word means to somebody in this session: a key or a run id of any; a number, a label or
    the beginning of a run id of those below the session; from the main conversation, of all others after these.
    NotFound: unknown, or ambiguous."""
    if tx.find_run(word) is not None:
        return word
    known = tx.run_named(word.strip())
    if known is not None:
        return known[0]
    try:
        return views.find_run(tx, session, word)
    except NotFound as unknown:
        rows = [row for root in tx.roots() for row in (*views.child_rows(tx, root), *views.rows_below(tx, root))]
        others = [row for row in rows if not views.is_below(tx, session, row.key)]
        if session != main_key() or not others or "ambiguous" in str(unknown) or word.strip().lstrip("#").isdecimal():
            raise
        return pick(word, (), others).key


def session_meant(tx: Tx, word: str) -> str:
    """The key of the session that a word means: `main`, a key, or a word for a run."""
    if word.strip().lower() == "main" or word.strip().startswith("agent:"):
        return api.session_key(word, "target")
    return run_meant(tx, word, main_key())


# ---- runs ------------------------------------------------------------------------------------------------------------


def story(tx: Tx, key: str, now: Instant) -> Story:
    """A run in full."""
    run, spent, ran = tx.load_run(key), tx.used(key), tx.last_ran(key)
    took_s = None if run.ended is None else run.ended.elapsed_s
    below = api.forest(tx, [key], MOST_SHOWN)
    told = announce_key(key, run.run_id, "outcome")
    asked, goods = tx.approvals(key)[-MOST_SHOWN:], api.handed_over(tx, key)
    return Story(
        now_at=now,
        run=replace(api.run_info(tx, key), children=tuple(below.runs), left_out=below.left_out),
        timeline=tuple(api.timeline(tx.events(key))),
        tries=tuple(Try(at=at, trace=trace) for at, trace in views.tries(tx, key)),
        text=api.result(tx, key).text,
        stats=Stats(took_s, spent.tokens_in, spent.tokens_out, spent.cost_usd, spent.tokens_cached),
        models=tuple(models_of(tx, key)),
        ran=None
        if ran is None
        else Ran(model=ran.model, thinking=ran.thinking, tools=ran.tools, boxed=ran.boxed, folder=ran.workspace),
        timeout_s=run.terms.timeout_s or 0.0,
        budget=budget_of(tx, key),
        spawned=tx.counts(key).spawned,
        unanswered=tuple(late for late in views.unanswered(tx, now) if told in late.rows),
        questions=tuple(api.question(tx, one) for one in asked),
        question=next((api.question(tx, one) for one in asked if one.state == "waiting"), None),
        limits=_limits(tx, run),
        workspace=_workspace(tx, key),
        artifacts=goods.artifacts,
        more_artifacts=goods.more,
        due=next_due(run),
    )


def _limits(tx: Tx, run: Run) -> tuple[Limit, ...]:
    spec, purse = tx.spec(run.key), tx.purse(run.key)
    above = [
        Above(name=one.facts.label or one.key, budget=found.budget)
        for one in tx.lineage(run.key)[1:]
        if (found := tx.purse(one.key)) is not None
    ]
    return limits(spec.asked, spec.agent_id, run.terms.timeout_s, None if purse is None else purse.budget, above)


def _workspace(tx: Tx, key: str) -> Workspace:
    session, kind = tx.session(key), tx.spec(key).asked.get("workspace", "inherit")
    facts = SessionFacts() if session is None else session.facts
    return Workspace(kind=kind, folder=facts.workspace, cwd=facts.cwd, is_sandboxed=facts.boxed)


# ---- sessions --------------------------------------------------------------------------------------------------------


def standing(tx: Tx, key: str, rules: Rules, now: Instant) -> Standing:
    """How a session stands."""
    ran = tx.last_ran(key)
    names = () if ran is None else documents.left_out(tx, os.path.realpath(ran.workspace))
    return Standing(session_key=key, view=views.session_status(tx, key, rules, now), left_out=tuple(names))


def is_folder_at_rest(tx: Tx) -> bool:
    """Nothing is left to do for the main conversation, and nothing for a program: what that has not read waits for
    it."""
    return api.is_at_rest(tx, main_key()) and not any(tx.counts(root).unsettled for root in tx.roots())


def asked_below(tx: Tx, session: str) -> list[Approval]:
    """Tool calls of a session, and of what is below it, that wait for a person."""
    return [one for one in tx.open_approvals() if is_below(tx, session, one.session)]


def rest(tx: Tx, session: str, whole_folder: bool, patience_s: float) -> Rest:
    """Whether a session, or the whole folder with it, is at rest, and whether only a person can let it go on."""
    sending = whole_folder and bool(tx.waiting_posts())
    settled = api.is_at_rest(tx, session) and (not whole_folder or is_folder_at_rest(tx))
    asked = tx.open_approvals() if whole_folder else asked_below(tx, session)
    drivers = [one.session for one in tx.drivers() if one.release_at is None]
    turn = tx.turn(session)
    goes_on = sending or any(whole_folder or is_below(tx, session, one) for one in drivers)
    return Rest(
        settled=settled and not sending,
        questions=() if goes_on else tuple(api.question(tx, one) for one in asked),
        failures=0 if turn is None else turn.failures,
        patience_seconds=patience_s,
    )


def is_below(tx: Tx, session: str, key: str) -> bool:
    """True of the session itself, too."""
    return any(above.key == session for above in tx.lineage(key))


def overview(tx: Tx, now: Instant, is_driven: bool, limit: int = MOST_SHOWN) -> Overview:
    """What goes on in a folder."""
    main = main_key()
    turn = tx.turn(main)
    state = "idle" if turn is None else "a turn is open" + (f", failed {turn.failures} times" if turn.failures else "")
    below = api.forest(tx, [main], limit)
    return Overview(
        now_at=now,
        is_driven=is_driven,
        is_unfinished=not is_folder_at_rest(tx) and not tx.open_approvals(),
        state=state,
        unread=len(tx.unread(main)),
        runs=tuple(below.runs),
        left_out=below.left_out,
        unanswered=tuple(views.unanswered(tx, now)),
        questions=tuple(api.questions(tx)),
        plans=tuple(api.plans(tx)),
        undelivered=views.count_undelivered(tx),
    )
