"""Marked units survive, and are named by the best attacker, as often as the laws say: synthetic notes, three detectors.

Notes are made here from templates, with names, dates, phones and numbers drawn at random: no detector can know them. What
an attacker gets is a binomial count against the exact Bayes figure of the law (``unit_recovery``); each test compares a
p-value with ``LEVEL = 1e-9`` under a fixed key.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import date, timedelta

import numpy as np
import pytest

from textpriv.errors import MechanismError, SpanError, TextprivError
from textpriv.evaluation.survival import MarkedTexts, survival, unit_recovery
from textpriv.guarantees.significance import LEVEL, excess_of
from textpriv.index import Index
from textpriv.ledger import Ledger
from textpriv.mechanisms import TEM
from textpriv.privatizer import Privatizer
from textpriv.spans.laws.ages import Age
from textpriv.spans.laws.date_shift import DateShift
from textpriv.spans.laws.identifiers import Identifier
from textpriv.spans.laws.numbers import Number
from textpriv.spans.laws.surrogates import Surrogate
from textpriv.spans.laws.times import TimeOfDay
from textpriv.spans.policy import UNDETECTED_PASS, SpanPolicy
from textpriv.tokenization.encoder import TextEncoder
from textpriv.tokenization.policy import TokenPolicy
from textpriv.vocabulary import Vocabulary

NOTES = 800
RNG = np.random.default_rng(23)
# Made of syllables, so that no list of a detector has them; half of them are words of the vocabulary.
SYLLABLES = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
NAMES = sorted({"".join(RNG.choice(SYLLABLES, 3)).capitalize() for _ in range(60)})
TOWNS = sorted({"".join(RNG.choice(SYLLABLES, 4)).capitalize() for _ in range(30)})
TEMPLATES = [
    "{PERSON} came from {PLACE} on {DATE} at {TIME} and was given {NUMBER} of it .",
    "seen on {DATE} : {PERSON} , {AGE} years , lives near {PLACE} ; call {PHONE} .",
    "the daughter of {PERSON} ( file {ID} ) wrote on {DATE} from {PLACE} about {NUMBER} at {TIME} .",
    "to be called under {PHONE} : {PERSON} of {PLACE} , aged {AGE} , file {ID} .",
]


def zipf(originals):
    weights = 1 / np.arange(1, len(originals) + 1)
    return dict(zip(originals, (weights / weights.sum()).tolist(), strict=True))


def uniform(originals):
    return dict.fromkeys(originals, 1 / len(originals))


FIRST = date(2020, 1, 1)
PRIORS = {
    "PERSON": zipf(NAMES),
    "PLACE": uniform(TOWNS),
    "DATE": uniform([str(FIRST + timedelta(days)) for days in range(60)]),
    "TIME": uniform([f"{hour:02}:{minute:02}" for hour in range(8, 18) for minute in (0, 30)]),
    "AGE": zipf([str(age) for age in range(18, 90)]),
    "NUMBER": uniform([f"{tens * 10} mg" for tens in range(1, 31)]),
    "PHONE": uniform([f"415 555 {number}" for number in RNG.choice(9000, 50, False) + 1000]),
    "ID": uniform([f"K-{number}" for number in RNG.choice(900, 80, False) + 100]),
}
LAWS = {
    "PERSON": Surrogate(NAMES, consistent="document", kind="PERSON"),
    "PLACE": Surrogate(TOWNS, kind="PLACE"),
    "DATE": DateShift(0.05, low="2019-01-01", high="2021-12-31", kind="DATE"),
    "TIME": TimeOfDay(0.02, kind="TIME"),
    "AGE": Age(0.4, kind="AGE"),
    "NUMBER": Number(0.5, low=0, high=400, step=5, units=["mg"], kind="NUMBER"),
    "PHONE": Identifier(kind="PHONE"),
    "ID": Identifier(prefixes=["K-"], consistent="person", kind="ID"),
}


def notes(count):
    """Texts and their units."""
    texts, units = [], []
    drawn = {
        kind: iter(RNG.choice(list(p), count, p=list(p.values()))) for kind, p in PRIORS.items()
    }
    for template in RNG.choice(TEMPLATES, count):
        text, marked = "", []
        for piece in str(template).split():
            text += " " * bool(text)
            kind = piece.strip("{}")
            if kind in PRIORS:
                piece = str(next(drawn[kind]))
                marked.append((len(text), len(text) + len(piece), kind))
            text += piece
        texts.append(text)
        units.append(marked)
    return texts, units


TEXTS, UNITS = notes(NOTES)
DETECTORS = {
    "everything": UNITS,
    "seventy in a hundred": [[u for u in each if RNG.random() < 0.7] for each in UNITS],
    "none": [[] for _ in UNITS],
}


@pytest.fixture(scope="module")
def mechanism():
    common = sorted({word for text in TEMPLATES for word in text.split() if word.isalpha()})
    words = [*common, *(name.lower() for name in (*NAMES[::2], *TOWNS[::2]))]
    vectors = np.random.default_rng(4).normal(size=(len(words), 6))
    return TEM(Index.build(Vocabulary(words, vectors)), epsilon=3.0)


def look(mechanism, found, laws=LAWS, undetected="words"):
    made = Privatizer(mechanism, seed=1, spans=SpanPolicy(laws, undetected=undetected))
    return MarkedTexts(made, TEXTS, UNITS, labels=found).release()


@pytest.fixture(scope="module")
def bounds(mechanism):
    """The exact figures, of each kind found and missed."""
    made = Privatizer(mechanism, spans=SpanPolicy(LAWS))
    return {
        (kind, found): unit_recovery(made, prior, found)
        for kind, prior in PRIORS.items()
        for found in (kind, "")
    }


def trained(fates):
    """An attacker who knows no law: names the original seen most often with an output in the first half of the notes."""
    seen, alone = defaultdict(Counter), defaultdict(Counter)
    for fate in fates:
        if fate.document % 2 == 0:
            seen[fate.kind, fate.private][fate.original] += 1
            alone[fate.kind][fate.original] += 1
    return [
        (seen.get((fate.kind, fate.private)) or alone[fate.kind]).most_common(1)[0][0]
        == fate.original
        for fate in fates
        if fate.document % 2
    ]


def p_values(fates, bounds):
    """Of each kind, found or missed: that so many survive, are named by the law's attacker, and by a trained one."""
    groups = defaultdict(list)
    for fate in fates:
        groups[fate.kind, fate.found].append(fate)
    values = {}
    for key, group in groups.items():
        bound = bounds[key]
        named = sum(bound.name(fate) == fate.original for fate in group)
        learnt = trained(group)
        for which, count, draws, share in (
            ("survive", sum(fate.survives for fate in group), len(group), bound.stays),
            ("named", named, len(group), bound.guessed),
            ("named by training", sum(learnt), len(learnt), bound.guessed),
        ):
            values[(*key, which)] = excess_of(count, np.full(draws, share))
    return values


@pytest.mark.parametrize("which", DETECTORS)
def test_no_more_survives_or_is_named_than_the_laws_allow(mechanism, bounds, which):
    fates = look(mechanism, DETECTORS[which])
    assert {fate.found for fate in fates} == {"everything": set(PRIORS), "none": {""}}.get(
        which, {*PRIORS, ""}
    )
    values = p_values(fates, bounds)
    assert min(values.values()) > LEVEL, min(values, key=values.get)


# What must be caught by the same test


class Sloppy(Surrogate):
    """Keeps one name in ten."""

    def draw(self, values, stream, scopes=None):
        drawn = super().draw(values, stream, scopes)
        kept = [ord(surface[0]) % 10 == 0 for surface in drawn]
        return [
            value.name if stays else surface
            for value, surface, stays in zip(values, drawn, kept, strict=True)
        ]


class Coded(Surrogate):
    """Another name than the one that stands there, and always the same for it."""

    def draw(self, values, stream, scopes=None):
        lower = [each.lower() for each in self.entries]
        return [self.entries[lower.index(value.name) - 7] for value in values]


class Quiet(Age):
    """Draws less noise than it states."""

    def draw(self, values, stream, scopes=None):
        return Age(1.6, kind=self.kind).draw(values, stream, scopes)


class Short(Identifier):
    """Draws the last digit alone anew."""

    def draw(self, values, stream, scopes=None):
        drawn = super().draw(values, stream, scopes)
        return [
            f"K-{value.number[:-1]}{each[-1]}" for value, each in zip(values, drawn, strict=True)
        ]


BROKEN = {
    "PERSON": (Sloppy(NAMES, kind="PERSON"), "survive"),
    "PLACE": (Coded(TOWNS, kind="PLACE"), "named by training"),
    "AGE": (Quiet(0.4, kind="AGE"), "named"),
    "ID": (Short(prefixes=["K-"], kind="ID"), "survive"),
}


def test_a_broken_law_of_each_sort_is_caught(mechanism, bounds):
    laws = LAWS | {kind: law for kind, (law, _) in BROKEN.items()}
    values = p_values(look(mechanism, UNITS, laws), bounds)
    for kind, (_, which) in BROKEN.items():
        assert values[kind, kind, which] < LEVEL, kind
    sound = {key: value for key, value in values.items() if key[0] not in BROKEN}
    assert min(sound.values()) > LEVEL


def test_units_that_pass_where_the_detector_missed_them_are_caught(mechanism, bounds):
    values = p_values(
        look(mechanism, DETECTORS["seventy in a hundred"], undetected=UNDETECTED_PASS), bounds
    )
    for kind in PRIORS:
        assert values[kind, "", "survive"] < LEVEL, kind


# The figures, and what they are read from


def test_the_attackers_share_is_the_best_of_all_guesses(mechanism):
    law, prior = Age(0.8, high=6, kind="AGE"), {"1": 0.5, "2": 0.2, "5": 0.3}
    made = Privatizer(mechanism, spans=SpanPolicy({"AGE": law}))
    found = unit_recovery(made, prior, "AGE")
    joint = np.array(
        [weight * np.exp(law.log_prob(law.parse(age))) for age, weight in prior.items()]
    )
    assert found.guessed == pytest.approx(joint.max(axis=0).sum())
    assert found.stays == pytest.approx(joint[[0, 1, 2], [1, 2, 5]].sum())


def test_a_missed_name_is_named_as_often_as_the_word_law_allows(mechanism):
    known, unknown = NAMES[0], NAMES[1]
    prior = {f"{known} 's": 0.6, f"{unknown} 's": 0.4}
    found = unit_recovery(Privatizer(mechanism), prior)
    word = mechanism.index.vocabulary.id(known.lower())
    laws = np.exp([mechanism.log_prob(word), mechanism.log_prob(-1)])
    assert found.guessed == pytest.approx(np.maximum(0.6 * laws[0], 0.4 * laws[1]).sum())
    assert found.stays == 0  # "'s" is outside the vocabulary, and never comes out
    kept = Privatizer(mechanism, TokenPolicy(unknown="keep"))
    stays = 0.6 * laws[0][word] + 0.4
    assert unit_recovery(kept, prior).stays == pytest.approx(stays)


def test_what_no_figure_can_be_computed_for_is_refused(mechanism):
    made = Privatizer(mechanism, spans=SpanPolicy({"AGE": Age(1.0, kind="AGE")}))
    with pytest.raises(MechanismError, match="has no law of 'NAME'"):
        unit_recovery(made, {"Ann": 1.0}, "NAME")
    with pytest.raises(MechanismError, match="cannot read"):
        unit_recovery(made, {"Ann": 1.0}, "AGE")
    first, second = (f"{NAMES[i]} {TOWNS[i]}" for i in (0, 2))
    with pytest.raises(MechanismError, match="each word by itself"):
        unit_recovery(made, {first: 0.5, second: 0.5})


def test_a_unit_of_several_places_survives_if_it_does_at_any_of_them(mechanism):
    text = "call Ann , not ann . of Ann 's"
    units = [[(5, 8, "A"), (15, 18, "A"), (24, 27, "B")]]
    passing = Privatizer(
        mechanism,
        spans=SpanPolicy({"A": Age(1.0, kind="A")}, undetected=UNDETECTED_PASS),
    )
    marked = MarkedTexts(passing, [text], units, labels=[[(5, 8, "A")]])
    fates = marked.release()
    assert [fate.private for fate in fates] == ["[SPAN]", "ann", "Ann"]
    assert [fate.survives for fate in fates] == [False, True, True]
    assert [fate.anywhere for fate in fates] == [True] * 3
    assert survival([fates, fates])["A"] == (1, 1.0, 0.0, 1.0)
    assert survival([fates[:1], fates])["A"] == (1, 0.5, 0.5, 1.0)
    assert survival([fates])[""].units == 2


def test_units_that_fit_no_text_and_a_ledger_are_refused(mechanism, tmp_path):
    with pytest.raises(SpanError, match="does not lie within"):
        MarkedTexts(Privatizer(mechanism), ["call"], [[(0, 9, "A")]])
    with pytest.raises(TextprivError, match="1 texts and the units of 0"):
        MarkedTexts(Privatizer(mechanism), ["call"], [])
    with (
        Ledger(tmp_path / "spent") as ledger,
        pytest.raises(TextprivError, match="leave the ledger out"),
    ):
        MarkedTexts(Privatizer(mechanism, ledger=ledger), ["call"], [[]])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  Two  words, 'n such\n",
        "\u0130stanbul's I\u0307 e\u0301",
        "a " + "x" * 1200 + " b." + "y" * 1001,
    ],
)
def test_tokens_stand_where_the_encoder_found_them(text):
    encoder = TextEncoder(["a"], TokenPolicy(**dict.fromkeys(("number", "unknown"), "keep")), "en")
    offsets = encoder.offsets(text)
    assert len(offsets) == len(encoder.encode(text).codes)
    left = list(text)
    for start, end in offsets[::-1].tolist():
        assert 0 <= start < end <= len(text)
        del left[start:end]
    assert "".join(left).strip(" ") == ""
