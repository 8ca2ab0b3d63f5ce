"""Round trips of the workers' writers to a PostgreSQL server while they hold the lock of the store, by what they read.

`python -m bench.postgres_trips [CHILDREN]` lets children live on the server that `FLEDGE_POSTGRES` names, with one, two
and four workers, near and with latency, and prints a table. `watch` counts in a worker's process.
"""

import re
import sys
import threading
from collections import Counter
from typing import Any, Final

from fledge.store.pipeline import Pipe, StatementResult

WRITER: Final = "fledge-write"
"""The name of a store's thread that writes."""
_TABLE: Final = re.compile(r"\bFROM (\w+)")


def watch() -> Counter[str]:
    """From now on count each result that the writer of this process waits for, by the statement sent last."""
    trips: Counter[str] = Counter()
    last: dict[Pipe, str] = {}
    execute, sync = Pipe.execute, Pipe.sync

    def counting_execute(self: Pipe, sql: str, args: Any = (), /) -> StatementResult:
        last[self] = sql
        return execute(self, sql, args)

    def counting_sync(self: Pipe) -> None:
        if self._sent and threading.current_thread().name == WRITER:
            trips[label(last[self])] += 1
        sync(self)

    Pipe.execute = counting_execute  # type: ignore[method-assign]
    Pipe.sync = counting_sync  # type: ignore[method-assign]
    return trips


def label(sql: str) -> str:
    """What a statement is for: to begin, to write, to commit, or to read a table."""
    if "fledge_store" in sql:
        return "begin"
    verb = sql.split()[0]
    if verb == "COMMIT":
        return "commit"
    table = _TABLE.search(sql)
    return f"read:{table[1]}" if verb in ("SELECT", "WITH") and table is not None else "write"


def main(number: int) -> None:
    """Print the table."""
    from bench import postgres
    from bench.delay import delayed
    from bench.postgres_workers import Family, family
    from bench.run import LATENCY_MS

    url = postgres.server()
    if not url:
        sys.exit("FLEDGE_POSTGRES names no server")
    found: dict[str, Family] = {}
    with delayed(url, LATENCY_MS) as far:
        for where, ms in ((url, 0.0), (far, LATENCY_MS)):
            for workers in (1, 2, 4):
                found[f"{workers}, {ms:g} ms"] = family(where, workers, number, 64, counts=True)
    most = list(found.values())[-1].trips
    labels = sorted({word for one in found.values() for word in one.trips}, key=lambda word: -most[word])
    print(f"| round trips for each of {number} children: workers, latency | {' | '.join(found)} |")
    print("|---" * (len(found) + 1) + "|")
    for word in labels:
        figures = [one.trips[word] / number for one in found.values()]
        if max(figures) >= 0.01:
            print(f"| {word} | {' | '.join(f'{figure:.2f}' for figure in figures)} |")
    print(f"| all | {' | '.join(f'{one.trips.total() / number:.2f}' for one in found.values())} |")
    print(f"| commits | {' | '.join(f'{one.commits / number:.2f}' for one in found.values())} |")
    print(f"| children a second | {' | '.join(f'{number / one.wall_s:.0f}' for one in found.values())} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
