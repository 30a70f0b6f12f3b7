"""Times as commands take them."""

from datetime import UTC, datetime

from rockmq.base.errors import ConfigError


def instant(option: str, text: str | None) -> int | None:
    """Milliseconds since the epoch, given as such or as ISO 8601 (UTC unless it says otherwise). Raises ConfigError."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{option} {text!r}: expected a time such as 2026-11-23T03:00, in UTC, or milliseconds since the epoch"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000)
