"""Connections that stay open: what they follow, how it is rendered, and how fast they read.

`Feed` follows topics for one connection and knows nothing of wire formats; an encoder (`sse`,
`frames`) turns what happens into bytes; an `Outlet` writes them as fast as the client reads.
"""
