"""Hop 2: from a transcript to somebody outside. What is posted here is sent at least once, under a stable id, in order
on each channel; whether it arrives never changes a run.

What could not be sent is given up into the undelivered list, and told when that address can be reached again. This file
knows no channel: the performer sends.
"""

from collections.abc import Sequence

import msgspec

from fledge.core.announce import Completion, for_people, headline
from fledge.core.freeze import one_line
from fledge.core.route import (
    EXPIRY_S,
    FORWARDED,
    About,
    Address,
    Found,
    Message,
    answer_to,
    is_worth_sending,
    next_try_at,
)
from fledge.core.run import Ok
from fledge.core.turn import OpenTurn
from fledge.errors import NotFound, Refused
from fledge.orchestrator.commit import Commit
from fledge.store.base import Post, Row

LINE_CHARS = 160
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Message).decode


def message_of(post: Post) -> Message | None:
    """What a post says to somebody on a channel; None if it is something else."""
    return _decode(post.body) if post.kind == "message" else None


def address_for(c: Commit, session: str, origin: str) -> Address | None:
    """Where words of this session about something from this origin go."""
    route = c.tx.routes.get(session)
    return answer_to(origin, None if route is None else route.address)


# ---- posting ---------------------------------------------------------------------------------------------------------


def reply(c: Commit, turn: OpenTurn, entry: int, text: str) -> None:
    """Post the words that ended a turn, if there are any and somebody is to hear them."""
    address = address_for(c, turn.session, turn.origin)
    if address is not None and is_worth_sending(text, c.rules.heartbeat.ack_chars):
        _post(c, f"reply:{turn.session}:{entry}", address, "reply", turn.session, text, route=turn.route)


def result(c: Commit, session: str, address: Address, row: Row, completion: Completion) -> None:
    """Post what came of a child, as the runtime tells it."""
    child, status = completion.child_session_key, completion.outcome.status
    text = for_people(completion)
    _post(c, f"result:{row.key}", address, "result", session, text, child, status, row.route)


def final(c: Commit, address: Address, completion: Completion) -> None:
    """Post the last words of a child to the thread it is bound to, or a line that says how it came out."""
    child, words = completion.child_session_key, completion.result
    spoke = isinstance(completion.outcome, Ok) and bool(words.strip())
    about: About = "reply" if spoke else "notice"
    _post(c, f"final:{child}:{completion.run_id}", address, about, child, words if spoke else headline(completion))


def forward(c: Commit, turn: OpenTurn, text: str, completions: Sequence[Completion]) -> None:
    """Post what the subagents said that this turn has read and had no words for, once per turn."""
    address = address_for(c, turn.session, turn.origin)
    if address is not None:
        one = completions[0] if len(completions) == 1 else None
        child, status = ("", "") if one is None else (one.child_session_key, one.outcome.status)
        key = f"{FORWARDED}{turn.session}:{turn.turn}"
        _post(c, key, address, "result", turn.session, text, child, status, turn.route)


def say(c: Commit, session: str, address: Address, key: str, words: str) -> None:
    """Tell whoever is there something of the system's own, once per key."""
    _post(c, f"notice:{key}", address, "notice", session, words)


def tell(c: Commit, session: str, key: str, words: str, about: About = "notice") -> None:
    """Tell a person what concerns this session, once per key, on the channel of the conversation above it all.

    Where that has no route nobody is told here; it stands in the lists.
    """
    root = c.tx.sessions.lineage(session)[-1:]
    route = c.tx.routes.get(root[0].key) if root else None
    if route is not None:
        _post(c, f"{about}:{key}", route.address, about, root[0].key, words)


def _post(
    c: Commit,
    key: str,
    address: Address,
    about: About,
    session: str,
    text: str,
    child: str = "",
    status: str = "",
    route: Found = "fallback",
) -> None:
    message = Message(
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
        expires_at=c.at + EXPIRY_S[about],
    )
    c.hints.look = c.hints.look or posted


# ---- what became of it -----------------------------------------------------------------------------------------------


def sent(c: Commit, post: Post) -> None:
    """It arrived. Whoever it reached is told of what did not reach them before."""
    c.tx.outbox.done(post.key, c.at)
    message = message_of(post)
    c.hints.moved.append((post.run or "") if message is None else message.session_key)
    if message is None:
        return
    lost = [_decode(one.body) for one in c.tx.outbox.undelivered(post.lane) if one.kind == "message"]
    lost = [one for one in lost if one.address == message.address and not one.id.startswith("notice:undelivered:")]
    if lost:
        words = "\n".join(one_line(one.text, LINE_CHARS) for one in lost[-5:])
        count = f"{len(lost)} message{'' if len(lost) == 1 else 's'}"
        text = f"{count} to you could not be delivered earlier (fledge undelivered):\n{words}"
        key = f"undelivered:{lost[-1].id}"
        say(c, message.session_key, message.address, key, text)
        told = c.tx.outbox.get(f"notice:{key}")
        if told is not None and told.state == "undelivered":
            retry(c, told.key)  # that they are to be told of it did not reach them either


def failed(c: Commit, post: Post, error: str, wait_s: float = 0.0, permanent: bool = False) -> None:
    """It did not arrive: again later, not before the other side wants it, or given up and undelivered; at once if the
    failure is permanent."""
    again_at = None if permanent else next_try_at(post.tries, post.retries, c.at, post.expires_at, wait_s)
    if again_at is not None:
        c.tx.outbox.failed(post.key, error, again_at)
    else:
        c.tx.outbox.give_up(post.key, error, c.at + c.rules.undelivered_s, c.at)
        c.hints.moved.append(post.run or "")
    c.hints.look = True


def retry(c: Commit, key: str) -> None:
    """Send an undelivered post again."""
    post = _undelivered(c, key)
    message = message_of(post)
    c.tx.outbox.retry(key, c.at, None if message is None else c.at + EXPIRY_S[message.about])
    c.hints.look = True


def dismiss(c: Commit, key: str) -> None:
    """Take a post off the undelivered list."""
    _undelivered(c, key)
    c.tx.outbox.dismiss(key, c.at)


def _undelivered(c: Commit, key: str) -> Post:
    post = c.tx.outbox.get(key)
    if post is None:
        raise NotFound(f"no post {key}")
    if post.state != "undelivered":
        raise Refused("done", f"{key} is {post.state}")
    return post
