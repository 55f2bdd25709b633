"""New words: bounded counts, a threshold that hides the word of one record, and what is released and stated."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from small_synthesis import WORDS, public, transcript

from pairwise import PrivacyBudget
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import GaussianPlan, plan_gaussian
from textpriv import LabelAxes, TextprivError, TextSynthesizer
from textpriv.ledger import Ledger
from textpriv.statement import epsilon_of_zcdp
from textpriv.synthesis import release
from textpriv.synthesis.features import STEP
from textpriv.synthesis.release import Measurement, NoisySums, threshold
from textpriv.synthesis.sums import MOST_WORDS, WordCounts

EPSILON, DELTA, SHARE = 1.0, 1e-5, 0.1
CLASSES = ("neg", "pos")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
OWN = [f"zz{one}{two}" for one, two in itertools.product(LETTERS[:6], repeat=2)]
BASE = ["the film was good", "zzaa zzab", "zzaa dull", " ".join(OWN), ""]


def made(epsilon=EPSILON, share=SHARE, **settings):
    side = public()
    return TextSynthesizer(
        epsilon, DELTA, CLASSES, index=side.index, model=side.model, new_words=share, **settings
    )


def counts(texts, authors=None, key=b"key"):
    found = WordCounts(public().space(CLASSES, None if authors is None else 2), key)
    found.add(public().encoder.encode(texts), ["neg"] * len(texts), authors)
    return found.total()


def distance(one, two):
    """Return how far two counts are apart, in sensitivities."""
    squares = ((one.get(word, 0) - two.get(word, 0)) ** 2 for word in one.keys() | two.keys())
    return math.sqrt(sum(squares)) / STEP


EXTRA = [
    "",
    "good",
    "zzaa",
    "zzaa " * 1000,
    "zznew",
    *(" ".join(OWN[:k]) for k in (2, 3, 7, 10, 11, 36)),
]


def test_no_record_moves_the_counts_past_one():
    before = counts(BASE)
    moved = [distance(before, counts([*BASE, text])) for text in EXTRA]
    assert 0.999 < max(moved) <= 1.0


def test_no_replaced_record_moves_the_counts_past_root_two():
    runs = [counts([*BASE, text]) for text in EXTRA]
    moved = [distance(*pair) for pair in itertools.combinations(runs, 2)]
    assert 1.4 < max(moved) <= math.sqrt(2)


def test_no_author_moves_the_counts_past_one():
    names = [f"author {number}" for number in range(len(BASE))]
    before = counts(BASE, names)
    crowds = [[text] * 7 for text in EXTRA] + [EXTRA[4:], OWN, ["zzaa", *OWN[20:]]]
    for crowd in crowds:
        assert distance(before, counts([*BASE, *crowd], [*names, *["more"] * len(crowd)])) <= 1.0
    assert distance(before, counts([*BASE, *OWN], [*names, *["more"] * len(OWN)])) > 0.999


def test_a_record_counts_with_the_same_words_beside_any_others():
    alone = counts([" ".join(OWN)])
    beside = counts([" ".join(OWN), *OWN[::-1] * 3])
    assert len(alone) == MOST_WORDS
    each = counts(["zzaa"])["zzaa"]
    assert {word for word in OWN if beside[word] > 3 * each} == set(alone)


@pytest.mark.parametrize("authors", [False, True])
def test_any_split_of_the_records_gives_the_same_counts(authors):
    rng = np.random.default_rng(1)
    texts = [" ".join(rng.choice(OWN, size=rng.integers(0, 30))) for _ in range(40)]
    names = [f"author {number}" for number in rng.integers(9, size=40)] if authors else None
    whole = WordCounts(public().space(CLASSES, 2 if authors else None), b"key")
    for rows in np.array_split(rng.permutation(40), 6):
        part = whole.empty()
        batch = public().encoder.encode([texts[row] for row in rows])
        part.add(batch, ["neg"] * len(rows), names and [names[row] for row in rows])
        whole.merge(part)
    assert whole.total() == counts(texts, names)


def test_numbers_users_and_addresses_are_no_new_words():
    texts = [
        "Zweig 1234 @zweiguser a@zweig.org https://zweig.org/a b2b :-) zw1 #zwtag x " + "z" * 31
    ]
    assert set(counts(texts)) == {"zweig", "zwtag"}


def tail(plan, above):
    """Return the probability of discrete noise above a value, by its sum."""
    variance = (plan.sigma / plan.grid) ** 2
    steps = np.arange(math.ceil(40 * plan.sigma / plan.grid) + 1)
    law = np.exp(-(steps**2) / (2 * variance))
    least = math.floor(above / plan.grid) + 1
    return float(law[least:][::-1].sum() / (2 * law.sum() - 1))


@pytest.mark.parametrize("mu", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-7])
def test_own_words_pass_the_threshold_within_delta(mu, delta):
    plan = plan_gaussian(1.0, mu, MOST_WORDS)
    above = threshold(plan, delta)
    passed = []
    for words in range(1, MOST_WORDS + 1):
        weights = counts([" ".join(OWN[:words])]).values()
        rounded = [round(weight / STEP / plan.grid) * plan.grid for weight in weights]
        passed.append(sum(tail(plan, above - weight) for weight in rounded))
    assert 0.9 * delta < max(passed) <= delta


def test_the_word_of_one_record_is_released_within_delta():
    # Little noise and a large delta, so that it is seen: 2,000 runs.
    measurement = Measurement(public().space(CLASSES), 4.0, 0.2, new_words=0.5)
    assert release.threshold_delta(0.2, 0.5) == 0.1
    measurement._randomness = Randomness(3)
    found = WordCounts(measurement.space, b"key")
    found.add(public().encoder.encode(["zzaa"]), ["neg"])
    passed = sum(measurement.words(found) == ("zzaa",) for _ in range(2000))
    assert passed <= 0.1 * 2000 + 5 * math.sqrt(2000 * 0.09)


def releases(texts):
    with transcript() as seen:
        made().fit(texts, ["pos"] * len(texts))
    return seen


def test_noise_of_words_and_sums_is_that_of_the_stated_epsilon():
    seen = releases(BASE)
    assert len(seen) == 3
    squares = [(drawn.plan.sensitivity / drawn.plan.sigma) ** 2 for drawn in seen]
    assert squares[0] / sum(squares) == pytest.approx(SHARE, rel=0.01)
    # A word that one record alone has: chance of delta / 2, and a factor of 1 / (1 - delta / 2).
    spent = epsilon_of_zcdp(sum(squares) / 2, DELTA / 2) - math.log1p(-DELTA / 2)
    assert 0.99 * EPSILON < spent <= EPSILON * (1 + 1e-9)
    charged = sum(drawn.plan.rho for drawn in seen)
    assert epsilon_of_zcdp(charged, DELTA / 2) <= EPSILON


def test_every_present_word_has_noise_of_its_own_by_one_grid():
    few = releases(["zzaa"] * 5)
    many = releases([*OWN, *OWN])
    assert isinstance(many[0].plan, GaussianPlan)
    assert (len(few[0].value), len(many[0].value)) == (1, len(OWN))
    for name in ("grid", "sigma", "rho", "sensitivity"):
        assert getattr(few[0].plan, name) == getattr(many[0].plan, name)


def test_new_words_follow_from_the_release_alone(monkeypatch):
    # Whatever the texts are: of their three words in order, those whose noisy weight is high.
    high = np.array([1e6, -1e6, 1e6])

    def released(plan, value, *_):
        return high if plan.dimension == 3 else np.zeros(np.shape(value))

    monkeypatch.setattr(GaussianPlan, "release", released)
    for texts in (["zzaa zzab zzac", ""], ["zzac zzab", "zzaa zzaa good"]):
        assert made().fit(texts, CLASSES).noisy_.new_words == ("zzaa", "zzac")


TEXTS = ["The Quux was good", "a dull plot", "good quux music", "the plot was bad"] * 750
LABELS = ["pos", "neg"] * 1500


@pytest.fixture(scope="module")
def learned():
    return made(8.0).fit(TEXTS, LABELS)


def test_a_word_of_many_records_comes_into_texts_and_tables(learned):
    assert learned.noisy_.new_words == ("quux",)
    frame = learned.sample(1000, random_state=0)
    shares = frame.text.str.contains("quux", case=False).groupby(frame.label).mean()
    assert shares["pos"] > 0.3 > 0.1 > shares["neg"]
    assert "quux" in set(learned.words(top=3).query("label == 'pos'").word)


def test_without_a_share_no_word_comes_in():
    assert made(8.0, 0.0).fit(TEXTS, LABELS).noisy_.new_words == ()


def test_a_saved_model_keeps_its_new_words(learned, tmp_path):
    learned.save(tmp_path / "own.model")
    side = public()
    again = TextSynthesizer.load(tmp_path / "own.model", index=side.index, model=side.model)
    assert again.sample(20, random_state=4).equals(learned.sample(20, random_state=4))
    assert again.words(5).equals(learned.words(5))
    assert str(again.statement_) == str(learned.statement_)
    assert again.new_words == SHARE


@pytest.mark.parametrize(
    "change", [{"new_words": ["quux", "quux"]}, {"new_words": [3]}, {"share": 1}]
)
def test_damaged_new_words_are_refused(learned, tmp_path, change):
    path = tmp_path / "own.model"
    learned.save(path)
    noisy, header = NoisySums.read_file(path)
    noisy.write(path, **{**header, **change})
    with pytest.raises(TextprivError, match="no file of noisy sums"):
        NoisySums.read_file(path)


def test_a_model_that_lacks_a_new_word_is_refused(learned, tmp_path):
    replace(learned.noisy_, new_words=()).write(
        tmp_path / "own.model", vocabulary=public().fingerprint
    )
    side = public()
    found = TextSynthesizer.load(tmp_path / "own.model", index=side.index, model=side.model)
    with pytest.raises(TextprivError, match="of another vocabulary"):
        found.sample(3)


def test_the_statement_says_how_words_were_chosen(learned):
    told = " ".join(str(learned.statement_).split())
    assert "a share of 0.1 of its cost, and half of delta" in told
    mu = release.noise_mu(8.0, DELTA, SHARE) * math.sqrt(SHARE)
    plan = plan_gaussian(1.0, mu, MOST_WORDS)
    least = f"{threshold(plan, DELTA / 2):.0f}"
    assert f"each of the new words (1): it is in some {least} or more records, which one" in told
    assert "vocabulary but for new words" in told
    mu = release.release_mu(8.0 + math.log1p(-DELTA / 2), DELTA / 2)
    assert learned.noisy_.replaced >= epsilon_of_zcdp(mu**2, DELTA / 2)
    plain = made(8.0, 0.0).fit(TEXTS[:8], LABELS[:8])
    assert "ew words" not in str(plain.statement_)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 1.0}, "share of the budget"),
        ({"share": -0.1}, "share of the budget"),
        ({"share": 1e-20}, "share of the budget"),
        ({"epsilon": 1e-7}, "need an epsilon above delta"),
        ({"budget": PrivacyBudget(4.0, DELTA, "add/remove")}, "do not count the delta"),
    ],
)
def test_a_share_without_meaning_is_refused(settings, message):
    with transcript() as seen, pytest.raises(TextprivError, match=message):
        made(**settings).fit(["zzaa"], ["pos"])
    assert not seen


def test_a_ledger_that_would_miss_a_delta_is_refused(tmp_path):
    space = public().space(CLASSES, 2)
    with pytest.raises(TextprivError, match="do not count the delta"):
        Measurement(space, EPSILON, DELTA, ledger=Ledger(tmp_path / "a.db"), new_words=SHARE)


def test_bad_labels_are_refused_before_words_are_measured():
    with transcript() as seen, pytest.raises(TextprivError, match="not among the classes"):
        made().fit(["zzaa", "zzaa"], ["pos", "secret"])
    assert not seen


def test_fit_keeps_no_word_of_the_texts(learned):
    assert "encoder" not in vars(learned._side)


def test_new_words_leave_the_model_of_the_others_as_it_is():
    model, more = public().model, public().model.with_words(2)
    known = np.r_[: model.size, model.size + 2 : more.tokens]
    old = model.after(model.start, 1)
    found = more.after(more.start, 1)
    assert found.sum() == pytest.approx(1.0)
    assert found[known] / found[known].sum() == pytest.approx(old, rel=0.1)
    assert (found[model.size : model.size + 2] > 0).all()


def test_axes_are_of_the_words_of_the_index(learned, tmp_path):
    learned.save(tmp_path / "own.model")
    axes = LabelAxes.load(tmp_path / "own.model", index=public().index, model=public().model).axes_
    assert len(axes.values) == len(axes.frequency) == len(WORDS)
    assert axes.frequency.sum() == pytest.approx(1.0)
    assert axes.changed == learned.noisy_.replaced


def test_counts_show_no_word():
    found = WordCounts(public().space(CLASSES))
    assert repr(found) == "WordCounts(<private>)"
