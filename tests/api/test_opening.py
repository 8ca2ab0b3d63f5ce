"""Opening a folder: what may be given, what is refused by name, who may have it; the public names and their cost."""

import asyncio
import inspect
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from bench.measure import children_cpu_s

import fledge
from fledge.client.opening import OpenOptions
from fledge.models.scripted import echo
from fledge.runtime.base import Work
from fledge.testing import InlineStore, ScriptedModel
from tests.api.scene import Place

PUBLIC = """
Agent Attachment BadInput Budget CommandRuntime Conversation Fledge FledgeError GivenUp Handle Image Message NotFound
Permission Plan Provider Question Refused Reply Result RunFailed RunInfo StoreError StoreLocked TimelineEvent
ToolContext TurnEvent Work __version__ connect open run_sync tool
"""
IMPORT_MS = 100
"""How much CPU `import fledge` may take more than starting Python."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# ---- names -----------------------------------------------------------------------------------------------------------


def test_these_are_the_public_names() -> None:
    assert fledge.__all__ == PUBLIC.split()
    assert all(getattr(fledge, name) is not None for name in fledge.__all__)
    assert set(fledge.__all__) <= set(dir(fledge))
    with pytest.raises(AttributeError, match="no attribute 'spawn'"):
        fledge.spawn  # noqa: B018


def test_every_public_name_comes_from_where_it_is_said_to() -> None:
    listed = [name for names in fledge._HOMES.values() for name in names]
    assert sorted([*listed, "__version__"]) == sorted(fledge.__all__)


def test_run_sync_takes_the_options_of_open_by_name_and_type() -> None:
    own = {name: one.annotation for name, one in inspect.signature(fledge.open).parameters.items() if name != "state"}
    assert OpenOptions.__annotations__ == own


def test_the_package_says_that_it_is_typed() -> None:
    assert (Path(fledge.__file__).parent / "py.typed").exists()


def test_importing_fledge_loads_nothing_heavy_and_costs_next_to_nothing() -> None:
    code = "import fledge, sys; print(*(name for name in ('asyncio', 'msgspec', 'sqlite3') if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []

    def cpu_ms(code: str) -> float:
        before = children_cpu_s()
        subprocess.run([sys.executable, "-c", code], timeout=60, check=True)
        return 1000 * (children_cpu_s() - before)

    more = [cpu_ms("import fledge") - cpu_ms("pass") for _ in range(5)]
    assert median(more) < IMPORT_MS


# ---- what may be given -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("state", {"state": ""}),
        ("state", {"state": 3}),
        ("model", {"model": 3}),
        ("models.mine", {"models": {"mine": "openai/gpt-5"}}),
        ("tools", {"tools": [3]}),
        ("tools", {"tools": "read"}),
        ("print(args)", {"tools": [print]}),
        ("agents", {"agents": "reviewer"}),
        ("agents", {"agents": 3}),
        ("agents.reviewer", {"agents": {"reviewer": "gpt"}}),
        ("agents.reviewer.id", {"agents": {"reviewer": {"id": "critic"}}}),
        ("agents.list.reviewer.modle", {"agents": {"reviewer": {"modle": "gpt"}}}),
        ("config", {"config": 3}),
        ("config", {"config": "/nowhere/fledge.json5"}),
        ("announce.style", {"config": {"announce": {"style": "loud"}}}),
        ("workspace", {"workspace": 3}),
        ("workspace", {"workspace": "/nowhere"}),
        ("state", {"state": "\0"}),
        ("program", {"program": "a b"}),
        ("program", {"program": ""}),
        ("runtimes.mine", {"runtimes": {"mine": 3}}),
        ("runtimes.subagent", {"runtimes": {"subagent": lambda work: None}}),
    ],
)
def test_what_makes_no_sense_is_refused_by_name_before_anything_is_made(
    tmp_path: Path, field: str, given: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"state": tmp_path / "state", "config": {}} | given
    with pytest.raises(fledge.BadInput) as refused:
        fledge.open(**options)
    assert refused.value.field == field
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["file", "mapping", "config"])
def test_settings_come_from_a_file_a_mapping_or_a_config(tmp_path: Path, form: str) -> None:
    from fledge.config import Config, check

    document: dict[str, object] = {"announce": {"style": "compact"}}
    path = tmp_path / "my.json5"
    path.write_text("{announce: {style: 'compact'}, // a comment\n}")
    given: Config | dict[str, object] | str = {
        "file": str(path),
        "mapping": document,
        "config": check(document).config,
    }[form]  # type: ignore[assignment]
    assert fledge.open(tmp_path / "state", config=given).config.announce.style == "compact"


def test_without_settings_the_users_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEDGE_CONFIG", str(tmp_path))
    (tmp_path / "fledge.json5").write_text("{announce: {style: 'full'}}")
    assert fledge.open(tmp_path / "state", workspace=tmp_path).config.announce.style == "full"


def test_without_a_model_results_can_be_read_but_nothing_new_is_begun(place: Place) -> None:
    run_id = place.act(_spawned)

    async def reading(fl: fledge.Fledge) -> None:
        assert (await (await fl.run(run_id))).text == "echo: Say hello"
        for attempt in (fl.spawn("more"), fl.session("main").send("more"), fl.agent("more")):
            with pytest.raises(fledge.Refused, match="no model is set"):
                await attempt

    async def acting() -> None:
        async with fledge.open(place.folder, config={}, store=InlineStore(place.folder)) as fl:
            await reading(fl)

    asyncio.run(acting())


async def _spawned(fl: fledge.Fledge) -> str:
    run = await fl.spawn("Say hello")
    async for _ in run.events():
        pass
    return run.run_id


def test_a_function_can_carry_out_runs(place: Place) -> None:
    async def shout(work: Work) -> str:
        return work.prompt.upper()

    async def body(fl: fledge.Fledge) -> None:
        assert (await (await fl.spawn("say hello", runtime="shouter"))).text == "SAY HELLO"
        with pytest.raises(fledge.BadInput, match=r"^runtime: must be one that is configured: subagent, shouter"):
            await fl.spawn("say hello", runtime="whisperer")

    place.act(body, runtimes={"shouter": shout})


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("task", {"task": ""}),
        ("task", {"task": 3}),
        ("label", {"label": 3}),
        ("label", {"label": "x" * 1000}),
        ("agent_id", {"agent_id": "a b"}),
        ("model", {"model": "nowhere/nothing"}),
        ("thinking", {"thinking": "very"}),
        ("timeout", {"timeout": -1}),
        ("timeout", {"timeout": "soon"}),
        ("timeout", {"timeout": float("inf")}),
        ("cleanup", {"cleanup": "burn"}),
        ("plan_mode", {"plan_mode": "yes"}),
        ("budget.tokens", {"budget": fledge.Budget(tokens=0)}),
        ("lable", {"lable": "typo"}),
        ("thread", {"thread": "yes"}),
    ],
)
def test_a_spawn_that_makes_no_sense_is_refused_by_name_and_nothing_is_started(
    place: Place, field: str, options: dict[str, Any]
) -> None:
    async def body(fl: fledge.Fledge) -> None:
        asked: dict[str, Any] = {"task": "Say hello"} | options
        with pytest.raises(fledge.BadInput) as refused:
            await fl.spawn(**asked)
        assert refused.value.field == field
        if field in ("thinking", "cleanup"):
            assert refused.value.expected.startswith("must be one of ")
        assert await fl.runs() == []

    place.act(body)


def test_a_program_may_have_more_children_than_a_model_may(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        runs = [await fl.spawn("wait 1") for _ in range(20)]
        assert [result.status for result in await fl.gather(runs)] == ["ok"] * 20

    place.act(body)


# ---- who may have it -------------------------------------------------------------------------------------------------


def test_one_process_owns_a_folder_and_the_second_is_told_who(tmp_path: Path) -> None:
    async def main() -> None:
        async with fledge.open(tmp_path, config={}, control=False):
            with pytest.raises(fledge.StoreLocked, match="in use by process"):
                async with fledge.open(tmp_path, config={}):
                    pass
        async with fledge.open(tmp_path, config={}) as fl:
            with pytest.raises(fledge.Refused, match="open already"):
                await fl.__aenter__()

    asyncio.run(main())


def test_before_and_after_the_with_everything_says_that_it_is_not_open(tmp_path: Path) -> None:
    async def main() -> None:
        fl = fledge.open(tmp_path / "state", config={})
        with pytest.raises(fledge.Refused, match="is not open"):
            await fl.runs()
        assert not (tmp_path / "state").exists()
        async with fl:
            assert await fl.runs() == []
        with pytest.raises(fledge.Refused, match="is not open"):
            fl.session("main")

    asyncio.run(main())


def test_a_conversations_name_is_refused_for_a_program(place: Place) -> None:
    async def talk(fl: fledge.Fledge) -> None:
        await fl.session("reports").send("Hello")

    place.act(talk)
    with pytest.raises(fledge.BadInput, match=r"^program: agent:main:reports is a conversation"):
        place.act(talk, program="reports")
    place.act(talk)


def test_programs_of_different_names_have_their_own_runs(place: Place) -> None:
    async def spawns(fl: fledge.Fledge) -> int:
        await fl.spawn("Say hello")
        return len(await fl.runs())

    assert [place.act(spawns, program=name) for name in ("one", "two", "one")] == [1, 1, 2]


def test_leaving_waits_until_drivers_have_let_go_and_leaves_no_task(tmp_path: Path) -> None:
    async def main() -> None:
        before = asyncio.all_tasks()
        begun, stopped = asyncio.Event(), asyncio.Event()

        async def stubborn(work: Work) -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()
            return ""

        async with fledge.open(tmp_path, config={}, runtimes={"stubborn": stubborn}) as fl:
            await fl.spawn("stay", runtime="stubborn")
            fl.on_end(lambda run: None)
            fl.on_approval(lambda question: None)
            await begun.wait()
        assert stopped.is_set()
        assert asyncio.all_tasks() == before

    asyncio.run(main())


# ---- scripts ---------------------------------------------------------------------------------------------------------


def test_run_sync_runs_a_script_and_answers_what_it_returns(tmp_path: Path) -> None:
    async def main(fl: fledge.Fledge) -> str:
        return (await (await fl.spawn("Say hello"))).text

    assert fledge.run_sync(main, tmp_path, model=ScriptedModel(echo), config={}) == "Say hello"


def test_run_sync_inside_a_loop_says_what_to_use_instead(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(fledge.Refused, match="async with"):
            fledge.run_sync(_spawned, tmp_path)

    asyncio.run(main())
    assert list(tmp_path.iterdir()) == []


def test_run_sync_of_what_cannot_be_called_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fledge.BadInput, match=r"^main: "):
        fledge.run_sync(3, tmp_path)  # type: ignore[arg-type]
