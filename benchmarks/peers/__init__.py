"""The same work by each client: one program a client, which prints what it measured of itself."""
