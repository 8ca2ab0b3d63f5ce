"""The vague words that pages, docstrings of public names, error messages and log lines must not use."""

import re
from typing import Final

VAGUE: Final = re.compile(
    r"\b(whoever|somebody|nobody|whom|what is told|told of|told as|what is said|what was said)\b", re.IGNORECASE
)
"""Words of sentences that hide who does what."""
_CODE: Final = re.compile(r"^```.*?^```|`[^`\n]*`|\]\([^)\n]*\)", re.MULTILINE | re.DOTALL)


def prose(page: str) -> str:
    """A page of Markdown without its code and without the addresses of its links."""
    return _CODE.sub("", page)
