"""Counts and gauges as Prometheus reads them."""

from collections.abc import Mapping, Sequence

from fledge.commands.gateway_state import GatewayState
from fledge.orchestrator.views import count_undelivered
from fledge.store.base import Tx


async def exposition(gateway: GatewayState) -> str:
    """Everything that is counted, as text."""
    engine = gateway.fl.engine

    def look(tx: Tx) -> tuple[int, int, int, int]:
        return len(tx.drivers.all()), len(tx.approvals.open()), len(tx.runs.awaiting()), count_undelivered(tx)

    drivers, questions, plans, undelivered = await engine.store.read(look)
    counted = engine.counters.shown()
    lines = [
        *_family("phases_total", "Phases that runs entered.", ["phase"], counted["phases"]),
        *_family("outcomes_total", "Outcomes of runs.", ["status"], counted["outcomes"]),
        *_family("deliveries_total", "Deliveries by how they came out.", ["kind", "reason"], counted["deliveries"]),
        *_one("interrupts_total", "Steps that were called off.", "counter", sum(counted["interrupts"].values())),
        *_one("drivers", "Turns that are being driven.", "gauge", drivers),
        *_one("questions", "Tool calls that wait for a person.", "gauge", questions),
        *_one("plans", "Plans that await an answer.", "gauge", plans),
        *_one("undelivered", "Results and messages that could not be delivered.", "gauge", undelivered),
        *_one("gateway_requests_total", "Requests that were carried out.", "counter", gateway.requests),
        *_one("gateway_rejections_total", "Requests that were turned away.", "counter", gateway.rejections),
        *_one("gateway_subscriptions", "Feeds that are watched.", "gauge", len(gateway.watches)),
    ]
    return "\n".join(lines) + "\n"


def _head(name: str, meaning: str, kind: str) -> list[str]:
    return [f"# HELP fledge_{name} {meaning}", f"# TYPE fledge_{name} {kind}"]


def _one(name: str, meaning: str, kind: str, value: int) -> list[str]:
    return [*_head(name, meaning, kind), f"fledge_{name} {value}"]


def _family(name: str, meaning: str, labels: Sequence[str], counts: Mapping[str, int]) -> list[str]:
    """Counts by a word; where there are two labels, the word is `kind:reason`, or a kind alone."""
    lines = _head(name, meaning, "counter")
    for word, count in counts.items():
        values = [word] if len(labels) == 1 else word.partition(":")[::2]
        labelled = ",".join(f'{label}="{_escaped(value)}"' for label, value in zip(labels, values, strict=True))
        lines.append(f"fledge_{name}{{{labelled}}} {count}")
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
