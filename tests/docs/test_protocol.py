"""What docs/protocol.md says of the gateway is so: its requests are answered in the shape it shows."""

import re
from pathlib import Path
from typing import Any, get_args

import msgspec

from fledge.cli.stream import StreamEvent
from fledge.commands import rpc
from fledge.commands.methods import METHODS
from fledge.commands.wire import camel
from fledge.core.params import former_names
from tests.gateway.serving import OverHttp, serving

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()


def shown() -> list[Any]:
    """Every JSON block of the page, read."""
    return [msgspec.json.decode(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


def test_the_requests_on_the_page_are_answered_in_the_shape_it_shows(tmp_path: Path) -> None:
    ask, accepted, wait, waited = shown()
    with serving(tmp_path / "state") as server:
        over = OverHttp(server)
        told = over.raw(ask)
        assert set(told["result"]) == set(accepted["result"])
        assert told["result"]["status"] == accepted["result"]["status"]
        wait["params"]["run"] = told["result"]["runId"]
        ended = over.raw(wait)
        assert set(ended["result"]) == set(waited["result"])
        assert ended["result"]["status"] == waited["result"]["status"]
        assert over.raw(ask)["result"] == told["result"]


def test_every_method_and_code_the_page_names_is_there_and_none_is_left_out() -> None:
    words = set(re.findall(r"`([a-z]+(?:\.[a-zA-Z]+)?)[ `{]", PAGE))
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    named = set(words & set(METHODS))
    for row in rows:
        group = ""
        for word in re.findall(r"`([a-z]*\.?[a-z]+)", row):
            group = word.partition(".")[0] or group
            named.add(word if not word.startswith(".") else group + word)
    told_elsewhere = {"events.unsubscribe"}
    assert set(METHODS) - named - told_elsewhere == set()
    codes = {int(code) for code in re.findall(r"-32\d{3}", PAGE)}
    assert codes == {
        value for name, value in vars(rpc).items() if name.isupper() and isinstance(value, int) and value < 0
    }


def test_the_page_of_verbs_names_parameters_as_they_are_given() -> None:
    verbs = (Path(__file__).parents[2] / "docs" / "verbs.md").read_text()
    rows = re.findall(r"^\| `([a-zA-Z.]+)`[^|]*\| ([^|]*) \|", verbs, re.MULTILINE)
    told = {name: tuple(re.findall(r"`(\w+)`", params)) for name, params in rows}
    assert told == {name: method.params.__struct_encode_fields__ for name, method in METHODS.items()}


def test_the_page_names_every_event_of_a_run_and_what_it_has() -> None:
    part = PAGE.partition("## A run as a stream of events")[2].partition("\n## ")[0]
    told = {
        tag: set(re.findall(r"`([a-zA-Z]+)`", has)) for tag, has in re.findall(r"^\| `(\w+)` \| (.*) \|$", part, re.M)
    }
    kinds = get_args(StreamEvent)
    fields = {kind.__struct_config__.tag: {camel(name) for name in kind.__struct_fields__} for kind in kinds}
    assert {tag: told[tag] & fields[tag] for tag in told} == fields


def test_the_page_names_every_former_name_of_a_parameter() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.*?) ?\|$", PAGE, re.MULTILINE)
    told = {(former, name) for name, formers in rows for former in re.findall(r"`(\w+)`", formers)}
    assert told == {pair for method in METHODS.values() for pair in former_names(method.params).items()}
