"""The pages of docs/ that the wheel has, as pyproject.toml says it."""

import tomllib
from fnmatch import fnmatch

from tests.docs.clone import ROOT


def packaged_pages() -> set[str]:
    """Their paths below docs/."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    pages = (path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md"))
    left_out = wheel["exclude"]
    found = {str(page.relative_to("docs")) for page in pages if not any(fnmatch(str(page), one) for one in left_out)}
    assert wheel["sources"]["docs"] == "fledge/docs"
    return found
