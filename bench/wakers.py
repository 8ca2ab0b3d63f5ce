"""What it costs to wake a worker of a store on PostgreSQL: by NOTIFY, as fledge does, or by a job of procrastinate.

`python -m bench.wakers [WAKES]` needs a server that does nothing else (`FLEDGE_POSTGRES`) and, for the comparison,
`pip install procrastinate`; without it that line says "not measured". A wake is a transaction that writes one row and
says "look"; it is over when the woken process has said so. With procrastinate it is one job with a queueing lock,
deferred by its SQL function in the same transaction. CPU is that of both processes, not of the server.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, Literal

import psycopg

from bench.measure import cpu_s, percentile
from fledge.core.cluster import Member, News, merged, to_messages
from fledge.store.postgres import PostgresStore
from fledge.store.postgres_server import parse

Way = Literal["notify", "procrastinate"]
IDLE_S = 10.0
SETTLE_S = 1.5
"""How long the server may take to count its transactions."""
_DEFER = """
SELECT procrastinate_defer_jobs_v1(ARRAY[ROW('q', 'look', 0, NULL, 'look', '{}'::jsonb, NULL)
  ::procrastinate_job_to_defer_v1])
WHERE NOT EXISTS (SELECT 1 FROM procrastinate_jobs WHERE queueing_lock = 'look' AND status = 'todo')
"""


def say(word: str) -> None:
    """One line for the process that measures."""
    print(word, f"{cpu_s():.6f}", flush=True)


async def hear_notify(url: str) -> None:
    """Be an engine of a store that hears what others commit."""
    store = PostgresStore.open(url, alone=False)
    assert store.cluster is not None
    own = Member("woken", "bench", os.getpid(), 0.0, time.time(), 15.0, drives=True)
    await store.transact(lambda tx: tx.engines.join(own))
    store.cluster.join(own.id, lambda news: say("ready" if news.everything else "woken"))
    await asyncio.to_thread(sys.stdin.readline)
    say("end")
    await store.close()


async def hear_procrastinate(url: str) -> None:
    """Be a worker of procrastinate with its default settings."""
    procrastinate: Any = __import__("procrastinate")
    server = parse(url)
    options = f"-c search_path={server.schema}"
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=server.conninfo, kwargs={"options": options})
    )

    async def look() -> None:
        say("woken")

    app.task(name="look", queue="q")(look)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        working = asyncio.ensure_future(app.run_worker_async(install_signal_handlers=False))
        await asyncio.sleep(SETTLE_S)
        say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        say("end")
        working.cancel()
        await asyncio.wait([working])


def measure(url: str, way: Way, wakes: int) -> str:
    """What this way costs, in words."""
    schema = f"bench_{time.time_ns()}"
    place = f"{url}?schema={schema}"
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            connection.execute(f"CREATE SCHEMA {schema}; SET search_path = {schema}".encode())
            with subprocess.Popen(
                [sys.executable, "-m", "bench.wakers", "hear", way, place],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            ) as woken:
                return _measured(connection, woken, _sender(connection, place, way), wakes)
        finally:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())


def _sender(connection: "psycopg.Connection[Any]", place: str, way: Way) -> Callable[[], None]:
    (message,) = to_messages(merged([News(look=True)]))
    channel = parse(place).channel

    def send() -> None:
        with connection.transaction():
            connection.execute("INSERT INTO bench_rows (body) VALUES ('x')")
            if way == "notify":
                connection.execute("SELECT pg_notify(%s, %s)", (channel, message))
            else:
                connection.execute(_DEFER.encode())

    return send


def _measured(
    connection: "psycopg.Connection[Any]", woken: "subprocess.Popen[str]", send: Callable[[], None], wakes: int
) -> str:
    said = _Said(woken)
    said.until("ready")
    connection.execute("CREATE TABLE bench_rows (id BIGINT GENERATED ALWAYS AS IDENTITY, body TEXT)")
    send()
    began = said.until("woken")
    mine, took, before = cpu_s(), [], _transactions(connection)
    for _ in range(wakes):
        sent = time.perf_counter()
        send()
        ended = said.until("woken")
        took.append(1000 * (time.perf_counter() - sent))
    cpu_ms = 1000 * (ended - began + cpu_s() - mine) / wakes
    each = (_transactions(connection) - before) / wakes
    idle_from = _transactions(connection)
    time.sleep(IDLE_S)
    idle = (_transactions(connection) - idle_from) / (IDLE_S + SETTLE_S)
    assert woken.stdin is not None
    woken.stdin.write("\n")
    woken.stdin.flush()
    share = 100 * (said.until("end") - ended) / (IDLE_S + 2 * SETTLE_S)
    wake = f"{percentile(took, 50):.2f} ms (p95 {percentile(took, 95):.2f} ms), {cpu_ms:.2f} ms CPU"
    return f"a wake: {wake}, {each:.1f} transactions; idle: {share:.2f} % CPU, {idle:.1f} transactions/s"


class _Said:
    """What the other process has said."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        self._lines = process.stdout

    def until(self, word: str) -> float:
        """Wait until it says this; the CPU it had taken by then."""
        for line in self._lines:
            said, cpu = line.split()
            if said == word:
                return float(cpu)
        raise RuntimeError(f"the process ended before it said {word}")


def _transactions(connection: "psycopg.Connection[Any]") -> int:
    """How many transactions the database has committed."""
    time.sleep(SETTLE_S)
    row = connection.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])


def main(wakes: int) -> None:
    """Print a line for each way."""
    url = os.environ.get("FLEDGE_POSTGRES", "")
    if not url:
        sys.exit("FLEDGE_POSTGRES names no server")
    print("LISTEN/NOTIFY:", measure(url, "notify", wakes), flush=True)
    is_there = find_spec("procrastinate") is not None
    print(
        "procrastinate:",
        measure(url, "procrastinate", wakes) if is_there else "not measured (pip install procrastinate)",
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["hear"]:
        asyncio.run((hear_notify if sys.argv[2] == "notify" else hear_procrastinate)(sys.argv[3]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
