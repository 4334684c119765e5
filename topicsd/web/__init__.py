"""The web room: HTTP in, HTTP out. Handlers are transport-neutral and call downward only."""
