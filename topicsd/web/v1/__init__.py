"""The door of durable streams: `/v1/stream/{name}`, and any path that is nobody else's."""
