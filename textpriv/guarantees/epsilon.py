"""The epsilon of a wanted protection, and mechanisms at equal recovery.

All figures follow from public tables, public text and output distributions, so choosing costs no privacy.

Epsilons that were searched for are recorded, each bound to its question. Some come with the package. The user's own are
JSON files in the cache folder. An index folder holds none: whoever hands one on could name an epsilon that protects less
than was asked for.
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from textpriv.errors import MechanismError, OutOfReachError
from textpriv.evaluation.best_attacker import (
    NORMAL_95,
    BestAttacker,
    PublicText,
    Rate,
    largest_epsilon,
    text_of,
)
from textpriv.evaluation.distribution import OutputDistribution
from textpriv.evaluation.recovery import content_prior
from textpriv.evaluation.samples import WordSample
from textpriv.files import atomic_write, cache_folder
from textpriv.index.builtin import ENGLISH
from textpriv.index.index import Index
from textpriv.index.tree import Tree
from textpriv.mechanisms import default_name, make_mechanism, protection
from textpriv.mechanisms.base import ALGORITHM, Mechanism, checksum, positive
from textpriv.mechanisms.default import DEFAULT_PRIORS
from textpriv.statement import at_least
from textpriv.vocabulary.builtin import read_manifest

__all__ = ["Candidate", "Choice", "MechanismRanking", "choose", "choose_epsilon", "epsilon_for"]

_SLACK = 1e-8  # nats that a statement of any mechanism adds for rounding, at most
_WORDS = 512  # looked at for what is kept of words
_PRECISE = 1e-7  # relative, of the epsilon at which a share of words stays
_DIGITS = 4  # of an epsilon that is printed, rounded down
_LARGE = 10_000  # words of an index over which a search takes more than some seconds


@dataclass(frozen=True)
class Choice:
    """An epsilon, and how it was found.

    ``target`` is "recovery", "odds" or "keep"; ``wanted`` is the figure asked for, and ``value`` that at ``epsilon``, with
    a ``standard_error`` of 0 where it is exact. With "recovery", ``reader`` is as of :meth:`BestAttacker.reader`, an
    estimate and no bound on better models. Over an index with a domain ``general`` is then the exact share in general
    English, and ``value`` that in the domain.
    """

    epsilon: float
    target: str
    wanted: float
    value: float
    standard_error: float
    reader: float | None = None
    reader_error: float | None = None
    general: float | None = None

    @property
    def rates(self) -> tuple[Rate, Rate | None]:
        """The shares that two attackers recover, each with its standard error."""
        whole = None if self.reader is None else (self.reader, self.reader_error or 0.0)
        return (self.value, self.standard_error), whole


def epsilon_for(index: Index, **wanted: Any) -> float:
    """Return the epsilon of a wanted ``recovery``, ``odds`` or ``keep``; all arguments as for :func:`choose_epsilon`."""
    return choose_epsilon(index, **wanted).epsilon


def with_epsilon(
    index: Index, mechanism: Any, options: Mapping[str, Any]
) -> tuple[dict[str, Any], Choice | None]:
    """Return a mechanism's options with the epsilon of their ``recovery``, if any, and how that was found."""
    if "recovery" not in options:
        return dict(options), None
    chosen = choose_epsilon(index, mechanism=mechanism, **options)
    others = {name: value for name, value in options.items() if name != "recovery"}
    return {"epsilon": chosen.epsilon, **others}, chosen


def choose_epsilon(
    index: Index,
    *,
    recovery: float | None = None,
    odds: float | None = None,
    keep: float | None = None,
    of: str = "content",
    context: Iterable[str] | PublicText | None = None,
    distance: float | None = None,
    mechanism: str | None = None,
    **settings: Any,
) -> Choice:
    """Find the epsilon of a wanted protection; words are written as often as :attr:`Index.word_frequency` says.

    Parameters
    ----------
    index : Index
    recovery : float
        The largest share of tokens that the Bayes-optimal single-word attacker may recover, in (0, 1): the largest epsilon
        at which that holds, exactly, rounded down to four digits. For a mechanism that reads its context it is an estimate,
        by the best of three attackers (:meth:`BestAttacker.alone`) on one draw of 4,000 words of its language (or of
        ``context``): the upper end of its 95 % interval is at most the share. It bounds no better attacker. ``value`` and
        ``reader`` are then measured on 10,000 other words.
    odds : float
        The largest odds, to 1, that one output of any mechanism allows between two words at ``distance``.
    keep : float
        The mean probability that a token stays as it is, over at most 512 words of a fixed public sample.
    of : {"content", "all"}
        With ``recovery``: which words. Content words are all but function words, and the attacker knows that.
    context : iterable of str, or PublicText, optional
        With ``recovery``: public texts in which a context attacker is tried, too; the better one counts, by the upper end
        of the 95 % interval. Never the private texts themselves.
    distance : float, optional
        With ``odds``; default ``index.reference_distance``.
    mechanism : str, optional
        A name, by default that of the index; its further settings are ``**settings``.

    Raises
    ------
    MechanismError
        Unless exactly one figure is asked for, and it is within reach.
    """
    protection("choose_epsilon", recovery=recovery, odds=odds, keep=keep)
    if odds is not None:
        given = index.reference_distance if distance is None else distance
        apart = positive("the reference distance", given)
        epsilon = math.log(positive("odds", odds)) / apart - _SLACK / apart
        if epsilon <= 0:
            raise MechanismError(f"no epsilon gives odds of {odds} to 1. Choose odds above 1.")
        return Choice(epsilon, "odds", float(odds), float(odds), 0.0)

    def make(epsilon: float) -> Mechanism:
        made: Mechanism = make_mechanism(index, mechanism, epsilon=epsilon, **settings)
        return made

    if keep is None:
        return _by_recovery(index, make, positive("recovery", recovery), of, context)
    found = largest_epsilon(
        make,
        positive("keep", keep),
        lambda each: (keep_share(each)[0], 0.0),
        1 / (index.reference_distance or 1.0),
        precise=_PRECISE,
    )
    return Choice(found.epsilon, "keep", keep, *keep_share(make(found.epsilon)))


def keep_share(mechanism: Mechanism, words: int = _WORDS, of: str = "all") -> tuple[float, float]:
    """Return the mean probability that a token stays, over a public sample of words, and its standard error.

    With ``of="content"`` the sample has content words only: whoever repeats the output recovers so many of them.
    """
    weights = mechanism.index.word_frequency
    if of == "content":
        weights = content_prior(weights, mechanism.index.vocabulary.is_content)
    sample = WordSample.of(weights, words)
    rows = OutputDistribution(mechanism).rows(sample.ids)
    keep = rows[np.arange(len(rows)), sample.ids].astype(np.float64)
    return sample.mean(keep), sample.standard_error(keep)


def _by_recovery(
    index: Index,
    make: Callable[[float], Mechanism],
    wanted: float,
    of: str,
    context: Iterable[str] | PublicText | None,
) -> Choice:
    """Search for the epsilon, or take what was recorded for just this question: a search takes a minute."""
    if of not in ("content", "all"):
        raise MechanismError(f"of= is 'content' or 'all'; got {of!r}.")
    weights = index.word_frequency
    content = index.vocabulary.is_content if of == "content" else None
    if context is not None and not isinstance(context, PublicText):
        context = PublicText.read(context, index)
    one, attacker = make(1.0), BestAttacker(weights, content, context)

    def attack(*, shown: bool) -> Callable[[Mechanism], tuple[float, float]]:
        if context is not None or not one.reads_context:
            return attacker.success
        return BestAttacker(weights, content, text_of(index, shown=shown)).alone

    binding = {
        "kind": "chosen epsilon",
        "version": 6,
        "algorithm": ALGORITHM,
        "mechanism": one.binding(),
        "wanted": [wanted, of, checksum(weights), None if context is None else context.digests],
    }
    bound = json.loads(json.dumps(binding))  # as it comes back from a file
    digest = hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest()
    file = cache_folder() / "epsilons" / f"{digest[:32]}.json"
    if (record := _find_record(file, bound)) is not None:
        return Choice(**record)
    if len(index) >= _LARGE:
        time = "about a minute" if context is None else "some minutes"
        told = f"The search for this epsilon takes {time}. It is kept in {cache_folder()} for later runs."
        warnings.warn(told, stacklevel=2)
    start = 4 / (index.reference_distance or 4.0)

    def made(epsilon: float) -> Mechanism:
        return make(float(at_least(epsilon, _DIGITS)))

    found = largest_epsilon(made, wanted, attack(shown=False), start, margin=NORMAL_95)
    epsilon = float(at_least(found.epsilon, _DIGITS))
    # What is shown is measured on more text, which the search did not look at.
    final = make(epsilon)
    alone, general = attack(shown=True)(final), None
    if index.domain is not None and not final.reads_context:
        zipf = index.vocabulary.prior_weights("zipf")
        general = BestAttacker(zipf, content).alone(final)[0]
    reader, error = attacker.reader(final) or (None, None)
    chosen = Choice(epsilon, "recovery", wanted, *alone, reader, error, general)
    with suppress(OSError):  # the cache folder may be read-only
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as out:
            out.write(json.dumps({"binding": bound, "content": asdict(chosen)}, indent=1).encode())
    return chosen


def _find_record(file: Path, bound: Any) -> dict[str, Any] | None:
    """Return what was recorded for exactly this binding, or None; a damaged file is ignored, with a warning."""
    for entry in read_manifest("en")["records"]:
        if entry["binding"] == bound:
            return dict(entry["content"])
    if not file.is_file():
        return None
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        entry = json.loads(file.read_bytes())
        if entry["binding"] == bound:
            return dict(entry["content"])
    warnings.warn(f"{file} is damaged and is computed again.", stacklevel=2)
    return None


@dataclass(frozen=True)
class Candidate:
    """A mechanism at the wanted recovery, and what is left of the words.

    ``recovered`` is the share of tokens that are recovered, ``reader`` the same by a reader of whole texts, and ``kept``
    the share of tokens that stay as they are. ``distance`` is the mean one between a word and its output, as a part of that
    between two unrelated tokens. Both are at the start of a document for a mechanism that reads its context.
    """

    index: str
    mechanism: str
    prior: str
    epsilon: float
    recovered: float
    reader: float | None
    kept: float
    distance: float

    @property
    def command(self) -> str:
        """The command line that privatizes a file so."""
        prior = f" --prior {self.prior}" if self.prior else ""
        where = "" if self.index == ENGLISH else f" --index {shlex.quote(self.index)}"
        by = "" if self.is_default else f" --mechanism {self.mechanism}{prior}"
        return f"textpriv privatize IN OUT{where}{by} --epsilon {self.epsilon:g}"

    @property
    def is_default(self) -> bool:
        """Whether it is the mechanism and prior of an index where none is named."""
        return (self.mechanism, self.prior) in DEFAULT_PRIORS.items()


@dataclass(frozen=True)
class MechanismRanking:
    """Candidates at the same recovery: the default first, the others by how near they keep words."""

    candidates: tuple[Candidate, ...]
    # Mechanisms that cannot be set to this recovery, with the reason
    left_out: tuple[str, ...] = ()

    @property
    def best(self) -> Candidate:
        """The one to use."""
        return self.candidates[0]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON types."""
        return {"command": self.best.command, **asdict(self)}


def choose(
    indexes: Index | Mapping[str, Index] | None = None,
    *,
    recovery: float,
    of: str = "content",
    context: Iterable[str] | None = None,
    mechanisms: Sequence[str] = (),
) -> MechanismRanking:
    """Compare mechanisms at the same recovery rate, by how close the outputs are to the originals.

    Parameters
    ----------
    indexes : Index, or mapping of str to Index, optional
        All of one vocabulary; the keys are names to print. Closeness is measured in the first index of vectors, or in the
        first one. Default: the built-in index of English words.
    recovery, of, context
        As for :func:`choose_epsilon`.
    mechanisms : sequence of str
        Names of further mechanisms, to compare with their own settings.

    Raises
    ------
    TextprivError
        If the indexes differ in words, or no mechanism reaches this recovery.
    """
    given = {ENGLISH: Index.builtin("en")} if indexes is None else indexes
    named = {str(given.path or "INDEX"): given} if isinstance(given, Index) else dict(given)
    first = next(iter(named.values()))
    for name, index in named.items():
        if list(index.vocabulary.words) != list(first.vocabulary.words):
            raise MechanismError(
                f"{name} has other words than the first index. Use one vocabulary."
            )
    if len({checksum(each.word_frequency) for each in named.values()}) > 1:
        raise MechanismError(
            "the recovery over these indexes is about words of different texts. Compare indexes of the same axes and counts."
        )
    ruler = next((each for each in named.values() if not isinstance(each, Tree)), first)
    text = None if context is None else PublicText.read(context, first)
    compared, left_out = [], []
    for name, index in named.items():
        own = default_name(index)
        priors = ["full", "zipf", "uniform"] if own == "tree" else ["uniform", "zipf"]
        if index.vocabulary.prior is not None:
            priors.append("counts")
        others = dict.fromkeys([*mechanisms, *(["contextual"] if index.model else [])])
        others.pop(own, None)
        tried = [(own, prior) for prior in priors] + [(each, "") for each in others]
        for short, prior in tried:
            settings: dict[str, Any] = {"prior": prior} if prior else {}
            try:
                found = choose_epsilon(
                    index, recovery=recovery, of=of, context=text, mechanism=short, **settings
                )
            except OutOfReachError as error:
                left_out.append(f"{short} over {name} with prior {prior}: {error}")
                continue
            made = make_mechanism(index, short, epsilon=found.epsilon, **settings)
            shares = found.value, found.reader, *_nearness(made, ruler)
            compared.append(Candidate(name, short, prior, found.epsilon, *shares))
    if not compared:
        raise MechanismError(f"no mechanism gives this protection. {' '.join(left_out)}")
    compared.sort(key=lambda each: (not each.is_default, each.distance))
    return MechanismRanking(tuple(compared), tuple(left_out))


def _nearness(mechanism: Mechanism, ruler: Index) -> tuple[float, float]:
    """Return ``kept`` and ``distance`` of a :class:`Candidate`."""
    prior = ruler.word_frequency
    sample = WordSample.of(prior, _WORDS)
    apart, rows = ruler.distances_of(sample.ids), OutputDistribution(mechanism).rows(sample.ids)
    kept = sample.mean(rows[np.arange(len(rows)), sample.ids].astype(np.float64))
    far = sample.mean(np.einsum("ij,ij->i", rows, apart, dtype=np.float64))
    unrelated = sample.mean(apart @ prior)
    return kept, far / unrelated if unrelated > 0 else math.nan
