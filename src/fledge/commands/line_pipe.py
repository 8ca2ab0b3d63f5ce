"""Messages on a stream, a line each: what both ends of the private socket speak. Nothing here knows what they say."""

import asyncio
import math


class LinePipe:
    """Sends and receives messages."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: float = math.inf) -> None:
        """`most`: how many bytes a message may have."""
        self._reader, self._writer, self._most = reader, writer, most
        self._rest = b""

    async def receive(self) -> bytes | None:
        """The next message; None once the other end is gone. One that is too long is read to its end, and refused."""
        while True:
            kept, is_long, piece = bytearray(), False, self._rest
            while (end := piece.find(b"\n")) < 0:
                is_long = is_long or len(kept) + len(piece) > self._most
                kept += b"" if is_long else piece
                try:
                    piece = await self._reader.read(1 << 18)
                except ConnectionError:
                    return None
                if not piece:
                    return None
            self._rest = piece[end + 1 :]
            if not is_long and len(kept) + end <= self._most:
                return bytes(kept) + piece[:end]
            await self.refuse()

    async def refuse(self) -> None:
        """Say why a message that is too long is not taken."""

    async def send(self, message: bytes) -> None:
        """Send one, and wait until it is taken."""
        self._writer.write(message + b"\n")
        await self._writer.drain()
