"""Two levels of subagents through the whole program: spawn, yield, wake, announce, with a scripted model."""

import asyncio
from pathlib import Path

import pytest

from fledge.cli import verbs
from fledge.cli.run import RunRequest, converse
from fledge.cli.where import Where
from fledge.models.scripted import ScriptedModel
from tests.cli.command import ANY_RUNS
from tests.cli.nested_model import nested
from tests.statements import proves

DEEP = ("agents.defaults.subagents.maxSpawnDepth=2",)
BEGUN = ["accepted", "ready to start", "taken up"]
ENDED = ["finished", "result read", "cleaned up"]


def talk(state: Path, *settings: str) -> int:
    request = RunRequest("go", "scripted/nested")
    return asyncio.run(converse(Where(state), request, settings, models={"scripted/nested": ScriptedModel(nested)}))


@proves("0.promise.2")
@proves("4.tools.5", "`sessions_yield` waits for children")
@proves("4.yield.12")
def test_an_orchestrator_yields_for_its_workers_and_holds_no_slot_meanwhile(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tree, story = orchestrated(tmp_path / "state", capfd, width=1)
    assert tree[0].startswith("└─ #1 orchestrator  done, attempt 2  ")
    assert story == [*BEGUN, "waits for children", "taken up", *ENDED]


def test_with_room_for_all_workers_the_orchestrator_waits_or_has_their_answers_by_then(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whether its workers settle before it yields is the machine's affair; then it reads them at once."""
    _, story = orchestrated(tmp_path / "state", capfd, width=8)
    assert story in ([*BEGUN, "waits for children", "taken up", *ENDED], [*BEGUN, *ENDED])


def orchestrated(state: Path, capfd: pytest.CaptureFixture[str], width: int) -> tuple[list[str], list[str]]:
    """The tree and the orchestrator's timeline after everything is done."""
    assert talk(state, *DEEP, f"agents.defaults.subagents.maxConcurrent={width}") == 0
    assert capfd.readouterr().out.splitlines() == ["It is under way.", "The whole is done."]
    tree = verbs.runs(Where(state), "tree", ANY_RUNS).lines
    assert [line.split("  done")[0].rstrip() for line in tree[1:]] == [
        "   ├─ worker 0",
        "   ├─ worker 1",
        "   └─ worker 2",
    ]
    lines = verbs.info(Where(state), "orchestrator").lines
    story = [line.split(" s  ")[1].split(" →")[0].strip() for line in lines if " s  " in line]
    return tree, [event for event in story if event != "child settled"]


def test_without_the_depth_the_orchestrator_is_a_leaf_and_told_that_its_depth_forbids_to_spawn(tmp_path: Path) -> None:
    assert talk(tmp_path / "state", "agents.defaults.subagents.maxSpawnDepth=1") == 0
    shown = verbs.log(Where(tmp_path / "state"), "orchestrator", 50, tools=True).lines
    assert any("which may not spawn: agents.defaults.subagents.maxSpawnDepth" in line for line in shown)
