"""The gateway makes the library available to other processes: JSON-RPC over HTTP and WebSocket, feeds as event streams.

It decides nothing: a method reads its parameters, calls the library, and writes down the answer. Needs the extra
`gateway` (starlette, uvicorn, websockets); `client` needs nothing but the standard library.
"""
