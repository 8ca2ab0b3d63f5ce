"""A crowd: a thousand replies streaming at once into one process on one core. How late does its event loop get?

The consumer is fledge's adapter in a process of its own, pinned to one core; servers (`sse_server`, several processes)
have the others. Measured is the time in which all streams are open and none has ended. The loop's lag is that of a tick
every 10 ms: each tick that was due while the loop was busy counts, so a long delay is not one sample but many.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from bench.measure import cpu_s, peak_mb, percentile, record_lags
from bench.sse_server import MODEL, ROOT, WORD, Server, running, words_in

PER_S = 30
"""Chunks a second of each stream."""
OPENING_S, OPENING_A_STREAM_S = 0.5, 0.0025
"""By so much the replies are longer than what is measured: time to open them all."""
SERVERS = 2
FILES_A_STREAM = 2
LATE_MS = 100.0
"""A server that was later than this did not send what was promised."""
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Crowd:
    """What the consumer saw while all were streaming."""

    streams: int
    measured_s: float
    chunks_per_s: float
    """Of one stream."""
    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    rss_mb: float
    """The most the process ever held, its imports included."""
    cpu_share: float
    """Of one core."""
    opening_s: float
    served_late_ms: float = 0.0
    """p99 of how late the servers wrote."""

    def __str__(self) -> str:
        """Lag, rate, CPU."""
        lag = f"lag p50 {self.lag_p50_ms:.0f} p99 {self.lag_p99_ms:.0f} max {self.lag_max_ms:.0f} ms"
        return f"{lag}, {self.chunks_per_s:.1f} chunks/s each, {100 * self.cpu_share:.0f} % of a core"


# ---- in the consumer's process ---------------------------------------------------------------------------------------


class _Watch:
    """What all streams have in common: how many are open, and the time between the last opening and the first end."""

    def __init__(self, streams: int) -> None:
        self.missing = streams
        self.words = 0
        self.words_before = 0
        self.cpu_before = 0.0
        self.began_at = time.perf_counter()
        self.open_at = 0.0
        self.over_at = 0.0
        self.words_after = 0
        self.cpu_after = 0.0

    def opened(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.open_at, self.words_before, self.cpu_before = time.perf_counter(), self.words, cpu_s()

    def ended(self) -> None:
        if not self.over_at:
            self.over_at, self.words_after, self.cpu_after = time.perf_counter(), self.words, cpu_s()


async def consume(urls: Sequence[str], streams: int, words: int) -> Crowd:
    """Read so many replies at once, spread over the servers, and watch the loop."""
    from fledge.models.base import Broke, Request, Text, UserMessage
    from fledge.models.keys import SecretKey
    from fledge.models.openai import OpenAIModel
    from fledge.models.providers import Provider

    models = [OpenAIModel(Provider(name="openai", base_url=url), SecretKey("none")) for url in urls]
    request = Request(model=MODEL, messages=(UserMessage("say something"),))
    watch = _Watch(streams)

    async def child(number: int) -> None:
        heard = 0
        async for event in models[number % len(models)].stream(request):
            if isinstance(event, Text):
                if not heard:
                    watch.opened()
                heard += len(event.text)
                watch.words += 1
            elif isinstance(event, Broke):
                raise RuntimeError(event.message)
        watch.ended()
        if heard != words * len(WORD):
            raise RuntimeError(f"{heard} of {words * len(WORD)} characters came: the figures mean nothing")

    ticks: list[tuple[float, float]] = []
    ticking = asyncio.create_task(record_lags(ticks))
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        for number in range(streams):
            group.create_task(child(number))
    ticking.cancel()
    for model in models:
        await model.close()
    measured_s = watch.over_at - watch.open_at
    lags = [late for due, late in ticks if watch.open_at <= due <= watch.over_at]
    if not watch.open_at or not lags:
        raise RuntimeError("some replies had ended before all had begun: the figures mean nothing")
    p50_ms, p99_ms, max_ms = (1000 * percentile(lags, percent) for percent in (50, 99, 100))
    return Crowd(
        streams=streams,
        measured_s=measured_s,
        chunks_per_s=(watch.words_after - watch.words_before) / measured_s / streams,
        lag_p50_ms=p50_ms,
        lag_p99_ms=p99_ms,
        lag_max_ms=max_ms,
        rss_mb=peak_mb(),
        cpu_share=(watch.cpu_after - watch.cpu_before) / measured_s,
        opening_s=watch.open_at - watch.began_at,
    )


def main(arguments: list[str]) -> None:
    """Be the consumer, and print what was seen."""
    parser = argparse.ArgumentParser(prog="python -m bench.crowd")
    parser.add_argument("streams", type=int)
    parser.add_argument("words", type=int)
    parser.add_argument("urls", nargs="+")
    asked = parser.parse_args(arguments)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_A_STREAM * asked.streams + 100
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    print(json.dumps(asdict(asyncio.run(consume(asked.urls, asked.streams, asked.words)))))


# ---- from outside ----------------------------------------------------------------------------------------------------


def _cores() -> tuple[list[int], list[int]]:
    """One core for the consumer, the others for the servers; all share where there is but one or none can be named."""
    if not hasattr(os, "sched_getaffinity"):
        return [], []
    first, *others = sorted(os.sched_getaffinity(0))
    return [first], others or [first]


def crowd(streams: int, seconds: float, per_s: int = PER_S) -> Crowd:
    """So many streams at once for about so long."""
    mine, others = _cores()
    events = round((seconds + OPENING_S + streams * OPENING_A_STREAM_S) * per_s)
    with running(SERVERS, others) as servers:
        urls = [server.url(events, f"{per_s}hz") for server in servers]
        command = [sys.executable, "-m", "bench.crowd", str(streams), str(words_in("openai", events)), *urls]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if mine:
            os.sched_setaffinity(process.pid, mine)
        try:
            told, trouble = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            raise RuntimeError(f"the consumer failed: {trouble[-2000:]}")
        return Crowd(**json.loads(told) | {"served_late_ms": max(map(_late_ms, servers))})


def _late_ms(server: Server) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/stats", timeout=TIMEOUT_S) as answer:
        return float(json.load(answer)["late_p99_ms"])


if __name__ == "__main__":
    main(sys.argv[1:])
