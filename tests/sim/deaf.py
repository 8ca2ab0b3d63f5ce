"""Waiting that no cancellation shortens: what a provider's library or a blocking call does to a driver."""

import asyncio


async def whatever_happens(seconds: float) -> asyncio.CancelledError | None:
    """Take so long; answers the cancellation that was not heeded, if there was one."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    ignored: asyncio.CancelledError | None = None
    while loop.time() < until - 1e-6:
        try:
            await asyncio.sleep(until - loop.time())
        except asyncio.CancelledError as cancelled:
            ignored = cancelled
    return ignored
