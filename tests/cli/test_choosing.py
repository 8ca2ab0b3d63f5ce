"""A fresh folder with one key: `fledge run` chooses the model, says so, and remembers it."""

import json
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp import web

from tests.cli import command
from tests.cli.command import Done
from tests.cli.model_server import workspace
from tests.models import anthropic_server, openai_server, responses_server
from tests.models.anthropic_server import AnthropicServer
from tests.models.compatible_servers import DeepSeekServer, GeminiServer, OpenRouterServer
from tests.models.openai_server import OpenAIServer
from tests.models.responses_server import ResponsesServer
from tests.models.serving import KEY, Rejected, Script, Server, Status, in_thread
from tests.statements import proves

NOBODY = "http://127.0.0.1:9"
"""An address at which nothing answers."""


class Listing(OpenAIServer):
    """A server of one's own that lists its models, as LM Studio, vLLM and llama.cpp do
    (https://platform.openai.com/docs/api-reference/models/list)."""

    models: Sequence[str] = ("text-embedding-nomic", "qwen3-8b")

    def __init__(self, script: Script) -> None:
        super().__init__(script, key=None)
        self._runner.app.router.add_get("/v1/models", self._list)

    async def _list(self, request: web.Request) -> web.Response:
        data = [{"id": name, "object": "model", "owned_by": "me"} for name in self.models]
        return web.json_response({"object": "list", "data": data})


class MessagesListing(AnthropicServer):
    """A server of the messages protocol that lists its models (https://platform.claude.com/docs/en/api/models/list).

    It wants a query with every request, as some gateways do."""

    models: Sequence[str] = ("sonnet-of-ours",)

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self._runner.app.router.add_get("/v1/models", self._list)

    async def _list(self, request: web.Request) -> web.Response:
        wanted = {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
        if any(request.headers.get(name) != value for name, value in wanted.items()):
            return web.json_response(self.rejection(Rejected("no access", 401, "authentication_error")), status=401)
        if "Authorization" in request.headers or request.query.get("tenant") != "ours":
            return web.json_response(self.rejection(Rejected("which tenant?")), status=400)
        data = [{"id": name, "type": "model", "display_name": name} for name in self.models]
        return web.json_response({"data": data, "has_more": False})


class OllamaServer(OpenAIServer):
    """Ollama: https://docs.ollama.com/api/tags and https://docs.ollama.com/api-reference/show-model-details."""

    models: ClassVar = {
        "nomic-embed-text:latest": ["embedding"],
        "gemma2:2b": ["completion"],
        "qwen3:8b": ["completion", "tools"],
    }

    def __init__(self, script: Script) -> None:
        super().__init__(script, key=None)
        self._runner.app.router.add_get("/api/tags", self._tags)
        self._runner.app.router.add_post("/api/show", self._show)

    async def _tags(self, request: web.Request) -> web.Response:
        return web.json_response({"models": [{"name": name, "model": name, "size": 1} for name in self.models]})

    async def _show(self, request: web.Request) -> web.Response:
        name = (await request.json())["model"]
        return web.json_response({"capabilities": self.models[name], "details": {}})


class Place:
    """A fresh user with a fresh folder."""

    def __init__(self, tmp_path: Path) -> None:
        self.work, self.user = workspace(tmp_path), tmp_path / "user"
        self.user.mkdir()
        self.state = tmp_path / "state"

    @property
    def memory(self) -> Path:
        return self.user / ".config" / "fledge" / "model.json"

    def settings(self, **document: object) -> None:
        folder = self.user / ".config" / "fledge"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "fledge.json5").write_text(json.dumps(document))

    def fledge(self, *arguments: str, given: str = "", **env: str) -> Done:
        own = {"HOME": str(self.user), "PATH": "/usr/bin:/bin", "FLEDGE_STATE": str(self.state)}
        return command.fledge(*arguments, cwd=self.work, env=own | env, given=given)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def served(tmp_path: Path, make: Callable[[Script], Server], script: Script) -> Iterator[Callable[[], list[Any]]]:
    """A server on a free port (`port` in the folder), and the requests it accepted."""
    folder = tmp_path / "served"
    folder.mkdir(exist_ok=True)
    with in_thread(make, script, folder / "port", folder / "hold"):
        log = folder / "port.log"
        yield lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


class Case:
    """A provider, the variable of its key, the wire it speaks and the model that stands for it."""

    def __init__(
        self, name: str, key: str, make: Callable[[Script], Server], script: Script, path: str, model: str, **env: str
    ) -> None:
        self.name, self.key, self.make, self.script = name, key, make, script
        self.path, self.model, self.env = path, model, env


CHAT = openai_server.tool_then_answer
CASES = [
    Case("anthropic", "ANTHROPIC_API_KEY", AnthropicServer, anthropic_server.tool_then_answer, "", "claude-sonnet-5-5"),
    Case("openai", "OPENAI_API_KEY", ResponsesServer, responses_server.tool_then_answer, "/v1", "gpt-5.6-terra"),
    Case("google", "GEMINI_API_KEY", GeminiServer, CHAT, "/v1beta/openai", "gemini-3.8-flash"),
    Case("deepseek", "DEEPSEEK_API_KEY", DeepSeekServer, CHAT, "/v1", "deepseek-v4-flash"),
    Case("openrouter", "OPENROUTER_API_KEY", OpenRouterServer, CHAT, "/api/v1", "anthropic/claude-sonnet-5.5"),
    Case("groq", "GROQ_API_KEY", OpenAIServer, CHAT, "/v1", "openai/gpt-oss-120b"),
    Case("mistral", "MISTRAL_API_KEY", OpenAIServer, CHAT, "/v1", "mistral-large-4"),
    Case("xai", "XAI_API_KEY", OpenAIServer, CHAT, "/v1", "grok-4.5"),
    Case("together", "TOGETHER_API_KEY", OpenAIServer, CHAT, "/v1", "openai/gpt-oss-120b"),
    Case("azure", "AZURE_OPENAI_API_KEY", ResponsesServer, responses_server.tool_then_answer, "/v1", "gpt-5.6-terra"),
]


@proves(
    "7.input.24",
    "A fresh folder with the key of one provider works: `fledge run` chooses that provider's default model, says so"
    " before anything is sent, and remembers it",
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_key_is_enough(case: Case, place: Place, tmp_path: Path) -> None:
    with served(tmp_path, case.make, case.script) as asked:
        port = (tmp_path / "served" / "port").read_text()
        place.settings(models={"providers": {case.name: _provider(case, port)}})
        done = place.fledge("run", "Please use list", **{case.key: KEY}, OLLAMA_BASE_URL=NOBODY)
        assert (done.returncode, done.stdout) == (0, "Let me see.\nThe tool said: notes.txt (5)\n"), done.stderr
        name = f"{case.name}/{case.model}"
        changes = "--model NAME or fledge init changes it"
        assert done.stderr == f"fledge: model: {name} (because {case.key} is set; {changes})\nmain · list\n"
        assert [one["model"] for one in asked()] == [case.model, case.model]


def _provider(case: Case, port: str) -> dict[str, str]:
    api = {"openai": {"api": "openai-responses"}}.get(case.name, {})
    return {"baseUrl": f"http://127.0.0.1:{port}{case.path}", **api}


OWN = [
    ("ollama", "OLLAMA_BASE_URL", OllamaServer, "qwen3:8b"),
    ("lmstudio", "LMSTUDIO_BASE_URL", Listing, "qwen3-8b"),
    ("vllm", "VLLM_BASE_URL", Listing, "qwen3-8b"),
    ("llamacpp", "LLAMACPP_BASE_URL", Listing, "qwen3-8b"),
]


@proves(
    "7.input.25",
    "The address of a server of one's own is enough: it is asked which models it has, Ollama which of them use tools",
)
@pytest.mark.parametrize(("name", "variable", "make", "model"), OWN, ids=[one[0] for one in OWN])
def test_the_address_of_a_server_of_ones_own_is_enough(
    name: str, variable: str, make: Callable[[Script], Server], model: str, place: Place, tmp_path: Path
) -> None:
    with served(tmp_path, make, CHAT) as asked:
        base_url = f"http://127.0.0.1:{(tmp_path / 'served' / 'port').read_text()}/v1"
        done = place.fledge("run", "Please use list", **{variable: base_url})
        assert (done.returncode, done.stdout) == (0, "Let me see.\nThe tool said: notes.txt (5)\n"), done.stderr
        assert f"model: {name}/{model} (because {variable} is set;" in done.stderr
        assert {one["model"] for one in asked()} == {model}
        assert not place.memory.exists() or "model" not in json.loads(place.memory.read_text())


@pytest.mark.parametrize("path", ["", "/v1"])
def test_a_server_of_the_messages_protocol_is_asked_for_its_models(path: str, place: Place, tmp_path: Path) -> None:
    with served(tmp_path, MessagesListing, anthropic_server.tool_then_answer) as asked:
        base_url = f"http://127.0.0.1:{(tmp_path / 'served' / 'port').read_text()}{path}"
        ours = {"api": "anthropic", "baseUrl": base_url, "apiKeyEnv": "OURS_KEY", "query": {"tenant": "ours"}}
        place.settings(models={"providers": {"ours": ours}})
        done = place.fledge("models", OURS_KEY=KEY, OLLAMA_BASE_URL=NOBODY)
        assert "ours: OURS_KEY is set\n  ours/sonnet-of-ours\n" in done.stdout, done
        done = place.fledge("doctor", "--model", "ours/sonnet-of-ours", OURS_KEY=KEY)
        assert f"{base_url} answers (200)" in done.stdout, done
        done = place.fledge("run", "Please use list", OURS_KEY=KEY, OLLAMA_BASE_URL=NOBODY)
        assert (done.returncode, done.stdout) == (0, "Let me see.\nThe tool said: notes.txt (5)\n"), done.stderr
        assert {one["model"] for one in asked()} == {"sonnet-of-ours"}


@pytest.fixture
def anthropic(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user of Anthropic, whose server echoes."""
    with ExitStack() as stack:
        stack.enter_context(served(tmp_path, AnthropicServer, anthropic_server.tool_then_answer))
        port = (tmp_path / "served" / "port").read_text()
        yield {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}


QUIET = ("--set", "tools.allow=[]")


@proves("7.input.24")
def test_the_choice_is_said_once_and_remembered_in_the_users_folder(place: Place, anthropic: dict[str, str]) -> None:
    assert "model: anthropic/" in place.fledge("run", *QUIET, "one", **anthropic).stderr
    assert json.loads(place.memory.read_text())["model"] == "anthropic/claude-sonnet-5-5"
    assert place.memory.stat().st_mode & 0o077 == 0
    done = place.fledge("run", *QUIET, "two", **anthropic, OPENAI_API_KEY="another")
    assert (done.stdout, done.stderr) == ("You said: two\n", "")


@proves("7.input.24")
def test_a_chat_chooses_too_and_says_so_before_anything_is_sent(place: Place, anthropic: dict[str, str]) -> None:
    done = place.fledge("chat", *QUIET, given="hello\n", **anthropic)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "model: anthropic/claude-sonnet-5-5 (because ANTHROPIC_API_KEY is set; --model NAME" in said
    assert "You said: hello" in done.stdout
    assert said.index("model: anthropic/") < said.index("You said")


def test_a_remembered_model_whose_key_is_gone_is_chosen_anew(place: Place, anthropic: dict[str, str]) -> None:
    place.memory.parent.mkdir(parents=True)
    place.memory.write_text('{"model": "openai/gpt-5", "because": "OPENAI_API_KEY is set"}')
    assert "model: anthropic/" in place.fledge("run", *QUIET, "one", **anthropic).stderr


def test_a_memory_that_cannot_be_read_says_what_to_do(place: Place, anthropic: dict[str, str]) -> None:
    place.memory.parent.mkdir(parents=True)
    place.memory.write_text("[")
    done = place.fledge("run", *QUIET, "one", **anthropic)
    assert f"{place.memory}: must be a readable JSON object; remove it to choose again" in done.stderr


@proves("7.input.26", "`--model`, then the settings, then the remembered model, then keys, then a local Ollama")
def test_the_settings_and_the_option_go_before_any_key(place: Place, anthropic: dict[str, str]) -> None:
    place.settings(agents={"defaults": {"model": "anthropic/claude-haiku-4-5"}})
    done = place.fledge("run", *QUIET, "one", **anthropic)
    assert (done.stdout, done.stderr) == ("You said: one\n", "")
    done = place.fledge("run", *QUIET, "--model", "anthropic/claude-opus-4-5", "two", **anthropic)
    assert (done.stdout, done.stderr) == ("You said: two\n", "")
    assert "model" not in json.loads(place.memory.read_text())


@proves("7.input.26")
def test_with_several_keys_the_first_of_the_order_is_chosen(place: Place, anthropic: dict[str, str]) -> None:
    keys = {"GROQ_API_KEY": "a-groq-key", "DEEPSEEK_API_KEY": "a-deepseek-key", "OPENAI_API_KEY": "an-openai-key"}
    assert "model: anthropic/" in place.fledge("run", *QUIET, "one", **keys, **anthropic).stderr


@proves("7.input.26")
def test_without_any_key_the_error_lists_what_would_do(place: Place) -> None:
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", 11434)) == 0:
            pytest.skip("an Ollama runs on this machine")
    done = place.fledge("run", "hello")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "fledge: no model is set, and no provider can be used: set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY,"
        " or start a local Ollama (`fledge doctor` names the keys of other services)"
    )
    assert done.stderr.count("_API_KEY") == 3
    assert done.stderr.count("\n") == 1
    assert not place.state.exists()


def test_a_server_without_a_model_that_can_use_tools_is_named(place: Place, tmp_path: Path) -> None:
    class Empty(Listing):
        models = ("only-embeddings",)

    with served(tmp_path, Empty, CHAT):
        base_url = f"http://127.0.0.1:{(tmp_path / 'served' / 'port').read_text()}/v1"
        done = place.fledge("run", "hello", VLLM_BASE_URL=base_url)
        assert "vllm (VLLM_BASE_URL is set) names no model that can be used" in done.stderr
        done = place.fledge("run", "hello", VLLM_BASE_URL=NOBODY)
        assert "vllm (VLLM_BASE_URL is set) names no model that can be used" in done.stderr


@proves("7.input.26")
def test_other_commands_use_what_was_remembered_and_choose_nothing(place: Place, anthropic: dict[str, str]) -> None:
    done = place.fledge("spawn", *QUIET, "hello", **anthropic)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "no model is set: give --model NAME" in said
    assert "usable now: anthropic/claude-sonnet-5-5 (ANTHROPIC_API_KEY is set)" in said
    assert not place.memory.exists()
    place.fledge("run", *QUIET, "one", **anthropic)
    done = place.fledge("send", *QUIET, "main", "two", **anthropic)
    assert (done.returncode, done.stdout) == (0, "You said: two\n"), done.stderr


# ---- refusals --------------------------------------------------------------------------------------------------------


@proves("7.input.27", "A refusal that only a change can mend ends with that change; `--continue` keeps the model")
@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, {"type": "authentication_error", "message": "invalid x-api-key"}, "anthropic refuses the key: correct"),
        (
            403,
            {"type": "permission_error", "message": "no"},
            "may not use this model at anthropic: correct it, or",
        ),
        (404, {"type": "not_found_error", "message": "model: m"}, "anthropic has no such model at http://127.0.0.1"),
        (402, {"type": "billing_error", "message": "pay"}, "the account at anthropic is used up: add credit there, or"),
    ],
)
def test_a_refusal_ends_with_what_to_change(
    status: int, body: dict[str, str], words: str, place: Place, tmp_path: Path
) -> None:
    answers: list[Any] = [[Status(status, {"type": "error", "error": body})]]

    def script(request: dict[str, Any]) -> Any:
        return answers.pop() if answers else anthropic_server.tool_then_answer(request)

    with served(tmp_path, AnthropicServer, script) as asked:
        port = (tmp_path / "served" / "port").read_text()
        env = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}
        done = place.fledge("run", *QUIET, "--model", "anthropic/m", "hello", **env)
        assert done.returncode == 1
        first, second = done.stderr.splitlines()
        assert words in first
        assert second == "fledge: nothing is lost: after that change `fledge run --continue` goes on"
        done = place.fledge("run", *QUIET, "--continue", **env)
        assert done.stdout == "You said: hello\n"
        assert [one["model"] for one in asked()] == ["m", "m"]


def test_a_program_is_never_chosen_a_model_but_told_what_there_is(place: Place) -> None:
    import fledge

    opened = fledge.open(place.state, env={"HOME": str(place.user), "GROQ_API_KEY": "a-groq-key"}, config={})
    with pytest.raises(fledge.Refused) as refused:
        opened.check()
    assert "no model is set" in str(refused.value)
    assert "usable now: groq/openai/gpt-oss-120b (GROQ_API_KEY is set)" in str(refused.value)
