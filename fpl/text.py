"""Small pieces of text that several layers print."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """`42 s`, `3:05`, `2:03:05`, `4 d 02:03`."""
    whole = max(0, round(seconds))
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24:02d}:{minute:02d}"
    if hours:
        return f"{hours}:{minute:02d}:{second:02d}"
    return f"{minute}:{second:02d}" if whole >= 60 else f"{whole} s"
