"""Two levels of subagents through the whole program: spawn, yield, wake, announce, with a scripted model."""

import asyncio
from pathlib import Path

import pytest

from fledge.cli.inspect import info, log, look
from fledge.cli.render import tree_lines
from fledge.cli.run import Request, converse
from fledge.core.keys import main_key
from fledge.models.scripted import ScriptedModel
from tests.cli.nested_model import nested
from tests.statements import proves

DEEP = ("agents.defaults.subagents.maxSpawnDepth=2",)


def talk(state: Path, *settings: str) -> int:
    request = Request(state, "go", "scripted/nested", settings)
    return asyncio.run(converse(request, models={"scripted/nested": ScriptedModel(nested)}))


@proves("0.promise.2")
@proves("4.tools.5", "`sessions_yield` waits for children")
@proves("4.yield.12")
@pytest.mark.parametrize("width", ["1", "8"])
def test_an_orchestrator_yields_for_its_workers_and_holds_no_slot_meanwhile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], width: str
) -> None:
    assert talk(tmp_path / "state", *DEEP, f"agents.defaults.subagents.maxConcurrent={width}") == 0
    assert capsys.readouterr().out.splitlines() == ["It is under way.", "The whole is done."]
    assert look(tmp_path / "state", lambda tx: tree_lines(tx, main_key())) == [
        "└─ orchestrator · completed (ok), attempt 2",
        "   ├─ worker 0 · completed (ok)",
        "   ├─ worker 1 · completed (ok)",
        "   └─ worker 2 · completed (ok)",
    ]
    story = [
        line.split()[2] for line in look(tmp_path / "state", lambda tx: info(tx, "orchestrator")) if " s  " in line
    ]
    # Workers that settle before the yield wake it in its own commit.
    assert [event for event in story if event != "ChildrenSettled"] == [
        "Admitted",
        "Prepared",
        "Claimed",
        "Yielded",
        "Claimed",
        "AttemptEnded",
        "RowConsumed",
        "CleanedUp",
    ]


def test_without_the_depth_the_orchestrator_is_a_leaf_and_its_calls_are_unknown_tools(tmp_path: Path) -> None:
    assert talk(tmp_path / "state", "agents.defaults.subagents.maxSpawnDepth=1") == 0
    shown = look(tmp_path / "state", lambda tx: log(tx, "orchestrator", 50, tools=True))
    assert any("There is no tool 'sessions_spawn' here." in line for line in shown)
