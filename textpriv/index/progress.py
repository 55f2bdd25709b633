"""Progress of long computations over an index: what ``progress=`` means wherever it is a parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["reporter"]


@contextmanager
def reporter(
    progress: bool | Callable[[str, int, int], None],
) -> Iterator[Callable[[str], Callable[[int, int], None] | None]]:
    """Turn the ``progress`` argument into one reporting function a stage."""
    if progress is False or progress is None:
        yield lambda stage: None
        return
    if callable(progress):

        def bind(stage: str) -> Callable[[int, int], None]:
            return lambda done, everything: progress(stage, done, everything)

        yield bind
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:

        def bar(stage: str) -> Callable[[int, int], None]:
            task = bars.add_task(stage)
            return lambda done, everything: bars.update(task, completed=done, total=everything)

        yield bar
