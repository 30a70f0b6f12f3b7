"""Connections that carry requests both ways, and what answers them. Knows frames and codes, but no broker."""
