"""Texts that a program gives: half of a surrogate pair has no UTF-8, so it is refused by the name of its field."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import fledge
from tests.api.scene import Place
from tests.statements import proves

HALF = "caf\ud83d"
WORDS = r"must be valid Unicode: character 4 is half of a surrogate pair \('\\ud83d'\)"
Given = Callable[[fledge.Fledge, fledge.Handle[Any]], Awaitable[object]]

TEXTS: dict[str, tuple[str, Given]] = {
    "spawn": ("task", lambda fl, run: fl.spawn(HALF)),
    "spawn with a label": ("label", lambda fl, run: fl.spawn("x", label=HALF)),
    "send": ("message", lambda fl, run: fl.session("main").send(HALF)),
    "post": ("message", lambda fl, run: fl.session("main").post(HALF)),
    "agent": ("message", lambda fl, run: fl.agent(HALF)),
    "agent with a key": ("idempotency_key", lambda fl, run: fl.agent("x", idempotency_key=HALF)),
    "agent with a prompt": ("extra_system_prompt", lambda fl, run: fl.agent("x", extra_system_prompt=HALF)),
    "post_event": ("text", lambda fl, run: fl.session("main").post_event(HALF)),
    "request_heartbeat": ("reason", lambda fl, run: fl.session("main").request_heartbeat(HALF)),
    "Handle.send": ("message", lambda fl, run: run.send(HALF)),
    "Handle.steer": ("message", lambda fl, run: run.steer(HALF)),
    "Handle.resume": ("words", lambda fl, run: run.resume(HALF)),
    "approve_plan": ("words", lambda fl, run: fl.approve_plan(run, HALF)),
    "reject_plan": ("reason", lambda fl, run: fl.reject_plan(run, HALF)),
}


@proves("7.input.35", "A text with half of a surrogate pair is refused, naming its field, by every call of the library")
@pytest.mark.parametrize("name", TEXTS)
def test_half_of_a_surrogate_pair_is_refused_by_the_name_of_its_field(tmp_path: Path, name: str) -> None:
    field, give = TEXTS[name]

    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say hello", plan_mode=True)
        assert await run.plan(timeout=60) is not None
        before = await fl.engine.store.read(lambda tx: (tx.lists.count_rows(), tx.inbox.unread(run.session_key)))
        with pytest.raises(fledge.BadInput, match=f"^{field}: {WORDS}"):
            await give(fl, run)
        assert (
            await fl.engine.store.read(lambda tx: (tx.lists.count_rows(), tx.inbox.unread(run.session_key))) == before
        )

    Place(tmp_path).act(body)
