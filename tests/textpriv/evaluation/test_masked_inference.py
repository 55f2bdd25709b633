"""Masked inference guesses by context, with the law by both; what local models for transformers say is what is used."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from textpriv.errors import TextprivError
from textpriv.evaluation.language_models import causal_language_model, masked_language_model
from textpriv.evaluation.law import Law
from textpriv.evaluation.masked_inference import infer_masked
from textpriv.evaluation.ngrams import NGrams
from textpriv.mechanisms import TEM


@pytest.fixture(scope="module")
def index(index_of, clustered_points):
    return index_of(clustered_points(10, 4, 4, 1.0), k=16)


def walks(size, length, seed):
    """Documents in which word i is mostly followed by word i + 1."""
    rng = np.random.default_rng(seed)
    steps = np.where(rng.random((size, length)) < 0.9, 1, rng.integers(0, 40, (size, length)))
    ids = np.cumsum(steps, axis=1) + rng.integers(0, 40, (size, 1))
    return (ids % 40).astype(np.int32).ravel(), np.arange(size + 1) * length


@pytest.fixture(scope="module")
def model():
    return NGrams.train(*walks(300, 20, 1), 40)


def test_context_alone_finds_words_of_clear_text(model):
    ids, offsets = walks(60, 20, 2)
    found = infer_masked(ids, ids, offsets, model, places=400)
    assert found.success.low > 0.6
    assert found.auc.low > 0.8


def test_context_and_law_together_beat_either(index, model, stream):
    ids, offsets = walks(150, 20, 3)
    mechanism = TEM(index, 4.0)
    private = mechanism.sample(ids, stream("masked"))
    law = Law(mechanism, "uniform")
    context = infer_masked(ids, private, offsets, model, places=1500)
    both = infer_masked(ids, private, offsets, model, law=law, places=1500)
    blind = NGrams.alone(np.append(np.full(40, 1 / 40), 0.0))
    alone = infer_masked(ids, private, offsets, blind, law=law, places=1500)
    assert both.success.low > context.success.high
    assert both.success.value > alone.success.value


def test_without_context_the_law_alone_is_the_inversion_of_words(index, stream):
    from textpriv.evaluation.inversion import invert

    mechanism = TEM(index, 4.0)
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 40, 4000).astype(np.int32)
    blind = NGrams.alone(np.append(np.full(40, 1 / 40), 0.0))
    found = infer_masked(
        ids,
        mechanism.sample(ids, stream("alone")),
        np.arange(4001),
        blind,
        law=Law(mechanism, "uniform"),
        places=4000,
        confidence=1 - 1e-6,
    )
    assert found.success.low <= invert(mechanism, "uniform").success <= found.success.high


def test_a_language_model_is_asked_with_private_words_only(index):
    words = [f"w{i}" for i in range(40)]
    asked = []

    def model(left, right, candidates):
        asked.append((left, right))
        return np.zeros(len(candidates))

    original, private = np.full(5, 7, dtype=np.int32), np.arange(5, dtype=np.int32)
    infer_masked(original, private, np.array([0, 5]), model, words=words, places=5)
    assert len(asked) == 5
    assert not any("w7" in text for pair in asked for text in pair)
    assert ("w0 w1", "w3 w4") in asked


def test_a_language_model_that_is_not_there_is_named(tmp_path):
    with pytest.raises(TextprivError, match="not a folder with a model"):
        masked_language_model(str(tmp_path / "none"), ["a"])


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "green", "blue", "sea", "##side"]


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A folder with a small BERT of random weights, for texts of at most twelve pieces."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    folder = str(tmp_path_factory.mktemp("bert"))
    cutter = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({p: i for i, p in enumerate(PIECES)}, unk_token="[UNK]")
    )
    cutter.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    cutter.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=cutter, mask_token="[MASK]", model_max_length=12, **names
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
        initializer_range=0.4,  # so that contexts matter
    )
    transformers.BertForMaskedLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def softmax_at(language_model):
    """The model's softmax for pieces counted by hand, in numpy."""
    import torch
    import transformers

    model = transformers.BertForMaskedLM.from_pretrained(language_model).eval()

    def softmax(pieces, place):
        ids = torch.tensor([[PIECES.index(piece) for piece in pieces]])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, place].numpy().astype(np.float64)
        weights = np.exp(logits - logits.max())
        return dict(zip(PIECES, weights / weights.sum(), strict=True))

    return softmax


def test_a_language_models_scores_are_its_softmax_at_the_mask(language_model, softmax_at):
    words = ["blue", "red", "green"]
    found = masked_language_model(language_model, words)("red sea", "green", np.arange(3))
    expected = softmax_at(["[CLS]", "red", "sea", "[MASK]", "green", "[SEP]"], 3)
    np.testing.assert_allclose(np.exp(found), [expected[word] for word in words], rtol=1e-5)
    other = masked_language_model(language_model, words)("green sea", "green", np.arange(3))
    assert np.abs(np.exp(found) - np.exp(other)).max() > 1e-3


def test_unknown_words_and_words_of_two_pieces_get_no_probability(language_model):
    words = ["red", "seaside", "yellow", "[MASK]", "sea"]
    found = masked_language_model(language_model, words)("red", "blue", np.arange(5))
    assert np.isfinite(found).tolist() == [True, False, False, False, True]
    assert np.exp(found[[0, 4]]).sum() < 1
    with pytest.raises(TextprivError, match="none of the words"):
        masked_language_model(language_model, words[1:4])


def test_a_text_too_long_for_the_model_is_cut_around_the_mask(language_model, softmax_at):
    found = masked_language_model(language_model, ["red"])(
        "green " * 20 + "blue", "sea " * 20, np.arange(1)
    )
    # Twelve pieces fit: six before the mask, five after it.
    kept = ["green"] * 5 + ["blue", "[MASK]"] + ["sea"] * 5
    np.testing.assert_allclose(np.exp(found), softmax_at(kept, 6)["red"], rtol=1e-5)


def test_the_attack_guesses_what_the_language_model_finds_likeliest(language_model, softmax_at):
    words = ["red", "green", "blue", "sea"]
    private = np.array([0, 3, 1, 2, 2, 1], dtype=np.int32)
    guesses = []
    for place in range(len(private)):
        pieces = ["[CLS]", *(words[i] for i in private), "[SEP]"]
        pieces[place + 1] = "[MASK]"
        expected = softmax_at(pieces, place + 1)
        guesses.append(int(np.argmax([expected[word] for word in words])))
    original = np.array(guesses, dtype=np.int32)
    original[:2] = (original[:2] + 1) % 4  # two places are something else
    found = infer_masked(
        original,
        private,
        np.array([0, 6]),
        masked_language_model(language_model, words),
        words=words,
        places=6,
    )
    assert found.success.value == pytest.approx(4 / 6)


def test_where_the_language_model_allows_no_word_the_unigram_law_is_left():
    ids = np.arange(4, dtype=np.int32)
    words = ["a", "b", "c", "d"]
    found = infer_masked(
        ids, ids, np.array([0, 4]), lambda *given: np.full(4, -np.inf), words=words, places=4
    )
    assert found.auc.value == 0.5


def test_weights_in_a_pickle_are_not_read(language_model, tmp_path):
    import torch
    from safetensors.torch import load_file

    folder = tmp_path / "pickled"
    shutil.copytree(language_model, folder)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(TextprivError, match="holds no masked language model"):
        masked_language_model(str(folder), ["a"])


def test_a_folder_without_a_model_is_named(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    with pytest.raises(TextprivError, match="holds no masked language model"):
        masked_language_model(str(tmp_path), ["a"])


def test_a_causal_models_scores_are_its_softmax_piece_by_piece(language_model, tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    shutil.copytree(language_model, tmp_path / "gpt")
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=len(PIECES), n_positions=12, n_embd=16, n_layer=1, n_head=2
        )
    ).eval()
    model.save_pretrained(tmp_path / "gpt")
    words = ["blue", "red", "green"]
    found = causal_language_model(str(tmp_path / "gpt"), words)("red sea", "sea", np.array([2, 0]))
    for score, word in zip(found, ("green", "blue"), strict=True):
        ids = torch.tensor([[PIECES.index(piece) for piece in ("red", "sea", word, "sea")]])
        with torch.no_grad():
            logs = model(input_ids=ids).logits.double().log_softmax(-1)[0]
        assert score == pytest.approx(float(sum(logs[i, ids[0, i + 1]] for i in range(3))))


def test_texts_of_another_length_are_refused(model):
    with pytest.raises(TextprivError, match="as many words"):
        infer_masked(np.zeros(2, np.int32), np.zeros(3, np.int32), np.array([0, 2]), model)
