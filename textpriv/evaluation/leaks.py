"""What a release of a corpus leaves visible: tokens by class, by what is done with them, and what anyone can read off.

A report is made by classifying the raw text, nothing is drawn; only the share of words that stay as they are needs draws,
and is made on request. A report describes private text exactly, so it is for whoever holds that text. Reading files is in
``textpriv.corpus``, classification in ``textpriv.privatizer``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from textpriv.errors import DocumentError, TextprivError
from textpriv.mechanisms.base import UNKNOWN
from textpriv.privatizer import Privatizer
from textpriv.randomness import Stream
from textpriv.spans.plan import FoundSpans, SpanPlan
from textpriv.tokenization.encoder import TextEncoder
from textpriv.tokenization.policy import CLASSES, TokenPolicy

__all__ = ["PRIVATE", "LeakReport", "leak_report"]

PRIVATE = "private: computed from the raw text; do not publish"

_DONE = {"sample": "sampled", "mask": "masked", "drop": "dropped", "keep": "kept"}
_CLASSES = ("word", "stopword", "unknown", "number", "punctuation", "space")
_PASSES = "everything that no law draws, released as written"
_BATCH = 1000


@dataclass(frozen=True)
class LeakReport:
    """What stays visible of a corpus under a policy.

    Attributes
    ----------
    documents : int
    classes : mapping of str to int
        Tokens of each class: "word" (of the vocabulary, of no other class), "stopword", "unknown", "number",
        "punctuation", "space". Every token is of one class.
    released : mapping of str to str
        What is done with each class: "sampled", "masked", "dropped" or "kept".
    visible : tuple of str
        What anyone can read off the release, in plain words.
    unchanged : float or None
        Share of the sampled tokens that one fresh draw left as they are, the word in the case it is looked up in. Private
        like the text: which words are still the author's own is what the draw hides. None unless asked for.
    spans : mapping of (str, str) to int
        How many typed spans of each kind were found, by what becomes of them: see ``textpriv.spans.plan.OUTCOMES``. Tokens
        of spans that are drawn are of no class.
    word_counts : ndarray of int64, shape (V + 1,)
        How often each word of the vocabulary is drawn from, and last all others together.
    """

    documents: int
    classes: Mapping[str, int]
    released: Mapping[str, str]
    visible: tuple[str, ...]
    unchanged: float | None = None
    spans: Mapping[tuple[str, str], int] = field(default_factory=dict)
    word_counts: NDArray[np.int64] | None = field(default=None, repr=False)

    @property
    def tokens(self) -> int:
        """All tokens."""
        return sum(self.classes.values())

    @property
    def by_release(self) -> dict[str, int]:
        """Tokens by what is done with them: sampled, masked, dropped, kept."""
        counts = dict.fromkeys(_DONE.values(), 0)
        for name, count in self.classes.items():
            counts[self.released[name]] += count
        return counts

    def share(self, count: int) -> float:
        """A number of tokens as a share of all; 0 for an empty corpus."""
        return count / self.tokens if self.tokens else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON types; ``unchanged`` only if it was asked for, and marked."""
        content: dict[str, Any] = {
            "note": PRIVATE,
            "documents": self.documents,
            "tokens": self.tokens,
            "classes": {
                name: {
                    "tokens": count,
                    "share": self.share(count),
                    "released": self.released[name],
                }
                for name, count in self.classes.items()
            },
            "released": {
                name: {"tokens": count, "share": self.share(count)}
                for name, count in self.by_release.items()
            },
            "visible": list(self.visible),
            "spans": [
                {"kind": kind, "outcome": outcome, "count": count}
                for (kind, outcome), count in sorted(self.spans.items())
            ],
        }
        if self.unchanged is not None:
            content["unchanged"] = {"share": self.unchanged, "note": PRIVATE}
        return content

    def table(self) -> str:
        """Return the report as text for a screen."""
        lines = [f"{'class':<12} {'tokens':>12} {'share':>7}  released"]
        for name, count in self.classes.items():
            lines.append(
                f"{name:<12} {count:>12,} {self.share(count):>7.1%}  {self.released[name]}"
            )
        lines.append("")
        lines.append(f"{'released':<12} {'tokens':>12} {'share':>7}")
        for name, count in self.by_release.items():
            lines.append(f"{name:<12} {count:>12,} {self.share(count):>7.1%}")
        if self.spans:
            lines.append("")
            lines.append(f"{'spans of kind':<16} {'what becomes of them':<22} {'number':>9}")
            for (kind, outcome), count in sorted(self.spans.items()):
                lines.append(f"{kind:<16} {outcome:<22} {count:>9,}")
        lines.append("")
        lines.append(f"visible in the release of these {self.documents:,} documents:")
        lines.extend(f"  - {each}" for each in self.visible)
        if self.unchanged is not None:
            lines.append("")
            lines.append(f"sampled words that stay as they are: {self.unchanged:.1%} ({PRIVATE})")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()


def leak_report(
    texts: Iterable[str], privatizer: Privatizer, *, compare: bool = False
) -> LeakReport:
    """Report what a release of these texts leaves visible.

    Parameters
    ----------
    texts : iterable of str
        Read once, and not kept.
    privatizer : Privatizer
        Its policy, vocabulary and tokenizer are used; its keys, seed and ledger are not.
    compare : bool
        Also draw every sampled token once, with randomness of its own, and report how many come out as they went in. The
        draws are thrown away. It costs no privacy as long as the number stays with the text.

    Raises
    ------
    TextprivError
        For something else than texts; names the position of the document.

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> vocabulary = textpriv.Vocabulary(["good", "film"], np.array([[0.0], [1.0]]))
    >>> mechanism = textpriv.TEM(textpriv.Index.build(vocabulary), epsilon=1.0)
    >>> leak_report(["A good film!"], textpriv.Privatizer(mechanism)).classes["word"]
    2
    """
    source = iter(texts)
    policy, plan = privatizer.policy, privatizer.spans
    vocabulary = privatizer.mechanism.index.vocabulary.words
    # Keeping every class makes the reader tell all of them apart.
    each = TokenPolicy(**dict.fromkeys(CLASSES, "keep"), case=policy.case)
    apart = TextEncoder(vocabulary, each, privatizer.language)
    classes = dict.fromkeys(_CLASSES, 0)
    spans: Counter[tuple[str, str]] = Counter()
    word_counts = np.zeros(len(vocabulary) + 1, dtype=np.int64)
    documents = same = 0
    while batch := list(islice(source, _BATCH)):
        for number, text in enumerate(batch, documents):
            if not isinstance(text, str):
                raise TextprivError(
                    f"document {number} is of type {type(text).__name__}, not text."
                )
        if plan is None:
            told, read = apart.encode(batch), privatizer.read_batch(batch)
        else:
            found = _found(plan, batch, documents)
            spans += plan.outcomes(found)
            told, read = (plan.split(batch, found, by) for by in (apart, privatizer.reader))
        documents += len(batch)
        for name, count in told.counts.items():
            if not name.startswith("span "):
                classes["word" if name == "sampled" else name] += count
        ids = read.codes[read.codes >= UNKNOWN]
        word_counts += np.bincount(
            np.where(ids == UNKNOWN, len(vocabulary), ids), minlength=len(word_counts)
        )
        if compare and len(ids):
            same += int(np.count_nonzero(privatizer.mechanism.sample(ids, Stream()) == ids))
    drawn = int(word_counts.sum())
    unchanged = None
    if compare:
        unchanged = same / drawn if drawn else 0.0
    passes = plan is not None and plan.passes
    done = {name: getattr(policy, name) for name in CLASSES if not policy.draws(name)}
    released = {name: "kept" if passes else _DONE[done.get(name, "sample")] for name in _CLASSES}
    visible = (_PASSES,) if passes else policy.not_protected()
    return LeakReport(documents, classes, released, visible, unchanged, dict(spans), word_counts)


def _found(plan: SpanPlan, texts: Sequence[str], first: int) -> list[FoundSpans]:
    """The spans of some documents; what is wrong with one names it by its number."""
    try:
        return plan.find(texts)
    except DocumentError as error:
        raise error.named(f"document {first + (error.position or 0)}") from None
