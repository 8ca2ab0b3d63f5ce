"""The verbs that only read rows: `runs.info`, `runs.list`, `runs.tree`, `sessions.*`, `overview`, and what waits for a
person. They need a store and a clock, but no engine, so they are answered in a folder that nobody drives, too.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from fledge.api import entries, spans, views
from fledge.api.entries import EntriesPage
from fledge.api.values import Forest, GivenUp, Message, Plan, Question, RunInfo
from fledge.api.views import session_key, with_kills_as
from fledge.commands import looking
from fledge.commands.looking import MOST_SHOWN, session_meant, session_of, story
from fledge.commands.params import AskerParams, InSession, InWorkspace, NamedSession, Nothing, One, SessionKeyParam
from fledge.commands.table import Params, Reader, query
from fledge.commands.values import Overview, Story
from fledge.core.entries import HistoryEntry
from fledge.core.params import formerly
from fledge.core.spans import Spans
from fledge.errors import BadInput, NotFound
from fledge.orchestrator import transcripts
from fledge.store.base import Tx

MOST_ROWS: Final = 100_000
"""The most runs or entries of one answer."""
MOST_ENTRIES: Final = 500
"""The most entries of one page of typed values."""

# ---- runs ------------------------------------------------------------------------------------------------------------


class Listed(Params, frozen=True, kw_only=True):
    """Which runs."""

    requester: SessionKeyParam = "main"
    status: Annotated[str, Meta(max_length=64, description="active, done, a phase, or an outcome")] = ""


@query("runs.list", formerly="subagents.list")
async def subagents_list(folder: Reader, params: Listed) -> list[RunInfo]:
    """The runs of a requester, oldest first."""
    requester = session_key(params.requester, "requester")
    runs = await folder.read(lambda tx: views.runs(tx, requester, params.status or None))
    return [with_kills_as(run, "error") for run in runs]


class Tree(Params, frozen=True, kw_only=True):
    """Below whom."""

    requester: Annotated[
        str, Meta(max_length=256, description="a session; empty: all conversations and programs"), formerly("root")
    ] = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS, description="runs in all, level by level from the top")] = MOST_SHOWN


@query("runs.tree", formerly="subagents.tree")
async def subagents_tree(folder: Reader, params: Tree) -> Forest:
    """What is below a session, each run with its children, oldest first. `leftOut` counts what the limit left out, here
    and in each run, the done before the active: ask below that run for more."""

    def look(tx: Tx) -> Forest:
        roots = [session_key(params.requester, "requester")] if params.requester else tx.sessions.roots()
        return views.forest(tx, roots, params.limit)

    found = await folder.read(look)
    return replace(found, runs=[with_kills_as(run, "error") for run in found.runs])


@query("runs.info", formerly="subagents.info")
async def subagents_info(folder: Reader, params: One) -> Story:
    """One run in full, with its children and its timeline."""
    now = folder.now()
    told = await folder.read(lambda tx: story(tx, looking.found(tx, params), now))
    return replace(told, run=with_kills_as(told.run, "error"))


SpanMs = Annotated[int, Meta(ge=0, description="milliseconds since the epoch")]


class SpansOf(One, frozen=True, kw_only=True):
    """`runs.spans`."""

    since: SpanMs | None = field(default=None, name="from")
    until: SpanMs | None = field(default=None, name="to")


@query("runs.spans")
async def runs_spans(folder: Reader, params: SpansOf) -> Spans:
    """The life of a run as spans on a time axis, in lanes, with marks; those that touch the time from `from` to
    `to`."""
    since, until = (None if one is None else one / 1000 for one in (params.since, params.until))
    if since is not None and until is not None and until < since:
        raise BadInput("to", "must not be before from", params.until)
    return await folder.read(lambda tx: spans.spans(tx, looking.found(tx, params), since, until))


@query("plans.list")
async def plans_list(folder: Reader, params: Nothing) -> list[Plan]:
    """Plans that await an answer, oldest first."""
    return await folder.read(views.plans)


# ---- sessions --------------------------------------------------------------------------------------------------------


class SessionsFind(AskerParams, frozen=True, kw_only=True):
    """`sessions.find`."""

    target: Annotated[
        str,
        Meta(
            max_length=256,
            description="`main`, a session key, a conversation's name, or a word for a run; empty: the asker's own",
        ),
    ] = ""


class SessionFound(Struct, frozen=True):
    """A session."""

    session_key: str


@query("sessions.find")
async def sessions_find(folder: Reader, params: SessionsFind) -> SessionFound:
    """The session that a word means."""
    return SessionFound(await folder.read(lambda tx: session_meant(tx, params.target, session_of(tx, params))))


class SessionsHistory(NamedSession, frozen=True, kw_only=True):
    """`sessions.history`."""

    limit: Annotated[int, Meta(ge=1, le=MOST_ROWS)] = 100
    after: Annotated[int, Meta(ge=0, description="only entries numbered above it")] | None = None
    before: Annotated[int, Meta(ge=1, description="only entries numbered below it; with the view `entries`")] | None = (
        None
    )
    tools: Annotated[bool, Meta(description="messages: tool results, too; entries have them always")] = False
    view: Annotated[
        Literal["messages", "entries"], Meta(description="messages are text; entries are typed values, page by page")
    ] = "messages"


@query("sessions.history")
async def sessions_history(folder: Reader, params: SessionsHistory) -> list[Message] | EntriesPage:
    """The newest entries of a transcript, oldest first; those numbered above `after`. With the view `entries`: a page
    of typed values, upwards from `before` or downwards from `after`."""
    key = params.key
    if params.before is not None and params.after is not None:
        raise BadInput("before", "cannot be given together with after", params.before)
    if params.before is not None and params.view == "messages":
        raise BadInput("before", "needs the view entries", params.before)
    if params.view == "entries" and params.limit > MOST_ENTRIES:
        raise BadInput("limit", f"must be at most {MOST_ENTRIES} with the view entries", params.limit)

    def look(tx: Tx) -> list[Message] | EntriesPage:
        _check_session(tx, key)
        if params.view == "entries":
            return entries.page(tx, key, params.limit, params.before, params.after)
        return views.transcript(tx, key, params.limit, params.after or 0, params.tools)

    return await folder.read(look)


class SessionsEntry(NamedSession, frozen=True, kw_only=True):
    """`sessions.entry`."""

    seq: Annotated[int, Meta(ge=1, description="the entry's number")]


@query("sessions.entry")
async def sessions_entry(folder: Reader, params: SessionsEntry) -> HistoryEntry:
    """One entry of a transcript, whole: nothing is cut, and completions have their results."""
    key = params.key

    def look(tx: Tx) -> HistoryEntry:
        _check_session(tx, key)
        return entries.entry(tx, key, params.seq)

    return await folder.read(look)


def _check_session(tx: Tx, key: str) -> None:
    if tx.sessions.get(key) is None:
        raise NotFound(f"no session {key}")


# ---- what waits for a person -----------------------------------------------------------------------------------------


class OverviewOf(InSession, frozen=True, kw_only=True):
    """`overview`."""

    limit: Annotated[int, Meta(ge=0, le=MOST_SHOWN, description="runs below the conversation")] = MOST_SHOWN


@query("overview")
async def overview(folder: Reader, params: OverviewOf) -> Overview:
    """What goes on in a conversation, or in the main one if this has not begun, and what waits for a person."""
    key = params.key
    return await folder.read(lambda tx: looking.overview(tx, folder.now(), folder.drives, key, params.limit))


class ApprovalsParams(Params, frozen=True, kw_only=True):
    """`approvals.list`."""

    decided: Annotated[
        bool, Meta(description="list decided questions instead, with the person or rule that decided")
    ] = False


@query("approvals.list")
async def approvals_list(folder: Reader, params: ApprovalsParams) -> list[Question]:
    """Tool calls that wait for a person, oldest first; or the newest that wait no more."""
    return await folder.read(views.decided_questions if params.decided else views.questions)


@query("undelivered.list")
async def undelivered_list(folder: Reader, params: Nothing) -> list[GivenUp]:
    """Results that were given up on, oldest first."""
    return await folder.read(views.undelivered)


@query("documents.pending")
async def documents_pending(folder: Reader, params: InWorkspace) -> list[str]:
    """The documents of a workspace that are left out of prompts until a person takes them in."""
    return list(await folder.read(lambda tx: transcripts.left_out_documents(tx, params.workspace)))
