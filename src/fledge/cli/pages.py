"""`fledge docs`: the pages for users that come with the package, as Markdown. Help and errors name them."""

from pathlib import Path

import fledge
from fledge.errors import BadInput

FOR_DEVELOPERS = ("architecture", "contract", "contract-tests", "design")
"""Pages of a checkout that the package does not have."""


def folder() -> Path:
    """The folder with the pages: in the package, or beside it in a checkout."""
    package = Path(fledge.__file__).parent
    installed = package / "docs"
    return installed if installed.is_dir() else package.parents[1] / "docs"


def names() -> list[str]:
    """The names of the pages."""
    found = (path.relative_to(folder()).with_suffix("").as_posix() for path in folder().rglob("*.md"))
    return sorted(name for name in found if name not in FOR_DEVELOPERS)


def shown(name: str | None) -> list[str]:
    """The lines of a page, or each page with its title. Raises BadInput that names the pages if there is none of this
    name."""
    if name is not None:
        if name not in names():
            raise BadInput("page", f"must be one of {', '.join(names())}", name)
        return _text(name).splitlines()
    titles = [(name, _text(name).splitlines()[0].removeprefix("# ")) for name in names()]
    width = 2 + max(len(name) for name, _ in titles)
    return [f"{name:<{width}}{title}" for name, title in titles]


def _text(name: str) -> str:
    return (folder() / f"{name}.md").read_text("utf-8")
