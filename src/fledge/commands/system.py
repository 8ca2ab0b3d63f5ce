"""Verbs about the process that answers: `health`, `agents.list`, `models.list`, `config.shown`."""

import os
import shutil
from collections import Counter
from typing import Any, Final, Literal

import fledge
from fledge.commands.gateway_state import GatewayState
from fledge.commands.params import Nothing
from fledge.commands.table import method
from fledge.config import agent_view, budget_for, model_for_conversation, sandbox_for, spawnable, subagent_limits
from fledge.config.shown import SettingShown, shown
from fledge.core.cluster import Member, is_alive
from fledge.core.policy import Budget, lane_width
from fledge.core.run import Instant
from fledge.core.value import NamedValue
from fledge.models.catalog import Card
from fledge.orchestrator.journal import Wrong
from fledge.orchestrator.views import count_undelivered
from fledge.store.base import LaneQueue, Tx
from fledge.store.files import DATABASE, log_of

DAY_S: Final = 86400


class LaneView(NamedValue):
    """A lane: its slots, how many of them are in use, and the sessions that wait for one."""

    name: str
    used: int
    width: int
    queued: int = 0
    oldest_wait_s: float = 0.0
    """The wait, in seconds, of the session that has waited longest."""


class StoreView(NamedValue):
    """The database."""

    folder: str
    server: str
    """The address of the database, if it is on a server; then the folder has only its files. Else empty."""
    bytes: int
    """The size of the database and its log; on a server, of its tables and indexes."""
    free_bytes: int
    """The free space on the disk of the folder."""
    runs: int
    sessions: int
    events: int
    """The number of run events that were ever stored."""
    commit_ms: float
    """The median time of the newest commits, in milliseconds."""
    commit_p95_ms: float
    """The time within which 95 of 100 of the newest commits were done, in milliseconds."""


class EngineView(NamedValue):
    """A process that works with a store on a server."""

    state: Literal["alive", "closing", "dead"]
    """`dead`: it was not seen for longer than its lease; a process that runs agents takes over from it."""
    name: str
    """The command that the process runs, for people."""
    host: str
    pid: int
    version: str
    drives: bool
    """It runs agents; else it only reads and decides."""
    sessions: int
    """The number of sessions that it drives now."""
    started_at: Instant
    seen_at: Instant
    is_this: bool
    """It is the process that answers."""


class Health(NamedValue):
    """The state of the gateway."""

    status: Literal["ok", "closing"]
    version: str
    pid: int
    started_at: Instant
    now_at: Instant
    drivers: int
    """The number of turns that are driven now."""
    questions: int
    plans: int
    undelivered: int
    subscriptions: int
    requests: int
    rejections: int
    counters: dict[str, Any]
    """Counts since it started: phases entered, outcomes, deliveries by result and reason, and interrupted steps."""
    lanes: tuple[LaneView, ...]
    store: StoreView
    errors: tuple[Wrong, ...]
    """Errors since it started, the newest first, at most 50."""
    steps: tuple[int, ...]
    """Model replies in each of the last 30 minutes, the present one last."""
    engines: tuple[EngineView, ...]
    """The processes that share a store on a server, the oldest first; none where one process has its store alone."""


@method("health")
async def health(gateway: GatewayState, params: Nothing) -> Health:
    """The state of the gateway: lanes, store, errors, and counts of events since it started."""
    engine = gateway.fl.engine
    now, counters, widths = engine.clock.now(), engine.counters, engine.rules.widths
    # The event loop goes on counting while a thread reads the rows, so its counts are taken first.
    counted, wrong, steps = counters.shown(), tuple(reversed(counters.wrong)), tuple(counters.steps(now))
    commit_ms, commit_p95_ms = counters.commit_ms(0.5), counters.commit_ms(0.95)

    def look(tx: Tx) -> Health:
        drivers = [one for one in tx.drivers.all() if one.release_at is None or one.release_at > now]
        used, driven = Counter(one.lane for one in drivers), Counter(one.owner for one in drivers)
        queues = {one.lane: one for one in tx.queue.waiting_by_lane(now)}
        lanes = dict.fromkeys((*widths, *sorted(used), *queues))
        return Health(
            status="closing" if gateway.closing.is_set() else "ok",
            version=fledge.__version__,
            pid=os.getpid(),
            started_at=gateway.started_at,
            now_at=now,
            drivers=len(drivers),
            questions=len(tx.approvals.open()),
            plans=len(tx.runs.awaiting()),
            undelivered=count_undelivered(tx),
            subscriptions=len(gateway.watches),
            requests=gateway.requests,
            rejections=gateway.rejections,
            counters=counted,
            lanes=tuple(_lane(tx, name, used[name], lane_width(widths, name), queues.get(name), now) for name in lanes),
            store=_store(tx, gateway, commit_ms, commit_p95_ms),
            errors=wrong,
            steps=steps,
            engines=tuple(_engine(one, driven[one.id], engine.owner, now) for one in tx.engines.all()),
        )

    return await gateway.read(look)


def _waits_since(tx: Tx, session: str, now: Instant) -> Instant:
    """The time since which a queued session waits: that of its run's last event, of its oldest unread row, or of the
    beginning of its turn."""
    if tx.runs.find(session) is not None:
        return tx.events.of(session)[-1].at
    unread, turn = tx.inbox.unread(session, 1), tx.turns.get(session)
    return unread[0].arrived_at if unread else now if turn is None else turn.opened_at


def _lane(tx: Tx, name: str, used: int, width: int, queue: LaneQueue | None, now: Instant) -> LaneView:
    if queue is None:
        return LaneView(name=name, used=used, width=width)
    wait_s = max(0.0, now - _waits_since(tx, queue.oldest, now))
    return LaneView(name=name, used=used, width=width, queued=queue.count, oldest_wait_s=wait_s)


def _engine(member: Member, sessions: int, own: str, now: Instant) -> EngineView:
    return EngineView(
        state="dead" if not is_alive(member, now) else "closing" if member.drains else "alive",
        name=member.name,
        host=member.host,
        pid=member.pid,
        version=member.version,
        drives=member.drives,
        sessions=sessions,
        started_at=member.started_at,
        seen_at=member.seen_at,
        is_this=member.id == own,
    )


def _store(tx: Tx, gateway: GatewayState, commit_ms: float, commit_p95_ms: float) -> StoreView:
    folder, cluster = gateway.fl.state, gateway.fl.engine.store.cluster
    files = [folder / DATABASE, log_of(folder / DATABASE)]
    runs, sessions = tx.lists.count_rows()
    return StoreView(
        folder=str(folder),
        server="" if cluster is None else cluster.address,
        bytes=tx.lists.bytes_on_server() + sum(os.stat(file).st_size for file in files if os.path.exists(file)),
        free_bytes=shutil.disk_usage(folder).free,
        runs=runs,
        sessions=sessions,
        events=tx.events.last(),
        commit_ms=commit_ms,
        commit_p95_ms=commit_p95_ms,
    )


class AgentWeekday(NamedValue):
    """The runs and cost of an agent on one day."""

    runs: int = 0
    """The number of runs that were begun."""
    cost_usd: float | None = None
    """The cost of its conversations and runs, in dollars; None if no price is known."""


class AgentDetails(NamedValue):
    """An agent: its models, its tools, the agents that it may start, its limits and its use."""

    id: str
    description: str = ""
    model: str = ""
    """Empty: the model that the program or the command names."""
    fallbacks: tuple[str, ...] = ()
    may: tuple[str, ...]
    """Tools that it uses without a question."""
    asks: tuple[str, ...]
    """Tools of which each call needs a person's approval."""
    never: tuple[str, ...]
    """Tools that it may not use."""
    starts: tuple[str, ...]
    """Agents that it may start."""
    max_depth: int
    max_children: int
    budget: Budget | None
    """The budget of each child; None: no limit."""
    sandbox: str
    """The mode of its sandbox."""
    network: str
    week: tuple[AgentWeekday, ...]
    """Today and the six days before, by UTC, today last."""


@method("agents.list")
async def agents_list(gateway: GatewayState, params: Nothing) -> list[AgentDetails]:
    """The configured agents, `main` first, each with its runs and cost on each of the last seven days."""
    ids = dict.fromkeys(("main", *(one.id for one in gateway.fl.config.agents.list)))
    engine = gateway.fl.engine
    today = int(engine.clock.now() // DAY_S)
    counted = await engine.store.read(lambda tx: tx.lists.agent_days(today - 6))
    days = {(one.agent, one.day): AgentWeekday(runs=one.runs, cost_usd=one.cost_usd) for one in counted}
    weeks = {one: tuple(days.get((one, day), AgentWeekday()) for day in range(today - 6, today + 1)) for one in ids}
    return [_agent(gateway, agent_id, week) for agent_id, week in weeks.items()]


def _agent(gateway: GatewayState, agent_id: str, week: tuple[AgentWeekday, ...]) -> AgentDetails:
    config = gateway.fl.config
    model, limits = model_for_conversation(config, agent_id), subagent_limits(config, agent_id)
    tools, sandbox = gateway.fl.profiles.tool_choice.tools_of(agent_id), sandbox_for(config, agent_id)
    return AgentDetails(
        id=agent_id,
        description=agent_view(config, agent_id).description,
        model="" if model is None else model.name,
        fallbacks=() if model is None else model.fallbacks,
        may=tools.may,
        asks=tools.asks,
        never=tools.never,
        starts=tuple(one.id for one in spawnable(config, agent_id)),
        max_depth=limits.max_spawn_depth,
        max_children=limits.max_children_per_agent,
        budget=budget_for(config, agent_id),
        sandbox=sandbox.mode,
        network=sandbox.network,
        week=week,
    )


class ModelView(NamedValue):
    """A model that a conversation can use."""

    name: str
    because: str
    """Why it can be used: an agent has it, or its service's key is set."""
    window: int | None = None
    """The size of its context in tokens; this and the next three are None if the catalogue does not know them."""
    images: bool | None = None
    input_usd: float | None = None
    """The price of a million input tokens, in dollars; the next is that of a million output tokens."""
    output_usd: float | None = None


@method("models.list")
async def models_list(gateway: GatewayState, params: Nothing) -> list[ModelView]:
    """The models that can be used now: those that the settings name, then those of services whose key is set."""
    return [_model(name, reason, card) for name, (reason, card) in (await gateway.fl.profiles.models()).items()]


def _model(name: str, because: str, card: Card | None) -> ModelView:
    if card is None:
        return ModelView(name=name, because=because)
    price = card.price
    return ModelView(
        name=name,
        because=because,
        window=card.window,
        images=card.images,
        input_usd=None if price is None else price.input,
        output_usd=None if price is None else price.output,
    )


@method("config.shown")
async def config_shown(gateway: GatewayState, params: Nothing) -> list[SettingShown]:
    """Every setting: its value, its default, and where the value comes from. Secrets are never shown."""
    return shown(gateway.fl.config, gateway.layers)
