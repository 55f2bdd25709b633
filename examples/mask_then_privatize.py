"""Mask what a pattern recognises, privatize every other word, and state both at once.

A detector (here regular expressions; Presidio's analyzer gives the same spans) finds numbers, addresses and names that no
word vector stands for. What it finds is replaced by its kind. What it misses is still drawn word by word.

python examples/mask_then_privatize.py INDEX
"""

import re
import sys

import textpriv

PATTERNS = {
    "EMAIL": r"[\w.+-]+@[\w-]+\.[\w.]+",
    "PHONE": r"\+?\d[\d ()-]{7,}\d",
    "CARD": r"\b(?:\d{4}[ -]?){4}\b",
}
DETECTOR = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in PATTERNS.items()))


def mask_and_privatize(privatizer: textpriv.Privatizer, text: str) -> str:
    """Return the text with each recognised span as its kind, and every word between them drawn anew."""
    spans = [(m.start(), m.end(), m.lastgroup) for m in DETECTOR.finditer(text)]
    starts = [0, *(end for _, end, _ in spans)]
    ends = [*(start for start, _, _ in spans), len(text)]
    pieces = list(privatizer.pipe([text[a:b] for a, b in zip(starts, ends, strict=True)]))
    kinds = [f"[{kind}]" for _, _, kind in spans] + [""]
    return " ".join(part for pair in zip(pieces, kinds, strict=True) for part in pair).strip()


def main(folder: str) -> None:
    """Mask and privatize one message; print it with the joint statement."""
    index = textpriv.Index.load(folder)
    privatizer = textpriv.Privatizer(textpriv.TEM(index, epsilon=10.0))
    message = (
        "Please call the minister on +61 2 5550 1234 or write to jane.doe@example.org about health."
    )
    print(mask_and_privatize(privatizer, message))
    joint = privatizer.statement.extended(
        not_protected=("the number, places and kinds of the spans that the detector masked",),
        notes=("What the detector removes is gone; what it misses is protected as words are.",),
    )
    print(joint.paragraph())


if __name__ == "__main__":
    main(sys.argv[1])
