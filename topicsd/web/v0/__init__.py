"""The handlers of `/v0`, one module a resource."""
