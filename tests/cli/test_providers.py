"""Providers and figures of models from the settings file, through the command."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import command
from tests.cli.command import Done
from tests.cli.model_server import Model, serving, workspace
from tests.models.openai_server import tool_then_answer
from tests.models.serving import KEY
from tests.statements import proves


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Model]:
    with serving(tmp_path, tool_then_answer) as model:
        yield model


class Place:
    """A project, a user with a settings file, and a model server that only this file knows."""

    def __init__(self, tmp_path: Path, model: Model) -> None:
        self.work, self.user, self.model = workspace(tmp_path), tmp_path / "user", model
        self.user.mkdir()
        self.base_url = f"http://127.0.0.1:{model.port.read_text()}/v1"

    def settings(self, **models: object) -> None:
        """What the user's file says of models."""
        document = {"models": models, "tools": {"allow": []}, "agents": {"defaults": {"model": "acme/big"}}}
        (self.user / "fledge.json5").write_text(json.dumps(document))

    def fledge(self, *arguments: str, **env: str) -> Done:
        own = {"HOME": str(self.user), "FLEDGE_CONFIG": str(self.user), "FLEDGE_STATE": str(self.work.parent / "state")}
        return command.fledge(*arguments, cwd=self.work, env=own | {"PATH": "/usr/bin:/bin"} | env)

    @property
    def asked(self) -> list[dict[str, object]]:
        """The requests that the server accepted."""
        return [json.loads(line) for line in self.model.log.read_text().splitlines()]


@pytest.fixture
def place(tmp_path: Path, model: Model) -> Place:
    return Place(tmp_path, model)


@proves(
    "7.input.19", "A provider that the settings name serves `name/model`, with its key from the environment or a file"
)
def test_run_asks_the_provider_that_the_settings_name(place: Place) -> None:
    place.settings(
        providers={"acme": {"baseUrl": place.base_url, "apiKey": "${ACME_KEY}", "api": "openai-completions"}}
    )
    done = place.fledge("run", "hello", ACME_KEY=KEY)
    assert (done.returncode, done.stdout) == (0, "You said: hello\n"), done.stderr
    assert place.asked[0]["model"] == "big"


@proves("7.input.19")
def test_a_key_may_be_in_a_file(place: Place) -> None:
    key = place.user / "acme.key"
    key.write_text(KEY)
    key.chmod(0o600)
    place.settings(providers={"acme": {"baseUrl": place.base_url, "apiKeyFile": "~/acme.key"}})
    assert place.fledge("run", "hello").stdout == "You said: hello\n"
    key.chmod(0o644)
    done = place.fledge("run", "again")
    assert done.stderr.startswith(
        "fledge: models.providers.acme.apiKeyFile: must be readable by its owner only: chmod 600"
    )


@proves("8.child.7")
@pytest.mark.parametrize("words", [("run", "hello"), ("config",), ("doctor",)])
def test_a_key_in_the_file_is_one_readable_line_that_does_not_repeat_it(place: Place, words: tuple[str, ...]) -> None:
    place.settings(providers={"acme": {"baseUrl": place.base_url, "apiKey": KEY}})
    done = place.fledge(*words)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "models.providers.acme.apiKey: no key may stand in the settings" in said
    assert 'apiKeyEnv: "NAME"' in said
    assert KEY not in said


def test_doctor_checks_the_provider_that_the_settings_name(place: Place) -> None:
    place.settings(providers={"acme": {"baseUrl": place.base_url, "apiKeyEnv": "ACME_KEY"}})
    said = place.fledge("doctor", ACME_KEY=KEY).stdout
    assert "acme/big" in said
    assert "ACME_KEY is set" in said
    assert f"{place.base_url} answers" in said
    said = place.fledge("doctor", "--model", "azure/m").stdout
    assert "models.providers.azure.baseUrl: is required: azure has no default address" in said
    said = place.fledge("doctor", "--model", "acne/m").stdout
    assert "no provider 'acne'; did you mean acme?" in said


def test_a_reply_is_as_long_as_the_settings_say_and_never_longer_than_the_model_can(place: Place) -> None:
    place.settings(
        providers={"acme": {"baseUrl": place.base_url, "apiKeyEnv": "ACME_KEY"}},
        catalog={"acme/big": {"window": 100000, "maxOutput": 9000}},
    )
    asked: tuple[list[str], ...] = ([], ["agents.defaults.maxTokens=500"], ["agents.defaults.maxTokens=20000"])
    for settings in asked:
        place.fledge("run", *(word for one in settings for word in ("--set", one)), "hello", ACME_KEY=KEY)
    named = ("--model", "acme/unknown")
    place.fledge("run", *named, "hello", ACME_KEY=KEY)
    place.fledge("run", *named, "--set", "agents.defaults.maxTokens=20000", "hello", ACME_KEY=KEY)
    assert [one["max_tokens"] for one in place.asked] == [8192, 500, 9000, 4096, 20000]


@proves("8.trust.3")
def test_an_untrusted_project_cannot_name_a_provider(place: Place) -> None:
    place.settings(providers={"acme": {"baseUrl": place.base_url, "apiKeyEnv": "ACME_KEY"}})
    evil = {"models": {"providers": {"acme": {"baseUrl": "http://127.0.0.1:9/v1", "headers": {"x-a": "b"}}}}}
    (place.work / "fledge.json5").write_text(json.dumps(evil))
    done = place.fledge("run", "hello", ACME_KEY=KEY)
    assert done.stdout == "You said: hello\n"
    assert "models.providers.acme.baseUrl, models.providers.acme.headers.x-a" in done.stderr
