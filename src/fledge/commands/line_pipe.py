"""Messages on a stream, a line each, as both ends of the private socket send them. Nothing here knows their content."""

import asyncio


class LinePipe:
    """Sends and receives messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, refusal: bytes = b"") -> None:
        """`refusal`: the answer to a message that is longer than the limit of the reader."""
        self._reader, self._writer, self._refusal = reader, writer, refusal

    async def receive(self) -> bytes | None:
        """The next message; None once the other end is gone. One that is too long is read to its end, and refused."""
        is_long = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                await self._reader.readexactly(error.consumed)
                is_long = True
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            else:
                if not is_long:
                    return line[:-1]
                await self.send(self._refusal)
                is_long = False

    async def send(self, message: bytes) -> None:
        """Send a message, and wait until the socket takes it."""
        self._writer.write(message + b"\n")
        await self._writer.drain()

    async def close(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()  # without waiting for messages that were not sent
        await asyncio.sleep(0)  # so that the socket is closed even if the loop ends next
