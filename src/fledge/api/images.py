"""Images that a program or a person sends: read from files, kept for the commit that names them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from fledge.core.images import MAX_BYTES, Image, ImageEntry, read_images
from fledge.errors import BadInput, Refused
from fledge.plain_file import read_plain
from fledge.store.images import ImageFiles

GivenImage = Image | Path | str
"""An image with its bytes, or the path of a file."""


@asynccontextmanager
async def kept(files: ImageFiles | None, given: Sequence[GivenImage]) -> AsyncIterator[tuple[ImageEntry, ...]]:
    """The images, with their files there as long as the block takes to commit. Refused: what is no image, cannot be
    read, or cannot be kept."""
    if isinstance(given, str | Path | Image):
        raise BadInput("images", "must be a list of images", given)
    if not given:
        yield ()
        return
    if files is None:
        raise Refused("error", "images need a state folder, and there is none here")
    images = await asyncio.to_thread(read_files, given)
    with files.holding() as hold:
        try:
            entries = await hold.keep(images)
        except OSError as error:
            raise Refused("error", f"the images could not be kept: {error.strerror or error}") from error
        yield entries


def read_files(given: Sequence[GivenImage], field: str = "images") -> list[Image]:
    """The images, those given as paths read from their files. Refused: what is no image, or cannot be read."""
    images = [_read(one, f"{field}[{place}]") for place, one in enumerate(given)]
    read_images(images, field)
    return images


def _read(given: GivenImage, field: str) -> Image:
    if isinstance(given, Image):
        return given
    if not isinstance(given, str | Path) or not str(given) or "\0" in str(given):
        raise BadInput(field, "must be a fledge.Image or the path of a file", given)
    path = Path(given).expanduser()
    try:
        return Image(read_plain(path, MAX_BYTES + 1), path.name)
    except OSError as error:
        raise BadInput(field, f"must be a file that can be read ({error.strerror or error})", str(path)) from None
