"""The commands that look at a state folder or decide something in it: `ps`, `tree`, `info`, `log`, `health`,
`undelivered`, `sessions`, `steer`, `kill`, `resume`, `again`, `approve`, `reject`, `permissions`, `event`, `heartbeat`.

Each calls verbs of `commands`, through the process that holds the folder or a gateway, and returns `CommandOutput`:
lines for people, and the answer of the verb for `--json`. After a decision in a folder that no process drives, the work
goes on when one does: `fledge run --continue`, or chat. Imports that only some commands need are inside these commands,
so that a look is quick.
"""

import asyncio
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fledge.cli.printing import CommandOutput
from fledge.cli.where import Where
from fledge.client.folder import Client
from fledge.client.local import AtRest
from fledge.errors import BadInput, HolderLeft, StoreError

GOES_ON = "`fledge run --continue` goes on with it"
MOST_RUNS = 1000
MOST_ROWS = 500
"""The most rows of one page."""


# ---- one call --------------------------------------------------------------------------------------------------------


class VerbAnswer(NamedTuple):
    """The answer of a verb, as it is on the wire."""

    value: Any
    is_held: bool
    """True if other processes go on with the decision: the holder of the folder has answered, or the store is on a
    server."""

    @property
    def later(self) -> str:
        """Words that name the command which goes on with a decision; empty if other processes do."""
        return "" if self.is_held else f"; {GOES_ON}"


def ask(where: Where, method: str, /, *, once: bool = True, **params: Any) -> VerbAnswer:
    """Call a verb there. A decision in a folder that no process drives is stored, under the settings that apply here.
    The meaning of a `target` depends on the project folder.

    With `once=False` the request may be carried out twice without harm.
    """
    if "target" in params:
        params["folder"] = where.project

    async def asking() -> VerbAnswer:
        async with looking_client(where) as client:
            return VerbAnswer(await client.call(method, once=once, **params), client.is_held)

    try:
        return asyncio.run(asking())
    except HolderLeft as left:
        raise StoreError(f"{left}: it may have done this or not; `fledge ps` and `fledge info` show it") from None


def looking_client(where: Where) -> Client:
    """A client for commands that drive nothing: if the folder has no holder, it only opens the store."""
    return where.client(AtRest(where.state, _settings, where.store))


def _settings() -> Any:
    from fledge.cli.settings import load_settings

    return load_settings(())


# ---- looking ---------------------------------------------------------------------------------------------------------


class RunsWanted(NamedTuple):
    """The selection of runs that `ps` and `tree` show."""

    filter: str
    search: str
    agent: str
    session: str
    """Only runs below this session; empty: for `ps` below the conversation of this folder, for `tree` all."""
    limit: int

    @property
    def is_narrowed(self) -> bool:
        """True if only some runs are wanted, and nothing else."""
        return bool(self.search or self.agent or self.session or self.filter != "all")


class RunsPage(NamedTuple):
    """The data that `ps` and `tree` show."""

    page: Any
    around: Any
    """The overview."""
    wanted: RunsWanted

    @property
    def total(self) -> int | None:
        """How many runs match the selection; None if that was not counted."""
        return None if self.wanted.search or self.wanted.agent else int(self.page["counts"][self.wanted.filter])

    @property
    def own(self) -> str:
        """The conversation of the folder, which is shown first."""
        return str(self.around["sessionKey"])


What = Literal["ps", "tree"]
"""The command: it decides how runs are shown and, unless `--session` names others, which: those of the conversation of
this folder, or all."""


async def look(client: Client, where: Where, what: What, wanted: RunsWanted) -> RunsPage:
    """The rows of the selection, and the overview of the folder."""
    around = await client.call("overview", session=where.session, limit=0)
    below = "" if what == "tree" else around["sessionKey"]
    if wanted.session:
        found = await client.call("sessions.find", target=wanted.session, folder=where.project)
        below = found["sessionKey"]
    return RunsPage(await _page(client, wanted, below), around, wanted)


async def _page(client: Client, wanted: RunsWanted, below: str) -> Any:
    """The first rows of the selection, active ones first, as they are on the wire. Several pages are read if one ends
    early, or if more rows are wanted than a page holds."""
    if wanted.limit < 1:
        raise BadInput("--limit", "must be 1 or more", wanted.limit)
    given: dict[str, Any] = {"filter": wanted.filter, "search": wanted.search, "agent": wanted.agent, "below": below}
    rows: list[Any] = []
    page: Any = {"next": ""}
    while "rows" not in page or (page["next"] and len(rows) < wanted.limit):
        asked = min(wanted.limit - len(rows), MOST_ROWS)
        page = await client.call("runs.query", cursor=page["next"], limit=asked, sort="active", **given)
        rows += page["rows"]
    return page | {"rows": rows}


def runs(where: Where, what: What, wanted: RunsWanted) -> CommandOutput:
    """`ps`: the state and the runs of this folder's conversation, and everything that waits for a person, in any
    conversation; or only the runs of the selection. `tree`: the runs as trees, first those of this folder's
    conversation, then those of others and of programs."""

    async def looking() -> RunsPage:
        async with looking_client(where) as client:
            return await look(client, where, what, wanted)

    seen = asyncio.run(looking())
    return CommandOutput(lambda: _rendering().runs(what, seen), seen.page["rows"])


def info(where: Where, name: str) -> CommandOutput:
    """One run in full."""
    shown = _show(where, "runs.info", target=name)
    told = shown.value
    return shown._replace(value=told["run"] | {name: told[name] for name in told if name not in ("run", "nowAt")})


def log(where: Where, name: str | None, last: int, tools: bool) -> CommandOutput:
    """The newest entries of a transcript; None: of the conversation that `ps` shows."""
    limit = _limit(last)
    key = _session(where, name, begins=False)
    return _show(where, "sessions.history", session=key, limit=limit, tools=tools)


def health(where: Where) -> CommandOutput:
    """The state of the process that drives the folder."""
    return _show(where, "health")


def sessions(where: Where, last: int) -> CommandOutput:
    """The sessions, the latest active first, at most `last`."""
    return _show(where, "sessions.list", limit=_limit(last))


def _limit(last: int) -> int:
    """The limit that a verb gets for `-n`."""
    if last < 1:
        raise BadInput("-n", "must be 1 or more", last)
    return min(last, MOST_RUNS)


def _show(where: Where, method: str, **params: Any) -> CommandOutput:
    """Call a verb, and show what it answers."""
    told = ask(where, method, **params).value
    return CommandOutput(lambda: _rendering().answer(method, told), told)


def _rendering() -> Any:
    """The module that makes lines for people, which `--json` does not need."""
    from fledge.cli import rendering

    return rendering


# ---- deciding --------------------------------------------------------------------------------------------------------


def steer(where: Where, name: str, message: str) -> CommandOutput:
    """Redirect a run."""
    return _next_attempt("steered", ask(where, "runs.steer", target=name, message=message))


def _next_attempt(done: str, told: VerbAnswer) -> CommandOutput:
    return CommandOutput([f"{done}: attempt {told.value['attempt']}{told.later}"], told.value)


def kill(where: Where, name: str, dry_run: bool = False) -> CommandOutput:
    """End a run and everything below it; `all` ends every run of the conversation of this folder. `dry_run`: only show
    what would end."""
    if dry_run:
        shown = _show(where, "runs.ends", target=name)
        return shown._replace(value=shown.value["rows"])
    told = ask(where, "runs.kill", target=name)
    killed, stopping = told.value["killed"], told.value["stopping"]
    return CommandOutput([f"killed {len(killed)}" + (f", {len(stopping)} stopping" if stopping else "")], told.value)


def resume(where: Where, name: str, words: str, budget: str) -> CommandOutput:
    """Let a run go on that was killed, failed or timed out."""
    from msgspec import to_builtins

    from fledge.commands.params import budget_of_words

    given = {"budget": to_builtins(budget_of_words(budget))} if budget else {}
    return _next_attempt("resumed", ask(where, "runs.resume", target=name, words=words, **given))


def again(where: Where, name: str) -> CommandOutput:
    """Start another run with the same task and parameters, for the requester of the first."""
    from fledge.core.keys import short_id

    told = ask(where, "runs.again", target=name)
    return CommandOutput([f"started: run {short_id(told.value['runId'])}{told.later}"], told.value)


def answer(
    where: Where, name: str, words: str, yes: bool, always: bool = False, children: bool = False
) -> CommandOutput:
    """Answer a question about a tool call, by the beginning of its id, or a plan."""
    told = ask(where, "answer", target=name, approve=yes, words=words, always=always, children=children)
    tool, rule = told.value["tool"], told.value.get("permission")
    if tool and rule:
        return CommandOutput(lambda: [f"{tool} may be run{told.later}", *_rules([rule], "from now on: ")], told.value)
    if tool:
        done = f"{tool} may be run, this once" if yes else f"{tool} will not run; the model gets a refusal"
    else:
        done = "approved" if yes else "rejected"
    return CommandOutput([f"{done}{told.later}"], told.value)


def permissions(where: Where, action: str | None = None, name: str | None = None) -> CommandOutput:
    """The rules by which commands run without a question; or remove one, by the beginning of its id."""
    if action is None:
        return _show(where, "permissions.list")
    if name is None:
        raise BadInput("id", f"must be named: fledge permissions {action} ID")
    told = ask(where, "permissions.revoke", id=name).value
    return CommandOutput(lambda: _rules([told], "asks again: "), told)


def _rules(told: Any, before: str) -> list[str]:
    return [f"{before}{line}" for line in _rendering().answer("permissions.list", told)]


def undelivered(where: Where, action: str | None = None, name: str | None = None) -> CommandOutput:
    """Results and messages that were not delivered; or retry or dismiss one, a message by its key."""
    if action is None:
        return _show(where, "undelivered.list")
    if name is None:
        raise BadInput("run", f"must be named: fledge undelivered {action} RUN")
    told = ask(where, f"undelivered.{action}", target=name)
    key = told.value["key"]
    words = f"{key} is offered again{told.later}" if action == "retry" else f"{key} is dismissed"
    return CommandOutput([words], told.value)


def event(where: Where, text: str, name: str | None) -> CommandOutput:
    """Post a system event to a session; None: to the conversation of this folder."""
    key = _session(where, name, begins=True)
    told = ask(where, "system.event", session=key, text=text)
    posted = told.value["posted"]
    words = f"posted to {key}{told.later}" if posted else f"the last event that waits for {key} says the same"
    return CommandOutput([words], {"sessionKey": key, **told.value})


def heartbeat(where: Where, name: str | None, reason: str) -> CommandOutput:
    """Request a heartbeat of a session; None: of the conversation of this folder."""
    key = _session(where, name, begins=True)
    told = ask(where, "heartbeat.request", session=key, reason=reason)
    return CommandOutput([f"a heartbeat of {told.value['sessionKey']} is asked for{told.later}"], told.value)


def _session(where: Where, name: str | None, *, begins: bool) -> str:
    """The key of the session that a word names; None: that of the conversation of this folder. `begins`: that
    conversation begins if it has not; otherwise `main` stands for it until it has begun."""
    if not name and begins:
        told = ask(where, "sessions.open", once=False, session=where.session, folder=where.project)
    else:
        told = ask(where, "sessions.find", target=name or "")
    return str(told.value["sessionKey"])


def take_in(where: Where, workspace: Path, is_named: bool) -> list[str]:
    """Take in the documents of a workspace that were left out, as they are now; returns what was done, as lines. A
    state folder that the command line does not name need not exist."""
    from fledge.store.files import DATABASE
    from fledge.workspaces.documents import versions_in

    place, digests = versions_in(workspace)
    may_be_there = is_named or where.store or (where.state / DATABASE).exists()
    if may_be_there and ask(where, "documents.pending", workspace=place).value:
        taken = ask(where, "documents.accept", workspace=place, digests=digests).value
        return [f"taken in: {', '.join(taken)}"] if taken else []
    return []
