"""Providers of a program: in the settings it opens with, or as objects."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import fledge
from fledge.models.scripted import ScriptedReply
from tests.models.openai_server import OpenAIServer
from tests.models.serving import KEY
from tests.proxies import Proxy
from tests.statements import proves


@pytest.mark.parametrize("how", ["settings", "object"])
def test_a_program_names_its_own_provider(tmp_path: Path, how: str) -> None:
    async def main() -> str:
        async with OpenAIServer([ScriptedReply("hello")]) as server:
            if how == "settings":
                said = {"baseUrl": server.base_url, "apiKeyEnv": "ACME"}
                options: dict[str, Any] = {"config": {"models": {"providers": {"acme": said}}}}
            else:
                provider = fledge.Provider(name="acme", base_url=server.base_url, key_env="ACME")
                options = {"config": {}, "providers": [provider]}
            opened = fledge.open(
                tmp_path / "state", workspace=tmp_path, model="acme/m", env={"ACME": KEY, "HOME": "/x"}, **options
            )
            async with opened as fl:
                return (await (await fl.spawn("Say hello"))).text

    assert asyncio.run(main()) == "hello"


def test_what_is_no_provider_is_refused(tmp_path: Path) -> None:
    with pytest.raises(fledge.BadInput, match=r"^providers: must be made with fledge.Provider"):
        fledge.open(tmp_path, config={}, providers=["acme"])  # type: ignore[list-item]


@proves("8.egress.1")
def test_a_program_behind_a_proxy_reaches_its_provider(tmp_path: Path) -> None:
    async def main() -> str:
        async with OpenAIServer([ScriptedReply("hello")]) as server, Proxy(server.port) as proxy:
            said = {"baseUrl": "http://model.example/v1", "apiKeyEnv": "ACME"}
            env = {"ACME": KEY, "HOME": "/x", "HTTP_PROXY": proxy.url}
            config = {"models": {"providers": {"acme": said}}}
            opened = fledge.open(tmp_path / "state", workspace=tmp_path, model="acme/m", env=env, config=config)
            async with opened as fl:
                return (await (await fl.spawn("Say hello"))).text

    assert asyncio.run(main()) == "hello"
