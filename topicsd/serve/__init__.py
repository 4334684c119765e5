"""The only wiring: processes, sockets and signals; nothing here knows what a record is."""
