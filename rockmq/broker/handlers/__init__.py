"""Request handlers by subject; `rockmq.broker.routes` says which code goes where."""
