"""A self-contained HTML page about a mechanism: what it guarantees, and what it does to words and names.

Everything on the page is computed from public words and public text. The page loads nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from textpriv.evaluation.best_attacker import BestAttacker, PublicText, text_of
from textpriv.evaluation.distribution import word_distribution
from textpriv.evaluation.recovery import can_compare, exposure, word_recovery
from textpriv.files import atomic_write, umask
from textpriv.guarantees.epsilon import Choice, keep_share
from textpriv.index.grid import REFERENCE
from textpriv.ledger import DocumentName
from textpriv.mechanisms.base import Mechanism
from textpriv.randomness import KeyedStreams
from textpriv.statement import at_most, odds_in_words
from textpriv.tokenization.policy import FIRST_FIT, MASK, TOKEN_CLASSES
from textpriv.web.pages import SAMPLE, asset, content_policy, fill
from textpriv.web.render import DRAWN, MASKED, SPAN, token_spans

if TYPE_CHECKING:
    from textpriv.guarantees.certificate import Certificate
    from textpriv.index.index import Index
    from textpriv.index.tree import Group
    from textpriv.privatizer import PrivateTokens, Privatizer, ReleaseKey
    from textpriv.statement import PrivacyStatement
    from textpriv.tokenization.batches import RawBatch

_WORDS = 400  # that can be looked up
_OUTPUTS = 10  # of a word that are shown
_WORST = 20
_DRAWS = 1000  # of a word, for a mechanism without a closed form
_ESTIMATED = 60  # words that are drawn for one
_STEPS = np.arange(-6, 7) / 2  # octaves of epsilon about this one
_AVERAGED = 200  # words behind the share that stays


def _attacks(
    mechanism: Mechanism, text: PublicText | None, chosen: Choice | None
) -> dict[str, Any] | None:
    """What attackers recover of single words and in context, each with a standard error (0 if exact).

    None for a mechanism whose pairs of words cannot all be compared.
    """
    if not (mechanism.has_log_prob and can_compare(mechanism)):
        return None
    words, is_content = mechanism.index.vocabulary.words, mechanism.index.vocabulary.is_content
    prior = mechanism.index.word_frequency
    alone = word_recovery(mechanism)
    # By how often a word is both written and recovered.
    weight = np.where(is_content, alone.by_word * prior, -1.0)
    top = np.argsort(-weight, kind="stable")[: min(_WORST, int(is_content.sum()))]
    worst = [(words[word], float(alone.by_word[word])) for word in top.tolist()]
    attacker = BestAttacker(prior, is_content, text)
    if chosen and text is None:
        single, context = chosen.rates
    else:
        single, context = (alone.content, 0.0), attacker.reader(mechanism)
        if mechanism.reads_context:  # the exact share is that at the start of a text
            public = text or text_of(mechanism.index)
            single = replace(attacker, text=public).alone(mechanism)
    return {"guess": alone.guess, "worst": worst, "single": single, "context": context}


def report_page(
    privatizer: Privatizer,
    *,
    certificate: Certificate | None = None,
    public_text: PublicText | None = None,
    chosen: Choice | None = None,
) -> str:
    """Return the page as HTML. Every text in it is escaped, and its policy forbids it to load anything.

    Parameters
    ----------
    privatizer : Privatizer
        Its mechanism, statement, policy and spans are shown.
    certificate : Certificate, optional
    public_text : PublicText, optional
        On which an attacker is tried who reads words in context. Never made from the private texts.
    chosen : Choice, optional
        The choice of epsilon, with the recovery rates that it knows.
    """
    mechanism, statement = privatizer.mechanism, privatizer.statement
    attack = _attacks(mechanism, public_text, chosen)
    # At the start of a text alone, where the context is read.
    is_charted = not mechanism.reads_context and mechanism.exponential_decay() is not None
    script = asset("report.js")
    raw = privatizer.read(SAMPLE)
    tokens, kinds = drawn_kinds(privatizer, raw, KeyedStreams(seed=0).stream("report"))
    return fill(
        "report.html",
        policy=content_policy(script),
        script=script,
        mechanism=mechanism,
        index=mechanism.index,
        statement=statement,
        odds=odds_table(mechanism.statement, typical_pairs(mechanism.index)),
        stays=keep_share(mechanism, _AVERAGED)[0] if is_charted else None,
        attack=attack,
        kept=_kept_words(mechanism),
        tried="your public text" if public_text else "text drawn from the language model",
        half=partial(np.quantile, q=0.5, method="higher"),  # half of them have it, or more
        lists=exposure(mechanism, None if attack is None else attack["guess"]),
        sample=SAMPLE,
        private=token_spans(tokens.words, tokens.spaces, kinds),
        data=_looked_up(mechanism),
        draws=0 if mechanism.has_log_prob else _DRAWS,
        chart=_chart(mechanism) if is_charted else None,
        actions=privatizer.policy.to_dict(),
        classes=TOKEN_CLASSES,
        spans=privatizer.spans,
        certificate=certificate,
    )


def write_page(page: str, path: str | os.PathLike[str]) -> None:
    """Write a page whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target, mode=0o666 & ~umask()) as file:
        file.write(page.encode())


def drawn_kinds(
    privatizer: Privatizer, raw: RawBatch, key: ReleaseKey | None = None
) -> tuple[PrivateTokens, list[str]]:
    """Draw a document that was read, and name the kind of each token: "same" where a draw left it as it was.

    Only for whoever has the original: which words are still the author's own is what a draw hides.
    """
    if privatizer.spans is not None:  # spans may be drawn once for a document or a person
        key = DocumentName(os.urandom(16), os.urandom(16))
    (tokens,) = privatizer.release(raw, [key])
    kinds = []
    for place, (word, output) in enumerate(zip(tokens.words, tokens.outputs.tolist(), strict=True)):
        if output >= 0:
            kinds.append("same" if output == raw.codes[place] else DRAWN)
        elif place in tokens.spans:
            kinds.append(f"{SPAN}: {tokens.spans[place]}")
        else:
            kinds.append(MASKED if word == MASK else f"kept: {_kept_class(word, tokens.counts)}")
    return tokens, kinds


def _kept_class(word: str, counts: Mapping[str, int]) -> str:
    """The class of a kept token; blanks and punctuation are told by their characters, and of the rest only what can be."""
    from spacy.lang.lex_attrs import is_punct

    for name, is_of_class in (("space", word.isspace()), ("punctuation", is_punct(word))):
        if name in counts and is_of_class:
            return TOKEN_CLASSES[name].title
    rest = (name for name in TOKEN_CLASSES if name in counts and name not in FIRST_FIT[:2])
    return " or ".join(TOKEN_CLASSES[name].title for name in rest)


def _looked_up(mechanism: Mechanism) -> dict[str, Any]:
    """The words that the script of the page looks up, with their likeliest outputs."""
    words = mechanism.index.vocabulary.words
    entries, shown = [], dict[str, int]()
    for number, word in enumerate(words[: _WORDS if mechanism.has_log_prob else _ESTIMATED]):
        chances = word_distribution(mechanism, number, _DRAWS)
        top = np.argsort(-chances, kind="stable")[:_OUTPUTS]
        apart = mechanism.index.distances_of(np.array([number]))[0]
        outputs = [
            [shown.setdefault(words[i], len(shown)), _short(chances[i]), _short(apart[i])]
            for i in top.tolist()
            if chances[i] > 0
        ]
        entries.append({"word": word, "keep": _short(chances[number]), "outputs": outputs})
    return {"vocabulary": [*shown], "words": entries, "exact": mechanism.has_log_prob}


def _kept_words(mechanism: Mechanism) -> list[str] | None:
    """Content words that stay in more than half of their uses; None where their pairs cannot all be compared."""
    vocabulary = mechanism.index.vocabulary
    stays = mechanism.stay_probabilities() if can_compare(mechanism) else None
    if stays is None:
        return None
    kept = np.flatnonzero((stays > 0.5) & vocabulary.is_content)
    return [vocabulary.words[word] for word in kept.tolist()]


def _chart(mechanism: Mechanism) -> list[dict[str, float]]:
    """Words that stay by epsilon, on a logarithmic axis: points in a box of 640 by 330, with their values."""
    epsilons = [float(each) for each in mechanism.epsilon * 2.0**_STEPS]
    shares = [keep_share(mechanism.at_epsilon(each), _AVERAGED)[0] for each in epsilons]
    across = np.linspace(66, 624, len(epsilons)).tolist()
    return [
        {"x": x, "y": 274 - 234 * share, "epsilon": epsilon, "share": share}
        for x, epsilon, share in zip(across, epsilons, shares, strict=True)
    ]


def typical_pairs(index: Index) -> list[tuple[str, float]]:
    """Pairs of words and their distances: for half and nine tenths of all tokens, and the largest there is."""
    names = {1: "nearest", REFERENCE: f"{REFERENCE}th nearest", 100: "100th nearest"}
    rows = [
        (f"a word and its {names[rank]}, for {share} of all tokens", end)
        for rank, ends in index.typical.items()
        for share, end in zip(("half", "nine tenths"), ends, strict=True)
    ]
    return [*rows, ("the two most different words", index.diameter_bound)]


def odds_table(
    statement: PrivacyStatement, distances: Sequence[tuple[str, float]]
) -> list[tuple[str, str, str]]:
    """Which two words, how far apart, and by which odds at most one output distinguishes them."""
    return [
        (name, at_most(distance, 3), odds_in_words(statement.loss_at(distance)))
        for name, distance in distances
    ]


def group_in_words(group: Group) -> str:
    """Describe a group of a hierarchy: its size, the odds within it, and how often a word stays in it."""
    likeliest = f", such as {', '.join(group.likeliest)}" if group.likeliest else ""
    return (
        f"{group.name or 'group'}: {group.words:,} words, odds of at most {odds_in_words(group.loss)} between them; "
        f"an output is one of them with probability {group.probability:.4f}{likeliest}"
    )


def _short(value: float) -> float:
    """Round to four digits, as many as are shown."""
    return float(f"{value:.4g}")
