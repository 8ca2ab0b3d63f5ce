"""Replies that a provider cut or refused, on every wire: from a strict server to the result that a program reads."""

from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.models.scripted import ScriptedReply
from tests.models.asking import PROTOCOLS, Protocol, run
from tests.models.serving import Answer
from tests.statements import proves

each = pytest.mark.parametrize("protocol", PROTOCOLS, ids=[protocol.name for protocol in PROTOCOLS])


def spawned(
    tmp_path: Path, protocol: Protocol, *answers: Answer, **options: Any
) -> tuple[fledge.Result[Any], list[Any]]:
    """The result of a child whose model gives these answers, and the requests; the server finds nothing to reject."""

    async def main() -> tuple[fledge.Result[Any], list[Any]]:
        async with protocol.talk(list(answers)) as (server, model):
            async with fledge.open(
                tmp_path / "state",
                model="openai/m",
                models={"openai": model},
                config={},
                program="test",
                workspace=tmp_path,
            ) as fl:
                result = await (await fl.spawn("Say it", **options))
            assert server.complaints == []
            return result, server.bodies

    return run(main())


@each
@proves("2.asking.1")
def test_a_reply_that_was_cut_is_one_text_with_its_rest(protocol: Protocol, tmp_path: Path) -> None:
    result, bodies = spawned(tmp_path, protocol, ScriptedReply("half a sen", stop="length"), ScriptedReply("tence"))
    assert (result.status, result.text, len(bodies)) == ("ok", "half a sentence", 2)


@each
@proves("2.asking.4")
def test_a_reply_of_thinking_alone_is_asked_for_with_a_higher_limit(protocol: Protocol, tmp_path: Path) -> None:
    result, bodies = spawned(tmp_path, protocol, ScriptedReply("", stop="length"), ScriptedReply("at last"))
    limits = [
        next(body[name] for name in ("max_output_tokens", "max_completion_tokens", "max_tokens") if name in body)
        for body in bodies
    ]
    assert (result.text, limits[1] == 2 * limits[0]) == ("at last", True)


@each
@proves("2.asking.5")
def test_a_refusal_is_an_error_in_words(protocol: Protocol, tmp_path: Path) -> None:
    result, bodies = spawned(tmp_path, protocol, ScriptedReply("I will not.", stop="refused"))
    assert (result.status, result.error) == ("error", "the model refused to answer: I will not.")
    assert len(bodies) == 1
