"""A session's view of others: which it may see, their transcripts, their results. Reads only.

`core.access` decides who may look; the facts for that are gathered here.
"""

from collections.abc import Collection
from typing import Final

from msgspec import Struct

from fledge.config import Config, agent_to_agent, visibility_for
from fledge.core.access import AgentToAgent, Visibility, refuse_agents, refuse_sight
from fledge.core.history import History, ShownMessage, history
from fledge.core.keys import ListKind, agent_of, list_kind, main_key, parse_key
from fledge.core.policy import Refusal, enforce
from fledge.core.prompts import flattened
from fledge.core.run import AwaitingApproval, Instant
from fledge.core.transcript import Replied, from_body
from fledge.errors import NotFound
from fledge.orchestrator.views import find_run, is_below, model_that_ran, row_of, times, to_ms
from fledge.store.base import Session, Tx

MOST_ENTRIES: Final = 2000
"""How much of a transcript is looked at for a history: far more than fits into one."""


class Looker(Struct, frozen=True, kw_only=True):
    """A session that looks at others, and how far it may see."""

    session: str
    seen: Visibility = "tree"
    agents: AgentToAgent = AgentToAgent()


def looker(config: Config, tx: Tx, session: str) -> Looker:
    """How far this session sees others, and may send to them."""
    known = tx.sessions.get(session)
    agent_id = agent_of(session) if known is None else known.facts.agent_id
    seen = visibility_for(config, agent_id, known is None or known.kind in ("main", "named"))
    return Looker(session=session, seen=seen, agents=agent_to_agent(config))


def key_meant(tx: Tx, session: str, word: str) -> str:
    """The session key that a word means to this session: a key, `main`, or a word for something below it. `main` is the
    main conversation of its agent that it belongs to, such as its project's, else the one of that name."""
    own = tx.sessions.get(session)
    agent_id = "main" if own is None else own.facts.agent_id
    if word.strip().lower() == "main":
        above = [one for one in tx.sessions.lineage(session) if one.is_main and one.facts.agent_id == agent_id]
        return above[0].key if above else main_key(agent_id)
    if ":" in word:
        return str(parse_key(word, agent_id))
    return find_run(tx, session, word)


def find_session(tx: Tx, looker: Looker, word: str) -> Session:
    """The session that a key, or a word for something below the looker, means. Refused if it may not be seen."""
    key = key_meant(tx, looker.session, word)
    found = tx.sessions.get(key)
    if found is None:
        raise NotFound(f"no session {key}")
    enforce(refuse_look(tx, looker, found.key, found.facts.agent_id))
    return found


def find_labelled(tx: Tx, looker: Looker, label: str, agent_id: str = "") -> str:
    """The session with this label that the looker may see: its own first. NotFound: unknown, or more than one."""
    wanted = label.strip().casefold()
    visible = [
        session.key
        for session, _ in _within_reach(tx, looker)
        if session.facts.label.strip().casefold() == wanted
        and (not agent_id or session.facts.agent_id == agent_id)
        and session.key != looker.session
        and refuse_look(tx, looker, session.key, session.facts.agent_id) is None
    ]
    own = [key for key in visible if is_below(tx, looker.session, key)]
    found = own or visible
    if not found:
        raise NotFound(f"no session labelled {flattened(label, 80)!r} that you may see")
    if len(found) > 1:
        raise NotFound(f"{flattened(label, 80)!r} is ambiguous: {', '.join(sorted(found)[:5])}: give sessionKey")
    return found[0]


def refuse_look(tx: Tx, looker: Looker, target: str, theirs: str) -> Refusal | None:
    """None if the looker may see the target, a session of agent `theirs`, whether it exists or not."""
    caller = tx.sessions.get(looker.session)
    own = "" if caller is None else caller.facts.agent_id
    return refuse_sight(
        looker.session,
        target,
        looker.seen,
        in_tree=is_below(tx, looker.session, target),
        same_agent=own == theirs,
        may_talk=refuse_agents(looker.agents, own, theirs) is None,
    )


class SessionView(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One session in a list. Times are milliseconds since the epoch."""

    key: str
    kind: ListKind
    agent_id: str
    created_at: int
    updated_at: int
    label: str = ""
    parent: str = ""
    status: str = ""
    run_id: str = ""
    started_at: int | None = None
    """When its run first worked; None of a conversation, and of a run that has not yet."""
    ended_at: int | None = None
    runtime_ms: int | None = None
    """From its start to its end, or until now."""
    model: str = ""
    """The model that answered last."""
    messages: tuple[ShownMessage, ...] = ()


class SessionsWanted(Struct, frozen=True, kw_only=True):
    """Which sessions to list, and how much of each."""

    kinds: Collection[str] = ()
    """Kinds of sessions; `other` is every kind that is none of main, group, cron, hook and node. Empty: all."""
    active_since: Instant | None = None
    limit: int = 50
    messages: int = 0
    """How many of the newest messages of each are shown."""
    now: Instant | None = None
    """The time up to which runtimes of unfinished runs count; None: runtimes are left out."""


_OTHERS: Final = ("main", "group", "cron", "hook", "node")


def list_sessions(tx: Tx, looker: Looker, wanted: SessionsWanted) -> list[SessionView]:
    """The sessions that the looker may see, the latest active first. Others are left out silently."""
    found: list[SessionView] = []
    for session, last_at in _within_reach(tx, looker):
        if wanted.active_since is not None and last_at < wanted.active_since:
            continue
        kind = list_kind(session.key, session.is_main)
        if wanted.kinds and kind not in wanted.kinds and not ("other" in wanted.kinds and kind not in _OTHERS):
            continue
        if refuse_look(tx, looker, session.key, session.facts.agent_id) is None:
            found.append(_session_view(tx, session, last_at, wanted))
            if len(found) == wanted.limit:
                break
    return found


def _within_reach(tx: Tx, looker: Looker) -> list[tuple[Session, Instant]]:
    """Every session that might be visible, the latest active first."""
    match looker.seen:
        case "all":
            return tx.lists.recent_sessions(None, 1_000_000)
        case "agent":
            own = tx.sessions.get(looker.session)
            found = tx.lists.recent_sessions("" if own is None else own.facts.agent_id, 1_000_000)
            known = {session.key for session, _ in found}
        case _:
            found, known = [], set()
    keys = [looker.session]
    for key in keys:
        session = tx.sessions.get(key)
        if session is not None and not session.deleted and key not in known:
            found.append((session, _last_at(tx, session)))
        keys += tx.runs.children(key) if looker.seen != "self" else []
    return sorted(found, key=lambda one: -one[1])


def _last_at(tx: Tx, session: Session) -> Instant:
    last = tx.transcripts.tail(session.key, 1)
    return last[0].at if last else session.created_at


def _session_view(tx: Tx, session: Session, last_at: Instant, wanted: SessionsWanted) -> SessionView:
    run = tx.runs.find(session.key)
    row = None if run is None else row_of(tx, run, session.facts.label)
    return SessionView(
        key=session.key,
        kind=list_kind(session.key, session.is_main),
        agent_id=session.facts.agent_id,
        created_at=to_ms(session.created_at),
        updated_at=to_ms(last_at),
        label=session.facts.label,
        parent=session.parent or "",
        status="" if row is None else row.status,
        run_id="" if row is None else row.run_id,
        **times(row, wanted.now),
        model=model_that_ran(tx, session.key),
        messages=session_history(tx, session.key, wanted.messages).messages if wanted.messages else (),
    )


def session_history(tx: Tx, key: str, limit: int, include_tools: bool = False) -> History:
    """The history of a session; of a child whose session is gone, its frozen result. NotFound if nothing is left."""
    session = tx.sessions.get(key)
    if session is not None and not session.deleted:
        entries = tx.transcripts.tail(key, MOST_ENTRIES, () if include_tools else ("tool",))
        return history([(entry.at, from_body(entry.body)) for entry in entries], limit, include_tools)
    run = tx.runs.find(key)
    if run is None or run.ended is None:
        raise NotFound(f"no session {key}")
    ended = run.ended
    text = ended.outcome.error or "" if ended.result is None else tx.texts.get(ended.result)
    return history([(ended.ended_at, Replied(text or "(no output)"))], limit)


def result_text(tx: Tx, looker: Looker, word: str) -> tuple[str, str]:
    """The session key and the frozen result of the run that a word means; of one that failed, its error.

    Every session above a run may read its result, whatever else it may see: results go upwards. NotFound: no run, or
    one without a result.
    """
    key = key_meant(tx, looker.session, word)
    run, session = tx.runs.find(key), tx.sessions.get(key)
    if session is not None and not is_below(tx, looker.session, key):
        enforce(refuse_look(tx, looker, key, session.facts.agent_id))
    if run is None:
        raise NotFound(f"{key} is not a subagent: only those have a result")
    late = [row.text for row in tx.inbox.of_run(key) if row.kind == "late"]
    if late:
        text = late[-1]
    elif run.ended is not None:
        text = run.ended.result
    elif isinstance(run.phase, AwaitingApproval):
        text = run.phase.plan
    else:
        raise NotFound(f"{key} has no result yet: it is {run.phase.name}, and its result will be pushed to you")
    if text is not None:
        return key, tx.texts.get(text)
    return key, "" if run.ended is None else run.ended.outcome.error or ""
