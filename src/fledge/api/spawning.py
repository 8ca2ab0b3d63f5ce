"""A spawn asked for by a program, read and completed by the configuration into what the orchestrator admits.

A program is not a model that may run wild: it decides itself how many it starts, and the lane decides how many run.
So the depth and the retention limits hold for it, the number of active children does not.
"""

import math
import sys
from typing import Literal, TypedDict

from msgspec import Struct

from fledge.config import Config, subagent_limits, thinking_for_child
from fledge.core.keys import check_agent_id
from fledge.core.policy import Budget, Limits
from fledge.core.run import Terms
from fledge.errors import BadInput
from fledge.orchestrator import spawn
from fledge.store.base import Spec


class _Wanted(Struct, frozen=True):
    types: tuple[type, ...]
    words: str


_TEXT = _Wanted((str,), "text")
_WANTED = {
    "task": _TEXT,
    "label": _TEXT,
    "agent_id": _TEXT,
    "model": _TEXT,
    "thinking": _TEXT,
    "timeout": _Wanted((int, float), "seconds of work, 0 for no limit"),
    "cleanup": _TEXT,
    "plan_mode": _Wanted((bool,), "True or False"),
    "budget": _Wanted((Budget,), "a fledge.Budget"),
    "idempotency_key": _TEXT,
}


class SpawnOptions(TypedDict, total=False):
    """What `fl.spawn` takes besides the task; all of it may be left out."""

    label: str
    """A few words to tell it from others."""
    agent_id: str
    """The agent that does it; `main` if none is named."""
    model: str
    thinking: str
    timeout: float
    """Seconds of work after which it ends with what it has; 0 for no limit."""
    cleanup: Literal["keep", "delete"]
    plan_mode: bool
    """First only plan, and wait until the plan is approved."""
    budget: Budget
    idempotency_key: str
    """Spawning again with the same key finds the same run."""


def request(config: Config, program: str, task: str, options: SpawnOptions) -> spawn.Request:
    """The spawn as the configuration completes it. Refused: a field that makes no sense, by its name."""
    _check(task, options)
    target = check_agent_id(options.get("agent_id", "main"), "agent_id")
    limits = subagent_limits(config, target)
    level = thinking_for_child(config, options.get("thinking") or None, target)
    spec = Spec(
        task=task,
        label=options.get("label", "").strip(),
        agent_id=target,
        model=options.get("model", "").strip(),
        thinking=level.name if level else "",
    )
    terms = Terms(
        parent=program,
        cleanup=options.get("cleanup", "keep"),
        plan=options.get("plan_mode", False),
        timeout_s=float(options.get("timeout", limits.run_timeout_seconds)),
        queue_timeout_s=float(limits.queue_timeout_seconds),
        stuck_after_s=float(limits.stuck_after_seconds),
        approval_s=config.plan.approval_hours * 3600.0,
        archive_after_s=limits.archive_after_minutes * 60.0,
        max_retries=config.announce.max_retries,
        undelivered_s=config.undelivered.retention_days * 86400.0,
        timeline_s=config.retention.timeline_days * 86400.0,
    )
    caps = Limits(limits.max_spawn_depth, sys.maxsize, limits.max_retained)
    return spawn.Request(spec=spec, terms=terms, limits=caps, key=options.get("idempotency_key", ""))


def _check(task: str, options: SpawnOptions) -> None:
    for name, value in (("task", task), *options.items()):
        wanted = _WANTED.get(name)
        if wanted is None:
            raise BadInput(name, f"is no parameter of spawn; there are: {', '.join(_WANTED)}, result_type")
        if not isinstance(value, wanted.types) or isinstance(value, bool) != (wanted.types == (bool,)):
            raise BadInput(name, f"must be {wanted.words}", value)
    if not task.strip():
        raise BadInput("task", "must not be empty: say what the subagent is to do")
    if options.get("cleanup", "keep") not in ("keep", "delete"):
        raise BadInput("cleanup", "must be 'keep' or 'delete'", options["cleanup"])
    if not 0 <= options.get("timeout", 0) < math.inf:
        raise BadInput("timeout", "must be seconds of work, 0 for no limit", options["timeout"])
