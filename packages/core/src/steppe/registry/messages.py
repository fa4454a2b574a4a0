"""Parts of the registry's error texts: suggestions of similar names, and lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """Return the sentence with the most similar candidate, after a space; "" if none is similar."""
    close = suggestion(word, candidates)
    return f" Did you mean {close!r}?" if close else ""


def suggestion(word: str, candidates: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the most similar candidate in any case, or None if its similarity is below `cutoff` (from 0 to 1)."""
    from difflib import get_close_matches

    folded = {candidate.lower(): candidate for candidate in reversed([*candidates])}
    close = get_close_matches(word.lower(), folded, n=1, cutoff=cutoff)
    return folded[close[0]] if close else None


def listed(names: Iterable[str]) -> str:
    """Return the names in order, separated by commas, or "none"."""
    return ", ".join(sorted(names)) or "none"


def joined(parts: Sequence[str]) -> str:
    """Return an enumeration: "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
