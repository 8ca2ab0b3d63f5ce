"""The runtime `python`: an async function of the user's own program, such as a wrapper of another framework's agent."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from fledge.runtime.base import Faltered, Work


class CallableRuntime(Struct, frozen=True, kw_only=True):
    """Calls a function for each piece of work; what it returns is the answer."""

    function: Callable[[Work], Awaitable[str]]
    repeatable: bool = False
    retries: int = 0

    async def run(self, work: Work) -> str:
        """Call it. What it raises is an error of the run; so is an answer that is no text."""
        answer = await self.function(work)
        if not isinstance(answer, str):
            raise Faltered(f"the function answered {type(answer).__name__}, it must answer text")
        return answer
