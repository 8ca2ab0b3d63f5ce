"""The type of a run's answer: what may be given, what the model is told of it, what its answer is read into."""

import dataclasses
import datetime
import enum
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

import fledge
from fledge.api.output_type import schema_for
from fledge.core.schema import check_schema
from fledge.models.base import Request
from fledge.testing import ScriptedModel
from tests.api.scene import Place


class Struct(msgspec.Struct):
    x: int


class Cat(msgspec.Struct, tag="cat"):
    lives: int


class Dog(msgspec.Struct, tag="dog"):
    tricks: tuple[str, int]


@dataclasses.dataclass
class Data:
    x: int
    tags: set[str]


class Typed(TypedDict):
    x: int
    note: NotRequired[str]


class Named(NamedTuple):
    x: int
    y: str


class Colour(enum.Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    x: Annotated[int, pydantic.Field(ge=1, multiple_of=2)]
    when: datetime.date = datetime.date(2026, 1, 31)
    code: Annotated[str, pydantic.Field(pattern=r"\bx\b")] | None = None


class Left(pydantic.BaseModel):
    side: Literal["left"]


class Right(pydantic.BaseModel):
    side: Literal["right"]
    inner: "Right | None" = None


class Either(pydantic.BaseModel):
    hand: Annotated[Left | Right, pydantic.Field(discriminator="side")]


CASES: list[tuple[Any, str, Any]] = [
    (Struct, '{"x": 1}', Struct(1)),
    (Cat | Dog, '{"type": "dog", "tricks": ["roll", 2]}', Dog(("roll", 2))),
    (Data, '{"x": 1, "tags": ["a"]}', Data(1, {"a"})),
    (Typed, '{"x": 1}', {"x": 1}),
    (Named, '[1, "two"]', Named(1, "two")),
    (Colour, '"red"', Colour.RED),
    (list[str], '["a", "b"]', ["a", "b"]),
    (dict[str, int], '{"a": 1}', {"a": 1}),
    (int, "42", 42),
    (bool, "true", True),
    (int | None, "null", None),
    (int | str, '"a"', "a"),
    (str, "just words, not JSON", "just words, not JSON"),
    (Any, '{"a": [1]}', {"a": [1]}),
    (Model, '{"x": 2}', Model(x=2)),
    (list[Model], '[{"x": 2, "when": "2027-02-01"}]', [Model(x=2, when=datetime.date(2027, 2, 1))]),
    (Left | Right, '{"side": "right"}', Right(side="right")),
    (Either, '{"hand": {"side": "left"}}', Either(hand=Left(side="left"))),
]


@pytest.mark.parametrize(("kind", "said", "value"), CASES, ids=[str(kind) for kind, _, _ in CASES])
def test_an_answer_is_read_into_the_type_that_was_asked_for(tmp_path: Path, kind: Any, said: str, value: Any) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("Say it", output_type=kind)
        result = await run
        assert result.value_error is None
        assert result.value == value
        assert (await (await fl.run(run.run_id, output_type=kind))).value == value

    model = ScriptedModel(lambda _: said)
    Place(tmp_path).act(body, model)
    assert len(model.requests) == 1, "the answer was taken at once"


@pytest.mark.parametrize("kind", [kind for kind, _, _ in CASES if kind is not str], ids=str)
def test_the_schema_of_a_type_is_one_that_answers_are_checked_by(kind: Any) -> None:
    check_schema(schema_for(kind, "output_type"))


@pytest.mark.parametrize(
    ("kind", "said", "words"),
    [
        (Struct, '{"x": "one"}', "the answer.x must be integer, is string"),
        (Model, '{"x": 0}', "the answer.x breaks minimum 1, is 0"),
        (Model, '{"x": 3}', "x: Input should be a multiple of 2"),
        (Data, '{"x": 1}', 'the answer lacks "tags"'),
        (Dog | Cat, '{"type": "dog", "tricks": [1, 2]}', "tricks[0]: does not fit the type that was asked for"),
        (int, "many", "it is not JSON"),
    ],
)
def test_an_answer_of_another_form_is_no_value_and_its_words_are_kept(
    tmp_path: Path, kind: Any, said: str, words: str
) -> None:
    async def body(fl: fledge.Fledge) -> None:
        result = await (await fl.spawn("Say it", output_type=kind, label="the job"))
        assert (result.ok, result.status, result.text) == (False, "ok", said)
        assert result.value_error is not None
        assert words in result.value_error
        with pytest.raises(fledge.RunFailed, match='the answer of run "the job" does not fit its output type: '):
            result.unwrap()

    Place(tmp_path).act(body, ScriptedModel(lambda _: said))


def test_the_model_is_asked_for_the_schema_of_the_type(tmp_path: Path) -> None:
    asked: list[str] = []

    def script(request: Request) -> str:
        asked.append(request.system)
        return '{"x": 2}'

    async def body(fl: fledge.Fledge) -> None:
        await (await fl.spawn("Say it", output_type=Model))

    Place(tmp_path).act(body, ScriptedModel(script))
    assert '"minimum":1' in asked[0]


def test_a_run_without_a_type_has_its_text_as_value_and_one_that_failed_has_none(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> None:
        assert (await (await fl.spawn("Say hello"))).unwrap() == "echo: Say hello"
        run = await fl.spawn("Wait for me", label="slow")
        with pytest.raises(fledge.RunFailed, match='run "slow" has not ended: it is'):
            (await run.result(timeout=1)).unwrap()
        await run.kill()
        with pytest.raises(fledge.RunFailed, match='run "slow" ended with status killed'):
            (await run).unwrap()

    Place(tmp_path).act(body)


def test_pydantic_is_not_imported_unless_the_program_does() -> None:
    code = (
        "import sys, fledge, fledge.api.output_type as types\n"
        "types.schema_for(dict[str, int], 'output_type')\n"
        "try: types.schema_for(object, 'output_type')\n"
        "except fledge.BadInput as error: print(error.field)\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["output_type", "False"]


def test_handles_and_results_print_label_status_and_age(tmp_path: Path) -> None:
    async def body(fl: fledge.Fledge) -> None:
        run = await fl.spawn("wait 90", label="the job")
        assert repr(run) == f'<fledge run "the job" {run.run_id}>'
        pending = await run.result(timeout=30)
        assert repr(run) == f'<fledge run "the job" {run.run_id}: running, spawned 30s ago>'
        assert repr(pending) == '<fledge result "the job", pending (running)>'
        done = await run
        assert repr(run) == f'<fledge run "the job" {run.run_id}: ok, after 1m30s>'
        assert repr(done) == '<fledge result "the job", ok, after 1m30s, "echo: wait 90">'
        found = await fl.run(run.run_id)
        assert repr(found) == f'<fledge run "the job" {run.run_id}>'
        assert (await found.info()).status == "ok"
        assert "ok, after" in repr(found)

    Place(tmp_path).act(body)
