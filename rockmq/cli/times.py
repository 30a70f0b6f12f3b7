"""Times as commands show them."""

from datetime import datetime


def local(time_ms: int) -> str:
    """By the clocks of this machine; the number itself where no calendar goes, as in a damaged record."""
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(" ", "milliseconds")
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
