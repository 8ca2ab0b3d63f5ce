"""`fledge models` lists what can be used; `fledge doctor` asks the chosen model for one word."""

import json
from pathlib import Path
from typing import Any

import pytest

from fledge.models.base import Usage
from fledge.models.scripted import ScriptedReply
from tests.cli.test_choosing import CHAT, NOBODY, OllamaServer, Place, served
from tests.models import anthropic_server
from tests.models.anthropic_server import AnthropicServer
from tests.models.serving import KEY, Cut, Status
from tests.statements import proves


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@proves("7.input.28", "`fledge models` lists the models that can be used now, why, and with which price and window")
def test_models_lists_what_can_be_used_and_why(place: Place) -> None:
    done = place.fledge("models", DEEPSEEK_API_KEY=KEY)
    lines = done.stdout.splitlines()
    assert lines[0] == "deepseek: DEEPSEEK_API_KEY is set"
    row = next(line for line in lines if "deepseek/deepseek-v4-flash" in line)
    assert row.endswith("$0.14 in, $0.28 out per million tokens · window 1,000,000 · default")
    assert not any(line.startswith("anthropic") for line in lines)
    assert lines[-1].endswith("more providers are not usable: fledge models --all says what is missing")
    assert KEY not in done.stdout


@proves("7.input.28")
def test_models_all_says_what_is_missing_and_json_is_for_programs(place: Place) -> None:
    done = place.fledge("models", "--all", AZURE_OPENAI_API_KEY=KEY, AZURE_OPENAI_BASE_URL="https://me.example")
    assert "anthropic: not usable: set ANTHROPIC_API_KEY, or ANTHROPIC_API_KEY_FILE to a file" in done.stdout
    assert "azure: AZURE_OPENAI_API_KEY is set\n  azure/gpt-5.6-terra\n" in done.stdout
    rows: list[dict[str, Any]] = json.loads(place.fledge("models", "--json", "--all", XAI_API_KEY=KEY).stdout)
    found = {row["name"]: row for row in rows}
    assert found["xai/grok-4.5"] == {
        "name": "xai/grok-4.5",
        "provider": "xai",
        "usable": True,
        "because": "XAI_API_KEY is set",
        "missing": "",
        "default": True,
        "window": 500000,
        "maxOutput": 32768,
        "images": True,
        "price": {"input": 2, "output": 6},
    }
    assert not found["anthropic/claude-sonnet-5-5"]["usable"]
    assert found["anthropic/claude-sonnet-5-5"]["missing"].startswith("set ANTHROPIC_API_KEY")


def test_models_of_a_server_of_ones_own_are_those_it_names(place: Place, tmp_path: Path) -> None:
    with served(tmp_path, OllamaServer, CHAT):
        base_url = f"http://127.0.0.1:{(tmp_path / 'served' / 'port').read_text()}/v1"
        lines = place.fledge("models", OLLAMA_BASE_URL=base_url).stdout.splitlines()
        assert lines[:2] == ["ollama: OLLAMA_BASE_URL is set", "  ollama/qwen3:8b"]


# ---- doctor ----------------------------------------------------------------------------------------------------------


def doctor(place: Place, tmp_path: Path, script: Any, *arguments: str) -> tuple[str, list[dict[str, Any]]]:
    """What doctor says of a fresh user of Anthropic, and what the model was sent."""
    with served(tmp_path, AnthropicServer, script) as asked:
        port = (tmp_path / "served" / "port").read_text()
        env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}
        done = place.fledge("doctor", *arguments, **env)
        assert KEY not in done.stdout
        return done.stdout, asked()


@proves("7.input.29", "`fledge doctor` asks the chosen model for one word, with a tool offered, and says what it cost")
def test_doctor_asks_the_chosen_model_and_says_what_it_cost(place: Place, tmp_path: Path) -> None:
    said, asked = doctor(place, tmp_path, lambda body: ScriptedReply("ready", usage=Usage(1000, 100)))
    assert "ok    model        anthropic/claude-sonnet-5-5 (because ANTHROPIC_API_KEY is set)\n" in said
    answered = "anthropic/claude-sonnet-5-5 answers (1000 tokens in, 100 out; it cost $0.003000)"
    assert f"ok    call         {answered}\n" in said
    assert [one["name"] for one in asked[0]["tools"]] == ["read"]
    assert not place.memory.exists()


@proves("7.input.29")
def test_doctor_offline_asks_nobody(place: Place, tmp_path: Path) -> None:
    model = ("--model", "anthropic/claude-haiku-4-5")
    said, asked = doctor(place, tmp_path, anthropic_server.tool_then_answer, "--offline", *model)
    assert "key          ANTHROPIC_API_KEY is set" in said
    assert "call" not in said
    assert "provider" not in said
    assert asked == []
    assert "no model is set" in doctor(place, tmp_path, anthropic_server.tool_then_answer, "--offline")[0]


@proves("7.input.29")
@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Status(401, {"error": {"message": "invalid"}}), "anthropic refuses the key: correct ANTHROPIC_API_KEY"),
        (Status(404, {"error": {"message": "model: x"}}), "anthropic has no such model at http://127.0.0.1"),
        (Status(402, {"error": {"message": "pay"}}), "the account at anthropic is used up: add credit there"),
        (Status(429, {"error": {"message": "slow"}}), "wait a little, then run fledge doctor again"),
        (Status(529, {"error": {"message": "busy"}}), "wait a little, then run fledge doctor again"),
        (Status(400, {"error": {"message": "tools"}}), "or set models.providers.anthropic.api"),
        (Status(413, {"error": {"message": "big"}}), "this model has no room for tools: name another"),
        (Status(400, {"error": {"message": "usage policies"}}), "the provider's policy refuses a harmless request"),
        (Cut(), "wait a little, then run fledge doctor again"),
    ],
)
def test_each_refusal_is_a_line_that_says_what_to_change(
    action: Status | Cut, words: str, place: Place, tmp_path: Path
) -> None:
    said, _ = doctor(place, tmp_path, lambda body: [action])
    line = next(line for line in said.splitlines() if line.startswith("fail  call"))
    assert "does not answer: " in line
    assert words in said.splitlines()[said.splitlines().index(line) + 1]


def test_doctor_says_that_no_model_can_be_chosen(place: Place) -> None:
    said = place.fledge("doctor", OLLAMA_BASE_URL=NOBODY).stdout
    assert "fail  model        no model is set, and none can be chosen\n" in said
    assert "ollama (OLLAMA_BASE_URL is set) names no model that can be used" in said
    assert "DEEPSEEK_API_KEY, OPENROUTER_API_KEY, AZURE_OPENAI_API_KEY" in place.fledge("doctor").stdout
