"""`run_program`, for tests of users: their program, on a folder of its own, in virtual time."""

import asyncio
from pathlib import Path

import pytest

import fledge
from fledge.models.scripted import echo
from fledge.testing import ScriptedModel, in_order, last_text, run_program, use


def test_a_program_of_hours_runs_at_once_and_answers_what_it_returns() -> None:
    @fledge.tool(read_only=True, timeout=None)
    async def wait(hours: int) -> str:
        """Wait."""
        await asyncio.sleep(hours * 3600)
        return f"{hours} hours"

    patient = fledge.Agent("patient", tools=[wait])

    async def main(fl: fledge.Fledge) -> tuple[str, float]:
        run = await fl.spawn("Wait", agent=patient)
        result = await run
        assert result.started_at is not None
        assert result.ended_at is not None
        return result.text, result.ended_at - result.started_at

    model = ScriptedModel(in_order(use("wait", hours=5), last_text))
    text, took = run_program(main, model=model, agents=[patient])
    assert text == "5 hours"
    assert took >= 5 * 3600


def test_no_setting_and_no_file_of_the_developer_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fledge.json5").write_text("{agents: {defaults: {maxSteps: 7}}}")
    monkeypatch.chdir(tmp_path)

    async def main(fl: fledge.Fledge) -> tuple[int, list[Path]]:
        return fl.config.agents.defaults.max_steps or 0, list(fl.state.parent.glob("workspace/*"))

    assert run_program(main, model=ScriptedModel(echo)) == (1000, [])


def test_options_are_those_of_open(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("found")

    async def main(fl: fledge.Fledge) -> str:
        return (await (await fl.spawn("Read a.txt"))).text

    assert "found" in run_program(
        main, model=ScriptedModel(in_order(use("read", path="a.txt"), last_text)), workspace=tmp_path
    )


def test_what_the_program_raises_is_raised_and_a_program_must_be_a_function() -> None:
    async def main(fl: fledge.Fledge) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run_program(main, model=ScriptedModel(echo))
    with pytest.raises(fledge.BadInput, match="main: must be an async function"):
        run_program("main", model=ScriptedModel(echo))  # type: ignore[arg-type]
