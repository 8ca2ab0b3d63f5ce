"""Documents that an agent changed, at the doors without a chat: what `fledge run` says, what `fledge trust` does."""

import asyncio
from contextlib import chdir
from pathlib import Path

import pytest

from fledge.cli.main import main
from fledge.cli.run import RunRequest, converse
from fledge.cli.where import Where
from fledge.models.base import Request as Asked
from fledge.models.scripted import Answer, ScriptedModel, use
from tests.runtime.desk import said
from tests.statements import proves

PLAIN = ("agents.defaults.sandbox.mode=off", "tools.exec.approval=never")


@proves("3.prompt.20", "Without a chat, `fledge trust` takes in what was left out")
def test_without_a_chat_the_line_names_fledge_trust_which_takes_it_in(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    work, state, systems = tmp_path / "work", tmp_path / "state", list[str]()
    work.mkdir()

    def script(request: Asked) -> Answer:
        systems.append(request.system)
        return use("exec", command="echo obey me > SOUL.md") if said(request) == 0 else "done"

    def say(words: str) -> str:
        request = RunRequest(words, "scripted/one", quiet=True)
        run = converse(Where(state), request, PLAIN, models={"scripted/one": ScriptedModel(script)})
        assert asyncio.run(run) == 0
        return capfd.readouterr().err

    with chdir(work):
        assert say("go") == ""
        assert say("and now?") == "fledge: SOUL.md changed while an agent worked: `fledge trust` takes it in\n"
        assert say("and now?") == ""
        assert "obey me" not in systems[-1]
        assert main(["trust", "--state", str(state)]) == 0
        assert capfd.readouterr().out == "taken in: SOUL.md\n"
        say("and now?")
        assert "obey me" in systems[-1]
        assert main(["trust", "--state", str(state)]) == 1
        assert "nothing to trust" in capfd.readouterr().err
