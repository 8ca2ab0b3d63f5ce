"""Images: formats, sizes, the line that names one in a text, estimated tokens, which of them go into a request.

PNG, JPEG, GIF and WebP are recognised by their bytes. Only the header is read, for width and height: no pixel of an
image is ever decoded here. A transcript holds an `ImageEntry`; the bytes are a file named by their digest. Beside each
entry its text names the image (`[image cat.png, 640×480 PNG]`), so that every view, and every model that takes no
images, reads the same words. This file knows no disk and no provider's wire.
"""

import hashlib
import struct
from collections.abc import Sequence
from math import ceil
from typing import Final, Literal, Protocol

from fledge.core.freeze import one_line
from fledge.core.value import Value
from fledge.errors import BadInput

ImageKind = Literal["png", "jpeg", "gif", "webp"]

MAX_BYTES: Final = 5 * 1024 * 1024 * 3 // 4
"""Anthropic refuses an image of more than 5 MiB, counted in base64: "image exceeds 5 MB maximum"
(https://github.com/lobehub/lobehub/pull/14711). OpenAI's limit is higher."""
MAX_SIDE: Final = 8000
"""Anthropic refuses a longer side, in pixels (https://github.com/anthropics/claude-code/issues/4778)."""
MAX_IMAGES: Final = 20
"""The most in one message, in one tool result, and in one request: beyond 20 in a request, Anthropic refuses sides of
more than 2000 pixels (https://platform.claude.com/docs/en/build-with-claude/vision)."""
REQUEST_BYTES: Final = 15 * 1024 * 1024
"""The most bytes of images in one request: 20 MiB in base64, of the 32 MB that Anthropic takes in all."""
NAME_CHARS: Final = 80
KINDS: Final = "PNG, JPEG, GIF or WebP"

_MAGIC: Final[tuple[tuple[ImageKind, bytes], ...]] = (
    ("png", b"\x89PNG\r\n\x1a\n"),
    ("jpeg", b"\xff\xd8\xff"),
    ("gif", b"GIF87a"),
    ("gif", b"GIF89a"),
)
_PNG_END: Final = b"IEND\xaeB`\x82"
_SHOWN_KIND: Final[dict[ImageKind, str]] = {"png": "PNG", "jpeg": "JPEG", "gif": "GIF", "webp": "WebP"}


class Image(Value, forbid_unknown_fields=True):
    """An image that a tool returns or a program sends: PNG, JPEG, GIF or WebP, recognised by its bytes.

    >>> @fledge.tool(read_only=True)
    ... def screenshot() -> fledge.Image:
    ...     "Take a picture of the screen."
    ...     return fledge.Image(Path("screen.png").read_bytes(), "screen.png")
    """

    data: bytes
    name: str = ""


class ImageEntry(Value, omit_defaults=True):
    """An image as a transcript holds it."""

    sha256: str
    kind: ImageKind
    bytes: int
    width: int
    height: int
    name: str = ""

    @property
    def media_type(self) -> str:
        """Its MIME type."""
        return f"image/{self.kind}"

    @property
    def words(self) -> str:
        """The image in words, for people and for models that take no images."""
        return f"[{self._subject}]"

    @property
    def lost_words(self) -> str:
        """The image in words, once its file is gone."""
        return f"[{self._subject} is no longer there]"

    @property
    def unsent_words(self) -> str:
        """The image in words, where newer images took its place in a request."""
        return f"[{self._subject} is not shown again: there are newer ones]"

    @property
    def _subject(self) -> str:
        return f"image{f' {self.name}' if self.name else ''}, {self.width}×{self.height} {_SHOWN_KIND[self.kind]}"

    @property
    def tokens(self) -> int:
        """About how many tokens it costs, at the most that any of the providers' formulas says.

        Anthropic: width·height/750, after the long side is scaled to 2576 pixels. OpenAI: 85 and 170 for each tile of
        512 pixels, at most 8 of them; or up to 2.46 for each patch of 32 pixels, at most 1536 of them
        (https://platform.openai.com/docs/guides/images-vision). gpt-4o-mini counts more, at a lower price.
        """
        area = min(4784, ceil(self.width * self.height / 750))
        tiles = 85 + 170 * min(8, ceil(self.width / 512) * ceil(self.height / 512))
        patches = ceil(2.46 * min(1536, ceil(self.width / 32) * ceil(self.height / 32)))
        return max(area, tiles, patches)


def kind_of(data: bytes) -> ImageKind | None:
    """The format of an image by its first bytes; None if models do not take it."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return next((kind for kind, magic in _MAGIC if data.startswith(magic)), None)


def read_image(image: Image, field: str = "image") -> ImageEntry:
    """The entry of an image in a transcript. Refused: other formats, cut or damaged ones, and too large ones."""
    data = image.data
    if not isinstance(data, bytes):
        raise BadInput(field, "must be bytes", type(data).__name__)
    kind, size = kind_of(data), len(data)
    name = one_line(image.name, NAME_CHARS).replace("[", "(").replace("]", ")").strip()
    shown = name or f"{size} bytes"
    if kind is None:
        raise BadInput(field, f"must be a {KINDS} image", shown)
    if size > MAX_BYTES:
        raise BadInput(field, f"must have at most {MAX_BYTES} bytes, not {size}: make it smaller", shown)
    try:
        width, height = _HEADERS[kind](data)
    except _DAMAGED:
        raise BadInput(field, f"must be a whole {_SHOWN_KIND[kind]} image; this one is cut or damaged", shown) from None
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
        wrong = f"must have sides of 1 to {MAX_SIDE} pixels, not {width}×{height}"
        raise BadInput(field, wrong, shown)
    return ImageEntry(hashlib.sha256(data).hexdigest(), kind, size, width, height, name)


def read_images(images: Sequence[Image], field: str = "images") -> tuple[ImageEntry, ...]:
    """The entries of several images. Refused: too many, or one that `read_image` refuses."""
    if len(images) > MAX_IMAGES:
        raise BadInput(field, f"must be at most {MAX_IMAGES} images", len(images))
    return tuple(read_image(image, f"{field}[{place}]") for place, image in enumerate(images))


class NamedFile(Protocol):
    """An image or file that came with a text and is named in it."""

    @property
    def words(self) -> str:
        """The line that names it."""
        ...


def with_names(text: str, carried: Sequence[NamedFile]) -> str:
    """The text with a line that names each image or file that came with it."""
    return "\n".join([*([text] if text.strip() else []), *(one.words for one in carried)])


def sent(images: Sequence[ImageEntry]) -> int:
    """The number of images, counted from the newest, that go into one request; the oldest comes first."""
    room = REQUEST_BYTES
    for count, image in enumerate(reversed(images)):
        room -= image.bytes
        if count == MAX_IMAGES or room < 0:
            return count
    return len(images)


# ---- headers ---------------------------------------------------------------------------------------------------------
# Each answers width and height, and raises one of these if the bytes end too early or are wrong.

_DAMAGED: Final = (IndexError, ValueError, struct.error)


def _demand(holds: bool) -> None:
    if not holds:
        raise ValueError("damaged")


def _png(data: bytes) -> tuple[int, int]:
    _demand(data[12:16] == b"IHDR" and _PNG_END in data[33:])
    return struct.unpack_from(">II", data, 16)


def _gif(data: bytes) -> tuple[int, int]:
    _demand(len(data) > 13 and data.rstrip(b"\0").endswith(b";"))
    return struct.unpack_from("<HH", data, 6)


def _jpeg(data: bytes) -> tuple[int, int]:
    """The frame header stands behind other segments, each with its length."""
    at = 2
    while True:
        _demand(data[at] == 0xFF)
        marker = data[at + 1]
        if marker == 0xFF:  # filling
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            _demand(b"\xff\xd9" in data[at + 9 :])
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        (length,) = struct.unpack_from(">H", data, at + 2)
        _demand(length >= 2)
        at += 2 + length


def _webp(data: bytes) -> tuple[int, int]:
    (size,) = struct.unpack_from("<I", data, 4)
    _demand(size + 8 <= len(data))
    match data[12:16]:
        case b"VP8 ":
            _demand(data[23:26] == b"\x9d\x01\x2a")
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            _demand(data[20] == 0x2F)
            (bits,) = struct.unpack_from("<I", data, 21)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            _demand(len(data) >= 30)
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case _:
            raise ValueError("damaged")


_HEADERS: Final = {"png": _png, "jpeg": _jpeg, "gif": _gif, "webp": _webp}
