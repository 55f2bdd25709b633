"""Features that know the law: posteriors by Bayes' rule, means of embeddings, and a place in a pipeline."""

from __future__ import annotations

import numpy as np
import pytest
import small_trees as trees
from scipy.sparse import csr_matrix

from textpriv.errors import MechanismError, TextprivError
from textpriv.evaluation.law import Law
from textpriv.evaluation.utility import count_matrix, log_counts
from textpriv.mechanisms import TEM, Madlib, TreeTEM
from textpriv.privatizer import Privatizer

pytest.importorskip("sklearn")
from textpriv.evaluation.channel import ChannelVectorizer, channel_embedding


@pytest.fixture(scope="module")
def index(index_of, clustered_points):
    return index_of(clustered_points(20, 10, 6, 1.5), k=16)


@pytest.fixture(scope="module")
def posterior_of():
    def make(mechanism, prior="zipf"):
        rows = np.exp([mechanism.log_prob(word) for word in range(len(mechanism.index))])
        joint = rows * mechanism.index.vocabulary.prior_weights(prior)[:, None]
        return (joint / joint.sum(axis=0)).T  # outputs by words

    return make


@pytest.mark.parametrize("metric", ["euclidean", "angular", "manhattan"])
@pytest.mark.parametrize("make", [TEM])
def test_blocks_are_the_law_of_the_mechanism(index_of, clustered_points, metric, make):
    mechanism = make(index_of(clustered_points(10, 10, 5, 1.5), k=12, metric=metric), 4.0)
    rows = np.concatenate([block for _, block in Law(mechanism).blocks()])
    expected = np.exp([mechanism.log_prob(word) for word in range(len(mechanism.index))])
    np.testing.assert_allclose(rows, expected, rtol=1e-4)
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("prior", ["uniform", "zipf"])
def test_posterior_means_follow_bayes_rule(index, posterior_of, prior):
    mechanism = TEM(index, 3.0, prior=prior)
    table = index.vocabulary.vectors
    expected = posterior_of(mechanism) @ table
    np.testing.assert_allclose(
        Law(mechanism).posterior_means(table), expected, rtol=1e-3, atol=1e-4
    )


def test_posterior_counts_keep_every_word_above_the_floor(index, posterior_of):
    mechanism = TEM(index, 3.0)
    found = Law(mechanism).posterior(0.02)
    expected = posterior_of(mechanism)
    dense = found.toarray()
    clear_cut = np.abs(expected - 0.02) > 1e-5
    np.testing.assert_array_equal((dense > 0)[clear_cut], (expected >= 0.02)[clear_cut])
    np.testing.assert_allclose(dense[dense > 0], expected[dense > 0], rtol=1e-3)
    assert np.diff(found.indptr).max() <= 50


def test_without_noise_the_features_are_those_of_clear_text(index):
    # At a huge epsilon every output comes from itself.
    documents = [np.array([1, 5, 5, 30], dtype=np.int32), np.array([7], dtype=np.int32)]
    for output in ("counts", "embedding"):
        vectorizer = ChannelVectorizer(TEM(index, 5e3), output=output)
        private = vectorizer.fit_transform(documents)
        clear = vectorizer.transform(documents)
        if output == "counts":
            private, clear = private.toarray(), clear.toarray()
        np.testing.assert_allclose(private, clear, rtol=1e-3, atol=1e-5)


def test_texts_ids_and_counts_give_the_same_features(index):
    mechanism = TEM(index, 3.0)
    vectorizer = ChannelVectorizer(mechanism).fit()
    ids = [np.array([3, 8, 8], dtype=np.int32), np.array([0], dtype=np.int32)]
    counts = count_matrix(np.concatenate(ids), np.array([0, 3, 4]), len(index))
    texts = ["w3 w8 w8", "w0"]
    reader = Privatizer(mechanism)
    assert reader.read(texts[0]).codes.tolist() == [3, 8, 8]
    first = vectorizer.transform_private(texts).toarray()
    np.testing.assert_array_equal(first, vectorizer.transform_private(ids).toarray())
    np.testing.assert_array_equal(first, vectorizer.transform_private(counts).toarray())
    np.testing.assert_array_equal(
        vectorizer.transform(texts).toarray(), log_counts(counts).toarray()
    )


def test_a_pipeline_trains_on_private_text_and_predicts_clear_text(index, stream):
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    mechanism = TEM(index, 3.0, prior="uniform")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 400)
    # Class 1 speaks of the first half of the words.
    clear = (rng.integers(0, 100, (400, 20)) + 100 * (1 - labels[:, None])).astype(np.int32)
    private = mechanism.sample(clear.ravel(), stream("channel")).reshape(clear.shape)
    model = make_pipeline(
        ChannelVectorizer(mechanism, output="embedding"), LogisticRegression(C=100.0)
    )
    clone(model).fit(list(private), labels)
    assert model.fit(list(private), labels).score(list(clear), labels) > 0.8


def test_at_predict_private_reads_private_text(index):
    vectorizer = ChannelVectorizer(TEM(index, 3.0), at_predict="private").fit()
    documents = csr_matrix(np.eye(3, len(index), dtype=np.float32))
    np.testing.assert_array_equal(
        vectorizer.transform(documents).toarray(),
        vectorizer.transform_private(documents).toarray(),
    )


def test_the_torch_embedding_starts_from_posterior_means(index):
    torch = pytest.importorskip("torch")
    mechanism = TEM(index, 3.0)
    layer = channel_embedding(mechanism)
    expected = Law(mechanism).posterior_means(index.vocabulary.vectors)
    found = layer(torch.tensor([4, 9]), torch.tensor([0]))[0].detach().numpy()
    np.testing.assert_allclose(found, expected[[4, 9]].mean(axis=0), rtol=1e-5)
    assert layer.weight.requires_grad


def test_a_mechanism_without_a_law_is_refused(index):
    with pytest.raises(MechanismError, match="no closed"):
        ChannelVectorizer(Madlib(index, 20.0, search="exact")).fit()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "words"}, "output is"),
        ({"at_predict": "both"}, "at_predict is"),
        ({"floor": 0.0}, "floor is"),
    ],
)
def test_parameters_without_meaning_are_refused(index, options, message):
    with pytest.raises(TextprivError, match=message):
        ChannelVectorizer(TEM(index, 3.0), **options).fit()


def test_a_document_of_another_type_is_named_by_its_place_and_not_quoted(index):
    vectorizer = ChannelVectorizer(TEM(index, 3.0)).fit()
    with pytest.raises(TextprivError, match="document 1 is of type dict"):
        vectorizer.transform([np.array([1]), {"secret": 1}])
    with pytest.raises(TextprivError, match="not one text"):
        vectorizer.transform("w1 w2")


def test_over_a_tree_embeddings_must_be_given_and_their_means_are_those_of_the_law():
    mechanism = TreeTEM(trees.chain(20), 0.3)
    with pytest.raises(TextprivError, match="keeps no vectors"):
        ChannelVectorizer(mechanism, output="embedding").fit()
    table = np.random.default_rng(0).normal(size=(20, 3))
    found = ChannelVectorizer(mechanism, output="embedding", table=table).fit().private_table_
    joint = np.exp([mechanism.log_prob(word) for word in range(20)])
    joint *= mechanism.index.vocabulary.prior_weights("zipf")[:, None]
    np.testing.assert_allclose(found, (joint / joint.sum(axis=0)).T @ table, rtol=1e-4)


def test_without_scikit_learn_the_error_names_the_extra():
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "from textpriv.errors import TextprivError\n"
        "try:\n    import textpriv.evaluation.channel\n"
        "except TextprivError as error:\n    print(error)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    )
    assert "textpriv[pairwise]" in answer.stdout
