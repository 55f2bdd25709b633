"""One self-contained HTML page about a mechanism on its index: what it guarantees, and what it does to words.

Here the figures are gathered and put into the page; each is computed where it belongs (the law by the mechanism,
deniability and leaks in ``textpriv.evaluation``, the constant in ``textpriv.guarantees.certificate``, sums in
``textpriv.ledger``). The page loads nothing and needs no network. Its words, laws and curves are public; a corpus makes
it as private as the corpus, and then it says so.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textpriv.bounds import at_most, odds_in_words
from textpriv.errors import TextprivError
from textpriv.evaluation.best_attacker import BestAttacker, PublicText
from textpriv.evaluation.deniability import Deniability, deniabilities
from textpriv.evaluation.recovery import COMMON, Band, WordRecovery, hidden_words, word_recovery
from textpriv.evaluation.sensitive import can_compare, exposure
from textpriv.files import atomic_write, umask
from textpriv.index.neighbours import processors
from textpriv.index.typical import REFERENCE, weighted_quantiles
from textpriv.ledger import Document
from textpriv.mechanisms.base import Mechanism
from textpriv.randomness import KeyedStreams, Stream
from textpriv.spans.plan import OUTCOMES, SpanPlan
from textpriv.web.charts import Chart, Line
from textpriv.web.pages import asset, content_policy, fill
from textpriv.web.render import kinds_of, token_spans

if TYPE_CHECKING:
    from textpriv.evaluation.leaks import LeakReport
    from textpriv.guarantees.certificate import Certificate
    from textpriv.index.index import Index
    from textpriv.ledger.ledger import Spent
    from textpriv.privatizer import Privatizer
    from textpriv.statement import PrivacyStatement

__all__ = [
    "Sample",
    "WordLaws",
    "odds_table",
    "report_page",
    "typical_pairs",
    "write_page",
]

_OUTPUTS = 12  # of a word's law that are shown
_STEPS = 6  # half octaves of epsilon on either side of the current one
_MEASURED = 200  # words behind the mean curves
_DRAWS = 1000  # of the paper's S_w, and of a law that is estimated
_ESTIMATED = (
    60  # words whose law is estimated, where there is no closed one: draws are slower than a law
)
_LONGEST_SAMPLE = 2_000  # characters of a document that are shown


@dataclass(frozen=True)
class WordLaws:
    """What some public words become.

    Attributes
    ----------
    words : tuple of str
    keep : ndarray, shape (m,)
        Probability that a word is replaced by itself.
    outputs : list of list of (int, float, float)
        For each word its likeliest outputs: id, probability, distance.
    exact : bool
        From the closed law; else estimated from draws.
    """

    words: tuple[str, ...]
    keep: NDArray[np.float64]
    outputs: list[list[tuple[int, float, float]]]
    exact: bool

    @classmethod
    def of(cls, mechanism: Mechanism, ids: Sequence[int], outputs: int = _OUTPUTS) -> WordLaws:
        """Compute the laws of some words; by draws under a fixed public key where the mechanism has no closed law."""
        exact = mechanism.has_law

        def look(word: int) -> tuple[float, list[tuple[int, float, float]]]:
            law = np.exp(mechanism.log_prob(word)) if exact else _estimated(mechanism, word)
            # Those no less likely than the last one shown, then in order: sorting all of them takes longer than the law.
            least = np.partition(law, max(len(law) - outputs, 0))[max(len(law) - outputs, 0)]
            top = np.flatnonzero(law >= least)
            top = top[np.argsort(-law[top], kind="stable")][:outputs]
            distances = mechanism.index.distances_of(np.array([word]))[0]
            likeliest = [(int(i), float(law[i]), float(distances[i])) for i in top if law[i] > 0]
            return float(law[word]), likeliest

        # One law at a time in each thread: all of them would fill the memory. A sampler is used by one thread only.
        with ThreadPoolExecutor(processors() if exact else 1) as pool:
            laws = list(pool.map(look, ids))
        words = mechanism.index.vocabulary.words
        keep = np.array([stays for stays, _ in laws])
        return cls(tuple(words[word] for word in ids), keep, [each for _, each in laws], exact)


@dataclass(frozen=True)
class Attacks:
    """What the best attackers get back: of lone words exactly, and in context with a standard error."""

    alone: WordRecovery
    common: int
    context: tuple[float, float] | None

    @classmethod
    def of(cls, mechanism: Mechanism, text: PublicText | None) -> Attacks:
        """Compute it, counting words by the public counts of the index or else by rank."""
        vocabulary = mechanism.index.vocabulary
        prior = "zipf" if vocabulary.prior is None else "counts"
        common = min(COMMON, len(vocabulary) // 4)
        attacker = BestAttacker(vocabulary.prior_weights(prior), "content", text, common)
        return cls(
            word_recovery(mechanism, prior, common=common),
            common,
            None if text is None else attacker.in_context(mechanism),
        )

    def hidden(self, mechanism: Mechanism, leaks: LeakReport | None) -> list[Band]:
        """Words by how well they are hidden, counted in the texts where there are some."""
        vocabulary = mechanism.index.vocabulary
        prior = vocabulary.prior_weights("zipf" if vocabulary.prior is None else "counts")
        return hidden_words(self.alone, prior, None if leaks is None else leaks.word_counts)


@dataclass(frozen=True)
class SpanRow:
    """What becomes of spans of a kind, and how many were found where that was counted."""

    kind: str
    law: str
    loss: str
    stays: str
    counts: dict[str, int]

    @classmethod
    def of(cls, plan: SpanPlan, found: Mapping[tuple[str, str], int]) -> list[SpanRow]:
        """The kinds of a policy in its order, and what was found of other kinds, which have no law."""
        rows = []
        for kind, law in plan.policy.laws.items():
            claim = law.claim()
            loss = "nothing"
            if claim.largest:
                loss = f"{at_most(claim.epsilon)} a {claim.unit}, once for each {claim.per}"
            stays = "; ".join(
                f"{at_most(100 * share, 3)} % {where}".strip()
                for where, share in law.stays().items()
            )
            rows.append((kind, claim.law, loss, stays or "–"))
        others = sorted({kind for kind, _ in found} - {row[0] for row in rows})
        rows += [(kind, "", "", "") for kind in others]
        return [
            cls(*row, {outcome: found.get((row[0], outcome), 0) for outcome in OUTCOMES})
            for row in rows
        ]


@dataclass(frozen=True)
class Sample:
    """A raw document beside its private form: as private as the document."""

    original: str
    private: str
    changed: float
    cut: bool

    @classmethod
    def of(cls, privatizer: Privatizer | None, text: str) -> Sample:
        """Draw one document once, and mark what happened to each token; ``private`` is HTML."""
        if privatizer is None:
            raise TextprivError("samples are drawn by a privatizer: pass privatizer=.")
        shown = text[:_LONGEST_SAMPLE]
        raw = privatizer.read_batch([shown])
        # Laws of spans may draw once for a document or a person, so it is one of a name of its own.
        named = Document(os.urandom(16), os.urandom(16)) if privatizer.spans else Stream()
        (tokens,) = privatizer.release(raw, [named])
        same = (raw.codes >= 0) & (raw.codes == tokens.outputs)
        kinds = [
            "same" if stays else kind for stays, kind in zip(same, kinds_of(tokens), strict=True)
        ]
        drawn = int(np.count_nonzero(tokens.outputs >= 0))
        share = 1 - float(np.count_nonzero(same)) / drawn if drawn else 0.0
        html = token_spans(tokens.words, tokens.spaces, kinds)
        return cls(shown, html, share, len(text) > len(shown))


def report_page(
    mechanism: Mechanism,
    *,
    words: int = 600,
    more: Sequence[str] = (),
    certificate: Certificate | None = None,
    privatizer: Privatizer | None = None,
    leaks: LeakReport | None = None,
    texts: Iterable[str] = (),
    ledger: Spent | None = None,
    public_text: PublicText | None = None,
) -> str:
    """Return the page.

    Parameters
    ----------
    mechanism : Mechanism
    words : int
        How many words of the vocabulary the reader may type, from 2 up: the first, and others evenly over the ranks.
    more : sequence of str
        Further words of the vocabulary. They become part of the page: never take them from a private text.
    certificate : Certificate, optional
    privatizer : Privatizer, optional
        Says what is released for each class of token, and draws the samples.
    leaks : LeakReport, optional
        As private as the texts it was counted on; the page then says so.
    texts : iterable of str
        Raw documents to show beside their private forms, which needs ``privatizer``. The page is then as private as they.
    ledger : Spent, optional
        Totals of a ledger.
    public_text : PublicText, optional
        What an attacker is tried on, too, who reads words in context. Never made from the private texts.

    Returns
    -------
    str
        HTML. Every text in it is escaped, and a policy in its head forbids it to load anything.

    Raises
    ------
    TextprivError
        For samples without a privatizer, for fewer than 2 words and for words outside the vocabulary.
    """
    _check_count(words)
    samples = [Sample.of(privatizer, text) for text in texts]
    exact = mechanism.has_law
    ids = _chosen(mechanism, words if exact else min(words, _ESTIMATED), more)
    laws = WordLaws.of(mechanism, ids)
    epsilons = _grid(mechanism)
    figures = _figures(mechanism, epsilons) if exact else None
    attacks = Attacks.of(mechanism, public_text) if exact and can_compare(mechanism) else None
    statement = mechanism.statement if privatizer is None else privatizer.statement
    plan = None if privatizer is None else privatizer.spans
    script = asset("report.js")
    return fill(
        "report.html",
        made=datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        policy=content_policy(script),
        middle=np.median,
        script=script,
        index=mechanism.index,
        mechanism=mechanism,
        statement=statement,
        claim=replace(statement, assumptions=(), not_protected=(), notes=()).paragraph(),
        odds=odds_table(mechanism.statement, typical_pairs(mechanism.index)),
        lists=exposure(mechanism, guess=None if attacks is None else attacks.alone.guess),
        spans=None if plan is None else SpanRow.of(plan, leaks.spans if leaks else {}),
        outcomes=[each for each in OUTCOMES if leaks and any(of == each for _, of in leaks.spans)],
        hidden=attacks.hidden(mechanism, leaks) if attacks and not (plan and plan.passes) else None,
        attacks=attacks,
        laws=laws,
        draws=_DRAWS,
        data=_data(mechanism, laws, epsilons if figures else [], ids),
        figures=figures,
        certificate=certificate,
        actions=None if privatizer is None else privatizer.policy.to_dict(),
        leaks=leaks,
        samples=samples,
        ledger=ledger,
    )


def write_page(page: str, path: str | os.PathLike[str], *, private: bool) -> None:
    """Write a page whole or not at all; a private one can be read by its owner alone."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target, mode=0o600 if private else 0o666 & ~umask()) as file:
        file.write(page.encode())


def _check_count(words: int) -> None:
    if isinstance(words, bool) or not isinstance(words, int) or words < 2:
        raise TextprivError(
            f"words is how many words the page can look up, a whole number from 2 up; got {words!r}."
        )


def _chosen(mechanism: Mechanism, count: int, more: Sequence[str]) -> list[int]:
    """Ids of the words that can be typed: the commonest, then others evenly over the logarithm of the rank."""
    vocabulary = mechanism.index.vocabulary
    first = [i for i, word in enumerate(islice(vocabulary.words, 4 * count)) if word.isalpha()]
    first = first[: max(1, 2 * count // 3)]
    rest = np.geomspace(1, len(vocabulary), 4 * count).astype(int) - 1
    chosen = dict.fromkeys([*(vocabulary.id(word) for word in more), *first])
    for candidate in rest[::-1].tolist():
        if len(chosen) >= min(count + len(more), len(vocabulary)):
            break
        if vocabulary.words[candidate].isalpha():
            chosen.setdefault(candidate)
    return list(chosen) or list(range(min(count, len(vocabulary))))


def _estimated(mechanism: Mechanism, word: int) -> NDArray[np.float64]:
    """Relative frequencies of draws; the word and the key are public, so they are the same in every report."""
    stream = KeyedStreams(seed=0).stream(f"report {word}")
    drawn = mechanism.sample(np.full(_DRAWS, word, dtype=np.int32), stream)
    return np.bincount(drawn, minlength=len(mechanism.index)) / _DRAWS


def _grid(mechanism: Mechanism) -> list[float]:
    steps = np.arange(-_STEPS, _STEPS + 1) / 2
    return [float(value) for value in mechanism.epsilon * 2.0**steps]


def _at(mechanism: Mechanism, epsilon: float) -> Mechanism:
    """The same mechanism at another epsilon."""
    settings = {**mechanism.settings(), "epsilon": epsilon}
    return type(mechanism)(mechanism.index, **settings)


@dataclass(frozen=True)
class _Figures:
    """Deniability over epsilon, and the charts of it."""

    rows: list[tuple[float, ...]]
    keep: str
    distinct: str
    now: tuple[float, float, float]
    errors: list[float]  # standard ones of the first two; 0 where all words were looked at
    looked_at: int


def _movable(mechanism: Mechanism) -> bool:
    """Whether a curve over epsilon can be had: others than these calibrate themselves whenever they are made."""
    from textpriv.mechanisms.tem import TEM

    return type(mechanism) is TEM


def _means(found: Deniability) -> tuple[float, float, float]:
    keep, distinct, support = found.keep, found.distinct, found.support.astype(np.float64)
    kept, drawn, met = (float(found.sample.mean(each)) for each in (keep, distinct, support))
    return kept, drawn, met


def _figures(mechanism: Mechanism, epsilons: list[float]) -> _Figures:
    others = [_at(mechanism, epsilon) for epsilon in epsilons] if _movable(mechanism) else []
    found = deniabilities([mechanism, *others], sample=_MEASURED, draws=_DRAWS)
    current, *means = map(_means, found)
    now = found[0]
    errors = [float(now.sample.standard_error(each)) for each in (now.keep, now.distinct)]
    looked_at = len(now.sample.ids)
    if not others:
        return _Figures([], "", "", current, errors, looked_at)
    bands = []
    rows: list[tuple[float, ...]] = []
    for epsilon, figures, mean in zip(epsilons, found[1:], means, strict=True):
        bands.append(weighted_quantiles(figures.keep, figures.sample.shares, (0.1, 0.9)))
        rows.append((epsilon, *mean))
    keep = Chart(
        title="Keep probability over epsilon",
        description=(
            f"The mean probability that a word stays as it is rises from {rows[0][1]:.2g} at epsilon {epsilons[0]:.3g} to "
            f"{rows[-1][1]:.2g} at epsilon {epsilons[-1]:.3g}. At epsilon {mechanism.epsilon:g} it is {current[0]:.3g}. "
            "The numbers are in the table below."
        ),
        x_label="epsilon (per unit of distance)",
        y_label="probability that a word stays as it is",
        x=epsilons,
        lines=[
            Line("mean", [row[1] for row in rows], [b[0] for b in bands], [b[1] for b in bands])
        ],
        top=1.0,
        mark=(mechanism.epsilon, current[0], f"here: {current[0]:.2f}"),
        name="keep-chart",
    )
    top = max(*(row[2] for row in rows), current[1])
    distinct = Chart(
        title="Different outputs in 1,000 draws over epsilon",
        description=(
            f"The mean number of different outputs in {_DRAWS:,} draws of a word goes from {rows[0][2]:,.0f} at epsilon "
            f"{epsilons[0]:.3g} to {rows[-1][2]:,.0f} at epsilon {epsilons[-1]:.3g}. At epsilon {mechanism.epsilon:g} it is "
            f"{current[1]:,.0f}. The numbers are in the table below."
        ),
        x_label="epsilon (per unit of distance)",
        y_label=f"different outputs in {_DRAWS:,} draws",
        x=epsilons,
        lines=[Line("mean", [row[2] for row in rows])],
        top=_round_up(top),
        mark=(mechanism.epsilon, current[1], f"here: {current[1]:,.0f}"),
        name="distinct-chart",
    )
    return _Figures(rows, keep.svg(), distinct.svg(), current, errors, looked_at)


def _round_up(value: float) -> float:
    """The next number of the form 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(max(value, 1e-9)))
    return next(step * power for step in (1.0, 2.0, 2.5, 5.0, 10.0) if step * power >= value)


def typical_pairs(index: Index) -> list[tuple[str, float]]:
    """Which two words, and how far apart: for half and for nine tenths of all running words, and the bound on all."""
    names = {1: "nearest", REFERENCE: f"{REFERENCE}th nearest", 100: "100th nearest"}
    rows = [
        (f"a word and its {names[rank]} word with another vector, {share} of running words", end)
        for rank, ends in index.typical.items()
        for share, end in zip(("half", "nine tenths"), ends, strict=True)
    ]
    return [*rows, ("the two most different words, at most", index.diameter_bound)]


def odds_table(
    statement: PrivacyStatement, distances: Sequence[tuple[str, float]]
) -> list[tuple[str, str, str]]:
    """What a statement means at some distances: which two words, how far apart, at which odds."""
    return [
        (name, at_most(distance, 3), odds_in_words(statement.loss_at(distance)))
        for name, distance in distances
    ]


def _data(
    mechanism: Mechanism, laws: WordLaws, epsilons: list[float], ids: Sequence[int]
) -> dict[str, Any]:
    """What the script of the page looks words up in."""
    vocabulary = mechanism.index.vocabulary.words
    shown = sorted({i for outputs in laws.outputs for i, _, _ in outputs})
    position = {word: number for number, word in enumerate(shown)}
    others = [_at(mechanism, epsilon) for epsilon in epsilons] if _movable(mechanism) else []

    def curve(word: int) -> list[float]:
        # One word at every epsilon: its row of distances is found once.
        return [_short(float(np.exp(other.log_prob(word)[word]))) for other in others]

    with ThreadPoolExecutor(processors()) as pool:
        curves = list(pool.map(curve, ids))
    return {
        "epsilon": mechanism.epsilon,
        "epsilons": [_short(value) for value in epsilons],
        "exact": laws.exact,
        "vocabulary": [vocabulary[i] for i in shown],
        "words": [
            {
                "word": word,
                "keep": _short(keep),
                "curve": curve,
                "outputs": [[position[i], _short(p), _short(d)] for i, p, d in outputs],
            }
            for word, keep, curve, outputs in zip(
                laws.words, laws.keep.tolist(), curves, laws.outputs, strict=True
            )
        ],
    }


def _short(value: float) -> float:
    """Four digits: what a reader can see."""
    return float(f"{value:.4g}")
