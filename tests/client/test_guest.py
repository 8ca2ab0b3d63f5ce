"""A second process that opens a folder uses it through the first: everything a program can do, and a change of holders.

The examples in the docstrings of the library, which say what each method does, hold for a guest too.
"""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

import fledge
from fledge.client.guest import Guest
from fledge.client.guest_conversation import GuestConversation
from fledge.client.guest_run import GuestHandle
from fledge.models.base import Request, ToolMessage
from fledge.models.scripted import Answer, echo, use
from fledge.runtime.base import Work
from fledge.testing import ScriptedModel
from tests.api.scene import obedient
from tests.api.test_conversation import ASKS, launch, launching
from tests.api.test_docstrings import EXAMPLES, play
from tests.gateway.serving import serving
from tests.images import png
from tests.statements import proves

T = TypeVar("T")
FOR_HOLDERS = ("Fledge.until", "Fledge.watch", "Fledge.unwatch", "Fledge.keeping_images")
"""These show rows of the folder, which only its holder has."""
NAMED = [
    name
    for name in EXAMPLES
    if name.split(".")[0] in ("Fledge", "Handle", "Conversation", "Result", "RunInfo", "Reply", "connect")
    and name not in FOR_HOLDERS
]


def opened(state: Path, **options: Any) -> fledge.Fledge:
    """The folder, as each process of one application opens it."""
    given: dict[str, Any] = {"model": ScriptedModel(obedient), "config": {}, "workspace": state.parent} | options
    return fledge.open(state, **given)


@asynccontextmanager
async def two(state: Path, **options: Any) -> AsyncIterator[tuple[fledge.Fledge, fledge.Fledge]]:
    """The holder of a folder, and its guest."""
    async with opened(state, **options) as holder, opened(state, **options) as guest:
        assert holder.is_holder
        assert isinstance(guest, Guest)
        assert not guest.is_holder
        yield holder, guest


def as_guest(state: Path, body: Callable[[fledge.Fledge], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        async with two(state, **options) as (_, guest):
            return await body(guest)

    return asyncio.run(main())


SHARED: dict[type, dict[str, set[str]]] = {
    Guest: {
        "spawn": {"_check_agent", "_spawn", "_handle"},
        "run": {"_found", "_handle"},
        "gather": {"_deadline", "_gathered"},
        "session": {"_conversation"},
        "agent": {"_conversation", "_check_wishes", "_accept"},
        "approve_plan": {"_answer_plan"},
        "reject_plan": {"_answer_plan"},
        "retry": {"_take_up"},
        "dismiss": {"_take_up"},
    },
    GuestHandle: {"events": {"_feed", "_moves", "_look"}, "kill": {"_kill"}},
    GuestConversation: {
        "follow": {"_last_entry", "_feed", "_moves"},
        "send": {"_deadline", "_say", "_answer"},
        "post": {"_say"},
        "stream": {"_last_entry", "_feed", "_say", "_answer", "_entries"},
        "_say": {"_check_thinks", "_accept"},
    },
}
"""What a guest inherits, with the steps that it is made of: of these a guest has its own."""


@pytest.mark.parametrize("kind", [Guest, GuestHandle, GuestConversation])
def test_a_guest_has_a_way_of_its_own_for_everything_public(kind: type) -> None:
    base = kind.__mro__[1]
    public = {name for name, _ in inspect.getmembers(base) if not name.startswith("_")}
    assert public - set(vars(kind)) == {name for name in SHARED[kind] if not name.startswith("_")}
    made = set(kind.__dict__["__init__"].__code__.co_names)
    own = {*vars(kind), *made, *SHARED[kind]} | ({"_accept"} & set(vars(GuestConversation)))
    for name, steps in SHARED[kind].items():
        used = set(getattr(base, name).__code__.co_names)
        assert {one for one in used if one.startswith("_")} == steps <= own


@pytest.mark.parametrize("name", NAMED)
def test_the_example_does_what_it_shows_for_a_guest(name: str, tmp_path: Path) -> None:
    as_guest(tmp_path / "state", lambda fl: play(EXAMPLES[name], _known(fl)))


@pytest.mark.parametrize("name", NAMED)
def test_the_example_does_what_it_shows_through_a_gateway(name: str, tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:

        async def main() -> None:
            async with fledge.connect(server.address, token=server.token) as fl:
                await play(EXAMPLES[name], _known(fl))

        if name not in ("Fledge.check", "Fledge.check_model", "connect"):
            asyncio.run(main())


def _known(fl: fledge.Fledge) -> dict[str, Any]:
    return {"fl": fl, "fledge": fledge, "asyncio": asyncio, "ScriptedModel": ScriptedModel, "echo": echo}


# ---- who holds the folder --------------------------------------------------------------------------------------------


def test_what_a_guest_waits_for_comes_though_the_holder_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        first = opened(tmp_path / "state")
        await first.__aenter__()
        async with opened(tmp_path / "state") as guest:
            waited = await guest.spawn("wait 0.3", label="slow")
            ended: list[str] = []
            guest.on_end(lambda run: ended.append(run.session_key))
            result = asyncio.ensure_future(waited.result())
            reply = asyncio.ensure_future(guest.session("main").send("wait 0.2"))
            await first.__aexit__(None, None, None)
            assert (await result).text == "echo: wait 0.3"
            assert (await reply).text == "echo: wait 0.2"
            assert guest.is_holder
            assert ended == [waited.session_key]
            later = await guest.spawn("later")
            assert (await later).text == "echo: later"
            assert [run.label for run in await guest.runs()] == ["slow", ""]

    asyncio.run(main())


def test_one_of_several_guests_takes_over_and_the_others_ask_it(tmp_path: Path) -> None:
    async def main() -> None:
        first = opened(tmp_path / "state")
        await first.__aenter__()
        async with opened(tmp_path / "state") as one, opened(tmp_path / "state") as other:
            runs = [await guest.spawn("wait 0.2") for guest in (one, other, one, other)]
            await first.__aexit__(None, None, None)
            assert [result.status for result in await one.gather(runs)] == ["ok"] * 4
            assert [result.status for result in await other.gather([run.run_id for run in runs])] == ["ok"] * 4
            assert sorted([one.is_holder, other.is_holder]) == [False, True]
            assert len(await one.tree()) == 4

    asyncio.run(main())


def test_a_guest_that_hears_turns_hears_them_from_the_next_holder_too(tmp_path: Path) -> None:
    async def main() -> list[str]:
        first = opened(tmp_path / "state")
        await first.__aenter__()
        async with opened(tmp_path / "state") as guest:
            heard = guest.listen()
            await guest.session("main").send("one")
            await first.__aexit__(None, None, None)
            await guest.session("main").send("two")
            heard.close()
            return [event.text or event.kind async for event in heard if event.kind in ("assistant:text", "lost")]

    assert asyncio.run(main()) == ["echo: one", "lost", "echo: two"]


@fledge.tool
def count(text: str) -> int:
    """Count letters."""
    return len(text)


@fledge.tool(name="count")
def count_more(text: str, times: int) -> int:
    """Count letters, and more."""
    return len(text) * times


def counter(tool: Any = count, **fields: Any) -> fledge.Agent[int]:
    """An agent that counts, as each process makes it."""
    return fledge.Agent("counter", instructions="You count.", tools=[tool], output_type=int, **fields)


async def counts(request: Request) -> Answer:
    """The model of that agent."""
    last = request.messages[-1]
    return last.text if isinstance(last, ToolMessage) else use("count", text="hello")


@pytest.mark.parametrize("way", ["open", "connect"])
@proves("4.code.14", "A guest spawns an agent by value where the holder has the same; functions run there")
def test_a_guest_spawns_an_agent_that_the_holder_has_too(tmp_path: Path, way: str) -> None:
    async def main() -> None:
        model, own = ScriptedModel(counts), counter()
        async with opened(tmp_path / "state", model=model, agents=[counter()]) as holder:
            again = opened(tmp_path / "state", model=model, agents=[own])
            async with again if way == "open" else fledge.connect(tmp_path / "state") as guest:
                run = await guest.spawn("Count", agent=own, label="counting")
                assert (await run).value == 5
                info = await run.info()
                assert repr(run).startswith(f'<fledge run "counting" {run.run_id}: ok, after ')
                assert (info.label, [one.label for one in await holder.runs()]) == ("counting", ["counting"])
                with pytest.raises(fledge.BadInput, match="tools: must be names here: functions run in the process"):
                    await guest.spawn("Count", tools=[count])
                assert (
                    await (await guest.spawn("Count", agent="counter", tools=["count"], output_type=int))
                ).value == 5

    asyncio.run(main())


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (fledge.Agent("judge"), "the agent judge is only here"),
        (counter(max_tokens=10), "the agent counter is another one"),
        (counter(fledge.tool(name="count")(lambda: 3)), "the tool count is another one"),
    ],
)
def test_an_agent_that_the_holder_has_otherwise_is_refused(
    tmp_path: Path, agent: fledge.Agent[Any], words: str
) -> None:
    async def main() -> None:
        async with opened(tmp_path / "state", agents=[counter()]), fledge.connect(tmp_path / "state") as guest:
            with pytest.raises(fledge.BadInput, match=f"agent: must be the same where the folder is held: {words}"):
                await guest.spawn("Count", agent=agent)
            assert await guest.runs() == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("holders", "own", "words"),
    [
        ({}, {"tools": [count]}, "the tool count is only here"),
        ({"tools": [count]}, {}, "the tool count is only there"),
        ({"tools": [count]}, {"tools": [count_more]}, "the tool count is another one"),
        ({}, {"config": {"models": {"patienceSeconds": 5}}}, "settings of models differ"),
        ({"agents": {"digger": {}}}, {"agents": {"digger": {"model": "a/b"}}}, "the agent digger is another one"),
        (
            {"agents": [fledge.Agent("judge")]},
            {"agents": [fledge.Agent("judge", tools=[])]},
            "the agent judge is another",
        ),
        ({"agents": [counter()]}, {"agents": [counter(count_more)]}, "the tool count is another one"),
        ({}, {"runtimes": {"mine": obedient}}, "the runtime mine is only here"),
        ({}, {"workspace": "/"}, "its workspace is "),
    ],
)
def test_a_process_that_brings_something_else_is_refused_and_told_what(
    tmp_path: Path, holders: dict[str, Any], own: dict[str, Any], words: str
) -> None:
    async def main() -> None:
        async with opened(tmp_path / "state", **holders):
            with pytest.raises(fledge.StoreLocked, match=words):
                async with opened(tmp_path / "state", **own):
                    pass

    asyncio.run(main())


async def carry(work: Work) -> str:
    """A runtime that needs no model."""
    return f"carried: {work.task}"


def test_a_guest_spawns_nothing_that_its_own_default_model_could_not_go_on_with(tmp_path: Path) -> None:
    """It may hold the folder before the run has ended. A model or a runtime that is named is the holder's to check."""

    async def main() -> None:
        options: dict[str, Any] = {"model": "house/one", "runtimes": {"mine": carry}}
        known = {"house/one": ScriptedModel(obedient)}
        async with opened(tmp_path / "state", models=known, **options) as holder:
            async with opened(tmp_path / "state", **options) as guest:
                assert isinstance(guest, Guest)
                with pytest.raises(fledge.FledgeError, match="house") as refused:
                    guest.check()
                with pytest.raises(type(refused.value), match=re.escape(str(refused.value))):
                    await guest.spawn("task")
                assert await holder.runs() == []
                assert (await (await guest.spawn("named", model="house/one"))).text == "echo: named"
                assert (await (await guest.spawn("carry it", runtime="mine"))).text == "carried: carry it"
            async with fledge.connect(tmp_path / "state") as connected:
                assert (await (await connected.spawn("as the holder may"))).text == "echo: as the holder may"

    asyncio.run(main())


@pytest.mark.parametrize("which", ["the holder", "the second"])
def test_a_process_that_shares_nothing_is_alone(tmp_path: Path, which: str) -> None:
    async def main() -> None:
        async with opened(tmp_path / "state", control=which != "the holder"):
            with pytest.raises(fledge.StoreLocked, match="in use by process"):
                async with opened(tmp_path / "state", control=which != "the second"):
                    pass

    asyncio.run(main())


def test_a_guest_that_waits_for_an_answer_waits_on_once_a_function_answers_questions(tmp_path: Path) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def later(request: Request) -> Answer:
        begun.set()
        await goes_on.wait()
        return launching(request)

    async def body(guest: fledge.Fledge) -> None:
        sending = asyncio.ensure_future(guest.session("main").send("Go"))
        await begun.wait()
        guest.on_approval(lambda question: True)
        goes_on.set()
        assert (await sending).text == "it said: launched"

    as_guest(tmp_path / "state", body, model=ScriptedModel(later), tools=[launch], config=ASKS)


def test_a_guest_lists_runs_by_the_status_that_the_library_shows(tmp_path: Path) -> None:
    async def main() -> None:
        async with two(tmp_path / "state") as both:
            run = await both[0].spawn("Wait for me", label="slow")
            await run.kill()
            await run
            for fl in both:
                shown = {status: [run.label for run in await fl.runs(status=status)] for status in ("killed", "error")}
                assert shown == {"killed": ["slow"], "error": []}

    asyncio.run(main())


@pytest.mark.parametrize("way", ["send", "post"])
def test_an_image_needs_no_words_in_the_holder_and_in_a_guest(way: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with two(tmp_path / "state", model=ScriptedModel(echo)) as both:
            for fl in both:
                chat = fl.session("main")
                images = [fledge.Image(png(640, 480))]
                if way == "send":
                    reply = await chat.send("", images=images)
                else:
                    reply = await chat.reply(await chat.post("", images=images))
                assert reply.text == "[image, 640×480 PNG]"
                with pytest.raises(fledge.BadInput, match=r"^message: must not be empty"):
                    await chat.send(" ")

    asyncio.run(main())


def test_a_refusal_names_the_parameter_as_a_program_writes_it_in_the_holder_and_in_a_guest(tmp_path: Path) -> None:
    async def main() -> None:
        async with two(tmp_path / "state") as (holder, guest):
            for fl, key in ((holder, "one"), (guest, "two")):
                await fl.spawn("Say hello", idempotency_key=key)
                with pytest.raises(fledge.Refused, match=f"^idempotency_key: {key} was used before"):
                    await fl.spawn("Say goodbye", idempotency_key=key)
                await fl.agent("Hello", idempotency_key=key)
                with pytest.raises(fledge.Refused, match=f"^idempotency_key: {key} was used before"):
                    await fl.agent("Goodbye", idempotency_key=key)
                with pytest.raises(fledge.Refused, match=r'^agent: there is no agent "nobody"'):
                    await fl.spawn("Say hello", agent="nobody")
                with pytest.raises(fledge.BadInput, match=r"^agent: must be 1 to 64"):
                    await fl.spawn("Say hello", agent="no way")
                with pytest.raises(fledge.BadInput, match=r"^output_schema\.type: "):
                    await fl.spawn("Say hello", output_schema={"type": "number?"})

    asyncio.run(main())


def test_the_id_of_a_message_to_a_run_finds_its_reply_in_the_holder_and_in_a_guest(tmp_path: Path) -> None:
    async def main() -> None:
        async with two(tmp_path / "state") as both:
            for fl in both:
                run = await fl.spawn("Say hello")
                assert (await run).ok
                run_id = await run.send("And goodbye")
                assert (await fl.session(run.session_key).reply(run_id)).text == "echo: And goodbye"

    asyncio.run(main())


def test_what_needs_the_rows_is_refused_in_a_guest(tmp_path: Path) -> None:
    async def body(guest: fledge.Fledge) -> None:
        for name in ("engine", "spawner", "messenger"):
            with pytest.raises(fledge.Refused, match=f"`{name}` works only in the process that holds the folder"):
                getattr(guest, name)
        with pytest.raises(fledge.Refused, match="`until` works only in"):
            await guest.until(lambda tx: True)
        assert guest.state == tmp_path / "state"

    as_guest(tmp_path / "state", body)


def test_a_guest_that_is_not_open_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with two(tmp_path / "state") as (_, guest):
            with pytest.raises(fledge.Refused, match="open already"):
                await guest.__aenter__()
            run = await guest.spawn("Wait for me")
            waiting = asyncio.ensure_future(run.result())
            await asyncio.sleep(0)
        with pytest.raises(fledge.FledgeError):
            await waiting
        with pytest.raises(fledge.Refused, match="not open"):
            await guest.spawn("more")

    asyncio.run(main())


@pytest.mark.parametrize("way", ["open", "connect"])
def test_a_request_under_way_is_refused_when_its_guest_closes_and_nothing_is_opened_again(
    tmp_path: Path, way: str
) -> None:
    begun = asyncio.Event()

    async def waits(request: Request) -> Answer:
        begun.set()
        await asyncio.Event().wait()
        return ""

    async def main() -> None:
        async with opened(tmp_path / "state", model=ScriptedModel(waits)):
            before = asyncio.all_tasks()
            if way == "open":
                asked = opened(tmp_path / "state", model=ScriptedModel(waits))
            else:
                asked = fledge.connect(tmp_path / "state")
            async with asked as guest:
                sending = asyncio.ensure_future(guest.session("main").send("Go"))
                await begun.wait()
            async with asyncio.timeout(10):
                with pytest.raises(fledge.Refused, match="not open"):
                    await sending
            assert {one for one in asyncio.all_tasks() if "Connection._read" in repr(one.get_coro())} <= before

    asyncio.run(main())


def test_a_request_that_waits_for_the_next_holder_is_refused_when_its_guest_closes(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path / "state") as holder, fledge.connect(holder.state) as guest:
            heard = guest.listen()
            await guest.session("main").send("Hello")
            await holder.__aexit__(None, None, None)
            async for event in heard:
                if event.kind == "lost":
                    break
            waiting = asyncio.ensure_future(guest.runs())
            await asyncio.sleep(0)
            heard.close()
            await guest.__aexit__(None, None, None)
            async with asyncio.timeout(10):
                with pytest.raises(fledge.Refused, match="not open"):
                    await waiting

    asyncio.run(main())


def test_bad_input_of_a_guest_is_told_as_it_was_written(tmp_path: Path) -> None:
    async def body(guest: fledge.Fledge) -> None:
        with pytest.raises(fledge.BadInput, match=r"^timeout: "):
            await guest.spawn("task", timeout=-1)
        with pytest.raises(fledge.BadInput, match=r"^agent_id: "):
            await guest.spawn("task", agent_id="../x")
        with pytest.raises(fledge.BadInput, match=r"^thinking: "):
            await guest.agent("hello", thinking="huge")
        with pytest.raises(fledge.NotFound):
            await guest.run("nobody")
        with pytest.raises(fledge.BadInput, match="timeout"):
            await (await guest.spawn("task")).result(timeout=-1)

    as_guest(tmp_path / "state", body)
