"""How a run leaves a context engine's care."""

from typing import Literal

Reason = Literal["completed", "deleted", "swept", "released"]
"""Done and kept; done and deleted; archived in its time; taken off the lists by somebody."""
