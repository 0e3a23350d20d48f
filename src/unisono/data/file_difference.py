"""Words for how the files that a worker sees differ from those that the chief sees."""

from __future__ import annotations

from collections.abc import Mapping

_NAMED = 5
"""Files that a message names one by one."""


SORT = "sort the list of files, or seed its shuffle: random.Random(0).shuffle(files)."
"""What to do where the same files come in another order."""


def difference(here: Mapping[str, int | None], there: Mapping[str, int | None]) -> str:
    """Returns how two lists of files differ.

    Args:
        here: Bytes of each file that this worker sees, in order; None where they are not known.
        there: What the chief sees.

    Returns:
        A sentence without its full stop, e.g. "only on the chief: b.csv; only on this worker: d.csv".
    """
    parts = [
        ("only on this worker", [name for name in here if name not in there]),
        ("only on the chief", [name for name in there if name not in here]),
        (
            "of another size",
            [
                f"{name} ({size} bytes on this worker, {there[name]} on the chief)"
                for name, size in here.items()
                if name in there and there[name] != size
            ],
        ),
    ]
    return "; ".join(f"{what}: {_some(names)}" for what, names in parts if names) or "they come in another order"


def _some(names: list[str]) -> str:
    """Returns the first few names, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
