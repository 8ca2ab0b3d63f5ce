"""What became of a kill: those it ended, those that finished first, and those that did not stop.

The kill itself is one commit (`control`). A driver that was told to stop has a few seconds; this waits for that,
holding nothing, and says afterwards how each came out.
"""

from fledge.core import events as ev
from fledge.core.reconcile import STOP_S
from fledge.core.run import Ending, Killed
from fledge.orchestrator.changes import Changes
from fledge.orchestrator.effects import Killing
from fledge.orchestrator.engine import Engine
from fledge.store.base import Tx

PATIENCE_S = STOP_S + 1.0
"""Until then everything that was killed is decided."""


async def outcome_of(engine: Engine, changes: Changes, done: Killing) -> Killing:
    """How a kill came out, as soon as everything it stopped is gone, or its time is up."""
    at = engine.clock.now() + PATIENCE_S

    def is_there(tx: Tx, key: str) -> bool:
        run = tx.runs.find(key)
        return engine.is_driving(key) or (run is not None and isinstance(run.phase, Ending))

    def look(tx: Tx) -> bool | None:
        return None if any(is_there(tx, key) for key in done.stopping) else True

    if done.stopping:
        await changes.until(look, done.stopping, at)
    running = tuple(key for key in done.stopping if engine.is_driving(key))
    return await engine.store.read(lambda tx: _sorted(tx, done, running))


def _sorted(tx: Tx, done: Killing, running: tuple[str, ...]) -> Killing:
    finished = tuple(key for key in done.stopping if key not in running and _has_won(tx, key))
    gone = tuple(key for key in done.stopping if key not in running and key not in finished)
    return Killing((*done.killed, *gone), running, finished)


def _has_won(tx: Tx, key: str) -> bool:
    """True of a run that committed its end after it was told to stop, and whose end counts."""
    run = tx.runs.find(key)
    if run is None or run.ended is None or isinstance(run.ended.outcome, Killed):
        return False
    names = [type(event) for event in tx.events.of(key)]
    return ev.AttemptEnded in names[names.index(ev.KillOrdered) :] if ev.KillOrdered in names else False
