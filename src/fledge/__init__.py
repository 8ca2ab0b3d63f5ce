"""Subagents whose answers arrive: once, in the right conversation, whatever happens."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fledge.tools.base import tool

__version__ = "0.1.0"
__all__ = ["__version__", "tool"]


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that `import fledge` costs nothing."""
    if name == "tool":
        from fledge.tools.base import tool

        return tool
    raise AttributeError(f"module 'fledge' has no attribute {name!r}")
