"""Fakes that implement fledge's own protocols, for its tests and for yours: no patching, no sleeping.

`ManualClock` and `run_virtual` make time a variable, `SeededIds` make names repeatable, `InlineStore` runs jobs in the
caller's thread on a real SQLite file, `ScriptedModel` answers from a script (a function, rules, or answers `in_order`),
`ScriptedPerformer` plays every session from a script, `CrashPoint` ends the process before or after a chosen
transaction. For programs of yours: `run_program` runs one in virtual time, and `survives_crashes` ends one at every
commit or at some, starts it again, and checks the result.

The rule of virtual time: it passes only when every coroutine waits and no thread or process works for the loop.

- Threads: `asyncio.to_thread`, `run_in_executor`, plain (not async) tools and hooks, the built-in file tools, worktrees
  and folders of children, the SQLite store. They take no virtual time, so no deadline fires because of them.
- Processes: `exec`, `grep`, `CommandRuntime`, `asyncio.create_subprocess_exec` and `_shell`. They run in real time and
  take no virtual time: `sleep 60` takes a real minute, and no timeout ends it.
- A thread or process that has not ended after `patience_s` real seconds is a `RuntimeError`. A deadline that fires
  while one is stuck is tested inside `threads_ignored()`.
- Not waited for: sockets, and threads you start yourself; call `fledge.clock.hold_time` for those.
"""

from typing import TYPE_CHECKING, Any

from fledge.models.base import Call, Request, ToolMessage, UserMessage
from fledge.models.scripted import Answer, Rule, ScriptedModel, echo, in_order, last_text, use
from fledge.models.scripted import ScriptedReply as Reply
from fledge.testing.stores import CrashPoint, InlineStore, SeededIds
from fledge.testing.time import (
    START,
    ManualClock,
    SharedClock,
    VirtualClock,
    run_virtual,
    threads_ignored,
    virtual_runner,
)
from fledge.testing.world import Script, ScriptedPerformer, Stage

if TYPE_CHECKING:
    from fledge.testing.crashes import survives_crashes
    from fledge.testing.program import run_program

__all__ = [
    "START",
    "Answer",
    "Call",
    "CrashPoint",
    "InlineStore",
    "ManualClock",
    "Reply",
    "Request",
    "Rule",
    "Script",
    "ScriptedModel",
    "ScriptedPerformer",
    "SeededIds",
    "SharedClock",
    "Stage",
    "ToolMessage",
    "UserMessage",
    "VirtualClock",
    "echo",
    "in_order",
    "last_text",
    "run_program",
    "run_virtual",
    "survives_crashes",
    "threads_ignored",
    "use",
    "virtual_runner",
]


_HOMES = {"run_program": "fledge.testing.program", "survives_crashes": "fledge.testing.crashes"}
"""Imported at the first use: they need all that opens a folder, which tests with fakes alone do not load."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fledge.testing' has no attribute {name!r}")
