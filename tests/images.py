"""Small images for tests, made by hand: whole files as their formats describe them, with any width and height."""

import struct
import zlib


def png(width: int = 2, height: int = 1, extra: bytes = b"") -> bytes:
    """A PNG; `extra` makes another image of the same size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * (width + 1) * min(height, 4))
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"tEXt", b"c\0" + extra)
        + chunk(b"IDAT", rows)
        + chunk(b"IEND", b"")
    )


def jpeg(width: int = 2, height: int = 1) -> bytes:
    """A JPEG: an application segment, filling, a table, the frame header, a scan, the end."""
    app = b"\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0\1\1\0\0\1\0\1\0\0"
    table = b"\xff\xff\xdb" + struct.pack(">H", 67) + b"\0" + b"\1" * 64
    frame = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\1\x11\0"
    scan = b"\xff\xda" + struct.pack(">HB", 8, 1) + b"\1\0\0\x3f\0" + b"\0"
    return b"\xff\xd8" + app + table + frame + scan + b"\xff\xd9"


def gif(width: int = 2, height: int = 1, version: bytes = b"89a") -> bytes:
    """A GIF."""
    return b"GIF" + version + struct.pack("<HH", width, height) + b"\0\0\0" + b"\x2c" + b"\0" * 12 + b";"


def _webp(chunk: bytes, data: bytes) -> bytes:
    body = b"WEBP" + chunk + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_lossy(width: int = 2, height: int = 1) -> bytes:
    """A WebP with a VP8 frame."""
    return _webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height))


def webp_lossless(width: int = 2, height: int = 1) -> bytes:
    """A WebP with a VP8L frame."""
    return _webp(b"VP8L", b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14))


def webp_extended(width: int = 2, height: int = 1) -> bytes:
    """A WebP with an extended header."""
    return _webp(b"VP8X", b"\0\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"))
