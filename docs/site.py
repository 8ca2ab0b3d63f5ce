"""What `make site` does besides mkdocs: hooks that mkdocs calls by name (mkdocs.yml names this file).

The first page is README.md, and each example is a page. A link to any other file of the repository becomes plain words,
because the site has no copy of it; if that file is missing, the build fails. Mermaid diagrams become tables: drawing
them would load a script from another server.
"""

import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[([^]]*)\]\(([^)\s:]+)\)")
FENCE = re.compile(r"^(```.*?^```$)", re.DOTALL | re.MULTILINE)
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ARROW = re.compile(r"^ *(\S+) --> (\S+?)(?:: (.*))?$", re.MULTILINE)
LOG = logging.getLogger("mkdocs.plugins.fledge")
"""A warning here is an error of the build, because the build is strict."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put pages in the place of patterns in the navigation; a pattern without pages is left out."""
    config.nav = list(expanded(config.nav or [], Path(config.docs_dir)))
    return config


def expanded(nav: list[Any], folder: Path) -> Iterator[Any]:
    """The navigation with pages in the place of patterns."""
    for entry in nav:
        match entry:
            case dict() if any("*" in one for one in entry.values() if isinstance(one, str)):
                ((title, pattern),) = entry.items()
                found = sorted(folder.glob(pattern), key=lambda path: (path.name != "index.md", path.name))
                pages = [path.relative_to(folder).as_posix() for path in found]
                if pages:
                    yield {title: pages if len(pages) > 1 else pages[0]}
            case _:
                yield entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add README.md as the first page, and a page for each example."""
    files.append(File.generated(config, "index.md", content=(ROOT / "README.md").read_text("utf-8")))
    for path in sorted((ROOT / "examples").glob("*.py")):
        text = f"# {path.name}\n\n```python\n{path.read_text('utf-8')}```\n"
        files.append(File.generated(config, f"examples/{path.stem}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite a page's links and diagrams for the site."""
    source = "README.md" if page.file.src_uri == "index.md" else f"docs/{page.file.src_uri}"
    parts = FENCE.split(MERMAID.sub(lambda found: arrows(found[1]), markdown))
    return "".join(part if part.startswith("```") else with_links(part, source) for part in parts)


def with_links(text: str, source: str) -> str:
    """The text with links as the site has them; `source` is the file it stands in, relative to the repository."""

    def link(found: re.Match[str]) -> str:
        bang, words, target = found.groups()
        path, hash_sign, anchor = target.partition("#")
        if not path:
            return found[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if not (ROOT / file).exists():
            LOG.warning("%s links to %s, which does not exist", source, file)
        if file.startswith("examples/"):
            file = f"docs/{file.removesuffix('.py')}.md"
        if not file.startswith("docs/"):
            return words
        here = posixpath.dirname(source.removeprefix("docs/"))
        on_site = posixpath.relpath(file.removeprefix("docs/"), here or ".")
        return f"{bang}[{words}]({on_site}{hash_sign}{anchor})"

    return LINK.sub(link, text)


def arrows(diagram: str) -> str:
    """A state diagram as a table of its arrows."""
    rows = [
        f"| {start} | {end} | {label} |" for start, end, label in ARROW.findall(diagram) if "[*]" not in start + end
    ]
    return "\n".join(["| from | to | by |", "|---|---|---|", *rows])
