"""Counts and gauges as Prometheus reads them."""

from collections.abc import Iterable, Mapping

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
        *_family("phases_total", "Phases that runs entered.", "phase", counted["phases"]),
        *_family("outcomes_total", "Outcomes of runs.", "status", counted["outcomes"]),
        *_deliveries(counted["deliveries"]),
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


def _family(name: str, meaning: str, label: str, counts: Mapping[str, int]) -> Iterable[str]:
    return [
        *_head(name, meaning, "counter"),
        *(f'fledge_{name}{{{label}="{_escaped(word)}"}} {count}' for word, count in counts.items()),
    ]


def _deliveries(counts: Mapping[str, int]) -> Iterable[str]:
    name = "deliveries_total"
    lines = _head(name, "Deliveries by how they came out.", "counter")
    for word, count in counts.items():
        how, _, why = word.partition(":")
        lines.append(f'fledge_{name}{{kind="{_escaped(how)}",reason="{_escaped(why)}"}} {count}')
    return lines


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
