"""`health`, `agents.list`, `models.list`, `config.shown`, `slash.list` over the wire: what the page shows of it."""

from pathlib import Path

from tests.gateway.serving import OverHttp, serving
from tests.statements import proves


@proves("4.gateway.27", "`health` tells lanes with who waits, the store, steps by the minute and what went wrong")
def test_health_tells_lanes_store_steps_and_what_went_wrong(tmp_path: Path) -> None:
    settings: dict[str, object] = {"agents": {"defaults": {"subagents": {"maxConcurrent": 1}}}}
    with serving(tmp_path / "state", settings=settings) as server:
        ask = OverHttp(server)
        first = ask.call("runs.spawn", task="Wait for me", program="tester")
        server.do(server.desk.fl.until(lambda tx: tx.runs.load(first["childSessionKey"]).started_at, timeout=20))
        ask.call("runs.spawn", task="Wait for me", program="tester")
        ask.call("send", session="main", message="hello")
        told = ask.call("health")
        lanes = {one["name"]: one for one in told["lanes"]}
        assert (lanes["subagent"]["used"], lanes["subagent"]["width"], lanes["subagent"]["queued"]) == (1, 1, 1)
        assert lanes["subagent"]["oldestWaitS"] >= 0
        assert (lanes["main"]["queued"], lanes["main"]["oldestWaitS"]) == (0, 0)
        store = told["store"]
        assert store["folder"] == str(tmp_path / "state")
        assert (store["runs"], store["sessions"]) == (2, 5)
        assert store["bytes"] > 4096
        assert store["freeBytes"] > 0
        assert 0 < store["commitMs"] <= store["commitP95Ms"]
        assert len(told["steps"]) == 30
        assert sum(told["steps"]) == 1
        assert told["errors"] == []


def test_what_went_wrong_is_told_the_newest_first(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        ask = OverHttp(server)
        for label in ("first", "second"):
            run = ask.call("runs.spawn", task="Wait for me", label=label, program="tester", runTimeoutSeconds=1)
            assert ask.call("runs.result", run=run["runId"], timeoutMs=30_000)["status"] == "timeout"
        errors = ask.call("health")["errors"]
        assert [one["kind"] for one in errors] == ["failed", "failed"]
        assert errors[0]["sessionKey"] == run["childSessionKey"]
        assert errors[0]["at"] >= errors[1]["at"]


@proves("4.gateway.28", "`agents.list` tells of each agent models, tools, whom it may start, depth, budget, sandbox")
def test_agents_are_told_with_what_they_may(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "tools": {"write": {"approval": "ask"}},
        "agents": {
            "defaults": {"sandbox": {"mode": "off"}},
            "list": [
                {"id": "main", "subagents": {"allowAgents": ["critic"]}},
                {
                    "id": "critic",
                    "description": "reads",
                    "model": {"primary": "given/a", "fallbacks": ["given/b"]},
                    "tools": {"deny": ["exec"]},
                    "subagents": {"maxSpawnDepth": 3},
                },
            ],
        },
    }
    with serving(tmp_path / "state", settings=settings) as server:
        main, critic = OverHttp(server).call("agents.list")
    assert (main["id"], main["model"], main["fallbacks"]) == ("main", "given/model", [])
    assert (critic["model"], critic["fallbacks"]) == ("given/a", ["given/b"])
    assert set(main["asks"]) == {"exec", "write"}
    assert "read" in main["may"]
    assert (main["never"], main["starts"], main["sandbox"]) == ([], ["main", "critic"], "off")
    assert (critic["description"], critic["never"], critic["maxDepth"]) == ("reads", ["exec"], 3)
    assert critic["budget"] is None


@proves("4.gateway.30", "`agents.list` tells what each agent began and spent on each of the last seven days")
def test_agents_tell_what_they_began_and_spent_this_week(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "agents": {"list": [{"id": "critic"}, {"id": "idle"}]},
        "models": {"catalog": {"given/model": {"price": {"input": 1000.0, "output": 2000.0}}}},
    }
    with serving(tmp_path / "state", settings=settings) as server:
        ask = OverHttp(server)
        for agent in ("main", "critic", "critic"):
            run = ask.call("runs.spawn", task="Say hello", program="tester", agentId=agent)
            assert ask.call("runs.result", run=run["runId"], timeoutMs=30_000)["status"] == "ok"
        weeks = {one["id"]: one["week"] for one in ask.call("agents.list")}
        spent = {row["agentId"]: row["costUsd"] for row in ask.call("runs.query")["rows"]}
    assert {len(week) for week in weeks.values()} == {7}
    assert [day["runs"] for day in weeks["critic"]] == [0, 0, 0, 0, 0, 0, 2]
    assert weeks["main"][-1] == {"runs": 1, "costUsd": spent["main"]}
    assert spent["main"] > 0
    assert weeks["idle"] == 7 * [{"runs": 0, "costUsd": None}]


@proves("4.gateway.29", "`models.list` tells the models that the settings name and those whose service has a key")
def test_models_that_can_be_used_are_told_with_the_reason(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "agents": {"list": [{"id": "critic", "model": {"primary": "given/a", "fallbacks": ["given/b"]}}]},
        "models": {"providers": {"openai": {"models": [{"id": "house", "contextWindow": 5000}]}}},
    }
    env = {"FLEDGE_CONFIG": str(tmp_path / "user"), "OPENAI_API_KEY": SECRET}
    with serving(tmp_path / "state", settings=settings, env=env) as server:
        answer = OverHttp(server).call("models.list")
    told = {one["name"]: one for one in answer}
    assert list(told)[:3] == ["given/model", "given/a", "given/b"], "what the settings name comes first"
    assert (told["given/model"]["because"], told["given/b"]["because"]) == ("the model of main", "the model of critic")
    assert (told["openai/house"]["because"], told["openai/house"]["window"]) == ("OPENAI_API_KEY is set", 5000)
    assert not any(name.startswith("anthropic/") for name in told), "its key is not set"
    priced = next(one for one in answer if one["inputUsd"] is not None)
    assert priced["outputUsd"] > 0
    assert SECRET not in str(answer)


SECRET = "hunter2-and-more"
PATTERNED = "sk-proj-abcdefghijklmnop123456"


@proves("8.gateway.20", "`config.shown` never tells a secret, wherever in the settings one stands")
def test_no_secret_of_the_settings_is_shown(tmp_path: Path) -> None:
    settings: dict[str, object] = {
        "models": {
            "providers": {
                "mine": {
                    "baseUrl": f"https://models.example/{SECRET}",
                    "api": "openai-chat",
                    "headers": {"x-key": SECRET},
                    "query": {"code": SECRET},
                    "apiKeyEnv": "MINE_KEY",
                }
            }
        },
        "agents": {"list": [{"id": "spy", "description": f"uses {PATTERNED}"}]},
        "channels": {"hook": {"kind": "webhook", "url": f"https://hooks.example/{SECRET}", "secretEnv": "HOOK_SECRET"}},
    }
    env = {"FLEDGE_CONFIG": str(tmp_path / "user"), "MINE_KEY": SECRET, "HOOK_SECRET": SECRET * 3}
    with serving(tmp_path / "state", settings=settings, env=env) as server:
        told = OverHttp(server).call("config.shown")
    assert SECRET not in str(told)
    assert PATTERNED not in str(told)
    shown = {one["key"]: one for one in told}
    assert shown["models.providers.mine.baseUrl"]["value"] == '"https://models.example/…"'
    assert shown["models.providers.mine.headers.x-key"]["value"] == "(hidden)"
    assert shown["models.providers.mine.apiKeyEnv"]["value"] == '"MINE_KEY"'
    assert shown["agents.defaults.subagents.maxConcurrent"] == {
        "key": "agents.defaults.subagents.maxConcurrent",
        "value": "8",
        "default": "8",
        "source": "default",
        "meaning": shown["agents.defaults.subagents.maxConcurrent"]["meaning"],
    }


def test_a_setting_that_is_a_group_is_shown_by_its_values_in_its_place(tmp_path: Path) -> None:
    model = {"primary": "given/a", "fallbacks": ["given/b"]}
    with serving(tmp_path / "state", settings={"agents": {"defaults": {"subagents": {"model": model}}}}) as server:
        told = OverHttp(server).call("config.shown")
    assert (told[0]["key"], told[0]["value"]) == ("agents.defaults.model.primary", '"given/model"')
    assert told[0]["default"] == "not set"
    assert told[0]["meaning"] == "model of the agent's own sessions; children use it if nothing else is set"
    keys = [one["key"] for one in told]
    assert len(keys) == len(set(keys))
    assert not {"agents.defaults.model", "agents.defaults.subagents.model"} & set(keys)
    at = keys.index("agents.defaults.subagents.model.primary")
    assert [(one["key"], one["value"]) for one in told[at : at + 2]] == [
        ("agents.defaults.subagents.model.primary", '"given/a"'),
        ("agents.defaults.subagents.model.fallbacks", '["given/b"]'),
    ]
    assert told[at]["meaning"]
    assert keys[at + 2].startswith("agents.defaults.subagents.")


def test_slash_commands_are_told_with_name_and_arguments(tmp_path: Path) -> None:
    with serving(tmp_path / "state") as server:
        told = {one["name"]: one for one in OverHttp(server).call("slash.list")}
    assert told["/subagents steer"]["arguments"] == "<id|#> <message>"
    assert (told["/stop"]["arguments"], told["/stop"]["form"]) == ("", "/stop")
    assert told["/heartbeat"]["arguments"] == "[reason]"
    assert all(one["meaning"] for one in told.values())
