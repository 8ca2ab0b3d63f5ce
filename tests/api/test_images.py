"""Images through the doors of a program: sent, returned by a tool, read by `read`, attached to a child; and their
files in the state folder."""

import asyncio
import base64
import hashlib
import stat
from pathlib import Path

import msgspec
import pytest

import fledge
from fledge.core.attachments import Attachment
from fledge.core.images import MAX_BYTES, Image
from fledge.core.transcript import Spoken, from_body
from fledge.errors import BadInput, Refused
from fledge.models.base import AssistantMessage, Request, ToolMessage, UserMessage
from fledge.models.scripted import Answer, ScriptedModel, echo, last_text, use
from tests import images
from tests.api.scene import Place
from tests.statements import proves

CAT = images.png(640, 480)
DOG = images.jpeg(20, 10)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = tmp_path / "state"
    folder.mkdir()
    return Place(folder)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def files(place: Place) -> dict[str, bytes]:
    """The image files that are there, by name."""
    folder = place.folder / "images"
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def seen(request: Request) -> list[bytes]:
    """The images that a model is given with a request, in order."""
    found = [message.images for message in request.messages if not isinstance(message, AssistantMessage)]
    return [request.images[image.sha256] for group in found for image in group]


def tool_once(name: str, **arguments: str) -> ScriptedModel:
    """A model that calls one tool, then echoes its result."""

    def script(request: Request) -> Answer:
        return echo(request) if isinstance(request.messages[-1], ToolMessage) else use(name, **arguments)

    return ScriptedModel(script)


# ---- sending ---------------------------------------------------------------------------------------------------------


@proves("3.images.4", "An image that is sent reaches a model that takes images, again in every later turn")
def test_images_that_are_sent_reach_the_model_now_and_later(place: Place) -> None:
    model = ScriptedModel(echo)

    async def body(fl: fledge.Fledge) -> list[str]:
        chat = fl.session("main")
        path = place.folder / "cat.png"
        path.write_bytes(CAT)
        first = await chat.send("Look.", images=[path, fledge.Image(DOG, "dog.jpg")])
        second = await chat.send("And?")
        return [first.text, second.text]

    first, second = place.act(body, model)
    assert first == "Look.\n[image cat.png, 640×480 PNG]\n[image dog.jpg, 20×10 JPEG]"
    assert second == "And?"
    assert [seen(request) for request in model.requests] == [[CAT, DOG], [CAT, DOG]]


def test_an_image_needs_no_words(place: Place) -> None:
    reply = place.act(lambda fl: fl.session("main").send("", images=[Image(CAT)]), ScriptedModel(echo))
    assert reply.text == "[image, 640×480 PNG]"


@proves("3.images.5", "A transcript holds an image's digest, kind, size and name; its bytes are a private file")
def test_a_transcript_holds_no_bytes(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> list[str]:
        await fl.session("main").send("Look.", images=[Image(CAT, "cat.png"), Image(CAT, "again.png")])
        return await fl.engine.store.read(
            lambda tx: [entry.body for entry in tx.transcripts.entries("agent:main:main")]
        )

    said = from_body(place.act(body)[0])
    assert isinstance(said, Spoken)
    assert [msgspec.to_builtins(image) for image in said.images] == [
        {"sha256": digest(CAT), "kind": "png", "bytes": len(CAT), "width": 640, "height": 480, "name": name}
        for name in ("cat.png", "again.png")
    ]
    assert files(place) == {digest(CAT): CAT}
    folder = place.folder / "images"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / digest(CAT)).stat().st_mode) == 0o600


@proves("3.images.6", "Views of a conversation show an image in words")
def test_history_shows_an_image_in_words(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> str:
        chat = fl.session("main")
        await chat.send("Look.", images=[Image(CAT, "cat.png")])
        return (await chat.history())[0].text

    assert place.act(body) == "Look.\n[image cat.png, 640×480 PNG]"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([Image(b"no", "a.png")], r"images\[0\]: must be a PNG, JPEG, GIF or WebP image \(got 'a.png'\)"),
        ([Image(CAT), Image(CAT[:50])], r"images\[1\]: must be a whole PNG image; this one is cut or damaged"),
        ([Image(CAT)] * 21, r"images: must be at most 20 images \(got 21\)"),
        (["/nowhere/a.png"], r"images\[0\]: must be a file that can be read \(No such file or directory\)"),
        ([""], r"images\[0\]: must be a fledge.Image or the path of a file"),
        ([7], r"images\[0\]: must be a fledge.Image or the path of a file \(got 7\)"),
        ("a.png", r"images: must be a list of images \(got 'a.png'\)"),
        ([Image(images.png(extra=b"x" * MAX_BYTES))], rf"images\[0\]: must have at most {MAX_BYTES} bytes"),
    ],
)
def test_what_is_no_image_is_refused_and_nothing_is_said(place: Place, given: list[Image], words: str) -> None:
    async def body(fl: fledge.Fledge) -> int:
        with pytest.raises(BadInput, match=words):
            await fl.session("main").send("Look.", images=given)
        return len(await fl.session("main").history())

    assert place.act(body) == 0
    assert files(place) == {}


def test_images_that_cannot_be_kept_are_refused(place: Place) -> None:
    (place.folder / "images").write_text("not a folder")

    async def body(fl: fledge.Fledge) -> int:
        with pytest.raises(Refused, match="the images could not be kept: "):
            await fl.session("main").send("Look.", images=[Image(CAT)])
        return len(await fl.session("main").history())

    assert place.act(body) == 0


def test_an_accepted_message_has_images_and_its_key_means_them_too(place: Place) -> None:
    model = ScriptedModel(echo)

    async def body(fl: fledge.Fledge) -> None:
        first = await fl.agent("Look.", idempotency_key="k", images=[Image(CAT)])
        again = await fl.agent("Look.", idempotency_key="k", images=[Image(CAT)])
        assert first.run_id == again.run_id
        with pytest.raises(Refused, match="was used before with other parameters"):
            await fl.agent("Look.", idempotency_key="k", images=[Image(DOG)])
        await fl.agent_wait(first.run_id)

    place.act(body, model)
    assert [seen(request) for request in model.requests] == [[CAT]]


# ---- tools -----------------------------------------------------------------------------------------------------------


@proves("3.images.7", "An image that a tool returns reaches a model that takes images")
def test_a_tool_may_return_an_image(place: Place) -> None:
    @fledge.tool(read_only=True)
    def screenshot() -> fledge.Image:
        """Take a picture of the screen."""
        return fledge.Image(CAT, "screen.png")

    model = tool_once("screenshot")
    reply = place.act(lambda fl: fl.session("main").send("Look."), model, tools=[screenshot])
    assert reply.text == "[image screen.png, 640×480 PNG]"
    assert [seen(request) for request in model.requests] == [[], [CAT]]
    assert files(place) == {digest(CAT): CAT}


@proves("3.images.7")
def test_a_tool_may_return_words_and_images(place: Place) -> None:
    @fledge.tool(read_only=True)
    def pages() -> list[str | fledge.Image]:
        """Show the pages."""
        return ["Two pages.", fledge.Image(CAT, "1.png"), fledge.Image(DOG, "2.jpg")]

    model = tool_once("pages")
    reply = place.act(lambda fl: fl.session("main").send("Look."), model, tools=[pages])
    assert reply.text == "Two pages.\n[image 1.png, 640×480 PNG]\n[image 2.jpg, 20×10 JPEG]"
    assert seen(model.requests[1]) == [CAT, DOG]


def test_a_tool_that_returns_images_among_other_things_is_told_so(place: Place) -> None:
    @fledge.tool(read_only=True)
    def pages() -> list[object]:
        """Show the pages."""
        return [{"pages": 1}, object(), fledge.Image(CAT)]

    reply = place.act(lambda fl: fl.session("main").send("Look."), tool_once("pages"), tools=[pages])
    assert reply.text.startswith("pages: its result cannot be written as JSON")


def test_a_tool_that_returns_a_broken_image_is_told_so(place: Place) -> None:
    @fledge.tool(read_only=True)
    def screenshot() -> fledge.Image:
        """Take a picture of the screen."""
        return fledge.Image(CAT[:60], "screen.png")

    reply = place.act(lambda fl: fl.session("main").send("Look."), tool_once("screenshot"), tools=[screenshot])
    assert reply.text.startswith("screenshot: images[0]: must be a whole PNG image; this one is cut or damaged")
    assert files(place) == {}


@proves("3.images.8", "`read` shows an image file to a model that takes images")
def test_reading_an_image_file_shows_it(place: Place, workspace: Path) -> None:
    (workspace / "cat.txt").write_bytes(CAT)
    model = tool_once("read", path="cat.txt")
    reply = place.act(lambda fl: fl.session("main").send("Look."), model, workspace=workspace)
    assert reply.text == "[image cat.txt, 640×480 PNG]"
    assert seen(model.requests[1]) == [CAT]


def test_an_image_of_a_tool_that_cannot_be_kept_is_told_so(place: Place, workspace: Path) -> None:
    (workspace / "cat.png").write_bytes(CAT)
    (place.folder / "images").write_text("not a folder")
    model = tool_once("read", path="cat.png")
    reply = place.act(lambda fl: fl.session("main").send("Look."), model, workspace=workspace)
    assert reply.text.startswith("[image cat.png, 640×480 PNG]\n[its images could not be kept: ")
    assert seen(model.requests[1]) == []


# ---- children --------------------------------------------------------------------------------------------------------


def attached(contents: dict[str, bytes]) -> list[Attachment]:
    """Files as a spawn takes them."""
    return [Attachment(name, base64.b64encode(data).decode(), "base64") for name, data in contents.items()]


ATTACHING = {"tools": {"sessions_spawn": {"attachments": {"enabled": True}}}}


@proves("3.images.9", "A child sees the images among its attachments with its task")
def test_a_child_sees_the_images_among_its_attachments(place: Place) -> None:
    model = ScriptedModel(echo)

    async def body(fl: fledge.Fledge) -> str:
        given = attached({"cat.png": CAT, "notes.txt": b"words", "cut.png": CAT[:50]})
        return (await (await fl.spawn("Look.", attachments=given))).text

    assert place.act(body, model, config=ATTACHING) == "Look.\n[image cat.png, 640×480 PNG]"
    assert [seen(request) for request in model.requests] == [[CAT]]


def test_the_images_of_a_child_go_with_it(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        await (await fl.spawn("Look.", attachments=attached({"cat.png": CAT}), cleanup="delete"))
        await asyncio.sleep(600)

    place.act(body, config=ATTACHING)
    assert files(place) == {}


# ---- files -----------------------------------------------------------------------------------------------------------


@proves("3.images.10", "An image's file goes with the last transcript that holds it")
def test_a_file_goes_with_the_last_transcript_that_holds_it(place: Place) -> None:
    async def body(fl: fledge.Fledge) -> None:
        for name in ("main", "other"):
            await fl.session(name).send("Look.", images=[Image(CAT)])
        await fl.session("other").send("And this.", images=[Image(DOG)])
        await fl.session("main").delete()
        await asyncio.sleep(60)
        assert set(files(place)) == {digest(CAT), digest(DOG)}
        await fl.session("other").delete()
        await asyncio.sleep(60)
        assert files(place) == {}

    place.act(body)


@proves("3.images.11", "An image's file that no commit names, left by a process that died, is swept at the next start")
def test_files_that_no_transcript_names_are_swept_at_the_start(place: Place) -> None:
    place.act(lambda fl: fl.session("main").send("Look.", images=[Image(CAT)]))
    folder = place.folder / "images"
    (folder / digest(DOG)).write_bytes(DOG)
    (folder / f"{digest(DOG)}.new").write_bytes(DOG[:5])
    (folder / "mine.txt").write_text("not ours")

    async def look(fl: fledge.Fledge) -> None:
        assert set(files(place)) == {digest(CAT), "mine.txt"}

    place.act(look)


@proves(
    "3.images.12",
    "For a missing or damaged image file the model reads that it is no longer there, and the turn goes on",
)
@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_lost_file_is_told_in_words(place: Place, damage: str) -> None:
    place.act(lambda fl: fl.session("main").send("Look.", images=[Image(CAT, "cat.png"), Image(DOG, "dog.jpg")]))
    file = place.folder / "images" / digest(CAT)
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(CAT + b"x")
    model = ScriptedModel(echo)
    place.act(lambda fl: fl.session("main").send("And?"), model)
    first = model.requests[0].messages[0]
    assert isinstance(first, UserMessage)
    assert first.text.endswith("[image dog.jpg, 20×10 JPEG]\n[image cat.png, 640×480 PNG is no longer there]")
    assert seen(model.requests[0]) == [DOG]


def test_a_lost_file_that_is_sent_again_is_there_again(place: Place) -> None:
    place.act(lambda fl: fl.session("main").send("Look.", images=[Image(CAT)]))
    (place.folder / "images" / digest(CAT)).write_bytes(b"damaged")
    place.act(lambda fl: fl.session("main").send("Look again.", images=[Image(CAT)]))
    assert files(place) == {digest(CAT): CAT}


# ---- other models ----------------------------------------------------------------------------------------------------


def test_older_images_give_way_to_newer_ones(place: Place) -> None:
    model = ScriptedModel(lambda request: last_text(request)[:10])

    async def body(fl: fledge.Fledge) -> None:
        many = [Image(images.png(1, 1, extra=b"%d" % at), f"{at}.png") for at in range(20)]
        await fl.session("main").send("Look.", images=many)
        await fl.session("main").send("And this.", images=[Image(CAT, "cat.png")])

    place.act(body, model)
    assert len(seen(model.requests[1])) == 20
    assert seen(model.requests[1])[-1] == CAT
    first = model.requests[1].messages[0]
    assert isinstance(first, UserMessage)
    assert first.text.endswith("[image 0.png, 1×1 PNG is not shown again: there are newer ones]")
