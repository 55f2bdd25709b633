"""The way of a text from str to str is short enough to read."""

from __future__ import annotations

import os
import sys
from types import FrameType

import textpriv
from textpriv import TEM, Privatizer

ROOM = os.path.dirname(textpriv.__file__) + os.sep
STREAM = {"of", "fill_each", "fill", "_encryptor", "__init__"}


def functions_passed(privatizer: Privatizer, text: str) -> set[str]:
    """Names of the functions that one text passes, apart from those that make its random stream."""
    passed: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        is_own = file.startswith(ROOM) and name[0] != "<"  # a comprehension is no function
        if event == "call" and is_own and name not in STREAM:
            passed.add(f"{file.removeprefix(ROOM)}: {name}")

    sys.setprofile(note)
    try:
        privatizer.privatize(text)
    finally:
        sys.setprofile(None)
    return passed


def test_a_text_passes_twelve_functions_from_str_to_str(three_points):
    privatizer = Privatizer(TEM(three_points, 1.0))
    privatizer.privatize("W1, w2 and w3.")  # its chunks are then in the encoder's dictionary
    passed = functions_passed(privatizer, "W1, w2 and w3.")
    assert len(passed) <= 12, sorted(passed)
