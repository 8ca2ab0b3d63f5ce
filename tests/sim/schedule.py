"""What a seed decides before anything happens: settings, what people will do and when, where the process dies.

Chances are drawn by name, never in the order of events: `dice(seed, "reply", label, 3)` is the same whoever throws
first, so that a schedule is played the same way however its tasks take turns.
"""

import random
from typing import Literal, get_args

import msgspec
from msgspec import Struct

from fledge.config import Config, parse
from fledge.core.inbox import QueueMode, QueueSettings
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


def schedule(seed: int) -> Schedule:
    """What this seed decides."""
    throw = dice(seed, "schedule")
    mode: QueueMode = throw.choice(get_args(QueueMode))
    config = _config(throw)
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
    return Schedule(
        seed=seed,
        config=config,
        rules=Rules(
            queue=QueueSettings(mode=mode, debounce_s=throw.choice([0.0, 0.5, 1.0])),
            widths={"main": throw.randint(1, 4), "subagent": limits.max_concurrent, "nested": 1},
            style=throw.choice(["auto", "full", "compact"]),
            delete_kept=throw.random() < 0.2,
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
    )


def _config(throw: random.Random) -> Config:
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
    document = {
        "agents": {"defaults": {"subagents": subagents}},
        "plan": {"approvalHours": throw.choice([0.01, 1.0])},
        "announce": {"maxRetries": throw.choice([1, 3])},
    }
    return parse(msgspec.json.encode(document).decode()).config
