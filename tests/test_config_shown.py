"""Settings as they are shown: value, default, where from; a secret is never among them, wherever it stands."""

import json
from pathlib import Path

import pytest

from fledge.cli.main import main
from fledge.config import check, describe
from fledge.config.layers import with_default_model
from fledge.config.places import discover
from fledge.config.shown import SettingShown, shown, without_secrets

MARK = "sk-proj-abcdefghijklmnop123456"


def rows(document: dict[str, object]) -> dict[str, SettingShown]:
    return {one.key: one for one in shown(check(document).config)}


def test_every_setting_of_the_reference_is_shown_at_its_default() -> None:
    told = rows({})
    for one in describe():
        if "[]" not in one.key and "<" not in one.key:
            assert (told[one.key].value, told[one.key].source) == (one.default, "default")


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        (f"https://a:{MARK}@models.example:8443", "https://models.example:8443"),
        (f"https://models.example/v1/{MARK}", "https://models.example/…"),
        (f"https://models.example/?key={MARK}", "https://models.example/…"),
        (f"wss://models.example#{MARK}", "wss://models.example/…"),
        ("https://models.example", "https://models.example"),
        (f"https://[{MARK}", "(hidden)"),
    ],
)
def test_of_an_address_only_its_host_is_shown(address: str, seen: str) -> None:
    assert without_secrets([address]) == [seen]


def test_a_text_that_holds_a_secret_is_shown_without_it() -> None:
    agent = {"id": "spy", "description": f"uses {MARK}", "model": MARK}
    told = rows({"agents": {"list": [agent]}, "tools": {"deny": [MARK]}})
    assert MARK not in json.dumps([one.value for one in told.values()])
    assert told["agents.list.spy.description"].value.startswith('"uses ')
    assert told["agents.list.spy.description"].source == "the program"


def test_the_layer_that_sets_a_value_last_is_its_source(tmp_path: Path) -> None:
    user, project = tmp_path / "user", tmp_path / "project"
    for folder, text in ((user, "{plan: {approvalHours: 5}, gateway: {port: 1}}"), (project, "{gateway: {port: 2}}")):
        folder.mkdir()
        (folder / "fledge.json5").write_text(text)
    found = discover(project, ("undelivered.retentionDays=3",), user)
    told = {one.key: (one.value, one.source) for one in shown(found.loaded.config, found.loaded.layers)}
    assert told["plan.approvalHours"] == ("5", str(user / "fledge.json5"))
    assert told["undelivered.retentionDays"] == ("3", "--set")
    assert told["gateway.port"] in (("1", str(user / "fledge.json5")), ("2", str(project / "fledge.json5")))
    assert told["gateway.host"][1] == "default"


def test_a_model_that_is_written_as_a_name_comes_from_where_that_name_is_written(tmp_path: Path) -> None:
    user, project = tmp_path / "user", tmp_path / "project"
    user.mkdir()
    project.mkdir()
    (user / "fledge.json5").write_text('{agents: {defaults: {model: "given/a"}}}')
    found = discover(project, ("agents.defaults.subagents.model=given/c",), user)
    told = {one.key: (one.value, one.source) for one in shown(found.loaded.config, found.loaded.layers)}
    assert told["agents.defaults.model.primary"] == ('"given/a"', str(user / "fledge.json5"))
    assert told["agents.defaults.subagents.model.primary"] == ('"given/c"', "--set")
    other = with_default_model(found.loaded.config, "given/d")
    told = {one.key: (one.value, one.source) for one in shown(other, found.loaded.layers)}
    assert told["agents.defaults.model.primary"] == ('"given/d"', "the program")


def test_the_command_shows_every_setting_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEDGE_CONFIG", str(tmp_path / "user"))
    assert main(["config", "--all", "--set", "plan.approvalHours=5"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "plan.approvalHours: 5  (--set, default 24)" in out
    assert "agents.defaults.subagents.maxConcurrent: 8  (default)" in out
