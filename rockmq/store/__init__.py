"""Messages on disk. Knows files and positions, but neither wire nor clients; `message_store` is the only door."""

from rockmq.store.get_result import Filter, GetResult, GetStatus

__all__ = ["Filter", "GetResult", "GetStatus"]
