"""Views of runs as plain lines of text. Labels and texts of children are shown flattened: they cannot forge a line."""

from fledge.core import events as ev
from fledge.core.freeze import one_line
from fledge.core.lifecycle import born, transition
from fledge.core.run import Instant, Queued, Run
from fledge.store.base import Tx

LABEL_CHARS = 48
LONG_WAIT_S = 2.0
"""A wait for a slot longer than this is shown."""


def tree_lines(tx: Tx, session: str, now: Instant | None = None, indent: str = "") -> list[str]:
    """Everything below a session, one line a run, oldest first; with `now`, who waits long for a slot says so."""
    lines = []
    keys = tx.children(session)
    for at, key in enumerate(keys):
        last = at == len(keys) - 1
        run, label = tx.load_run(key), one_line(tx.spec(key).label or key, LABEL_CHARS)
        lines.append(f"{indent}{'└─' if last else '├─'} {label} · {status(run)}{_waited(tx, run, now)}")
        lines += tree_lines(tx, key, now, indent + ("   " if last else "│  "))
    return lines


def _waited(tx: Tx, run: Run, now: Instant | None) -> str:
    if now is None or not isinstance(run.phase, Queued):
        return ""
    waited = now - tx.events(run.key)[-1].at
    return f", {waited:.0f} s without a free slot" if waited > LONG_WAIT_S else ""


def status(run: Run) -> str:
    """Where a run is, in a few words."""
    ended = run.ended
    words = run.phase.name.replace("_", " ")
    if ended is not None:
        words += f" ({ended.outcome.status})"
    if run.attempt > 1:
        words += f", attempt {run.attempt}"
    return words


def timeline_lines(events: list[ev.Event]) -> list[str]:
    """The story of a run: when, what happened, where that left it."""
    first = events[0]
    assert isinstance(first, ev.Admitted)
    run = born(first)
    lines = [_line(first, first.at, run)]
    for event in events[1:]:
        run = transition(run, event).run
        lines.append(_line(event, first.at, run))
    return lines


def _line(event: ev.Event, start: float, run: Run) -> str:
    return f"{event.at - start:8.3f} s  {type(event).__name__:<16} → {run.phase.name}{_reason(event)}"


def _reason(event: ev.Event) -> str:
    match event:
        case ev.AttemptEnded(end=ev.Errored(error=error)) | ev.AttemptFaltered(error=error):
            return f"  ({one_line(error, 80)})"
        case ev.LeaseLost(step_open=step_open):
            return "  (crash: driven again)" if step_open else "  (stopped: driven again)"
        case ev.RowConsumed(path=path):
            return f"  ({path})"
        case ev.KillOrdered(named=named):
            return "" if named else "  (from above)"
        case ev.Yielded(asked=asked):
            return f"  (for {asked})"
        case _:
            return ""
