"""What a seed decides before anything happens: settings, what people will do and when, where the process dies.

Chances are drawn by name, never in the order of events: `dice(seed, "reply", label, 3)` is the same whoever throws
first, so that a schedule is played the same way however its tasks take turns. What a schedule has beyond spawning
(other agents, heartbeats, channels, hooks, foreign runtimes) is drawn apart, so that adding to it changes nothing else.
"""

import random
from typing import Literal, get_args

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from fledge.config import Config, parse
from fledge.core.heartbeat import ActiveHours, HeartbeatSettings
from fledge.core.inbox import QueueMode, QueueSettings
from fledge.core.progress import StepLimits
from fledge.orchestrator.commit import Rules

HORIZON_S = 150.0
"""People act, and processes die, within this time; afterwards everything may come to rest."""

Deed = Literal[
    "say",
    "send",
    "steer",
    "kill",
    "stop",
    "answer",
    "plan",
    "spawn",
    "read",
    "delete",
    "undelivered",
    "write",
    "resend",
    "beat",
    "focus",
]
WEIGHTS: dict[Deed, int] = {
    "say": 10,
    "send": 4,
    "steer": 5,
    "kill": 3,
    "stop": 1,
    "answer": 10,
    "plan": 10,
    "spawn": 2,
    "read": 2,
    "delete": 1,
    "undelivered": 2,
}
CHANNELS = ("ops", "news")
FIRST_MINUTE = 8 * 60
"""The minute of the day, in UTC, at which every play begins."""
Outage = tuple[float, float]
"""From when until when, in seconds of the play, a channel is down."""


def dice(*names: object) -> random.Random:
    """The same throws for the same names, in every process."""
    return random.Random(":".join(map(str, names)))


class Act(Struct, frozen=True):
    """One thing a person does: when, what, and to whom of those that are there."""

    at: float
    deed: Deed
    pick: int


class Death(Struct, frozen=True):
    """How a process ends: at its n-th commit, before or after it, or closed in good order some time later."""

    commits: int
    how: Literal["before", "after", "closed"]
    down_s: float


class Schedule(Struct, frozen=True, kw_only=True):
    """Everything that is fixed beforehand."""

    seed: int
    config: Config
    rules: Rules
    acts: tuple[Act, ...]
    deaths: tuple[Death, ...]
    approval_s: float
    """How long a question waits for a person."""
    window: int
    """The model's; small ones make transcripts be summarised."""
    trouble: float
    """The share of model requests that break."""
    retries: bool
    """Trouble is retried before it is told."""
    reruns: float
    """The share of jobs that the store has to run twice."""
    slow_store: bool
    """Commits take time, so that others come in between."""
    lingering: bool
    """Some models and tools go on for a while when they are told to stop."""
    runs: int
    """No more than about so many runs are spawned."""
    beyond: "Beyond"
    steps: StepLimits = StepLimits()
    """How far a turn may go."""


class Beyond(Struct, frozen=True, kw_only=True):
    """What there is beyond conversations and their children; each may be absent."""

    chatty: float = 0.0
    """How readily sessions send to each other; 0: they have no tool for it."""
    children_send: bool = False
    """Children have that tool, too."""
    outages: dict[str, tuple[Outage, ...]] = field(default_factory=dict)
    """When each channel is down; empty: people write from no channel."""
    listens: bool = False
    """Hooks are listened to, and threads are bound by one of them."""
    trouble: float = 0.0
    """The share of calls to whoever is outside that go wrong."""
    runtimes: bool = False
    """Children may be carried out by other runtimes."""

    @property
    def writes(self) -> bool:
        """People write from channels."""
        return bool(self.outages)


def schedule(seed: int) -> Schedule:
    """What this seed decides."""
    throw, more = dice(seed, "schedule"), dice(seed, "beyond")
    beyond, beats = _beyond(more), _beats(more)
    mode: QueueMode = throw.choice(get_args(QueueMode))
    config = _config(throw, beyond, more)
    limits = config.agents.defaults.subagents
    acts = [Act(0.0, "say", 0)]
    acts += [
        Act(throw.uniform(0.5, HORIZON_S), deed, throw.randrange(1 << 30))
        for deed in throw.choices(list(WEIGHTS), list(WEIGHTS.values()), k=throw.randint(4, 40))
    ]
    deaths = tuple(
        Death(
            int(throw.expovariate(1 / 40)) + 1,
            throw.choice(["before", "after", "before", "after", "closed"]),
            throw.choice([0.0, 0.0, 3.0, 60.0]),
        )
        for _ in range(throw.choice([0, 1, 1, 2, 3, 5, 8]))
    )
    if beats.every_s:
        # Once everybody has acted it is switched off: else nothing would ever be at rest.
        deaths += (Death(int(HORIZON_S), "closed", 0.0),)
    acts += _more_acts(more, beyond, beats.every_s > 0)
    return Schedule(
        seed=seed,
        config=config,
        rules=Rules(
            queue=QueueSettings(mode=mode, people=_people(seed), debounce_s=throw.choice([0.0, 0.5, 1.0])),
            queues=_queues(seed) if beyond.writes else {},
            widths={"main": throw.randint(1, 4), "subagent": limits.max_concurrent, "nested": 1},
            style=throw.choice(["auto", "full", "compact"]),
            delete_kept=throw.random() < 0.2,
            heartbeat=beats,
            deliver=more.choice(["turn", "turn", "send"]) if beyond.writes else "turn",
            max_retries=more.choice([1, 3]),
            binding_idle_s=more.choice([40.0, 24 * 3600.0]),
            context_engine=beyond.listens,
        ),
        acts=tuple(sorted(acts, key=lambda act: act.at)),
        deaths=deaths,
        approval_s=throw.choice([20.0, 60.0, 3600.0]),
        window=throw.choice([100_000, 100_000, 100_000, 1500]),
        trouble=throw.choice([0.0, 0.05, 0.25]),
        retries=throw.random() < 0.5,
        reruns=throw.choice([0.0, 0.1]),
        slow_store=throw.random() < 0.5,
        lingering=throw.random() < 0.4,
        runs=throw.randint(3, 14),
        beyond=beyond,
        steps=dice(seed, "steps").choice([StepLimits()] * 4 + [StepLimits(max_steps=3), StepLimits(0, 2)]),
    )


def at_last(plan: Schedule) -> Schedule:
    """The same with the periodic heartbeat switched off."""
    return replace(plan, rules=replace(plan.rules, heartbeat=replace(plan.rules.heartbeat, every_s=0.0)))


def _people(seed: int) -> QueueMode:
    """How people's messages reach a busy conversation."""
    return dice(seed, "people's messages").choice(get_args(QueueMode))


def _queues(seed: int) -> dict[str, QueueSettings]:
    """Channels with queue settings of their own."""
    throw = dice(seed, "queues")
    modes: tuple[QueueMode, ...] = get_args(QueueMode)
    found = {name: QueueSettings(mode=throw.choice(modes), people=throw.choice(modes)) for name in CHANNELS}
    return {name: settings for name, settings in found.items() if throw.random() < 0.3}


def _beyond(throw: random.Random) -> Beyond:
    chatty = throw.choice([0.0] * 5 + [0.3, 1.0])
    outages = {name: tuple(_outages(throw)) for name in CHANNELS} if throw.random() < 0.3 else {}
    return Beyond(
        chatty=chatty,
        children_send=throw.random() < 0.3,
        outages=outages,
        listens=throw.random() < 0.3,
        trouble=throw.choice([0.0, 0.2, 0.5]),
        runtimes=throw.random() < 0.3,
    )


def _outages(throw: random.Random) -> list[Outage]:
    """None, some that pass, or one for ever."""
    kind = throw.choice(["up", "up", "down", "down", "gone"])
    if kind == "gone":
        return [(throw.uniform(0.0, HORIZON_S), float("inf"))]
    begins = sorted(throw.uniform(0.0, HORIZON_S) for _ in range(throw.randint(1, 3) if kind == "down" else 0))
    return [(at, at + throw.choice([1.0, 20.0, 600.0])) for at in begins]


def _beats(throw: random.Random) -> HeartbeatSettings:
    every_s = throw.choice([0.0] * 6 + [25.0, 60.0, 300.0])
    hours = throw.choice([None, (1, 0), (3, 1), (2, -2), (12, 1)])
    if hours is None:
        return HeartbeatSettings(every_s=every_s, zone="UTC")
    start, end = ((FIRST_MINUTE + minutes) % (24 * 60) for minutes in hours)
    return HeartbeatSettings(every_s=every_s, hours=ActiveHours(start, end), zone="UTC")


def _more_acts(throw: random.Random, beyond: Beyond, beats: bool) -> list[Act]:
    wanted: list[Deed] = []
    if beyond.writes:
        most: dict[Deed, int] = {"write": 8, "resend": 2, "focus": 3}
        wanted += [deed for deed, times in most.items() for _ in range(throw.randint(deed == "write", times))]
    if beats:
        wanted += ["beat" for _ in range(throw.randint(0, 3))]
    return [Act(throw.uniform(0.5, HORIZON_S), deed, throw.randrange(1 << 30)) for deed in wanted]


def _config(throw: random.Random, beyond: Beyond, more: random.Random) -> Config:
    subagents: dict[str, object] = {
        "maxSpawnDepth": throw.randint(1, 3),
        "maxChildrenPerAgent": throw.randint(1, 5),
        "maxConcurrent": throw.randint(1, 8),
        "maxRetained": throw.choice([0, 0, 0, 4]),
        "archiveAfterMinutes": throw.choice([1, 60]),
        "queueTimeoutSeconds": throw.choice([0, 0, 15]),
        "stuckAfterSeconds": throw.choice([10, 300]),
    }
    if throw.random() < 0.2:
        subagents["budget"] = throw.choice([{"turns": 3}, {"turns": 8}, {"tokens": 20_000}])
    document: dict[str, object] = {
        "agents": {"defaults": {"subagents": subagents}},
        "plan": {"approvalHours": throw.choice([0.01, 1.0])},
        "announce": {"maxRetries": throw.choice([1, 3])},
    }
    if beyond.chatty:
        document["agents"] = {"defaults": {"subagents": subagents}, "list": [{"id": "bob"}, {"id": "eve"}]}
        document["tools"] = {"agentToAgent": {"enabled": True, "allow": ["*"]}, "sessions": {"visibility": "all"}}
        document["session"] = {"agentToAgent": {"maxPingPongTurns": more.choice([0, 2, 5])}}
    return parse(msgspec.json.encode(document).decode()).config
