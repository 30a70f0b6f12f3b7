"""Names of the versions that peers say they are (MQVersion.java)."""

_FIRST = 212
"""The ordinal of V4_0_0_SNAPSHOT, from which on each of 4.0.0 to 5.9.9 has two."""
_LAST = 611


def description(ordinal: int) -> str:
    """`V5_3_3` for 479. Versions before 4, whose numbers run without a rule, are all `V3`."""
    if ordinal < _FIRST:
        return "V3"
    if ordinal > _LAST:
        return "HIGHER_VERSION"
    number, is_release = divmod(ordinal - _FIRST, 2)
    name = f"V{4 + number // 100}_{number // 10 % 10}_{number % 10}"
    return name if is_release else f"{name}_SNAPSHOT"
