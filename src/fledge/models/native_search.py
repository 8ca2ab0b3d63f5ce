"""Web search that a provider does itself, inside a reply: the part that the wire protocols share.

The provider's items of a search (the call, the encrypted hits) are sealed with the reply, unread, and handed back to
the same provider and model. The pages that a reply cites follow its text as a list of sources: people and other models
read the list, but it is left out of the data that goes back. A service may refuse to search (an administrator switched
it off, or a compatible server does not know it): then the request is sent without search.
"""

import re
from collections.abc import Iterable

from fledge.models.base import Broke
from fledge.models.http import Wire

MAX_SEARCHES = 5
"""The limit of searches in one reply, where the protocol has a field for it."""
MAX_SOURCES = 10
_MAX_TITLE = 120
_MAX_ADDRESS = 500
_REFUSED = re.compile(r"web.?search", re.IGNORECASE)


class CitedSource(Wire):
    """A page that a reply cites."""

    url: str | None = None
    title: str | None = None


def sources_text(cited: Iterable[CitedSource]) -> str:
    """The cited pages as the end of a reply's text, each once; empty if there are none."""
    lines: dict[str, str] = {}
    for source in cited:
        url = source.url or ""
        if not url.startswith(("https://", "http://")) or len(url) > _MAX_ADDRESS or not url.isprintable():
            continue
        title = " ".join((source.title or "").split())
        lines.setdefault(url, f"- {title[:_MAX_TITLE]} {url}" if title else f"- {url}")
    return "\n\nSources:\n" + "\n".join(list(lines.values())[:MAX_SOURCES]) if lines else ""


def is_refused(refusal: Broke) -> bool:
    """True if the service refused the request because of the web search in it."""
    return refusal.trouble in ("bad_request", "auth") and _REFUSED.search(refusal.message) is not None
