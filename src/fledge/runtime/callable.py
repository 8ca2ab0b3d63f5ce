"""The runtime `python`: an async function of the user's own program, such as a wrapper of another framework's agent."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from fledge.runtime.base import Faltered, Work


class CallableRuntime(Struct, frozen=True, kw_only=True):
    """Calls a function for each piece of work; its return value is the answer."""

    function: Callable[[Work], Awaitable[str]]
    repeatable: bool = False
    retries: int = 0

    async def run(self, work: Work) -> str:
        """Call the function. The run fails if it raises, or does not return text."""
        answer = await self.function(work)
        if not isinstance(answer, str):
            raise Faltered(f"the function answered {type(answer).__name__}, it must answer text")
        return answer
