"""The run or session that a word means, and whether a session is at rest. Reads only."""

from fledge.api import views as api
from fledge.commands.params import AskerParams, One
from fledge.commands.values import Rest
from fledge.core.keys import agent_of, is_main_key, main_key, project_key
from fledge.core.prompts import flattened
from fledge.core.run import Instant
from fledge.core.targets import is_own, pick
from fledge.errors import NotFound
from fledge.orchestrator import transcripts, views
from fledge.orchestrator.commit import Rules
from fledge.store.base import Approval, Tx

MOST_SHOWN = 300


# ---- what a word means -----------------------------------------------------------------------------------------------


def session_of(tx: Tx, asker: AskerParams) -> str:
    """The key of the session whose runs the words of a request mean."""
    if not asker.folder:
        return api.session_key(asker.requester, "requester")
    return begun_or_main(tx, project_key(asker.folder))


def begun_or_main(tx: Tx, session: str) -> str:
    """This conversation, or the main one if this has not begun."""
    return session if is_begun(tx, session) else main_key()


def is_begun(tx: Tx, session: str) -> bool:
    """True if the session exists and was not deleted."""
    known = tx.sessions.get(session)
    return known is not None and not known.deleted


def found(tx: Tx, one: One) -> str:
    """The key of the run that `target` means."""
    return run_meant(tx, one.target, session_of(tx, one))


def run_meant(tx: Tx, word: str, session: str) -> str:
    """The key of the run that a word means in this session: of any run, its session key or a run id; of the runs below
    the session, a number, `last`, a label or the beginning of a run id; then, if the session is a main conversation, a
    label or the beginning of a run id of all other runs. NotFound: unknown, or ambiguous."""
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
        if not is_main or not others or "ambiguous" in str(unknown) or is_own(word):
            raise
        return pick(word, (), others).key


def session_meant(tx: Tx, word: str, session: str) -> str:
    """The key of the session that a word means in this one: `main`, a key, the name of a conversation, or a word for a
    run; no word: this session."""
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
        if ":" in word or is_own(word) or "ambiguous" in str(unknown):
            raise
        raise NotFound(f"no conversation or subagent {flattened(word, 80)!r}") from None


# ---- sessions --------------------------------------------------------------------------------------------------------


def unfinished_roots(tx: Tx) -> list[str]:
    """Conversations and programs for which something is left to do: runs below them that have not settled, or, for a
    conversation, also work of its own. Results that a program has not read do not count: they wait for it."""
    found = []
    for root in tx.sessions.roots():
        known = tx.sessions.get(root)
        is_program = known is None or known.kind == "program"
        if tx.sessions.counts(root).unsettled or not (is_program or api.is_at_rest(tx, root)):
            found.append(root)
    return found


def asked_below(tx: Tx, session: str) -> list[Approval]:
    """Tool calls of a session, and of what is below it, that wait for a person."""
    return [one for one in tx.approvals.open() if is_below(tx, session, one.session)]


def rest(tx: Tx, session: str, whole_folder: bool, rules: Rules, patience_s: float, now: Instant) -> Rest:
    """Whether a session, or the whole folder with it, is at rest; and the questions that hold it up, given only while
    nothing continues without an answer: no turn is driven, and none in the queue can be. With the whole folder, the
    runs of programs count as the session's own, and messages that are to be sent count as work. Another conversation
    that waits for a person does not hold this one up: its question is asked there."""
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
    """True if `key` is the session itself or below it."""
    return any(above.key == session for above in tx.sessions.lineage(key))
