"""Transcripts inside a commit: the entries for a model, the last words of a run, closing of open calls, deletion; and
which documents of a workspace may stand in prompts. A document is judged when a turn begins, accepted by a person, and
left out until then (`core.documents` decides)."""

import os
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from fledge.core import events as ev
from fledge.core.documents import Document, Version, Workspace, judge, left_out_line
from fledge.core.freeze import classify_reply, partial
from fledge.core.run import TextId
from fledge.core.transcript import (
    Body,
    Carried,
    Line,
    Noted,
    OpenCall,
    Replied,
    Resulted,
    Spoken,
    Told,
    files_of,
    from_body,
    images_of,
    joined,
    open_calls,
    to_body,
)
from fledge.core.turn import OpenTurn
from fledge.orchestrator import outbox
from fledge.orchestrator.commit import Commit
from fledge.store.base import EntryKind, Tx, Used
from fledge.store.entry_files import SHARED_S, file_name

PAGE = 5000
SWEEP_IMAGES = "sweep_images"
"""The kind of a post that asks for the files of entries to be swept."""
MARGIN_S = 60.0
"""How much later than files are old enough they are swept: the clocks of their folder and of the store differ."""
FOR_EVER = 1 << 31
"""Retries of a post that is tried until it succeeds."""
FRAGMENTS_FROM = 200
"""How many of the newest entries are looked at for a partial-progress note."""
_KINDS: dict[type[Body], EntryKind] = {
    Spoken: "user",
    Replied: "assistant",
    Resulted: "tool",
    Noted: "note",
    Told: "event",
}


def lines(tx: Tx, session: str, after: int = 0) -> list[Line]:
    """The entries for a model: the last note that stands for older entries, and all entries after those; only entries
    after number `after`."""
    start = max(after, tx.transcripts.covered(session))
    found: list[Line] = []
    while True:
        page = tx.transcripts.entries(session, after=found[-1].seq if found else start, limit=PAGE)
        found += [Line(entry.seq, from_body(entry.body)) for entry in page]
        if len(page) < PAGE:
            return found


def write(c: Commit, session: str, *bodies: Body) -> int:
    """Append entries; answers the number of the last."""
    entries: list[tuple[EntryKind, str]] = []
    used: Used | None = None
    for body in bodies:
        entries.append((_KINDS[type(body)], to_body(body)))
        if type(body) is Replied:
            used = _used(bodies)
            c.hints.replied_at = c.at
        elif (images := images_of(body)) or files_of(body):
            hold_files(c, session, Carried(images, files_of(body)))
        if type(body) is Resulted and body.replaced is not None and body.replaced.kept:
            c.tx.transcripts.hold_files(session, [body.replaced.kept])
    last = c.tx.transcripts.append(session, c.at, entries, used)
    written = c.written.setdefault(session, [])
    for seq, body in enumerate(bodies, last - len(bodies) + 1):
        written.append(Line(seq, body))
    return last


def delete_session(c: Commit, session: str, keep_transcript: bool = False) -> None:
    """Delete a session, with its transcript unless that is kept. Files that no session holds then go too."""
    if not keep_transcript:
        release_images(c, session)
    c.tx.sessions.delete(session, keep_transcript)


def hold_files(c: Commit, session: str, carried: Carried) -> None:
    """Record that the session holds these images and attached files, whose bytes are on disk."""
    held = [*(image.sha256 for image in carried.images), *(file_name(session, file) for file in carried.files)]
    if held:
        c.tx.transcripts.hold_files(session, held)


def release_images(c: Commit, session: str) -> None:
    """Post that the files of entries are to be swept, if this session, which is about to go, holds any. Where several
    processes share them, that is when all of them are old enough to be swept."""
    if c.tx.transcripts.holds_files(session):
        at = c.at + SHARED_S + MARGIN_S if c.owner else c.at
        c.tx.outbox.post(f"sweep:{session}:{c.ids.unique()}", SWEEP_IMAGES, None, "", at, retries=FOR_EVER)
        c.hints.look = True


def new_lines(c: Commit, session: str, after: int) -> list[Line]:
    """The lines of the transcript after entry `after`: mostly those that this commit has written, so nothing is
    read."""
    written = c.written.get(session)
    if written and written[0].seq == after + 1:
        return written
    return lines(c.tx, session, after)


def _used(bodies: Sequence[Body]) -> Used | None:
    """Tokens and cost of these replies; None if no provider gave any."""
    total = out = cached = 0
    cost_usd: float | None = None
    for body in bodies:
        if type(body) is Replied and body.usage:
            usage = body.usage
            total += sum(usage.values())
            out += usage.get("output", 0)
            cached += usage.get("cacheRead", 0) + usage.get("cacheWrite", 0)
            if body.cost_usd is not None:
                cost_usd = (cost_usd or 0) + body.cost_usd
    return Used(total - out - cached, out, cost_usd, cached) if total or cost_usd is not None else None


def last_words(c: Commit, key: str) -> TextId | None:
    """The last words of the run about its task, kept as a text; None if there are none. An answer to a message beside
    the task is no part of it, nor is a token that means silence; words before a plan was approved are the plan."""
    if any(row.kind == "approval" for row in c.tx.inbox.unread(key)):
        return None
    for _, body in reversed(joined((line.seq, line.body) for line in lines(c.tx, key))):
        match body:
            case Spoken(kind="approval"):
                return None
            case Replied(text=text, aside=False) if classify_reply(text) == "text":
                return c.tx.texts.keep(key, text)
            case _:
                continue
    return None


def has_begun(tx: Tx, key: str) -> bool:
    """True of a run that has read its task; a forked one has an entry before that."""
    bodies = (from_body(entry.body) for entry in tx.transcripts.entries(key, limit=2))
    return any(not (isinstance(body, Spoken) and body.kind == "fork") for body in bodies)


def progress_so_far(c: Commit, key: str) -> TextId | None:
    """The partial-progress note of a run that is cut short; None if it never began. Calls under way count."""
    known = lines(c.tx, key)
    if not known:
        return None
    bodies = [body for _, body in joined((line.seq, line.body) for line in known)]
    unapproved = {(asked.entry, asked.index) for asked in c.tx.approvals.of(key) if asked.state != "started"}
    # The work of a foreign runtime is entered as one open call, which is no tool's.
    unfinished = open_calls(known) if c.run(key).terms.wakeable else []
    begun = [call for call in unfinished if (call.entry, call.index) not in unapproved]
    calls = sum(isinstance(body, Resulted) for body in bodies) + len(begun)
    fragments = [body.text for body in bodies[-FRAGMENTS_FROM:] if isinstance(body, Replied)]
    return c.tx.texts.keep(key, partial(calls, fragments))


def of_turn(tx: Tx, turn: OpenTurn) -> list[Body]:
    """Everything that an open turn has read and written, notes on older entries or not."""
    return [
        from_body(entry.body)
        for entry in tx.transcripts.entries(turn.session, after=turn.opened_after, limit=1_000_000)
    ]


def models_of(tx: Tx, session: str) -> list[str]:
    """Which models really answered in this session, in the order in which they first did."""
    replies = [
        from_body(entry.body) for entry in tx.transcripts.entries(session, limit=1_000_000) if entry.kind == "assistant"
    ]
    return list(dict.fromkeys(reply.model for reply in replies if isinstance(reply, Replied) and reply.model))


def result_of(call: OpenCall, text: str, is_error: bool = False) -> Resulted:
    """The entry with the result of a call."""
    return Resulted(call.entry, call.index, call.call.id, call.call.name, text, is_error)


def close_calls(c: Commit, session: str, reason: str) -> None:
    """Answer every open call of the session's last reply with the reason. Questions about them are void, and spawns
    that they had begun are withdrawn."""
    open_ones = open_calls(lines(c.tx, session))
    if open_ones:
        write(c, session, *(result_of(call, f"{reason}; it was not finished", is_error=True) for call in open_ones))
    for call in open_ones:
        c.tx.approvals.move(session, call.entry, call.index, "void")
    for child in c.tx.runs.children_in(session, "spawning"):
        c.then(child, ev.Withdrawn(at=c.at, reason=reason))


# ---- documents of a workspace ----------------------------------------------------------------------------------------


def known_workspace(tx: Tx, path: str) -> Workspace:
    """The stored record of a workspace, by its real path."""
    return tx.workspaces.get(path) or Workspace(path)


def judge_documents(c: Commit, session: str, path: str, found: Mapping[str, Version]) -> frozenset[str]:
    """The documents that must be left out; a notice names each version once. A person's changes are accepted."""
    workspace = known_workspace(c.tx, path)
    above = [path]
    while above[-1] != os.path.dirname(above[-1]):
        above.append(os.path.dirname(above[-1]))
    spans = [span for one in above for span in known_workspace(c.tx, one).spans]
    spans += [(since, c.at) for place, since in c.tx.drivers.at_work() if place in above]
    names: set[str] = set()
    for name, version in found.items():
        before = workspace.document(name)
        verdict = judge(version, before, spans)
        if verdict != "left out":
            workspace = workspace.with_document(Document(name, version.digest))
        else:
            names.add(name)
            workspace = workspace.with_document(replace(before, left_out=version))
            if version != before.left_out:
                outbox.tell(c, session, f"document:{path}/{name}:{version.digest[:16]}", left_out_line(name))
    c.tx.workspaces.put(path, workspace)
    return frozenset(names)


def accept_documents(c: Commit, path: str, digests: Mapping[str, str]) -> list[str]:
    """These versions are a person's. Answers the documents that were left out until now."""
    workspace = known_workspace(c.tx, path)
    before = left_out_documents(c.tx, path)
    for name, digest in digests.items():
        workspace = workspace.with_document(Document(name, digest))
    c.tx.workspaces.put(path, workspace)
    return [name for name in before if name in digests]


def left_out_documents(tx: Tx, path: str) -> list[str]:
    """The documents of a workspace that were left out when they were last judged."""
    return [one.name for one in known_workspace(tx, path).documents if one.left_out is not None]
