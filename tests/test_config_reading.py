"""Settings from text, files, layers and single settings; and whatever is written, read or refused."""

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.inspect import BoolType, DictType, FloatType, IntType, LiteralType, StructType, VarTupleType

from fledge.config import (
    BudgetBlock,
    Config,
    Loaded,
    ModelChoice,
    as_document,
    check,
    load,
    merge,
    parse,
    parse_document,
    read,
    with_settings,
)
from fledge.config.schema import ChannelQueue
from fledge.config.shape import Shape, settings_in, shape
from fledge.core.params import struct_type
from fledge.errors import BadInput

RESEARCH = {"agents": {"list": [{"id": "main"}, {"id": "Research", "model": "m"}]}, "tools": {"deny": ["x", "y"]}}
H = "agents.defaults.heartbeat.activeHours"
S = "agents.defaults.subagents."


def found(config: Config, key: str) -> object:
    """What the config holds under this key."""
    value: object = config
    for part in key.split("."):
        name = part.removesuffix("[]")
        assert isinstance(value, msgspec.Struct)
        fields = {one.encode_name: one.name for one in msgspec.structs.fields(type(value))}
        value = getattr(value, fields[name])
        if part.endswith("[]"):
            assert isinstance(value, tuple)
            value = value[0]
    return value


def nested(key: str, value: object) -> dict[str, object]:
    """The document that sets only this key; `[]` is one agent called research."""
    head, _, rest = key.partition(".")
    if head.endswith("[]"):
        agent = {"id": "research", **nested(rest, value)}
        return {head.removesuffix("[]"): [agent]}
    return {head: nested(rest, value) if rest else value}


def refusal(act: Callable[..., object], *given: object) -> str:
    """The message with which this is refused."""
    with pytest.raises(BadInput) as caught:
        act(*given)
    return str(caught.value)


# ---- text and files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"plan": {"approvalHours": 2}}',
        "{plan: {approvalHours: 2,},} // done",
        "/* hours */ {'plan': {approvalHours: +2.0}}",
        '\ufeff{"plan": {"approvalHours": 2}}',
        "\ufeff{plan: {approvalHours: 0x2}}",
    ],
)
def test_json_and_json5_are_read(text: str) -> None:
    assert parse(text) == Loaded(check({"plan": {"approvalHours": 2}}).config, ())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", "fledge.json5: is empty; {} stands for all defaults"),
        (" \n\t", "fledge.json5: is empty; {} stands for all defaults"),
        ("\ufeff", "fledge.json5: is empty; {} stands for all defaults"),
        ("// nothing", "fledge.json5 line 1 column 11: must be JSON5: unexpected end of input"),
        ("{a: 1,\n b: }", 'fledge.json5 line 2 column 5: must be JSON5: unexpected "}"'),
        ('{"a": 1} x', 'fledge.json5 line 1 column 10: must be JSON5: unexpected "x"'),
        ('{a: "b\n"}', 'fledge.json5 line 1 column 7: must be JSON5: unexpected "\\n"'),
        ("[]", "fledge.json5: must hold an object: { … } (got [])"),
        ("null", "fledge.json5: must hold an object: { … } (got null)"),
        ("'text'", "fledge.json5: must hold an object: { … } (got 'text')"),
        ("NaN", "fledge.json5: must hold an object: { … } (got nan)"),
        ("[" * 100_000, "fledge.json5: is nested too deep to be read"),
        ("/**/" + "{a:" * 10_000, "fledge.json5: is nested too deep to be read"),
        ('{"a": ' + "[" * 32 + "]" * 32 + "}", "fledge.json5: must not nest deeper than 32 levels"),
        ("{" + " " * 262_143 + "}", "fledge.json5: must be at most 262144 characters (got 262145)"),
        ('{"ui": 1, "plan": {}, "ui": 2}', "fledge.json5: must give each key of an object once (got 'ui')"),
        ("{ui: 1, ui: 2}", "fledge.json5: must give each key of an object once (got 'ui')"),
        (
            '{"ui": ' + "1" * 5000 + "}",
            "fledge.json5: must be JSON5: exceeds the limit (4300 digits) for integer string conversion",
        ),
        ('{"ui": ' + "1" * 400 + "}", "fledge.json5: must not hold numbers of more than 300 digits"),
        ("{ui: 0x" + "f" * 5000 + "}", "fledge.json5: must not hold numbers of more than 300 digits"),
    ],
)
def test_text_that_is_no_settings_document_is_refused(text: str, shown: str) -> None:
    assert refusal(parse, text) == shown


def test_a_document_may_nest_32_levels_and_be_262144_characters_long() -> None:
    assert parse('{"ui": ' + "[" * 31 + "]" * 31 + "}").warnings != ()
    assert parse('{"ui": ' + '{"a":' * 31 + "1" + "}" * 31 + "}").warnings != ()
    assert parse("{" + " " * 262_142 + "}").warnings == ()


def test_a_refusal_names_the_source_it_was_given() -> None:
    assert refusal(parse, "{", "mine.json5").startswith("mine.json5 line 1 column 2: ")
    assert refusal(parse_document, "[]", "mine.json5").startswith("mine.json5: must hold")
    assert refusal(parse_document, "[]").startswith("fledge.json5: must hold")
    assert refusal(check, []).startswith("fledge.json5: must hold")
    assert refusal(check, {1: 2}, "x") == "x: must have text as keys (got 1)"


def test_a_number_of_1024_bits_in_an_ignored_block_is_read_over() -> None:
    assert len(check({"ui": 2**1024 - 1}).warnings) == 1
    assert refusal(check, {"ui": [2**1024]}) == "fledge.json5: must not hold numbers of more than 300 digits"


def test_files_are_layered_and_missing_ones_passed_over(tmp_path: Path) -> None:
    user, project = tmp_path / "user.json5", tmp_path / "project.json5"
    user.write_text("{plan: {approvalHours: 1}, announce: {style: 'full'}, ui: 1}")
    project.write_text("{plan: {approvalHours: 2}, announce: {maxRetries: 1}}")
    loaded = load([user, tmp_path / "none.json5", project], ["announce.maxRetries=5"])
    assert loaded.config.plan.approval_hours == 2
    assert (loaded.config.announce.style, loaded.config.announce.max_retries) == ("full", 5)
    assert loaded.warnings == ("ui: ignored, a key of OpenClaw that fledge does not use",)
    assert read(tmp_path / "none.json5") is None
    assert load([]).config == Config()


def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    broken, binary, large = tmp_path / "broken", tmp_path / "binary", tmp_path / "large"
    broken.write_text("{")
    binary.write_bytes(b'{"a": "\xff"}')
    large.write_bytes(b"{" + b" " * (4 * 262_144) + b"}")
    assert refusal(read, broken).startswith(f"{broken} line 1 column 2: ")
    assert refusal(read, binary) == f"{binary}: must be UTF-8 text, byte 7 is not"
    assert refusal(read, large) == f"{large}: must be at most 262144 characters"
    assert refusal(read, tmp_path) == f"{tmp_path}: must be a readable file (got 'Is a directory')"


def test_a_file_of_just_the_largest_size_is_read(tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.write_text('{"ui": "' + "\U0001f426" * (262_144 - 10) + '"}', encoding="utf-8")
    document = read(full)
    assert document is not None
    assert list(document) == ["ui"]
    padded = tmp_path / "padded"
    padded.write_bytes(b" " * (4 * 262_144))
    assert refusal(read, padded) == f"{padded}: is empty; {{}} stands for all defaults"


# ---- layers and single settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("documents", "merged"),
    [
        ([], {}),
        ([{"a": 1}], {"a": 1}),
        ([{"a": 1, "b": 2}, {"a": 3}], {"a": 3, "b": 2}),
        ([{"a": {"x": 1, "y": {"z": 2}}}, {"a": {"y": {"w": 3}}}], {"a": {"x": 1, "y": {"z": 2, "w": 3}}}),
        ([{"a": [1, 2]}, {"a": [3]}], {"a": [3]}),
        ([{"a": {"x": 1}}, {"a": 2}], {"a": 2}),
        ([{"a": 2}, {"a": {"x": (1, {"y": 2})}}], {"a": {"x": [1, {"y": 2}]}}),
        ([{"list": [{"id": "a"}]}, {"list": [{"id": "a", "x": 1}]}], {"list": [{"id": "a", "x": 1}]}),
        (
            [
                {"agents": {"list": [{"id": "a", "model": "m", "tools": {"deny": ["x"]}}, {"id": "b"}]}},
                {"agents": {"list": [{"id": "c"}, {"id": " A", "tools": {"allow": ["y"]}}]}},
            ],
            {
                "agents": {
                    "list": [
                        {"id": " A", "model": "m", "tools": {"deny": ["x"], "allow": ["y"]}},
                        {"id": "b"},
                        {"id": "c"},
                    ]
                }
            },
        ),
        (
            [{"agents": {"list": [{"id": "a"}, {"x": 1}]}}, {"agents": {"list": [{"id": "a"}, {"id": "a"}, 3, {}]}}],
            {"agents": {"list": [{"id": "a"}, {"x": 1}, {"id": "a"}, 3, {}]}},
        ),
        ([{"agents": {"list": 3}}, {"agents": {"list": ({"id": "a"},)}}], {"agents": {"list": [{"id": "a"}]}}),
        ([{"agents": {"list": [{"id": "a"}]}}, {"agents": {"list": 3}}], {"agents": {"list": 3}}),
    ],
)
def test_later_documents_win(documents: list[dict[str, object]], merged: dict[str, object]) -> None:
    before = repr(documents)
    assert merge(*documents) == merged
    assert repr(documents) == before


def test_a_merged_document_shares_nothing_with_its_layers() -> None:
    inner: list[object] = [{"b": [1]}]
    merged = merge({"a": {"deep": inner}})
    assert merged == {"a": {"deep": [{"b": [1]}]}}
    inner.append(2)
    assert merged == {"a": {"deep": [{"b": [1]}]}}


def test_a_layer_that_is_no_object_or_nests_too_deep_is_refused_by_number() -> None:
    deep: dict[str, object] = {}
    for _ in range(32):
        deep = {"a": deep}
    assert refusal(merge, {}, deep) == "document 2: must not nest deeper than 32 levels"
    assert merge(deep["a"] if isinstance(deep["a"], dict) else {}) == deep["a"]
    assert refusal(merge, *json.loads("[[]]")) == "document 1: must hold an object: { … } (got [])"


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        (S + "maxConcurrent=3", S + "maxConcurrent", 3),
        (f" {S}maxConcurrent = 3", S + "maxConcurrent", 3),
        (S + "limits=strict", S + "maxRetained", 15),
        ("agents.defaults.model=a=b", "agents.defaults.model", ModelChoice("a=b")),
        ("agents.defaults.workspace='8'", "agents.defaults.workspace", "8"),
        ("agents.defaults.workspace= /a b ", "agents.defaults.workspace", "/a b"),
        ("archive.deleteKept=true", "archive.deleteKept", True),
        ("agents.defaults.heartbeat.every=30m", "agents.defaults.heartbeat.every", "30m"),
        ("tools.allow=['a', \"b\",]", "tools.allow", ("a", "b")),
        ("tools.deny.1=z", "tools.deny", ("x", "z")),
        ("messages.queue.byChannel={irc: 'steer'}", "messages.queue.byChannel", {"irc": ChannelQueue("steer")}),
        ("messages.queue.byChannel.irc=steer", "messages.queue.byChannel", {"irc": ChannelQueue("steer")}),
        (S + "budget={usd: 1.5}", S + "budget", BudgetBlock(usd=1.5)),
        ("session.parentForkMaxTokens=0x10", "session.parentForkMaxTokens", 16),
    ],
)
def test_a_single_setting_wins(setting: str, key: str, value: object) -> None:
    assert found(with_settings(RESEARCH, [setting]).config, key) == value


@pytest.mark.parametrize(
    ("setting", "index", "model"),
    [
        ("agents.list.research.model=x", 1, ModelChoice("x")),
        ("agents.list.RESEARCH.model=x", 1, ModelChoice("x")),
        ("agents.list.0.model=x", 0, ModelChoice("x")),
        ("agents.list.1.model.primary=x", 1, ModelChoice("x")),
        ("agents.list.research.model.fallbacks=['y']", 1, ModelChoice("m", ("y",))),
        ("agents.list.main.model.primary=x", 0, ModelChoice("x")),
    ],
)
def test_an_agent_is_found_by_id_or_index(setting: str, index: int, model: ModelChoice) -> None:
    before = repr(RESEARCH)
    agents = with_settings(RESEARCH, [setting]).config.agents.list
    assert [agent.id for agent in agents] == ["main", "research"]
    assert agents[index].model == model
    assert repr(RESEARCH) == before


def test_an_id_goes_before_an_index() -> None:
    document = {"agents": {"list": [{"id": "1"}, {"id": "0"}]}}
    agents = with_settings(document, ["agents.list.0.model=x"]).config.agents.list
    assert [(agent.id, agent.model) for agent in agents] == [("1", None), ("0", ModelChoice("x"))]


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (S + "maxConcurent=3", S + "maxConcurent: unknown key (did you mean maxConcurrent?)"),
        ("agents.default.maxConcurrent=3", "agents.default: unknown key (did you mean defaults?)"),
        ("agents.list.reserch.model=x", "agents.list.reserch: no such element (did you mean research?)"),
        ("agents.list.2.model=x", "agents.list.2: no such element (valid here: main, research)"),
        ("agents.list.-1.model=x", "agents.list.-1: no such element (valid here: main, research)"),
        ("tools.deny.2=x", "tools.deny.2: no such element (valid here: 0, 1)"),
        ("tools.deny.0.x=x", "tools.deny.0.x: unknown key (tools.deny.0 holds one value, not keys) (got 'x')"),
        ("agents.list.research.model.x=1", "agents.list.research.model.x: unknown key (agents.list.research.model "),
        ("plan.approvalHours=soon", "plan.approvalHours: must be a number above 0 (got 'soon')"),
        ("plan.approvalHours=", "plan.approvalHours: must be a number above 0 (got '')"),
        ("plan.approvalHours={a:1", "plan.approvalHours: must be a number above 0 (got '{a:1')"),
        ("plan.approvalHours=NaN", "plan.approvalHours: must be a number above 0 (got nan)"),
        ("plan.approvalHours", "setting: must look like key.path=value (got 'plan.approvalHours')"),
        ("=3", "setting: must look like key.path=value (got '=3')"),
        ("plan..approvalHours=3", "setting: must look like key.path=value (got 'plan..approvalHours=3')"),
        (".".join("a" * 33) + "=1", "setting: must look like key.path=value"),
        (".".join("a" * 32) + "=1", "a: unknown key"),
        (".".join("a" * 32) + "={}", "settings: must not nest deeper than 32 levels"),
    ],
)
def test_a_setting_that_leads_nowhere_or_is_wrong_is_refused(setting: str, shown: str) -> None:
    assert refusal(with_settings, RESEARCH, [setting]).startswith(shown)


def test_an_agent_cannot_be_named_where_there_is_none() -> None:
    assert refusal(with_settings, {}, ["agents.list.x.model=m"]) == ("agents.list.x: no such element, it is empty")


def test_settings_apply_in_order_and_over_a_config_too() -> None:
    config = with_settings({}, ["plan.approvalHours=1", "plan.approvalHours=2", "ui=1"]).config
    assert config.plan.approval_hours == 2
    again = with_settings(as_document(config), ["retention.keptDays=3", "gateway.bind=lan"])
    assert (again.config.plan.approval_hours, again.config.retention.kept_days) == (2, 3)
    assert again.warnings == ("gateway.bind: ignored, a key of OpenClaw that fledge does not use",)


def test_a_config_keeps_what_was_spelled_out_beside_its_preset() -> None:
    strict = check(nested("agents.defaults.subagents", {"limits": "strict", "maxConcurrent": 8})).config
    assert with_settings(as_document(strict), []).config == strict
    over = with_settings(as_document(strict), ["plan.approvalHours=1"]).config.agents.defaults.subagents
    assert (over.max_concurrent, over.max_retained) == (8, 15)


# ---- whatever is written ---------------------------------------------------------------------------------------------

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
SETTINGS = dict(settings_in(struct_type(Config)))
KEYS = st.sampled_from(sorted({part.strip("[]") for key in SETTINGS for part in key.split(".")} | {"ui", "exec"}))
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)


def fitting(of: Shape) -> st.SearchStrategy[object]:
    """Values that a setting of this shape takes."""
    match of.kind:
        case BoolType():
            return st.booleans()
        case IntType() as whole:
            return st.integers(whole.ge if whole.ge is not None else -99, whole.le if whole.le is not None else 10**9)
        case FloatType(le=most):
            return st.floats(0.5, most or 1e9)
        case LiteralType(values=values):
            return st.sampled_from(values)
        case VarTupleType(item_type=item):
            return st.lists(fitting(shape(item)), max_size=3)
        case DictType(value_type=item):
            return st.dictionaries(st.sampled_from(["irc", "mail"]), fitting(shape(item)))
        case StructType():
            return st.sampled_from(["m", {"primary": "m", "fallbacks": ["n"]}])
        case _:
            forms = {"duration": "1h30m", "start": "08:30", "end": "24:00", "timezone": "UTC", "target": "*"}
            forms |= {"webhook": "http://[::1]:8080/in?a=b", "outlet": "last", "object": "package.module:name"}
            return st.sampled_from([forms.get(of.form, "Some")])


PRICE = {"input": 1, "output": 2, "long": {"above": 1000, "input": 2, "output": 4}}


@st.composite
def documents(draw: st.DrawFn) -> dict[str, object]:
    """Documents with some settings in them, all of them right."""
    document: dict[str, object] = {}
    for setting in draw(st.lists(st.sampled_from(sorted(SETTINGS)), max_size=8, unique=True)):
        key = setting.replace("<tool>", draw(st.sampled_from(["exec", "mine"]))).replace("<name>", "codex")
        if "activeHours" in key:
            document = merge(document, nested(H, {"start": "08:00", "end": "20:00", "timezone": "UTC"}))
        elif not key.endswith("[].id"):
            if key.startswith("runtimes."):
                document = merge(document, nested("runtimes.codex.command", ["codex"]))
            elif key.startswith(("channels.", "hooks.")):
                whole = {"url": "https://example.org/in"} | ({"kind": "webhook"} if key[0] == "c" else {})
                document = merge(document, nested(key.rpartition(".")[0], {**whole, "secretEnv": "S"}))
                if key.endswith((".secretEnv", ".secretFile")):
                    continue  # one of them, and only one
            elif key.startswith("models.catalog."):
                key = key.replace("codex", "codex/m")
                document = merge(document, nested("models.catalog.codex/m.price", PRICE))
            elif key.startswith("models.providers."):
                document = merge(document, nested("models.providers.codex.baseUrl", "https://example.org/v1"))
                if key.endswith((".baseUrl", ".apiKeyFile")):
                    continue  # an address, and the other way to a key
                if ".cost." in key:
                    document = merge(document, nested("models.providers.codex.models[].cost", PRICE))
                    continue  # lists are replaced: a price must be whole
            given = (
                {"type": "object"} if key.endswith(".outputSchema") else draw(fitting(shape(SETTINGS[setting].type)))
            )
            document = merge(document, nested(key, given))
    return document


def outcome(act: Callable[..., object], *given: object) -> object:
    """What comes back, or the refusal; anything else that is raised is a defect."""
    try:
        return act(*given)
    except BadInput as refused:
        return refused


@given(ANYTHING)
def test_any_document_is_read_or_refused_as_bad_input(document: object) -> None:
    assert isinstance(outcome(check, document), Loaded | BadInput)


@given(st.dictionaries(KEYS, ANYTHING, max_size=3), st.lists(KEYS, max_size=4), ANYTHING)
def test_any_setting_is_applied_or_refused_as_bad_input(
    document: dict[str, object], path: list[str], value: object
) -> None:
    assert isinstance(outcome(with_settings, document, [f"{'.'.join(path)}={value}"]), Loaded | BadInput)


@given(st.text(max_size=40) | st.text(alphabet="{}[]:,'\"/*a1.\n ", max_size=20))
def test_any_text_is_read_or_refused_as_bad_input(text: str) -> None:
    assert isinstance(outcome(parse, text), Loaded | BadInput)


@given(documents())
def test_settings_that_are_right_apply_and_survive_being_written_and_read(document: dict[str, object]) -> None:
    loaded = check(document)
    assert loaded.warnings == ()
    written = as_document(loaded.config)
    assert check(written) == loaded
    assert parse(json.dumps(written)) == loaded
    assert with_settings(written, []) == loaded
    assert merge({}, document) == merge(document, document)
