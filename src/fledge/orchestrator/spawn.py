"""Spawning: reserve a place, prepare what the child needs, accept. Checks and reservation are one commit, so limits
hold under any race; `accepted` is answered only once it is prepared, and a failure leaves nothing behind.
"""

import hashlib
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core import fork, policy
from fledge.core.access import refuse_stopped
from fledge.core.attachments import File
from fledge.core.freeze import one_line, to_valid_utf8
from fledge.core.keys import (
    FOLDER_CHARS,
    agent_of,
    check_agent_id,
    child_key,
    folder_name,
    is_main_key,
    main_key,
    parse_key,
)
from fledge.core.policy import enforce
from fledge.core.prompts import resumed_message
from fledge.core.route import INTERNAL
from fledge.core.run import Run, Spawning, Terms
from fledge.core.transcript import Spoken, in_order
from fledge.errors import BadInput, FledgeError, Refused
from fledge.orchestrator import budget, effects, heartbeat, inbox, outbox, transcripts, views
from fledge.orchestrator.commit import Commit, Lease, check_lease
from fledge.store.base import Session, SessionFacts, Spec, Tx


class SpawnRequest(Struct, frozen=True, kw_only=True):
    """A spawn that has been read and validated at its edge (`spawn_params`)."""

    spec: Spec
    terms: Terms
    """`depth` is filled in here, from the parent's stored session."""
    facts: SessionFacts = SessionFacts()
    """Of the child's session; agent, label and role are filled in here."""
    limits: policy.Limits = policy.Limits()
    budget: policy.Budget | None = None
    """The budget of the run and everything below it; None: that of its ancestors."""
    objection: FledgeError | None = None
    """Another reason to refuse; raised only if no limit does, so that refusals come in a fixed order."""
    cap_of: Callable[[str], int] | None = None
    """`maxChildrenPerAgent` by agent, for those above the caller; None: as for the caller."""
    generations: Mapping[str, int] | None = None
    """Stop generations that the calling turn stored; None for a program, which no turn of ours can stop."""
    lease: Lease | None = None
    """Of the driver whose tool call this is; None for a program or a person."""
    key: str = ""
    """`idempotencyKey`, scoped to the parent: asking again with it finds the same run. Empty: every call is new."""
    digest: str = ""
    """A digest of the parameters as they were asked for, to tell a repeated call from another one; empty: of the
    request itself."""
    binds_thread: bool = False
    """Its channel's thread is bound while it is being prepared."""
    unique: str = ""
    """The name of the child's session; empty: any."""
    files: tuple[File, ...] = ()
    """The contents of its attachments."""
    source: str = ""
    """The folder whose repository its worktree is made of."""
    forks: bool = False
    """It starts with what its parent's conversation said so far."""
    fork_tokens: int = 0
    """The most that may be; 0: no limit."""
    model: str = ""
    """The model that it will use, for the answer to its caller; empty if none is configured."""
    warning: str = ""
    """A hint to the caller about a parameter that is accepted but outdated; empty if there is none."""

    @property
    def needs_preparing(self) -> bool:
        """True if something outside the database has to be made or looked at before it can be accepted."""
        return self.binds_thread or bool(self.terms.leaves or self.facts.cwd)


def spawn(c: Commit, request: SpawnRequest) -> Run:
    """Reserve and prepare in one commit: for children that need nothing from outside the database.

    A repeated call (same key, same request) answers the run of the first; with another request it is refused.
    """
    known = spawned_before(c, request)
    if known is not None:
        return known
    run = reserve(c, request)
    return prepared(c, run.key, request.generations)


def spawned_before(c: Commit, request: SpawnRequest) -> Run | None:
    """The run that this call made before, if it did. Refused: the key came with other parameters, or that run is still
    being prepared for its first caller."""
    known = c.tx.asks.find(request.terms.parent, request.key) if request.key else None
    if known is None:
        return None
    if known.digest != _digest(request):
        raise Refused("error", f"idempotencyKey: {request.key} was used before with other parameters")
    run = c.run(known.answer)
    if isinstance(run.phase, Spawning):
        raise Refused("error", f"idempotencyKey: {request.key} is being prepared: try again in a moment")
    return run


def _digest(request: SpawnRequest) -> str:
    if request.digest:
        return request.digest
    asked = replace(request.spec, created_at=0.0)
    return hashlib.sha256(msgspec.json.encode((asked, request.terms))).hexdigest()


def reserve(c: Commit, request: SpawnRequest) -> Run:
    """Check every limit and reserve the place. Raises Refused, with nothing changed, if a rule forbids it."""
    task, label = to_valid_utf8(request.spec.task), to_valid_utf8(request.spec.label)
    if not task.strip():
        raise BadInput("task", "must not be empty")
    parent = request.terms.parent
    session = c.session(parent)
    check_lease(c, parent, request.lease)
    check_wanted(c, parent, request.generations)
    above = c.find(parent)
    if above is not None and above.ended is not None and above.terms.mode == "run":
        raise Refused("forbidden", f"{parent} has ended and cannot receive an answer: spawn from its requester")
    counts = c.tx.sessions.counts(parent)
    occupancy = policy.Occupancy(
        depth=session.depth,
        children=counts.unsettled + len(_kept_places(c, parent)),
        retained=c.tx.lists.count_children(parent) if request.limits.max_retained else 0,
        wakes=0 if above is None else above.wakes,
        budget_spent=budget.is_spent(c, parent),
        is_leaf=session.facts.role == "leaf",
    )
    enforce(policy.admit(request.limits, occupancy))
    _check_above(c, above, request.cap_of or (lambda agent_id: request.limits.max_children))
    if request.objection is not None:
        raise request.objection
    forked = _forked(c, request, session) if request.forks else None
    turn = c.tx.turns.get(parent)
    origin = "" if turn is None or turn.origin == INTERNAL else turn.origin
    agent_id = check_agent_id(request.spec.agent_id)
    spec = replace(request.spec, task=task, label=label, agent_id=agent_id, origin=origin)
    key = child_key(spec.agent_id, request.unique or c.ids.unique())
    depth = session.depth + 1
    role = policy.role_at(depth, request.limits.max_depth)
    facts = replace(request.facts, agent_id=spec.agent_id, label=spec.label, role=role)
    terms = _settled_terms(request.terms, depth, program=session.kind == "program")
    owner = c.owner if request.needs_preparing else ""
    run = c.admit(ev.Admitted(at=c.at, key=key, terms=terms, run_id=c.ids.unique(), owner=owner), spec)
    c.tx.sessions.open(key, "subagent", parent, depth, facts, c.at)
    c.tx.inbox.open(key)
    effects.unsettle_above(c, parent)
    if spec.images:
        c.tx.transcripts.hold_files(key, [image.sha256 for image in spec.images])
    if forked is not None:
        transcripts.write(c, key, forked)
    if request.budget is not None:
        budget.give(c, key, request.budget)
    if request.key:
        c.tx.asks.remember(parent, request.key, _digest(request), key, owner=key)
    return run


def _kept_places(c: Commit, session: str) -> set[str]:
    """Children that take a place although they count as settled: an answer to a plan, of the child or of a run below
    it, would unsettle them."""
    plans = c.tx.runs.awaiting()
    if not plans:
        return set()
    kept = {key for plan in plans if (key := _child_above(c, plan, session)) is not None}
    return {key for key in kept if c.run(key).concluded and not c.tx.sessions.counts(key).unsettled}


def _child_above(c: Commit, key: str, parent: str) -> str | None:
    """The child of `parent` that this run is, or is below; None if it is neither."""
    above = c.run(key).terms.parent
    while above != parent:
        run = c.find(above)
        if run is None:
            return None
        key, above = above, run.terms.parent
    return key


def _check_above(c: Commit, run: Run | None, cap_of: Callable[[str], int]) -> None:
    """A run that had settled is active again, because it is resumed or has a new child: it takes a place of its
    parent's anew, and so on upwards. Raises Refused where there is none."""
    while run is not None and run.concluded and not c.tx.sessions.counts(run.key).unsettled:
        parent = run.terms.parent
        kept = _kept_places(c, parent)
        if run.key in kept or run.terms.program:
            return  # it never gave its place up; a program has as many as it likes
        refusal = policy.refuse_children(cap_of(agent_of(parent)), c.tx.sessions.counts(parent).unsettled + len(kept))
        if refusal is not None:
            raise Refused(refusal.status, f"{refusal.reason}, of {views.name_of(c.tx, parent)}")
        run = c.find(parent)


def _forked(c: Commit, request: SpawnRequest, parent: Session) -> Spoken:
    """The transcript that a forked child starts with. Refused: another agent, a program, or more than may be copied."""
    own, target = parent.facts.agent_id, request.spec.agent_id
    if parent.kind == "program":
        raise Refused("error", "context: fork needs a conversation, and a program has none")
    if target != own:
        raise Refused("error", f'context: fork is for the same agent: "{target}" is not "{own}"')
    text = fork.history_text(line.body for line in in_order(transcripts.lines(c.tx, parent.key)))
    enforce(fork.refuse_length(text, request.fork_tokens))
    return Spoken(text, kind="fork", source=parent.key)


def _settled_terms(terms: Terms, depth: int, program: bool) -> Terms:
    cleanup = "keep" if terms.plan or terms.mode == "session" else terms.cleanup
    return replace(terms, depth=depth, cleanup=cleanup, program=program)


def prepared(c: Commit, key: str, generations: Mapping[str, int] | None) -> Run:
    """Everything is in place: accept. Refused if a stop has come in between; the caller then withdraws by `failed`."""
    parent = c.run(key).terms.parent
    check_wanted(c, parent, generations)
    return effects.apply(c, key, ev.Prepared(at=c.at)).run


def failed(c: Commit, key: str, reason: str) -> None:
    """Preparing failed: the reservation goes, with everything that was made for it."""
    if c.find(key) is not None:
        effects.apply(c, key, ev.Withdrawn(at=c.at, reason=reason))


def resume(
    c: Commit,
    key: str,
    words: str,
    limits: policy.Limits,
    cap_of: Callable[[str], int],
    new_budget: policy.Budget | None = None,
) -> Run:
    """Let a run that was killed, failed or timed out go on: a new attempt, admitted like a spawn. It reads how it had
    ended, the words, and what its end had left unread. Killed runs below it stay killed.

    Raises Refused, with nothing changed, if it may not go on, lacks something that it needs, or a limit forbids it; if
    its own budget is spent, unless a new one is given.
    """
    run, name = c.run(key), views.name_of(c.tx, key)
    enforce(policy.refuse_resume(run, name))
    if any(isinstance(event, ev.Imported) for event in c.tx.events.of(key)):
        raise Refused("done", f"{name} was imported from another system: run it again")
    session = c.tx.sessions.get(key)
    if session is None or session.deleted:
        raise Refused("done", f"{name}: its session was deleted: run it again")
    killed = inbox.receiver_of(c, run.terms.parent).killed
    if killed is not None:
        above = views.name_of(c.tx, killed)
        raise Refused("forbidden", f"{above}, which it would answer to, was killed: resume that, or run it again")
    if new_budget is not None:
        budget.give(c, key, new_budget)
    elif (used := budget.reached(c, key)) is not None:
        raise Refused("forbidden", f"the budget of {name} is used up ({used}): resume it with a new one: budget")
    spent = budget.is_spent(c, key)
    enforce(policy.admit(limits, policy.Occupancy(run.terms.depth - 1, children=0, retained=0, budget_spent=spent)))
    _check_above(c, run, cap_of)
    next_id, words = c.ids.unique(), to_valid_utf8(words).strip()
    if run.ended is not None and transcripts.has_begun(c.tx, key):
        words = resumed_message(run.ended.outcome, words)
    if words:
        c.tx.inbox.put(f"resume:{key}:{next_id}", key, "steer", None, words, c.at)
    said, unsettled = transcripts.last_words(c, key), c.tx.sessions.counts(key).unsettled
    resumed = effects.apply(c, key, ev.Resumed(at=c.at, next_run_id=next_id, unsettled=unsettled, text=said)).run
    outbox.tell_context_engine(c, key, "started")
    return resumed


def present_requester(tx: Tx, key: str) -> str:
    """The session that asked for this run, or the nearest above it that is still there. Raises Refused if none is."""
    for session in tx.sessions.lineage(tx.runs.load(key).terms.parent):
        run = tx.runs.find(session.key)
        if not session.deleted and (run is None or run.ended is None or run.terms.mode == "session"):
            return session.key
    name = views.name_of(tx, key)
    raise Refused("error", f"no requester of {name} is left to receive an answer: spawn it from a conversation")


def check_wanted(c: Commit, session: str, generations: Mapping[str, int] | None) -> None:
    """Raises Refused if the session, or one above it, was stopped since these generations were stored. None holds
    always: a person or a program."""
    if generations is not None:
        enforce(refuse_stopped(generations, generations_of(c, session)))


def generations_of(c: Commit, session: str) -> dict[str, int]:
    """Stop generations of the session and its ancestors now; a turn stores them when it opens."""
    return {above.key: above.generation for above in c.tx.sessions.lineage(session)}


def open_conversation(c: Commit, key: str, folder: str = "") -> None:
    """Open a conversation; one that exists stays as it is, and gets a notice of results of its tree that were given up
    since.

    `folder` is the project folder it is begun in, by real path: it works there. It is a main conversation of its agent
    if it is called `main`, or by the name that the folder gives. Refused: another folder's has that name.
    """
    agent_id, is_main = agent_of(key), is_main_key(key, folder)
    project = "" if key == main_key(agent_id) else folder
    label = one_line(folder_name(project), FOLDER_CHARS) if project and is_main else ""
    facts, known = SessionFacts(agent_id, label, project=project), c.tx.sessions.get(key)
    if project and is_main and known is not None and known.facts.project != project:
        if known.facts.project or known.kind != "named":
            owner = known.facts.project or "a program"
            raise Refused("error", f"{key} is the conversation of {owner}: name another one with --session")
        # It was begun by its name, before a person began it in its folder.
        c.tx.sessions.change(key, replace(known.facts, project=project, label=known.facts.label or label), "main")
    c.tx.sessions.open(key, "main" if is_main else "named", None, 0, facts, c.at)
    if is_main and c.rules.heartbeat.every_s:
        heartbeat.keep_beat(c, key)
    inbox.tell_undelivered(c, key)


def open_program(c: Commit, key: str) -> None:
    """Open the session in which a program receives results: it reads them through handles, and no model answers
    there."""
    c.tx.sessions.open(key, "program", None, 0, SessionFacts(parse_key(key).agent_id), c.at)
