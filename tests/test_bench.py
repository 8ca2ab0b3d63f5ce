"""The benchmark runs and prints; whether bars hold is for `python -m bench` to say, never for a test."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench import children, crowd, instructions, lives, run, sse_server, streaming, turns
from bench.measure import Bar, Line, Meter, Rate, filesystem_of, median_rate, percentile, table
from bench.peers import libraries
from bench.peers.__main__ import main as peers_main

TINY = run.Sizes(
    rounds=1,
    runs=50,
    alone=4,
    together=100,
    waiting=(1, 50),
    existing=50,
    registry=((50, 2),),
    starts=1,
    children=(50,),
    widths=(8,),
    streamed=(streaming.Plan(10, 2),),
    paced=(streaming.Plan(10, 4, "60hz", 2),),
    sdk="none",
    streams=5,
    streaming_s=0.5,
    crowds=1,
    sessions=(2, 4),
    turns=4,
    families=(10, 20),
    answers=3,
    unfinished=20,
    page_kb=10,
    nesting=100,
    hostile_mb=1,
    peers=0,
    terminal_s=0.5,
    listed=20,
    events=600,
    entries=20,
)


def test_every_part_of_the_table_is_measured_printed_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = run.report(TINY, tmp_path)
    printed = capsys.readouterr().out
    (kept,) = tmp_path.glob("*.json")
    lines = json.loads(kept.read_text("utf-8"))["lines"]
    assert [line["what"] for line in lines if line["bar"]] == [
        "transitions, 50 waiting / bare group commit",
        "CPU a transition, 50 waiting, 50 older runs / none",
        "import fledge",
        "fledge --help",
        "fledge ps, a folder that no process holds",
        "fledge ps, through the holder's socket",
        *(f"{number} children, 8 at once, CPU / floor" for number in (10, 20)),
        "  CPU a child, 20 children / 10",
        "spawn() returns, p50 / a lone commit",
        "child's last word → idle transcript, p50 / a lone commit",
        "  p99",
        "restart, 20 unfinished, 8 at once: first model call",
        "  lane full",
        "CPU a streamed call, 10 chunks, openai SDK / fledge",
        "CPU a streamed call, 10 chunks, openai (responses) SDK / fledge",
        "CPU a streamed call, 10 chunks, anthropic SDK / fledge",
        "5 streams at once, lag of the loop, p99",
        "  the most memory it held",
        *(f"durable turn, {sessions} sessions at once, CPU / floor's 4 of 6" for sessions in (2, 4)),
        "  CPU a turn, 4 sessions / 2",
        "CPU a page of 10 kB, fledge / html.parser",
        "  CPU of 200 nested elements / 100",
        "hostile page of 1 MB, the slowest of 11",
        "  the most memory one took",
        "opening a folder with 50 finished runs",
        "CPU a page of runs, 50 finished runs more / none",
        "  a page of sessions, 50 finished runs more / none",
        "  what agents did in a week, 50 finished runs more / none",
        "  a turn of their conversation, 50 finished runs more / none",
        "  fledge ps, 50 finished runs more / none",
        "CPU a word streamed into a terminal",
        "  bytes a word",
        "  key to echo, p95",
        "  terminal stalled for 0.5 s, lag of the loop",
        "  start of the chat",
        "web page, 20 runs: CPU until the first is shown",
        "  time until then",
        "  elements",
        "  CPU of a filter",
        "web page, 20 entries: CPU until the newest are shown",
        "  elements",
        "/health beside 30 silent feeds and one of 600 events / alone",
        "  a turn",
        "  memory of the gateway",
    ]
    assert failed == sum(line["verdict"] == "FAIL" for line in lines)
    assert all(line["what"] in printed for line in lines)


def test_a_life_without_steps_takes_spawn_end_and_its_share_of_claims_and_readings() -> None:
    found = lives.live(children=50, width=1000)
    assert 2 * 50 < found.commits <= 3 * 50


def test_a_child_takes_four_commits_and_its_share_of_claims_and_readings_and_is_driven_without_a_look() -> None:
    found = children.live(children=50, width=1000)
    assert 4 * 50 < found.commits <= 4.5 * 50
    assert found.reads < 50


def test_the_lag_of_the_loop_is_watched_only_where_that_is_asked_for() -> None:
    assert children.live(children=20, width=1000).lag_p99_ms == 0
    assert children.live_apart(children=20, width=1000, with_lag=True).lag_p99_ms > 0


def test_instructions_are_counted_by_thread_and_threads_that_ran_nothing_are_none(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    (tmp_path / "out-01").write_text("version: 1\nevents: Ir\nfn=(1)\n12 3000\nsummary: 0\ntotals: 6000000\n")
    (tmp_path / "out-02").write_text("version: 1\nevents: Ir\ntotals: 0\n")
    assert instructions.millions(tmp_path, children=3) == [2.0]


def test_without_valgrind_the_command_that_installs_it_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.instructions"]
    done = subprocess.run(command, cwd=lives.ROOT, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "valgrind is missing: install it (Debian: apt-get install valgrind)\n"


@pytest.mark.parametrize("arguments", [["300"], ["0", "8"], ["many", "8"], ["300", "8", "9"]])
def test_instructions_of_no_number_of_children_are_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match=r"usage: python -m bench\.instructions"):
        instructions.main(arguments)


def test_the_floor_makes_at_most_six_commits_a_child() -> None:
    found = lives.floor(50, 8)
    assert (found.children, found.width) == (50, 8)
    assert 0 < found.writes <= 6 * 50
    assert found.cpu_s > 0


def test_parts_of_the_table_can_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run.report(TINY, tmp_path, only=["json"])
    said = capsys.readouterr().out
    assert "… rewritten\n" in said
    assert "… crowded\n" not in said


def test_peers_that_are_not_there_are_named_with_the_command_that_installs_them(tmp_path: Path) -> None:
    found = [libraries.measured(way, 1, lambda: 1.0) for way in libraries.ways(1, tmp_path)]
    assert found == [
        libraries.Measured(peer.name, f"not installed: python -m bench.peers install {peer.name}")
        for peer in libraries.PEERS
    ]


def interpreter(folder: Path, peer: str, script: str) -> None:
    """An environment of this library whose Python is a script."""
    python = folder / peer / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    python.chmod(0o755)


def test_a_peer_is_measured_in_its_own_environment_by_a_program_that_is_there(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    result = json.dumps({"library": "it 1.0", "cpu_ms": 2.5})
    for peer in libraries.PEERS:
        interpreter(tmp_path, peer.name, f"""echo "$@" >> {asked}; echo 'RESULT {result}'""")
    ours = iter(range(1, 1000))
    found = [libraries.measured(way, 2, lambda: float(next(ours))) for way in libraries.ways(7, tmp_path)]
    assert {(one.theirs_ms, one.library) for one in found} == {((2.5, 2.5), "it 1.0")}
    assert [one.ours_ms for one in found] == [(2 * n + 1.0, 2 * n + 2.0) for n in range(len(found))]
    assert found[0].ratio == 2.5 / 1.5
    commands = [line.split() for line in asked.read_text("utf-8").splitlines()]
    assert len(commands) == 2 * len(found) == 2 * sum(len(peer.ways) for peer in libraries.PEERS)
    for _, _, module, *_, number in commands:
        assert (libraries.ROOT / (module.replace(".", "/") + ".py")).is_file()
        assert number == "7"


def test_a_peer_that_fails_is_named_with_its_last_line(tmp_path: Path) -> None:
    interpreter(tmp_path, "nanobot", "echo first >&2; echo it broke >&2; exit 1")
    (way,) = (one for one in libraries.ways(1, tmp_path) if one.what.startswith("nanobot, "))
    assert libraries.measured(way, 1, lambda: 1.0) == libraries.Measured(way.what, "not measured: it broke")


def test_an_unknown_peer_is_refused_before_anything_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        peers_main(["install", "nano"])
    assert "no such library: nano (there are openai-agents, " in capsys.readouterr().err


def test_without_an_sdk_its_lines_say_so_and_their_bars_fail() -> None:
    lines = list(run.streamed(TINY))
    assert [(line.measured, line.value, line.verdict) for line in lines] == [
        ("not measured", None, "FAIL"),
        ("not measured", None, ""),
    ] * 3


@pytest.mark.parametrize("protocol", streaming.PROTOCOLS)
@pytest.mark.parametrize("events", [9, 22])
def test_a_rendered_reply_has_so_many_events_however_many_writes_it_takes(
    protocol: sse_server.Protocol, events: int
) -> None:
    whole = sse_server.rendered(protocol, events, 1)
    in_three, each = sse_server.rendered(protocol, events, 3), sse_server.rendered(protocol, events, events)
    assert (len(whole), len(in_three), len(each)) == (1, 3, events)
    assert b"".join(in_three) == b"".join(each) == whole[0]
    assert whole[0].count(b"data: {") == events
    # The last events of the responses protocol repeat the whole text: four times in all.
    times = 5 if protocol == "responses" else 1
    assert whole[0].count(sse_server.WORD.encode()) == times * sse_server.words_in(protocol, events)


@pytest.mark.parametrize("protocol", streaming.PROTOCOLS)
@pytest.mark.parametrize("manner", ["1", "3", "each", "60hz"])
def test_the_adapters_hear_every_word_in_whatever_manner_it_is_sent(protocol: sse_server.Protocol, manner: str) -> None:
    with sse_server.running() as (server,):
        plan = streaming.Plan(10, 4, manner, at_once=2)
        assert asyncio.run(streaming.cpu_ms_a_call("fledge", protocol, server, plan)) > 0


def test_a_crowd_is_watched_while_all_of_it_streams() -> None:
    found = crowd.crowd(streams=5, seconds=0.5)
    assert found.streams == 5
    assert 0 < found.measured_s < crowd.TIMEOUT_S
    assert 0 <= found.lag_p50_ms <= found.lag_p99_ms <= found.lag_max_ms
    assert found.chunks_per_s > 0
    assert found.rss_mb > 0


def test_a_durable_turn_takes_three_commits_its_share_of_the_claims_and_at_most_one_that_only_looks() -> None:
    found = turns.turns(3)
    assert 3 * 3 + 1 < found.commits <= 3 * 5 + 1  # the one by which the engine takes over included


@pytest.mark.parametrize(
    ("sense", "value", "verdict"),
    [
        ("at least", 0.5, "PASS"),
        ("at least", 0.499, "FAIL"),
        ("at most", 0.5, "PASS"),
        ("at most", 0.501, "FAIL"),
    ],
)
def test_a_bar_holds_at_its_limit_and_fails_beyond_it(sense: str, value: float, verdict: str) -> None:
    bar = Bar("at least" if sense == "at least" else "at most", 0.5)
    assert Line("x", "1", "2", value, bar).verdict == verdict


def test_what_could_not_be_measured_keeps_no_bar() -> None:
    assert Line("x", "not measured", "2", None, Bar("at least", 8)).verdict == "FAIL"


def test_a_line_without_a_bar_has_no_verdict() -> None:
    assert Line("x", "1", "2", 9.9).verdict == ""


@pytest.mark.parametrize(("percent", "value"), [(0, 1.0), (50, 2.0), (51, 3.0), (75, 3.0), (99, 4.0), (100, 4.0)])
def test_a_percentile_is_the_nearest_rank(percent: float, value: float) -> None:
    assert percentile([4.0, 2.0, 1.0, 3.0], percent) == value


def test_a_rate_is_counted_by_wall_and_by_cpu_and_its_median_is_taken_figure_by_figure() -> None:
    rounds = [Rate(2, 100, wall, cpu, 1.0, 9.0) for wall, cpu in ((4.0, 0.1), (2.0, 0.3), (1.0, 0.2))]
    middle = median_rate(rounds)
    assert (middle.per_s, round(middle.cpu_us)) == (50.0, 2000)


def test_a_meter_counts_only_what_happens_inside() -> None:
    with Meter() as m:
        sum(range(1000))
    assert 0 <= m.cpu_s < 60
    assert 0 < m.wall_s < 60


def test_the_most_memory_of_a_program_does_not_count_the_process_that_started_it() -> None:
    held = b"x" * (300 * 2**20)
    code = "from bench.measure import peak_mb; print(peak_mb()); held = b'x' * 50 * 2**20; print(peak_mb())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=lives.ROOT)
    before, after = map(float, done.stdout.split())
    assert before < len(held) / 2**21
    assert 45 < after - before < 60


def test_a_meter_switches_a_counter_of_instructions_on_and_off_around_its_block() -> None:
    said: list[str] = []
    Meter.switch = said.append
    try:
        with Meter():
            said.append("inside")
    finally:
        Meter.switch = None
    assert said == ["on", "inside", "off"]


def test_the_table_is_aligned_under_its_headings() -> None:
    shown = table([Line("a", "1 s", "2 s", 0.5, Bar("at most", 100, "ms"), "ms"), Line("long", "3 s")])
    assert shown.splitlines() == [
        "what  measured  beside  value   bar",
        "----  --------  ------  ------  --------  ----",
        "a     1 s       2 s     0.5 ms  ≤ 100 ms  PASS",
        "long  3 s",
    ]


def test_the_filesystem_of_a_path_is_that_of_its_nearest_mount() -> None:
    assert filesystem_of("/proc/self") in ("proc", "unknown")
