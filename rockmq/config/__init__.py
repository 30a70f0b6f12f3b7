"""Typed options: keys in Java's spelling, values checked when they are read, nothing ignored in silence."""
