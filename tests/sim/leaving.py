"""What must hold of everything that leaves, and of what agents say to each other, once all is at rest: each post was
sent at least once under its one id, or given up and told; hooks were called once per run; exchanges are over.
"""

from collections.abc import Iterable

import msgspec

from fledge.core.announce import announce_key
from fledge.core.exchange import MAX_HOPS
from fledge.core.route import ChannelMessage
from fledge.core.run import Failed, Killed, Ok, Run, TimedOut
from fledge.core.transcript import Replied, from_body
from fledge.orchestrator.outbox import hook_post_key
from fledge.orchestrator.spawn_params import NATIVE
from fledge.store.base import OutboxPost, Tx
from tests.sim import answers
from tests.sim.outside import Outside
from tests.sim.schedule import Schedule
from tests.sim.watch import Noted
from tests.sim.workers import Done

NEWS = ("audit", "endpoint")
"""Who listens to `subagent_spawned` and `subagent_ended`."""
_message = msgspec.json.Decoder(ChannelMessage).decode


def judge(tx: Tx, plan: Schedule, ledger: Noted, outside: Outside, runs: dict[str, Run]) -> list[str]:
    """Everything that is wrong with what left."""
    wrong = _posts(tx, ledger, outside) + _in_order(ledger, outside) + _told_of_loss(ledger)
    wrong += answers.unheard({key: posted.body for key, posted in ledger.posted.items()}, ledger.threads)
    if plan.beyond.listens:
        wrong += _hooks(ledger, runs.values())
    return wrong + _exchanges(tx, ledger)


# ---- posts -----------------------------------------------------------------------------------------------------------


def _posts(tx: Tx, ledger: Noted, outside: Outside) -> list[str]:
    wrong: list[str] = []
    for key, posted in ledger.posted.items():
        post = tx.outbox.get(key)
        bodies = {told.body for told in outside.arrived.get(key, ())}
        if post is None:
            wrong.append(f"post {key} is nowhere")
        elif post.state == "sent" and not bodies:
            wrong.append(f"post {key} is sent, and never arrived")
        elif key in outside.refused and (post.tries != 1 or post.state == "waiting"):
            wrong.append(f"post {key} can never arrive, and was tried again: {post}")
        elif post.state in ("undelivered", "dismissed"):
            wrong += [] if _was_patient(post) else [f"post {key} was given up too soon: {post}"]
        elif post.state != "sent":
            wrong.append(f"post {key} is {post.state}")
        if len(bodies) > 1:
            wrong.append(f"post {key} came with {len(bodies)} bodies")
        if posted.kind == "message" and any(_message(body).id != key for body in bodies):
            wrong.append(f"post {key} came under another id")
    unknown = {key for key in outside.arrived if ":subagent_spawning:" not in key} - set(ledger.posted)
    return wrong + [f"{key} arrived, and was never posted" for key in sorted(unknown)]


def _was_patient(post: OutboxPost) -> bool:
    """Everything was tried that was allowed, or it came too late."""
    return post.tries >= post.retries or post.expires_at is not None


def _in_order(ledger: Noted, outside: Outside) -> list[str]:
    """On each channel what arrives does so in the order in which it was posted, unless it was given up meanwhile."""
    wrong: list[str] = []
    for lane in {posted.lane for posted in ledger.posted.values()} - {""}:
        keys = [key for key, posted in ledger.posted.items() if posted.lane == lane and key not in ledger.given_up_at]
        first = [(outside.arrived[key][0].at, key) for key in keys if key in outside.arrived]
        if [at for at, _ in first] != sorted(at for at, _ in first):
            wrong.append(f"on {lane} things arrived in the order {[key for _, key in sorted(first)]}")
    return wrong


def _told_of_loss(ledger: Noted) -> list[str]:
    """Whoever was reached again after something to them was given up was told so, unless that was given up in turn."""
    wrong: list[str] = []
    messages = {key: _message(posted.body) for key, posted in ledger.posted.items() if posted.kind == "message"}
    notices = [key for key in messages if key.startswith("notice:undelivered:")]
    for key, lost_at in ledger.given_up_at.items():
        if key not in messages or key in notices or key in ledger.put_away_at:
            continue
        same = [one for one, message in messages.items() if message.address == messages[key].address]
        reached_at = max((ledger.sent_at.get(one, 0.0) for one in same if one not in notices), default=0.0)
        told = [max(ledger.sent_at.get(one, 0.0), ledger.given_up_at.get(one, 0.0)) for one in notices if one in same]
        if reached_at > lost_at and not any(at >= lost_at for at in told):
            wrong.append(f"they were reached after {key} was given up, and are not told of it")
    return wrong


# ---- hooks -----------------------------------------------------------------------------------------------------------


def _hooks(ledger: Noted, runs: Iterable[Run]) -> list[str]:
    """Each run is told of once at its beginning and once at its end; one that is bound to a thread has no end yet."""
    wrong: list[str] = []
    for run in runs:
        killed = run.ended is not None and isinstance(run.ended.outcome, Killed)
        for name in NEWS:
            if hook_post_key("subagent_spawned", name, run.key) not in ledger.posted:
                wrong.append(f"{name} was not told that {run.key} was spawned")
            ended = hook_post_key("subagent_ended", name, run.key) in ledger.posted
            if not ended and (run.terms.mode == "run" or killed):
                wrong.append(f"{name} was not told that {run.key} ended")
    return wrong


# ---- other runtimes --------------------------------------------------------------------------------------------------


def unheard(tx: Tx, done: Iterable[Done], runs: dict[str, Run], lived: dict[int, float]) -> list[str]:
    """Work whose words were neither its run's result nor told late, though its process lived to hear them."""
    wrong: list[str] = []
    for one in done:
        run = runs.get(one.session)
        if run is None or run.ended is None or one.run_id != run.run_id or lived[one.life] < one.at + 1.0:
            continue
        late = tx.inbox.get(announce_key(run.key, run.run_id, "late")) is not None
        if isinstance(run.ended.outcome, Failed | TimedOut) and not late and run.phase.name != "archived":
            wrong.append(f"{run.key} said {one.text!r} at {one.at:.3f}, and is told to have failed: {run.ended}")
    return wrong


def misquoted(tx: Tx, done: Iterable[Done], runs: dict[str, Run]) -> list[str]:
    """Runs of other runtimes that are told to have said something which their work never said."""
    said = {(one.session, one.text) for one in done}
    wrong: list[str] = []
    for run in runs.values():
        ended = run.ended
        if ended is None or ended.result is None or not isinstance(ended.outcome, Ok):
            continue
        if tx.runs.spec(run.key).runtime != NATIVE and (run.key, tx.texts.get(ended.result)) not in said:
            wrong.append(f"{run.key} is told to have said {tx.texts.get(ended.result)[:80]!r}")
    return wrong


# ---- agent to agent --------------------------------------------------------------------------------------------------


def _exchanges(tx: Tx, ledger: Noted) -> list[str]:
    wrong: list[str] = []
    for exchange in ledger.exchanges.values():
        if exchange.speaker is not None:
            wrong.append(f"exchange {exchange.id} still waits for {exchange.speaker}: {exchange.stage}")
        if exchange.reply and not _said(tx, exchange.target, exchange.reply):
            wrong.append(f"exchange {exchange.id} was answered {exchange.reply!r}, which {exchange.target} never said")
    for root in {exchange.root for exchange in ledger.exchanges.values()}:
        hops = sum(exchange.hops for exchange in ledger.exchanges.values() if exchange.root == root)
        if hops > MAX_HOPS:
            wrong.append(f"{hops} messages came of {root}")
    return wrong


def _said(tx: Tx, session: str, words: str) -> bool:
    known = tx.sessions.get(session)
    if known is None or known.deleted:
        return True
    bodies = [from_body(entry.body) for entry in tx.transcripts.entries(session, limit=1_000_000)]
    return any(isinstance(body, Replied) and body.text.startswith(words) for body in bodies)
