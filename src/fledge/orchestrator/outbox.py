"""The outbox: messages to people on channels, and calls of hooks. A post is sent at least once, under a stable id, in
order for each address.

Posting is part of the commit that caused it; the performer sends. Whether a post arrives never changes a run. A hook
without a listener costs nothing. `recover` applies the answers of hooks.
"""

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from fledge.core.announce import Completion, for_people, headline
from fledge.core.freeze import one_line
from fledge.core.hook import (
    DeliveryTarget,
    EndedOutcome,
    HookCall,
    HookEvent,
    HookName,
    Left,
    SubagentEnded,
    SubagentSpawned,
    SubagentSpawning,
)
from fledge.core.keys import parse_key
from fledge.core.route import (
    FORWARDED,
    REPLIED,
    About,
    Address,
    ChannelMessage,
    RouteSource,
    address_of,
    answer_to,
    expiry_s,
    heartbeat_address,
    is_worth_sending,
    next_try_at,
)
from fledge.core.run import Ok, Run
from fledge.core.turn import OpenTurn
from fledge.errors import NotFound, Refused
from fledge.orchestrator.commit import Commit
from fledge.store.base import InboxRow, OutboxPost, Tx

# ---- messages to channels --------------------------------------------------------------------------------------------

LINE_CHARS = 160
_encode = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(ChannelMessage).decode


def message_of(post: OutboxPost) -> ChannelMessage | None:
    """The message of a post to a channel; None if the post is something else."""
    return _decode_message(post.body) if post.kind == "message" else None


def address_for(c: Commit, session: str, origin: str) -> Address | None:
    """The address for words of this session about something from this origin."""
    route = c.tx.routes.get(session)
    return answer_to(origin, None if route is None else route.address)


# ---- posting ---------------------------------------------------------------------------------------------------------


def reply(c: Commit, turn: OpenTurn, entry: int, text: str) -> None:
    """Post the reply that ended a turn, if it has words and an address."""
    address = address_for(c, turn.session, turn.origin)
    if turn.heartbeat:
        address = heartbeat_address(c.rules.heartbeat, address)
    if address is not None and is_worth_sending(text, c.rules.heartbeat.ack_chars):
        _post(c, f"{REPLIED}{turn.session}:{entry}", address, "reply", turn.session, text, route=turn.route)


def result(c: Commit, session: str, address: Address, row: InboxRow, completion: Completion) -> None:
    """Post a child's result, in the runtime's words."""
    child, status = completion.child_session_key, completion.outcome.status
    text = for_people(completion)
    _post(c, f"result:{row.key}", address, "result", session, text, child, status, row.route)


def final(c: Commit, address: Address, completion: Completion) -> None:
    """Post the last words of a child to the thread it is bound to, or a line that says how it came out."""
    child, words = completion.child_session_key, completion.result
    spoke = isinstance(completion.outcome, Ok) and bool(words.strip())
    about: About = "reply" if spoke else "notice"
    _post(c, f"final:{child}:{completion.run_id}", address, about, child, words if spoke else headline(completion))


def forward(c: Commit, turn: OpenTurn, entry: int, text: str, completions: Sequence[Completion]) -> None:
    """Post what the subagents said that this turn has read and had no words for; the entry says it, too."""
    address = address_for(c, turn.session, turn.origin)
    if address is not None:
        one = completions[0] if len(completions) == 1 else None
        child, status = ("", "") if one is None else (one.child_session_key, one.outcome.status)
        _post(c, f"{FORWARDED}{turn.session}:{entry}", address, "result", turn.session, text, child, status, turn.route)


def say(c: Commit, session: str, address: Address, key: str, words: str) -> None:
    """Post a notice of the system to an address, once per key."""
    _post(c, f"notice:{key}", address, "notice", session, words)


def tell(c: Commit, session: str, key: str, words: str, about: About = "notice") -> None:
    """Post a notice about this session to the channel of the conversation at the root of its tree, once per key.

    Without a route there nothing is posted; the lists show it.
    """
    root = c.tx.sessions.lineage(session)[-1:]
    route = c.tx.routes.get(root[0].key) if root else None
    if route is not None:
        _post(c, f"{about}:{key}", route.address, about, root[0].key, words)


def answer(c: Commit, session: str, key: str, address: Address, words: str) -> None:
    """Post a notice to the address that a message for this session came from, once per key."""
    _post(c, f"notice:{key}", address, "notice", session, words)


def _post(
    c: Commit,
    key: str,
    address: Address,
    about: About,
    session: str,
    text: str,
    child: str = "",
    status: str = "",
    route: RouteSource = "fallback",
) -> None:
    message = ChannelMessage(
        id=key,
        channel=address.channel,
        to=address.to,
        thread=address.thread,
        about=about,
        session_key=session,
        text=text,
        child_session_key=child,
        status=status,
        route=route,
        posted_at=c.at,
    )
    posted = c.tx.outbox.post(
        key,
        "message",
        None,
        _encode(message).decode(),
        c.at,
        lane=address.channel,
        retries=c.rules.max_retries,
        expires_at=c.at + expiry_s(about),
    )
    c.hints.look = c.hints.look or posted


# ---- what became of it -----------------------------------------------------------------------------------------------


def sent(c: Commit, post: OutboxPost) -> None:
    """A post arrived. Its receiver also gets a list of earlier messages that did not."""
    c.tx.outbox.done(post.key, c.at)
    message = message_of(post)
    c.moved((post.run or "") if message is None else message.session_key)
    if message is None:
        return
    lost = [_decode_message(one.body) for one in c.tx.outbox.undelivered(post.lane) if one.kind == "message"]
    lost = [one for one in lost if one.address == message.address and not one.id.startswith("notice:undelivered:")]
    if lost:
        words = "\n".join(one_line(one.text, LINE_CHARS) for one in lost[-5:])
        count = f"{len(lost)} message{'' if len(lost) == 1 else 's'}"
        text = f"{count} to you could not be delivered earlier (fledge undelivered):\n{words}"
        key = f"undelivered:{lost[-1].id}"
        say(c, message.session_key, message.address, key, text)
        listed = c.tx.outbox.get(f"notice:{key}")
        if listed is not None and listed.state == "undelivered":
            retry(c, listed.key)  # this very list did not arrive either


def failed(c: Commit, post: OutboxPost, error: str, wait_s: float = 0.0, permanent: bool = False) -> None:
    """It did not arrive: again later, not before the other side wants it, or given up and undelivered; at once if the
    failure is permanent."""
    again_at = None if permanent else next_try_at(post.tries, post.retries, c.at, post.expires_at, wait_s)
    if again_at is not None:
        c.tx.outbox.failed(post.key, error, again_at)
    else:
        c.tx.outbox.give_up(post.key, error, c.at + c.rules.undelivered_s, c.at)
        c.moved(post.run or "")
    c.hints.look = True


def retry(c: Commit, key: str) -> None:
    """Send an undelivered post again."""
    post = _undelivered(c, key)
    message = message_of(post)
    c.tx.outbox.retry(key, c.at, None if message is None else c.at + expiry_s(message.about))
    c.hints.look = True


def dismiss(c: Commit, key: str) -> None:
    """Take a post off the undelivered list."""
    _undelivered(c, key)
    c.tx.outbox.dismiss(key, c.at)


def _undelivered(c: Commit, key: str) -> OutboxPost:
    post = c.tx.outbox.get(key)
    if post is None:
        raise NotFound(f"no post {key}")
    if post.state != "undelivered":
        raise Refused("done", f"{key} is {post.state}")
    return post


# ---- calls of hooks --------------------------------------------------------------------------------------------------

E = TypeVar("E", SubagentSpawning, SubagentSpawned, DeliveryTarget, SubagentEnded)
_decode_call = msgspec.json.Decoder(HookCall).decode


def call_of(post: OutboxPost) -> HookCall | None:
    """The event a post carries to a listener; None if it is something else."""
    return _decode_call(post.body) if post.kind == "hook" else None


def hook_post_key(hook: HookName, listener: str, name: str) -> str:
    """The name of a call: one per hook, listener and run; of what ends, per end (`end_of`)."""
    return f"hook:{hook}:{listener}:{name}"


def end_of(run: Run) -> str:
    """The name of an end of a run: a run that was killed and resumed has several."""
    return f"{run.key}:{run.resumes}" if run.resumes else run.key


# ---- notices, results, hooks -----------------------------------------------------------------------------------------


def place_of(tx: Tx, key: str) -> Address | None:
    """The thread a session is bound to, else where its task was asked for."""
    route = tx.routes.get(key)
    return route.address if route is not None and route.kind == "bound" else address_of(tx.runs.spec(key).origin)


def _at(event: E, address: Address | None) -> E:
    """The event, concerning that place."""
    return event if address is None else replace(event, channel=address.channel, to=address.to, thread=address.thread)


def spawning_event(tx: Tx, run: Run) -> SubagentSpawning:
    """The question whether, and to which thread, a child that is being prepared is to be bound."""
    spec, session = tx.runs.spec(run.key), tx.routes.get(run.terms.parent)
    place = address_of(spec.origin) or (None if session is None else session.address)
    event = SubagentSpawning(
        child_session_key=run.key,
        requester_session_key=run.terms.parent,
        agent_id=spec.agent_id,
        label=spec.label,
        mode=run.terms.mode,
    )
    return _at(event, place)


def has_listeners(c: Commit, hook: HookName) -> bool:
    """True if functions listen to this hook."""
    return hook in c.rules.hooks


def call_spawned_hooks(c: Commit, run: Run) -> None:
    """Tell that a child was accepted."""
    if "subagent_spawned" not in c.rules.hooks:
        return
    spec = c.tx.runs.spec(run.key)
    route = c.tx.routes.get(run.key)
    event = SubagentSpawned(
        child_session_key=run.key,
        requester_session_key=run.terms.parent,
        agent_id=spec.agent_id,
        label=spec.label,
        mode=run.terms.mode,
        run_id=run.run_id,
        thread_requested=route is not None and route.kind == "bound",
    )
    _call_hooks(c, "subagent_spawned", run.key, run.key, _at(event, place_of(c.tx, run.key)))


def call_ended_hooks(
    c: Commit, run: Run, thread: Address | None = None, reason: str = "", outcome: EndedOutcome | None = None
) -> None:
    """Tell that a run is over, or that its thread is left; once, whichever comes first."""
    if "subagent_ended" not in c.rules.hooks:
        return
    over = run.ended
    came_out: EndedOutcome = "unknown" if over is None else _OUTCOMES.get(over.outcome.status, "unknown")
    event = SubagentEnded(
        target_session_key=run.key,
        target_kind="acp" if parse_key(run.key).kind == "acp" else "subagent",
        run_id=run.run_id,
        reason=reason or _REASONS.get(came_out, came_out),
        outcome=outcome or came_out,
        error="" if over is None else over.outcome.error or "",
        send_farewell=thread is not None,
        ended_at=c.at if over is None else over.ended_at,
    )
    _call_hooks(c, "subagent_ended", run.key, end_of(run), _at(event, thread))


_OUTCOMES: dict[str, EndedOutcome] = {"ok": "ok", "error": "error", "timeout": "timeout", "killed": "killed"}
_REASONS = {"ok": "complete"}
"""Outcomes whose reason has another name."""


def ask_target(c: Commit, run: Run, requester: str, origin: str) -> bool:
    """Ask the listeners for the address of a run's result; False if there are none."""
    if "subagent_delivery_target" not in c.rules.hooks:
        return False
    event = DeliveryTarget(
        child_session_key=run.key,
        requester_session_key=requester,
        run_id=run.run_id,
        mode=run.terms.mode,
        expects_completion_message=run.terms.expects,
    )
    event = _at(event, address_of(origin))
    return _call_hooks(c, "subagent_delivery_target", run.key, end_of(run), event, is_question=True)


def is_target_asked(c: Commit, key: str) -> bool:
    """True while a listener that was asked for the address of a run's result has not answered."""
    listeners = c.rules.hooks.get("subagent_delivery_target", ())
    name = end_of(c.run(key))
    return any(c.tx.outbox.is_waiting(hook_post_key("subagent_delivery_target", one.name, name)) for one in listeners)


def tell_context_engine(c: Commit, key: str, reason: Literal["started"] | Left) -> None:
    """Tell the context engine, if there is one, that a run has started, or is done with in this way. It hears of one
    run in order."""
    if c.rules.context_engine:
        run = c.run(key)
        terms = {"requester": run.terms.parent, "timeoutS": run.terms.timeout_s} if reason == "started" else {}
        body = _encode({"sessionKey": key, "reason": reason} | terms).decode()
        name, lane = f"context:{reason}:{end_of(run)}", f"context:{key}"
        c.hints.look |= c.tx.outbox.post(name, "context", None, body, c.at, lane=lane)


def _call_hooks(c: Commit, hook: HookName, key: str, name: str, event: HookEvent, is_question: bool = False) -> bool:
    posted = False
    for listener in c.rules.hooks.get(hook, ()):
        body = _encode(HookCall(listener.name, event)).decode()
        posted |= c.tx.outbox.post(
            hook_post_key(hook, listener.name, name),
            "hook",
            key,
            body,
            c.at,
            retries=0 if is_question else listener.retries,
        )
    c.hints.look |= posted
    return posted
