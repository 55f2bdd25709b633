"""The classifiers of private text: their inputs, and that they are trained as they say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from textpriv.errors import TextprivError
from textpriv.evaluation.utility import (
    MeanEmbeddingClassifier,
    count_matrix,
    mean_rows,
    root_counts,
    whitened,
)
from textpriv.vocabulary import Vocabulary

torch = pytest.importorskip("torch")


def vocabulary(rng, words=50, dimensions=4):
    vectors = rng.normal(size=(words, dimensions)) @ rng.normal(size=(dimensions, dimensions)) + 3
    return Vocabulary([f"w{i}" for i in range(words)], vectors)


def test_whitened_vectors_have_identity_covariance_under_the_zipf_prior():
    public = vocabulary(np.random.default_rng(0))
    prior = public.prior_weights("zipf")
    found = whitened(public).astype(np.float64)
    np.testing.assert_allclose(prior @ found, 0, atol=1e-5)
    np.testing.assert_allclose((found * prior[:, None]).T @ found, np.eye(4), atol=1e-4)
    # The turn is symmetric, so that coordinates stay where they are as far as they can.
    turn = np.linalg.lstsq(public.vectors - prior @ public.vectors, found, rcond=None)[0]
    np.testing.assert_allclose(turn, turn.T, atol=1e-4)


def test_a_direction_in_which_vectors_do_not_vary_is_whitened_to_zero():
    public = vocabulary(np.random.default_rng(1))
    flat = Vocabulary(list(public.words), np.column_stack([public.vectors, np.ones(50)]))
    found = whitened(flat)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[:, 4], 0, atol=1e-4)
    np.testing.assert_allclose(found[:, :4], whitened(public), atol=1e-3)


def test_whitening_takes_posterior_means_to_posterior_means():
    # It is affine, so the mean of whitened vectors is the whitened mean: learning through the channel stays exact.
    rng = np.random.default_rng(2)
    public = vocabulary(rng)
    weights = rng.dirichlet(np.ones(50), size=7)
    means = weights @ public.vectors
    system = np.column_stack([public.vectors, np.ones(50)])
    affine = np.linalg.lstsq(system, whitened(public), rcond=None)[0]
    np.testing.assert_allclose(
        np.column_stack([means, np.ones(7)]) @ affine, weights @ whitened(public), atol=1e-4
    )


def test_a_word_said_n_times_weighs_root_n_in_the_mean():
    table = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    counts = count_matrix(np.array([0, 0, 0, 0, 1], dtype=np.int32), np.array([0, 5, 5]), 2)
    np.testing.assert_allclose(mean_rows(root_counts(counts), table), [[2 / 3, 1 / 3], [0, 0]])
    assert counts.max() == 4  # the counts themselves are left alone


def test_training_is_adam_on_the_cross_entropy():
    # One batch holds all documents, so that their order does not matter; Adam as in Kingma and Ba, Algorithm 1.
    rng = np.random.default_rng(3)
    means, labels = rng.normal(size=(40, 3)).astype(np.float32), rng.integers(0, 2, 40)
    model = MeanEmbeddingClassifier(np.eye(3), epochs=20, batch_size=64, seed=5)
    model.fit(None, labels, means=means)
    state = torch.Generator().manual_seed(5)
    weights = torch.empty(2, 3).uniform_(-(3**-0.5), 3**-0.5, generator=state).numpy()
    bias = torch.empty(2).uniform_(-(3**-0.5), 3**-0.5, generator=state).numpy()
    at = np.column_stack([weights, bias]).astype(np.float64)
    inputs, wanted = np.column_stack([means, np.ones(40)]).astype(np.float64), np.eye(2)[labels]
    first, second = np.zeros_like(at), np.zeros_like(at)
    for step in range(1, 21):
        scores = np.exp(inputs @ at.T)
        gradient = (scores / scores.sum(axis=1, keepdims=True) - wanted).T @ inputs / 40
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        at -= 0.001 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
    np.testing.assert_allclose(model.decision(None, means=means), inputs @ at.T, atol=1e-5)


def test_the_scale_multiplies_inputs_in_training_and_after():
    rng = np.random.default_rng(4)
    means, labels = rng.normal(size=(100, 3)).astype(np.float32), rng.integers(0, 2, 100)
    scaled = MeanEmbeddingClassifier(np.eye(3), scale=4.0).fit(None, labels, means=means)
    plain = MeanEmbeddingClassifier(np.eye(3)).fit(None, labels, means=4 * means)
    np.testing.assert_allclose(
        scaled.decision(None, means=means), plain.decision(None, means=4 * means), rtol=1e-5
    )


@pytest.mark.parametrize("tune", [False, True])
def test_counts_and_their_means_are_read_alike(tune):
    rng = np.random.default_rng(5)
    counts = csr_matrix(rng.poisson(0.5, size=(60, 20)).astype(np.float32))
    labels = rng.integers(0, 2, 60)
    table = rng.normal(size=(20, 3)).astype(np.float32)
    model = MeanEmbeddingClassifier(table, tune=tune, scale=3.0, epochs=3).fit(counts, labels)
    means = mean_rows(counts, model.table_)
    np.testing.assert_allclose(model.decision(counts), model.decision(None, means=means), rtol=1e-5)
    assert (np.abs(model.table_ - table).max() > 0) == tune
    chances = model.predict_proba(counts)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    assert model.score(counts, labels) == (chances.argmax(axis=1) == labels).mean()


@pytest.mark.parametrize(
    ("labels", "message"),
    [([0, 1], "one label for every document"), ([0.5, 1, 0], "classes"), ([-1, 0, 1], "classes")],
)
def test_labels_that_are_no_classes_are_refused(labels, message):
    with pytest.raises(TextprivError, match=message):
        MeanEmbeddingClassifier(np.eye(2)).fit(csr_matrix(np.ones((3, 2))), labels)


def test_trained_embeddings_need_counts():
    with pytest.raises(TextprivError, match="need the counts"):
        MeanEmbeddingClassifier(np.eye(2), tune=True).fit(
            None, [0, 1], means=np.eye(2, dtype=np.float32)
        )
