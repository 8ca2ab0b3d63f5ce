"""The table: what is measured, in which sizes, against which bars. `python -m bench [--quick] [--only PART …]`.

Every comparison is made in this one run, its sides taking turns; bars are held against ratios of medians, because the
machine is noisy and its disk is its own. Exit code 1 if a bar fails.
"""

import argparse
import compileall
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import fledge
from bench import (
    children,
    crowd,
    feeds,
    growth,
    imports,
    lives,
    pages,
    postgres,
    postgres_workers,
    restart,
    streaming,
    streaming_children,
    terminal,
    transitions,
    turns,
    web,
)
from bench.delay import delayed
from bench.measure import ROUNDS, Bar, Line, Meter, Rate, machine, median_rate, percentile, table
from bench.peers import libraries

RESULTS = Path(__file__).parent / "results"

HALF_THE_BARE_LOOP = Bar("at least", 0.5)
FLAT = Bar("at most", 1.3)
NEARLY_FLAT = Bar("at most", 1.5)
START = {
    "import fledge": Bar("at most", 100, "ms"),
    "fledge --help": Bar("at most", 60, "ms"),
    "fledge ps, a folder that no process holds": Bar("at most", 150, "ms"),
    "fledge ps, through the holder's socket": Bar("at most", 120, "ms"),
}
"""CPU over an interpreter that does nothing."""
A_SIXTH_OF_THE_SDK = Bar("at least", 6)
MORE_THAN_OURS = Bar("at least", 1)
PROMPT = Bar("at most", 250, "ms")
SMALL = Bar("at most", 300, "MB")
SIX_FLOORS = Bar("at most", 6)
THREE_EMBEDDED = Bar("at most", 3)
FIVE_EMBEDDED = Bar("at most", 5)
A_THIRD = Bar("at most", 1 / 3)
NO_SHARDS = Bar("at least", 100, "/s")
TAKEN_OVER = Bar("at most", 15, "s")
REACHED = Bar("at most", 100, "ms")
IDLE = Bar("at most", 1, "%")
LATENCY_MS = 1.0
SIX_COMMITS = Bar("at most", 6)
THREE_COMMITS = Bar("at most", 3)
AT_ONCE = Bar("at most", 50, "ms")
RESUMED = Bar("at most", 3, "s")
FULL_LANES = Bar("at most", 5, "s")
NO_SLOWER = Bar("at most", 1)
LINEAR = Bar("at most", 3)
GIVEN_UP = Bar("at most", 4, "s")
HOLDS_LITTLE = Bar("at most", 200, "MB")
CHEAP_WORDS = Bar("at most", 2, "ms")
TALKING = Bar("at most", 250, "ms")
FEW_BYTES = Bar("at most", 200, "bytes")
ECHOED = Bar("at most", 60, "ms")
FIRST_SHOWN = Bar("at most", 1000, "ms")
OPENED = Bar("at most", 500, "ms")
FEW_NODES = Bar("at most", 3000, "elements")
FILTERED = Bar("at most", 100, "ms")
BESIDE_FEEDS = Bar("at most", 5)
TURN_BESIDE_FEEDS = Bar("at most", 2)
FEEDS_HOLD = Bar("at most", feeds.SILENT + 100, "MB")
"""A MiB for each silent reader, and the page caches of the store's connections."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rounds: int
    runs: int
    """In the table while transitions are compared."""
    alone: int
    """Transitions in a row by one coroutine."""
    together: int
    """Transitions by many coroutines, all counted."""
    waiting: tuple[int, ...]
    existing: int
    registry: tuple[tuple[int, int], ...]
    """Runs in the JSON file, changes made to it."""
    starts: int
    children: tuple[int, ...]
    widths: tuple[int, ...]
    streamed: tuple[streaming.Plan, ...]
    paced: tuple[streaming.Plan, ...]
    """Many at once, each chunk in its own time."""
    sdk: Literal["make", "none"]
    """Whether the official SDKs are installed if they are missing, or not even looked for."""
    streams: int
    streaming_s: float
    crowds: int
    """How often a crowd is watched."""
    sessions: tuple[int, ...]
    turns: int
    """At least so many in a round, however few sessions there are."""
    families: tuple[int, ...]
    """How many children one conversation has, as users have them."""
    answers: int
    """How often a spawn and a delivery are timed."""
    unfinished: int
    page_kb: int
    nesting: int
    """How many open elements a deeply nested page has, and then twice as many."""
    hostile_mb: int
    peers: int
    """Children of other libraries; 0: they are not even looked for."""
    terminal_s: float
    """How long a terminal is watched while an answer streams into it, and then stalled."""
    listed: int
    """Runs in the table of the web page."""
    events: int
    """Of runs, which a feed reads from the first one on."""
    entries: int
    """In the conversation that it shows."""


FULL = Sizes(
    rounds=ROUNDS,
    runs=1000,
    alone=2000,
    together=40_000,
    waiting=(1, 100, 1000),
    existing=100_000,
    registry=((1000, 50), (10_000, 20)),
    starts=9,
    children=(100, 1000),
    widths=(8, 1000),
    streamed=(streaming.Plan(22, 150), streaming.Plan(202, 50)),
    paced=(streaming.Plan(22, 300, "30hz", 100),),
    sdk="make",
    streams=1000,
    streaming_s=10.0,
    crowds=ROUNDS,
    sessions=(100, 1000),
    turns=1000,
    families=(100, 1000, 10_000),
    answers=300,
    unfinished=10_000,
    page_kb=500,
    nesting=2000,
    hostile_mb=5,
    peers=100,
    terminal_s=10.0,
    listed=10_000,
    events=1_000_000,
    entries=5000,
)
QUICK = Sizes(
    rounds=ROUNDS,
    runs=1000,
    alone=100,
    together=10_000,
    waiting=(1, 100, 1000),
    existing=10_000,
    registry=((1000, 10), (10_000, 4)),
    starts=5,
    children=(100, 300),
    widths=(8, 1000),
    streamed=(streaming.Plan(22, 60), streaming.Plan(202, 20)),
    paced=(),
    sdk="make",
    streams=1000,
    streaming_s=4.0,
    crowds=1,
    sessions=(100, 1000),
    turns=500,
    families=(100, 1000),
    answers=100,
    unfinished=2000,
    page_kb=100,
    nesting=2000,
    hostile_mb=1,
    peers=100,
    terminal_s=4.0,
    listed=2000,
    events=200_000,
    entries=1000,
)


def compared(sizes: Sizes) -> Iterator[Line]:
    """Transitions of fledge's store beside the bare loop's."""
    for waiting in sizes.waiting:
        each = sizes.alone if waiting == 1 else max(2, sizes.together // waiting)
        ours: list[Rate] = []
        blind: list[Rate] = []
        loading: list[Rate] = []
        for _ in range(sizes.rounds):
            blind.append(transitions.group_commit(waiting, each, sizes.runs))
            ours.append(transitions.fledge(waiting, each, sizes.runs))
            loading.append(transitions.group_commit(waiting, each, sizes.runs, "loading"))
        mine, yardstick, other = (median_rate(rates) for rates in (ours, blind, loading))
        bar = HALF_THE_BARE_LOOP if waiting > 1 else None
        ratio, against_other = mine.per_s / yardstick.per_s, mine.per_s / other.per_s
        yield Line(f"transitions, {waiting} waiting / bare group commit", str(mine), str(yardstick), ratio, bar)
        yield Line("  / one that also loads and re-encodes the row", str(mine), str(other), against_other)


def aged(sizes: Sizes) -> Iterator[Line]:
    """Transitions beside many older runs, and beside none."""
    waiting = max(sizes.waiting)
    each = max(2, sizes.together // waiting)
    found = transitions.growth(sizes.existing, waiting, each, sizes.rounds)
    empty, full, spread = (median_rate(rates) for rates in (found.empty, found.full, found.spread))
    beside = f"{sizes.existing:,} older runs"
    yield Line(
        f"CPU a transition, {waiting} waiting, {beside} / none", str(full), str(empty), full.cpu_us / empty.cpu_us, FLAT
    )
    yield Line("  by the clock", f"{full.per_s:,.0f}/s", f"{empty.per_s:,.0f}/s", empty.per_s / full.per_s)
    yield Line("  CPU, of runs spread evenly among the old", str(spread), str(empty), spread.cpu_us / empty.cpu_us)
    yield Line("  making them", f"{sizes.existing / found.populate_s:,.0f} runs/s  {found.file_mb:,.0f} MB on disk")


def rewritten(sizes: Sizes) -> Iterator[Line]:
    """The JSON file that many know, beside fledge with one coroutine and as many runs."""
    for runs, changes in sizes.registry:
        registry = transitions.json_registry(runs, changes)
        mine = transitions.fledge(1, changes, runs)
        yield Line(
            f"CPU a transition, {runs:,} runs, JSON file rewritten / fledge",
            str(registry),
            str(mine),
            registry.cpu_us / mine.cpu_us,
        )


def started(sizes: Sizes) -> Iterator[Line]:
    """What imports and the console script cost over an interpreter that does nothing."""
    found = imports.start_ms(sizes.starts)
    nothing = found.pop("pass") or 0.0
    for name, took in found.items():
        if took is None:
            yield Line(name, "does not run", f"{nothing:.0f} ms CPU (pass)")
            continue
        yield Line(name, f"{took:.0f} ms CPU", f"{nothing:.0f} ms CPU (pass)", took - nothing, START.get(name), "ms")


def lived(sizes: Sizes) -> Iterator[Line]:
    """Whole lives through the engine beside the floor."""
    for number in sizes.children:
        for width in sizes.widths:
            short, alike, floor = [], [], []
            for _ in range(sizes.rounds):
                short.append(lives.live(number, width))
                alike.append(lives.live(number, width, lives.FLOOR_STEPS))
                floor.append(lives.floor(number, width))
            mine, same, bottom = (lives.median_lives(found) for found in (short, alike, floor))
            a_commit = mine.cpu_us_a_commit / bottom.cpu_us_a_commit
            a_child = same.cpu_ms_a_child / bottom.cpu_ms_a_child
            yield Line(f"{number} lives, {width} at once, CPU a commit / floor", str(mine), str(bottom), a_commit)
            yield Line("  with the floor's two steps, CPU a child / floor", str(same), str(bottom), a_child)


def raised(sizes: Sizes) -> Iterator[Line]:
    """Whole children of one conversation beside the floor, each in a process of its own; and many beside few."""
    for width in sizes.widths:
        found: dict[int, lives.Lives] = {}
        for number in sizes.families:
            ours, floor = [], []
            for _ in range(_rounds_of(number, sizes)):
                ours.append(children.live_apart(number, width))
                floor.append(lives.floor(number, width))
            mine, bottom = lives.median_lives(ours), lives.median_lives(floor)
            found[number] = mine
            ratio = mine.cpu_ms_a_child / bottom.cpu_ms_a_child
            shown, beside = (
                f"{middle}, {_spread([one.cpu_ms_a_child for one in rounds])}"
                for middle, rounds in ((mine, ours), (bottom, floor))
            )
            yield Line(f"{number:,} children, {width} at once, CPU / floor", shown, beside, ratio, SIX_FLOORS)
            if width == number == 1000:
                watched = [children.live_apart(number, width, with_lag=True) for _ in range(sizes.rounds)]
                lag = median(one.lag_p99_ms for one in watched)
                yield Line("  lag of the loop, p99", f"{lag:.0f} ms", "", lag, AT_ONCE, "ms")
        few, many = found[min(found)], found[max(found)]
        growth = many.cpu_ms_a_child / few.cpu_ms_a_child
        what = f"  CPU a child, {many.children:,} children / {few.children:,}"
        yield Line(what, f"{many.cpu_ms_a_child:.2f} ms", f"{few.cpu_ms_a_child:.2f} ms", growth, FLAT)


def _rounds_of(number: int, sizes: Sizes) -> int:
    """The fewer children, the more rounds: short runs differ most."""
    return max(sizes.rounds, min(3 * sizes.rounds, 5000 // number))


def on_a_server(sizes: Sizes) -> Iterator[Line]:
    """Whole children on PostgreSQL beside the embedded store; nothing where no server is named."""
    url, number, width = postgres.server(), max(sizes.children), 64
    if not url:
        print("  FLEDGE_POSTGRES names no server: nothing is measured")
        return
    children.live(min(sizes.families), width)  # what the first child imports is on nobody's bill
    ours, embedded = [], []
    for _ in range(sizes.rounds):
        ours.append(postgres.live(url, number, width))
        embedded.append(children.live(number, width))
    mine, beside = lives.median_lives(ours), lives.median_lives(embedded)
    ratio = mine.cpu_ms_a_child / beside.cpu_ms_a_child
    yield Line(f"{number:,} children on PostgreSQL / SQLite, client CPU", str(mine), str(beside), ratio, THREE_EMBEDDED)
    yield from _several_workers(sizes, url, number, beside.cpu_ms_a_child)
    with delayed(url, LATENCY_MS) as far:
        away = lives.median_lives([postgres.live(far, number, width) for _ in range(sizes.rounds)])
        rate, near = number / away.wall_s, number / mine.wall_s
        yield Line(f"  {LATENCY_MS:g} ms further away, children a second", f"{rate:.0f}", f"{near:.0f}", rate / near)
        for workers in (1, 2, 4):
            rate = _rate(sizes, far, workers, number)
            what = f"  {LATENCY_MS:g} ms further away, children a second, workers: {workers}"
            yield Line(what, f"{rate:.0f}", value=rate, bar=NO_SHARDS, unit="/s")


def _rate(sizes: Sizes, url: str, workers: int, number: int) -> float:
    """Children a second by so many workers, 64 at once."""
    return median(number / postgres_workers.family(url, workers, number, 64).wall_s for _ in range(sizes.rounds))


def _several_workers(sizes: Sizes, url: str, number: int, embedded_ms: float) -> Iterator[Line]:
    """Several worker processes on one server."""
    rounds = range(sizes.rounds)
    pair = sorted((postgres_workers.family(url, 2, number, 64) for _ in rounds), key=lambda one: one.cpu_s)
    two = pair[len(pair) // 2]
    ratio = two.cpu_ms_a_child / embedded_ms
    yield Line("  two workers / SQLite, client CPU", str(two), f"{embedded_ms:.2f} ms/child", ratio, FIVE_EMBEDDED)
    alone, *rates = (_rate(sizes, url, workers, number) for workers in (1, 2, 4))
    yield Line("  children a second, two workers / one", f"{rates[0]:.0f}", f"{alone:.0f}", rates[0] / alone)
    yield Line("  children a second, four workers / one", f"{rates[1]:.0f}", f"{alone:.0f}", rates[1] / alone)
    took = median(postgres_workers.ending_at_once(url, 4, number) for _ in rounds)
    what = f"  {number:,} children of one parent end at once, four workers"
    yield Line(what, f"{took:.2f} s", value=took, bar=FULL_LANES, unit="s")
    slow = min(number, 400)
    one, four = (
        median(postgres_workers.family(url, workers, slow, 8 * workers, 200).wall_s for _ in rounds)
        for workers in (1, 4)
    )
    yield Line(
        "  a model of 200 ms, 8 at once for each worker, four / one",
        f"{four:.2f} s",
        f"{one:.2f} s",
        four / one,
        A_THIRD,
    )
    p95 = percentile([took for _ in rounds for took in postgres_workers.takeovers(url, 8)], 95)
    yield Line("  kill -9 of a worker to its work in another, p95", f"{p95:.1f} s", value=p95, bar=TAKEN_OVER, unit="s")
    p95 = percentile([took for _ in rounds for took in postgres_workers.takeovers(url, 8, elsewhere=True)], 95)
    what = "  kill -9 of a worker to its work on another machine, p95"
    yield Line(what, f"{p95:.1f} s", value=p95, bar=TAKEN_OVER, unit="s")
    p95 = percentile(postgres_workers.kills(url, sizes.answers), 95)
    yield Line("  kill to a driver in another process, p95", f"{p95:.0f} ms", value=p95, bar=REACHED, unit="ms")
    share = postgres_workers.idle_percent(url)
    yield Line("  CPU of a worker with nothing to do", f"{share:.2f} %", value=share, bar=IDLE, unit="%")


def answered(sizes: Sizes) -> Iterator[Line]:
    """How soon a spawn is accepted, and how soon a child's answer is in an idle conversation's transcript."""
    rounds = [children.latencies(sizes.answers) for _ in range(sizes.rounds)]
    commit_ms, spawn_ms, p50_ms = (
        median(percentile(took, 50) for took in figures)
        for figures in (
            [one.commits for one in rounds],
            [one.spawns for one in rounds],
            [one.deliveries for one in rounds],
        )
    )
    spawn_p99_ms = median(percentile(one.spawns, 99) for one in rounds)
    p99_ms = median(percentile(one.deliveries, 99) for one in rounds)
    alone = f"{commit_ms:.2f} ms"
    shown = f"p50 {spawn_ms:.2f} p99 {spawn_p99_ms:.1f} ms"
    yield Line("spawn() returns, p50 / a lone commit", shown, alone, spawn_ms / commit_ms, THREE_COMMITS)
    shown = f"p50 {p50_ms:.2f} p99 {p99_ms:.1f} ms"
    yield Line(
        "child's last word → idle transcript, p50 / a lone commit", shown, alone, p50_ms / commit_ms, SIX_COMMITS
    )
    yield Line("  p99", f"{p99_ms:.1f} ms", "", p99_ms, AT_ONCE, "ms")


def restarted(sizes: Sizes) -> Iterator[Line]:
    """A new process on what a killed one left."""
    for width in sizes.widths:
        found = [restart.restart(sizes.unfinished, width) for _ in range(sizes.rounds)]
        first_s, full_s = median(x.first_s for x in found), median(x.full_s for x in found)
        what = f"restart, {sizes.unfinished:,} unfinished, {width} at once: first model call"
        yield Line(what, f"{first_s:.2f} s", "", first_s, RESUMED, "s")
        yield Line("  lane full", f"{full_s:.2f} s", "", full_s, FULL_LANES, "s")


def pages_read(sizes: Sizes) -> Iterator[Line]:
    """Our reader of HTML beside other parsers, and what hostile pages cost it."""
    others = {name: read for name, read in pages.OTHERS.items() if pages.name_of(name)}
    found = pages.costs({"fledge": pages.ours, **others}, sizes.page_kb, sizes.nesting, sizes.rounds)
    mine = found.pop("fledge")
    imported = pages.import_ms("lxml.etree", sizes.starts)
    for name, cost in found.items():
        is_std = name == "html.parser"
        what = f"CPU a page of {sizes.page_kb} kB, fledge / {pages.name_of(name)}"
        shown = f"{mine.page_ms:.1f} ms", f"{cost.page_ms:.1f} ms"
        yield Line(what, *shown, mine.page_ms / cost.page_ms, NO_SLOWER if is_std else None)
        theirs = pages.import_ms(pages.MODULES.get(name, name), sizes.starts)
        yield Line("  import", f"{imported:.0f} ms CPU", f"{theirs:.0f} ms CPU", imported - theirs, None, "ms")
        what = f"  CPU of {2 * sizes.nesting:,} nested elements / {sizes.nesting:,}"
        yield Line(what, f"{mine.nested:.2f}×", f"{cost.nested:.2f}×", mine.nested, LINEAR if is_std else None)
    for name in (name for name in pages.OTHERS if name not in others):
        yield Line(f"CPU a page, fledge / {name}", "not measured", "not installed")
    cpu, piece, memory = pages.worst(sizes.hostile_mb)
    yield Line(
        f"hostile page of {sizes.hostile_mb} MB, the slowest of {len(pages.HOSTILE)}",
        f"{cpu:.2f} s CPU",
        repr(piece),
        cpu,
        GIVEN_UP,
        "s",
    )
    yield Line("  the most memory one took", f"{memory:.0f} MB", "", memory, HOLDS_LITTLE, "MB")


def compared_with_peers(sizes: Sizes) -> Iterator[Line]:
    """Other libraries beside ours, where they are installed."""
    if not sizes.peers:
        return
    width = max(sizes.widths)
    for way in libraries.ways(sizes.peers):
        peer = libraries.measured(way, sizes.rounds, lambda: children.live(sizes.peers, width).cpu_ms_a_child)
        what = f"CPU a child, {sizes.peers} children, {peer.what} / fledge"
        if peer.theirs_ms:
            theirs = f"{_spread(peer.theirs_ms)} ({peer.library})"
            yield Line(what, theirs, _spread(peer.ours_ms), peer.ratio, MORE_THAN_OURS)
        else:
            yield Line(what, peer.library)


def _spread(rounds_ms: Sequence[float]) -> str:
    return f"{min(rounds_ms):.2f} to {max(rounds_ms):.2f} ms"


def streamed(sizes: Sizes) -> Iterator[Line]:
    """Streamed calls of fledge's adapters beside the official SDKs."""
    sdk = streaming.made_sdk() if sizes.sdk == "make" else None
    for protocol in streaming.PROTOCOLS:
        for found in streaming.streamed(protocol, (*sizes.streamed, *sizes.paced), sizes.rounds, sdk):
            plan, ours = found.plan, f"{found.fledge_ms:.2f} ms"
            if plan in sizes.paced:
                what, bar = f"  {plan.at_once} at once, {plan.events} chunks, {plan.manner}", None
            else:
                what = f"CPU a streamed call, {plan.events} chunks, {streaming.WIRES[protocol]} SDK / fledge"
                bar = A_SIXTH_OF_THE_SDK
            if found.sdk_ms is None:
                yield Line(what, "not measured", ours, None, bar)
            else:
                theirs = f"{found.sdk_ms:.2f} ms ({found.sdk_name})"
                yield Line(what, theirs, ours, found.sdk_ms / found.fledge_ms, bar)


def streamed_children(sizes: Sizes) -> Iterator[Line]:
    """Whole children whose model streams, beside the same with a scripted model."""
    for plan in sizes.streamed:
        found = streaming_children.compared(plan.events, sizes.peers or 10, sizes.rounds)
        what = f"CPU a child, {plan.events} chunks a reply / scripted"
        ratio = found.streamed_ms / found.scripted_ms
        yield Line(what, f"{found.streamed_ms:.2f} ms", f"{found.scripted_ms:.2f} ms", ratio)


def crowded(sizes: Sizes) -> Iterator[Line]:
    """Many streams into one process on one core."""
    found = [crowd.crowd(sizes.streams, sizes.streaming_s) for _ in range(sizes.crowds)]
    lag_ms, rss_mb = median(x.lag_p99_ms for x in found), median(x.rss_mb for x in found)
    shown = min(found, key=lambda x: abs(x.lag_p99_ms - lag_ms))
    late = f"served p99 {shown.served_late_ms:.0f} ms late"
    # Where the servers themselves were late, the machine is too busy for the figure to mean anything.
    lag = lag_ms if shown.served_late_ms <= crowd.LATE_MS else None
    measured = str(shown) if lag is not None else "not measured: the machine is busy"
    yield Line(f"{sizes.streams} streams at once, lag of the loop, p99", measured, late, lag, PROMPT, "ms")
    yield Line("  the most memory it held", f"{rss_mb:.0f} MB", "", rss_mb, SMALL, "MB")


def turned(sizes: Sizes) -> Iterator[Line]:
    """Durable turns beside the floor's share, and many beside few."""
    turns.turns(min(sizes.sessions))  # what is imported and compiled at the first turn is on nobody's bill
    ours: dict[int, list[turns.Turns]] = {sessions: [] for sessions in sizes.sessions}
    floors: dict[int, list[float]] = {sessions: [] for sessions in sizes.sessions}
    for _ in range(sizes.rounds):
        for sessions in sizes.sessions:
            for _ in range(max(1, sizes.turns // sessions)):
                ours[sessions].append(turns.turns(sessions))
                floors[sessions].append(turns.floor_ms(sessions))
    for sessions in sizes.sessions:
        mine, what = (
            turns.median_turns(ours[sessions]),
            f"durable turn, {sessions} sessions at once, CPU / floor's 4 of 6",
        )
        share = median(floors[sessions])
        yield Line(what, str(mine), f"{share:.3f} ms", mine.cpu_ms_a_turn / share, SIX_FLOORS)
    few, many = (turns.median_turns(ours[sessions]) for sessions in (min(sizes.sessions), max(sizes.sessions)))
    growth = many.cpu_ms_a_turn / few.cpu_ms_a_turn
    beside = f"{few.cpu_ms_a_turn:.2f} ms"
    what = f"  CPU a turn, {many.sessions} sessions / {few.sessions}"
    yield Line(what, f"{many.cpu_ms_a_turn:.2f} ms", beside, growth, FLAT)


def in_a_terminal(sizes: Sizes) -> Iterator[Line]:
    """The chat's screen in a terminal while an answer streams, and while the terminal takes no bytes."""
    streamed = terminal.streamed(sizes.terminal_s)
    beside = f"{streamed.words} words at {terminal.RATE:g} a second"
    yield Line("CPU a word streamed into a terminal", str(streamed), beside, streamed.cpu_ms, CHEAP_WORDS, "ms")
    yield Line("  bytes a word", f"{streamed.bytes_a_word:.0f} bytes", "", streamed.bytes_a_word, FEW_BYTES, "bytes")
    yield Line("  key to echo, p95", f"{len(streamed.echoes_ms)} keys", "", streamed.echo_p95_ms, ECHOED, "ms")
    lag_ms = terminal.stalled(sizes.terminal_s)
    what = f"  terminal stalled for {sizes.terminal_s:g} s, lag of the loop"
    yield Line(what, f"{lag_ms:.0f} ms", "", lag_ms, PROMPT, "ms")
    chat_ms = terminal.start_ms(sizes.starts)
    if chat_ms is not None:
        nothing = imports.nothing_ms(sizes.starts)
        took = f"{chat_ms:.0f} ms CPU"
        yield Line("  start of the chat", took, f"{nothing:.0f} ms CPU (pass)", chat_ms - nothing, TALKING, "ms")


def on_the_page(sizes: Sizes) -> Iterator[Line]:
    """The web page in a browser, with many runs and a long conversation."""
    cost = web.measured(sizes.listed, sizes.entries, sizes.rounds)
    if cost is None:
        yield Line("the web page", "not measured", "there is no chromium")
        return
    runs, entries = f"{sizes.listed:,} runs", f"{sizes.entries:,} entries"
    what = f"web page, {runs}: CPU until the first is shown"
    yield Line(what, f"{cost.runs_ms:.0f} ms", "page and gateway", cost.runs_ms, FIRST_SHOWN, "ms")
    many_ms, few_ms = cost.runs_wall_ms, cost.few_wall_ms
    beside = f"{few_ms:.0f} ms with {web.LIVED} runs"
    yield Line("  time until then", f"{many_ms:.0f} ms", beside, many_ms / few_ms, NEARLY_FLAT)
    yield Line("  elements", f"{cost.runs_nodes:,}", "all read", cost.runs_nodes, FEW_NODES, "elements")
    yield Line("  CPU of a filter", f"{cost.filter_ms:.0f} ms", "page", cost.filter_ms, FILTERED, "ms")
    what = f"web page, {entries}: CPU until the newest are shown"
    yield Line(what, f"{cost.chat_ms:.0f} ms", "page and gateway", cost.chat_ms, FIRST_SHOWN, "ms")
    yield Line("  elements", f"{cost.chat_nodes:,}", "", cost.chat_nodes, FEW_NODES, "elements")


def fed(sizes: Sizes) -> Iterator[Line]:
    """`/health` and a turn beside readers of feeds."""
    cost = feeds.measured(sizes.events, sizes.rounds)
    what = f"/health beside {feeds.SILENT} silent feeds and one of {sizes.events:,} events / alone"
    shown = f"{cost.health_ms:.1f} ms", f"{cost.health_alone_ms:.1f} ms"
    yield Line(what, *shown, cost.health_ms / cost.health_alone_ms, BESIDE_FEEDS)
    shown = f"{cost.turn_ms:.1f} ms", f"{cost.turn_alone_ms:.1f} ms"
    yield Line("  a turn", *shown, cost.turn_ms / cost.turn_alone_ms, TURN_BESIDE_FEEDS)
    yield Line("  memory of the gateway", f"{cost.grown_mb:.0f} MB more", "", cost.grown_mb, FEEDS_HOLD, "MB")


def with_history(sizes: Sizes) -> Iterator[Line]:
    """Looking and talking in a folder with many finished runs, beside one with few."""
    many, few = growth.measured(sizes.existing, sizes.rounds)
    what = f"opening a folder with {sizes.existing:,} finished runs"
    yield Line(what, f"{many.opening:.0f} ms", f"{few.opening:.0f} ms without", many.opening, OPENED, "ms")
    for what, name, bar in (
        ("CPU a page of runs", "page", NEARLY_FLAT),
        ("  a page of sessions", "sessions", NEARLY_FLAT),
        ("  what agents did in a week", "week", NEARLY_FLAT),
        ("  a turn of their conversation", "turn", FLAT),
        ("  fledge ps", "ps", NEARLY_FLAT),
    ):
        mine, beside = getattr(many, name), getattr(few, name)
        line = f"{what}, {sizes.existing:,} finished runs more / none"
        yield Line(line, f"{mine:.2f} ms", f"{beside:.2f} ms", mine / beside, bar)


PARTS = {
    "transitions": compared,
    "aged": aged,
    "json": rewritten,
    "start": started,
    "lives": lived,
    "children": raised,
    "postgres": on_a_server,
    "answers": answered,
    "restart": restarted,
    "streams": streamed,
    "streaming-children": streamed_children,
    "crowd": crowded,
    "turns": turned,
    "html": pages_read,
    "growth": with_history,
    "terminal": in_a_terminal,
    "page": on_the_page,
    "feeds": fed,
    "peers": compared_with_peers,
}


def measured(sizes: Sizes, only: Sequence[str] = ()) -> list[Line]:
    """All lines of these parts, or of all, in order; each part's name is printed when it begins."""
    lines: list[Line] = []
    for part in (part for name, part in PARTS.items() if not only or name in only):
        print(f"… {part.__name__}", flush=True)
        lines.extend(part(sizes))
    return lines


def keep(lines: list[Line], sizes: Sizes, wall_s: float, folder: Path = RESULTS) -> Path:
    """Write the table and what it depends on as JSON; answers the file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    found = [asdict(line) | {"verdict": line.verdict} for line in lines]
    kept = {"machine": machine(), "sizes": asdict(sizes), "wall_s": wall_s, "lines": found}
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return path


def report(sizes: Sizes, folder: Path = RESULTS, only: Sequence[str] = ()) -> int:
    """Measure, print the table, keep it; answers how many bars failed."""
    # Where Python writes no bytecode (PYTHONDONTWRITEBYTECODE), every process would compile what has changed.
    compileall.compile_dir(Path(fledge.__file__).parent, quiet=2)
    with Meter() as m:
        lines = measured(sizes, only)
    failed = sum(line.verdict == "FAIL" for line in lines)
    print(table(lines))
    print("µs and ms are CPU of all threads, except p50 and p99; value: measured / beside, or the difference in ms")
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print(f"{m.wall_s:.0f} s; {failed} of {sum(bool(line.verdict) for line in lines)} bars failed")
    print(f"kept in {keep(lines, sizes, m.wall_s, folder)}")
    return failed


def main(arguments: list[str]) -> int:
    """The exit code: 1 if a bar failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="What fledge costs, and whether bars hold.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, about two minutes")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), metavar="PART", default=(), help=", ".join(PARTS))
    asked = parser.parse_args(arguments)
    return 1 if report(QUICK if asked.quick else FULL, only=asked.only) else 0
