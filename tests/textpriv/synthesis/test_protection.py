"""What a measurement promises: no neighbour moves a release further than stated; all that is kept follows from releases."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta, norm
from small_synthesis import WORDS, Drawn, Till, public, transcript

from pairwise import PrivacyBudget
from pairwise.accounting.accountant import epsilon_of, gaussian_epsilon
from pairwise.accounting.gaussian import release_mu
from pairwise.errors import BudgetExceededError
from pairwise.noise.randomness import Randomness
from pairwise.noise.release import GaussianPlan
from textpriv import TextSynthesizer
from textpriv.errors import TextprivError
from textpriv.synthesis import features, release
from textpriv.synthesis.features import STEP
from textpriv.synthesis.release import Measurement
from textpriv.synthesis.sums import Sums

EPSILON, DELTA = 1.0, 1e-5
CLASSES = ("neg", "pos")
BASE = [
    ("the film was good", "pos"),
    ("a dull plot", "neg"),
    ("fine music and a story", "pos"),
    ("the actor was bad", "neg"),
    ("", "pos"),
]
OTHERS = [
    "",
    "good",
    "unheard words alone",
    "good " * 1_000_000,
    " ".join(WORDS),
    " ".join(WORDS[::-1] * 3),
    "the the a a film",
    *WORDS[3:],
]
EXTRA = [(text, label) for text in OTHERS for label in CLASSES]


@pytest.fixture(params=["one cell", "four cells"])
def cells(request, monkeypatch):
    # Four cells without enough records for them, so that small corpora reach all paths.
    monkeypatch.setattr(release, "_ENOUGH", -1e9 if request.param == "four cells" else 1e9)
    return request.param


def measured(records, *, author=None, past=None, till=None):
    """Measure records; with ``author`` all records beyond the base are of one author. Return the model and its releases."""
    side = public()
    synthesizer = TextSynthesizer(
        EPSILON, DELTA, CLASSES, 2, index=side.index, model=side.model, budget=till
    )
    names = [f"author {number}" for number in range(len(BASE))]
    authors = [*names, *["one more"] * (len(records) - len(BASE))] if author else None
    with transcript(past) as seen:
        synthesizer.fit(*zip(*records, strict=True), authors)
    return synthesizer, seen


def moved(one: list[Drawn], two: list[Drawn]) -> list[float]:
    """Return how far the values of two measurements are apart, as shares of the sensitivities of their plans."""
    return [
        float(np.linalg.norm(a.value - b.value)) / a.plan.sensitivity
        for a, b in zip(one, two, strict=True)
    ]


def test_no_record_moves_a_release_past_its_sensitivity(cells):
    _, past = measured(BASE)
    runs = [measured([*BASE, record], past=past)[1] for record in EXTRA]
    shares = np.array([moved(past, run) for run in runs])
    assert shares.max() <= 1.0
    assert (shares.max(axis=0) > 0.999).all()


def test_no_replaced_record_moves_a_release_past_root_two(cells):
    _, past = measured(BASE)
    runs = [measured([*BASE, record], past=past)[1] for record in EXTRA]
    shares = np.array([moved(a, b) for a, b in itertools.combinations(runs, 2)])
    assert shares.max() <= math.sqrt(2.0)
    assert shares[:, -1].max() > 1.4


def test_no_author_moves_a_release_past_its_sensitivity(cells):
    _, past = measured(BASE, author=True)
    crowds = [[record] * 7 for record in EXTRA if len(record[0]) < 1000] + [EXTRA[4:]]
    runs = [measured([*BASE, *crowd], author=True, past=past)[1] for crowd in crowds]
    shares = np.array([moved(past, run) for run in runs])
    assert shares.max() <= 1.0
    assert past[-1].plan.sensitivity == 2.0
    # Equal records of one author count once for each, up to the bound.
    assert (shares.max(axis=0) > 0.999).all()


def test_squares_of_a_record_never_exceed_one():
    # Many words of equal weight: rounding up each of them would pass the norm.
    for words, rng in itertools.product(
        (1, 2, 3, 7, 100, 5000), map(np.random.default_rng, (1, 2))
    ):
        weights = rng.integers(1, 1025, size=words) if words > 3 else np.full(words, 717)
        vectors = rng.integers(-1024, 1025, size=(words, 16))
        space = features.Space(weights, vectors, ("",))
        records = features.Records(*map(np.array, (range(words), [0, words], [0], [words])))
        total = np.zeros(space.dimension, np.int64)
        space.add_to(total, records)
        assert (total >= 0).all()
        assert 0.999 * STEP**2 < sum(int(each) ** 2 for each in total) <= STEP**2
        moments = np.zeros(space.moments, np.int64)
        space.add_moments_to(moments, records)
        assert sum(int(each) ** 2 for each in moments) <= STEP**2


def test_noise_and_charge_are_those_of_the_stated_epsilon(cells):
    till = Till()
    synthesizer, seen = measured(BASE, till=till)
    mu = release_mu(EPSILON, DELTA)
    squares = sum((drawn.plan.sensitivity / drawn.plan.sigma) ** 2 for drawn in seen)
    # The grid adds at most 2^-10 to a sensitivity.
    assert (1.0 - 2.0**-8) * mu**2 <= squares <= mu**2 * (1 + 1e-9)
    assert len(till.charges) == 1
    assert till.charges[0]["unit"] == synthesizer.statement_.unit == "one record"
    charged = epsilon_of(till.charges[0]["event"], DELTA)
    assert 0.999 * EPSILON <= charged <= EPSILON * (1 + 1e-9)
    for drawn in seen:
        assert isinstance(drawn.plan, GaussianPlan)
        assert drawn.plan.grid > 0
        assert drawn.value.shape == (drawn.plan.dimension,)
        # 20,000 draws of a fixed seed: their variance errs by 1 % (one deviation).
        draws = replace(drawn.plan, dimension=20_000).release(np.zeros(20_000), Randomness(5))
        assert np.mean(np.square(draws)) == pytest.approx(drawn.plan.sigma**2, rel=0.06)


def test_every_coordinate_has_noise_of_its_own():
    side = public()
    space = side.space(CLASSES)
    noisy = Measurement(space, EPSILON, DELTA).noisy(Sums(space))
    for part in (noisy.words.ravel(), noisy.rows, noisy.lengths):
        assert len(np.unique(part)) == part.size
        assert (part != 0).all()


def test_all_that_is_kept_follows_from_the_releases(cells):
    one, past = measured(BASE)
    two, _ = measured([*BASE, *EXTRA], past=past)
    for name, value in vars(one.noisy_).items():
        assert np.array_equal(value, getattr(two.noisy_, name)), name
    assert str(one.statement_) == str(two.statement_)
    first, second = (each.sample(50, random_state=0) for each in (one, two))
    assert first.equals(second)


def test_topics_follow_from_the_first_release():
    side = public()
    space = side.space(CLASSES)
    found, past = [], None
    for records in (BASE, [*BASE, *EXTRA[6:]]):
        sums = Sums(space)
        texts, labels = zip(*records, strict=True)
        sums.add(side.encoder.encode(texts), labels)
        with pytest.MonkeyPatch.context() as patch, transcript(past) as seen:
            patch.setattr(release, "_ENOUGH", -1e9)
            found.append(Measurement(space, EPSILON, DELTA).topics(sums).topics)
        past = past or seen
    for name in ("centre", "directions"):
        assert np.array_equal(getattr(found[0], name), getattr(found[1], name))


def test_a_second_fit_is_charged_again():
    till = Till()
    synthesizer, _ = measured(BASE, till=till)
    with transcript():
        synthesizer.fit(*zip(*BASE, strict=True))
    assert len(till.charges) == 2


def test_a_measurement_is_released_once():
    space = public().space(CLASSES)
    made = Measurement(space, EPSILON, DELTA)
    made.noisy(Sums(space))
    with pytest.raises(TextprivError, match="costs as much again"):
        made.noisy(Sums(space))


def test_sums_take_no_record_after_their_release():
    side = public()
    sums = Sums(side.space(("",), 1))
    sums.total()
    with pytest.raises(TextprivError, match="were released"):
        sums.add(side.encoder.encode(["good"]), None, ["someone"])
    with pytest.raises(TextprivError, match="were released"):
        sums.empty().merge(sums)


def test_a_budget_that_refuses_stops_before_any_noise():
    with PrivacyBudget(0.5, DELTA, "add/remove") as budget:
        side = public()
        synthesizer = TextSynthesizer(
            EPSILON, DELTA, CLASSES, index=side.index, model=side.model, budget=budget
        )
        with transcript() as seen, pytest.raises(BudgetExceededError):
            synthesizer.fit(*zip(*BASE, strict=True))
    assert not seen
    assert not hasattr(synthesizer, "noisy_")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"texts": ["good", None]}, "a text is missing"),
        ({"texts": ["good", 3.5]}, "a text is missing"),
        ({"texts": "good"}, "found one text"),
        ({"labels": ["pos", "secret"]}, "not among the classes"),
        ({"labels": ["pos", None]}, "a label is missing"),
        ({"labels": ["pos", float("nan")]}, "a label is missing"),
        ({"labels": ["pos"]}, "differ in number"),
        ({"authors": ["one", None]}, "no author"),
        ({"authors": ["one", float("nan")]}, "no author"),
        ({"authors": ["one"]}, "differ in number"),
        ({"epsilon": 0}, "protection of one record"),
        ({"delta": 0}, "delta = 0 cannot be met"),
        ({"classes": []}, "one or more different labels"),
        ({"classes": None, "labels": ["pos", "secret"]}, "labels need classes"),
        ({"records_per_author": 0, "authors": ["one", "two"]}, "whole number from 1 up"),
    ],
)
def test_bad_input_is_refused_before_anything_is_measured(change, message):
    side, till = public(), Till()
    given = {"texts": ["good", "bad"], "labels": ["pos", "neg"], "authors": None}
    settings = {"epsilon": EPSILON, "delta": DELTA, "classes": CLASSES}
    given |= {name: value for name, value in change.items() if name in given}
    settings |= {name: value for name, value in change.items() if name not in given}
    with transcript() as seen, pytest.raises(ValueError, match=message) as caught:
        TextSynthesizer(**settings, index=side.index, model=side.model, budget=till).fit(**given)
    assert not seen
    assert not till.charges
    assert "secret" not in str(caught.value)


def test_no_raw_word_is_kept_or_shown():
    synthesizer, _ = measured([*BASE, ("Zanzibar's secret plot", "pos")])
    synthesizer.sample(5)
    kept = pickle.dumps(synthesizer)
    assert b"anzibar" not in kept
    assert b"<private>" not in kept
    sums = Sums(public().space(CLASSES))
    assert repr(sums) == "Sums(<private>)"
    assert "0" not in repr(sums.space.read(public().encoder.encode(["good"])))


@pytest.mark.parametrize("way", ["pickled", "packed"])
@pytest.mark.parametrize("authors", [None, 2])
def test_any_split_of_the_records_gives_the_same_sums(authors, cells, way):
    side, rng = public(), np.random.default_rng(3)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(0, 9))) for _ in range(60)]
    labels, names = rng.choice(CLASSES, size=60), rng.integers(9, size=60)
    space = side.space(CLASSES, authors)
    if cells == "four cells":
        directions = rng.integers(-1024, 1025, size=(2, 4))
        space = replace(space, topics=features.Topics(np.zeros(4, np.int64), directions))

    def part(rows):
        sums = whole.empty()
        of_part = side.encoder.encode([texts[row] for row in rows])
        sums.add(of_part, labels[rows], None if authors is None else names[rows])
        return sums

    whole = Sums(space, b"key")  # by which several chosen records of an author are in one part
    whole.merge(part(np.arange(60)))
    merged = whole.empty()
    for rows in np.array_split(rng.permutation(60), 3):
        if way == "pickled":
            merged.merge(pickle.loads(pickle.dumps(part(rows))))
        else:
            merged.merge_packed(part(rows).packed())
    assert np.array_equal(merged.total(), whole.total())
    assert np.array_equal(merged.moments(), whole.moments())
    assert whole.total().any()


def test_sums_from_another_machine_are_never_unpickled():
    sums = Sums(public().space(CLASSES))
    with pytest.raises(ValueError, match="pickled"):
        sums.merge_packed(pickle.dumps(sums.empty()))


RUNS = 500


def lower_bound(without: np.ndarray, with_it: np.ndarray) -> float:
    """Return a lower bound on mu by a threshold halfway, of scores around -.5 and .5; wrong once in a million."""
    hits, alarms = (with_it > 0).sum(), (without > 0).sum()
    least = beta.ppf(5e-7, hits, RUNS - hits + 1)
    most = beta.ppf(1 - 5e-7, alarms + 1, RUNS - alarms)
    return float(norm.ppf(least) - norm.ppf(most))


def canary_scores(epsilon: float, seed: int, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return what points to a record in releases without and with it."""
    side = public()
    space = side.space(CLASSES)
    texts, labels = zip(*BASE, strict=True)
    canary = Sums(space)
    canary.add(side.encoder.encode(["dull music"]), ["neg"])
    sums = [Sums(space), Sums(space)]
    for each in sums:
        each.add(side.encoder.encode(texts), labels)
    sums[1].merge(canary)
    plan = Measurement(space, epsilon, DELTA)._plan(space.dimension, 0.98)
    plan = replace(plan, sigma=plan.sigma * noise)
    source, mark = Randomness(seed), canary.total() / STEP
    halfway = sums[0].total() / STEP + mark / 2
    found = [
        [(plan.release(each.total() / STEP, source) - halfway) @ mark for _ in range(RUNS)]
        for each in sums
    ]
    return np.array(found[0]), np.array(found[1])


def test_canaries_find_no_more_than_the_stated_epsilon():
    bound = lower_bound(*canary_scores(8.0, 1))
    assert 8.0 / 3 < gaussian_epsilon(bound, DELTA) < 8.0


def test_canaries_refute_half_of_the_noise():
    assert lower_bound(*canary_scores(8.0, 1, noise=0.5)) > release_mu(8.0, DELTA)
