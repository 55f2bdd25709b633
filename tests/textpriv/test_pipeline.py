"""The spaCy component and the strict tokenizer."""

import copy
import functools
import importlib.metadata
import io
import itertools
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from weakref import WeakSet

import numpy as np
import pytest
import spacy
import srsly
from spacy.matcher import PhraseMatcher
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example
from spacy.vocab import Vocab
from thinc.api import Config, ConfigValidationError

import textpriv.pipeline
from textpriv.errors import (
    CorpusError,
    IndexFolderError,
    MechanismError,
    PolicyError,
    RawTextError,
    TextprivError,
)
from textpriv.index import Index
from textpriv.pipeline import (
    LostAnnotationWarning,
    PrivateCorpus,
    PrivateTokenizer,
    annotations,
)
from textpriv.pipeline.annotations import RECORD
from textpriv.run_key import RunKey
from textpriv.vocabulary import Vocabulary

VOCABULARY = (
    "the of and to in a is that for it was on with as at by from or an be this which are not he "
    "she they we you his her patient doctor nurse chest heart pain cough fever cold arm leg "
    "head clinic ward bed night day week month year home family friend child mother father "
    "sleep walk eat drink water tea bread milk river hill road town city house door window "
    "garden tree bird fish horse dog cat red green blue white black small large old new good "
    "bad warm quick slow early late film story actor scene music song book page word letter "
    "number "
)
WORDS = VOCABULARY.split()
RAW = ["zorblax", "quiverneth", "mumblefrotz"]
TEXTS = [
    "The patient zorblax was admitted with chest pain.",
    "A small dog and an old cat sleep at home; the quiverneth does not.",
    "",
    "Mumblefrotz told the doctor that the night was cold.",
    "... !!! ???",
]
MECHANISM = {"@textpriv_mechanisms": "textpriv.TEM.v1", "epsilon": 1.0}
KEEPING = {**MECHANISM, "epsilon": 1e6, "prior": "zipf"}  # every word of the vocabulary

Doc.set_extension("origin", default=None, force=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    vectors = np.random.default_rng(0).standard_normal((len(WORDS), 16)).astype(np.float32)
    path = tmp_path_factory.mktemp("index") / "words.idx"
    Index.build(Vocabulary(WORDS, vectors), "euclidean", k=16).save(path)
    return path


@pytest.fixture(scope="module")
def reading(folder):
    """``reading(form, **changes)``: a pipeline that others use as well, for tests that only read texts with it."""
    return functools.cache(lambda form, **changes: form(folder, **changes))


def settings(folder, **changes):
    return {"index": str(folder), "mechanism": dict(MECHANISM), **changes}


def component_form(folder, **changes):
    nlp = spacy.blank("en")
    nlp.add_pipe("textpriv", config=settings(folder, **changes))
    return nlp


def strict_form(folder, **changes):
    tokenizer = {"@tokenizers": "textpriv.PrivateTokenizer.v1", **settings(folder, **changes)}
    return spacy.blank("en", config={"nlp": {"tokenizer": tokenizer}})


both_forms = pytest.mark.parametrize("form", [component_form, strict_form])


def texts_of(docs):
    return [doc.text for doc in docs]


def part(nlp):
    """The object of ours in a pipeline."""
    return nlp.get_pipe("textpriv") if nlp.has_pipe("textpriv") else nlp.tokenizer


def all_bytes(path):
    return b"\0".join(file.read_bytes() for file in Path(path).rglob("*") if file.is_file())


# What comes out


@both_forms
def test_only_public_words_and_kept_punctuation_come_out(form, reading):
    for doc in reading(form).pipe(TEXTS):
        assert all(token.text in WORDS or token.is_punct for token in doc)


def test_a_new_doc_carries_nothing_of_the_raw_one(folder):
    nlp = component_form(folder)
    raw = nlp.make_doc("The patient zorblax was cold.")
    raw.user_data["secret"] = "zorblax"
    raw.cats["secret"] = 1.0
    raw.tensor = np.ones((len(raw), 2), dtype=np.float32)
    raw.ents = [Span(raw, 2, 3, label="PERSON")]
    raw.spans["secret"] = [raw[2:3]]
    before = raw.text
    doc = nlp(raw)
    assert doc is not raw
    assert raw.text == before
    assert doc.vocab is nlp.vocab
    assert b"zorblax" not in doc.to_bytes()
    assert (doc.cats, doc.ents, dict(doc.spans), doc.tensor.size) == ({}, (), {}, 0)
    assert "secret" not in doc.user_data


def labelled(nlp, text="The patient zorblax was cold, Zorblax said."):
    raw = nlp.make_doc(text)
    raw.cats["complaint"] = 1.0
    raw.ents = [Span(raw, 2, 3, label="PERSON"), Span(raw, 6, 7, label="PERSON")]
    return raw


def test_what_is_lost_of_a_raw_document_is_warned_of_once(folder):
    nlp = component_form(folder)
    raw = labelled(nlp)
    raw.spans["all"] = [raw[0:2]]
    raw._.origin = "ward 7"
    with pytest.warns(
        LostAnnotationWarning, match=r"without cats, ents, spans, _\.origin of"
    ) as seen:
        nlp(raw)
    assert "zorblax" not in str([each.message for each in seen])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nlp(raw)
        other = component_form(folder, carry=["cats", "ents"])
        other(labelled(other))


def test_carried_annotations_come_out_and_are_named(folder):
    nlp = component_form(folder, carry=["cats", "ents"])
    raw = labelled(nlp)
    private = nlp(raw)
    assert private.cats == {"complaint": 1.0}
    assert [(e.start, e.end, e.label_) for e in private.ents] == [
        (2, 3, "PERSON"),
        (6, 7, "PERSON"),
    ]
    assert b"zorblax" not in private.to_bytes().lower()
    exposed = " ".join(private._.textpriv["statement"]["not_protected"])
    for words in ("(cats), carried over", "(ents), carried over"):
        assert words in exposed
    assert "carried over" not in str(component_form(folder)("A dog.")._.textpriv["statement"])


def test_span_groups_and_extensions_are_carried_by_name(folder):
    nlp = component_form(folder, carry=["spans", "_.origin"])
    raw = nlp.make_doc("The patient zorblax was cold.")
    raw.spans["names"] = [Span(raw, 2, 3, label="PERSON"), Span(raw, 1, 3, label="NP")]
    raw._.origin = "ward 7"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        doc = nlp(raw)
    found = [(span.start, span.end, span.label_) for span in doc.spans["names"]]
    assert found == [(2, 3, "PERSON"), (1, 3, "NP")]
    assert doc._.origin == "ward 7"
    exposed = " ".join(doc._.textpriv["statement"]["not_protected"])
    assert "span groups of a document" in exposed
    assert "the extension _.origin of a document" in exposed


@pytest.mark.parametrize("text", ["İstanbul İ, ZORBLAX's!", "Mumblefrotz  QUIVERNETH\n\n(Zorblax)"])
def test_entities_cover_the_same_letters_in_any_casing(folder, text):
    # No word of these is in the vocabulary, so all come out as they were, lower-cased; İ becomes two letters.
    nlp = component_form(folder, carry=["ents"], policy={"unknown": "keep", "stopword": "keep"})
    raw = nlp.make_doc(text)
    for token in raw:
        if not token.is_space:
            raw.ents = [Span(raw, token.i, token.i + 1, label="IT")]
            assert [each.text for each in nlp(raw.copy()).ents] == [token.lower_]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"carry": ["tags"]}, "carry takes"),
        ({"carry": ["ents"], "policy": {"number": "drop"}}, "drops no token"),
    ],
)
def test_what_cannot_be_carried_over_is_refused(folder, changes, words):
    with pytest.raises(MechanismError, match=words):
        component_form(folder, **changes)


@both_forms
def test_a_doc_carries_the_name_of_its_statement(form, reading):
    """Workers send each document: a statement with each would make two of them slower than one."""
    nlp = reading(form)
    docs = list(nlp.pipe(["The patient was cold."] * 4, n_process=2, batch_size=2))
    docs.append(Doc(nlp.vocab).from_bytes(docs[0].to_bytes()))
    for doc in docs:
        assert doc._.textpriv["statement"]["epsilon"] == 1.0
        assert sum(doc._.textpriv["counts"].values()) == len(doc)
        json.dumps(doc._.textpriv)
        assert len(pickle.dumps(doc.user_data[RECORD])) < 200


def test_a_process_that_never_drew_finds_the_statement(folder, monkeypatch):
    nlp = spacy.blank("en")
    nlp.add_pipe("textpriv", config={"epsilon": 2.5})  # the built-in index is opened by workers
    (doc,) = nlp.pipe(["The patient was cold."], n_process=2)
    assert doc._.textpriv["statement"]["epsilon"] == 2.5
    monkeypatch.setattr(annotations, "forms", ())
    doc.user_data[RECORD] = {**doc.user_data[RECORD], "statement": "of another process"}
    with pytest.warns(UserWarning, match=r"spacy\.load the pipeline"):
        assert doc._.textpriv["statement"] is None


def test_a_saved_doc_has_its_statement_where_its_pipeline_is(tmp_path, monkeypatch):
    nlp = spacy.blank("en")
    nlp.add_pipe("textpriv", config={"epsilon": 2.5})
    DocBin(docs=[nlp("The patient was cold.")], store_user_data=True).to_disk(tmp_path / "d.spacy")
    nlp.to_disk(tmp_path / "model")
    for name, empty in (("forms", WeakSet()), ("_statements", {})):  # as a new process has them
        monkeypatch.setattr(annotations, name, empty)
    loaded = spacy.load(tmp_path / "model")
    (doc,) = DocBin().from_disk(tmp_path / "d.spacy").get_docs(spacy.blank("en").vocab)
    assert doc._.textpriv["statement"]["epsilon"] == 2.5, loaded


@both_forms
def test_workers_send_no_user_data_with_a_document(form, reading, monkeypatch):
    """spaCy takes as long for one entry of it as for the rest of a document."""
    entries = multiprocessing.get_context("fork").Queue()
    detach = annotations._detach

    def detached(docs):
        for doc in detach(docs):
            entries.put(len(doc.user_data))
            yield doc

    monkeypatch.setattr(annotations, "_detach", detached)
    docs = list(reading(form).pipe(["The patient was cold."] * 4, n_process=2, batch_size=2))
    assert [entries.get(timeout=10) for _ in docs] == [0] * 4
    assert all(doc.user_data[RECORD] and doc._context is None for doc in docs)


# Randomness


@both_forms
def test_seeded_output_does_not_depend_on_processes(form, reading):
    nlp = reading(form, seed=7)
    expected = texts_of(nlp.pipe(TEXTS))
    assert texts_of(nlp.pipe(TEXTS, n_process=2, batch_size=2)) == expected


def test_tokenizer_pipe_gives_what_single_calls_give(reading):
    nlp = reading(strict_form, seed=7)
    expected = [nlp.tokenizer(text).text for text in TEXTS]
    assert texts_of(nlp.tokenizer.pipe(iter(TEXTS), batch_size=2)) == expected
    docs = list(nlp.pipe(nlp.tokenizer.pipe(TEXTS)))
    assert texts_of(docs) == expected
    assert all(doc._.textpriv["statement"]["proved"] is False for doc in docs)  # by the seed


@both_forms
def test_unseeded_equal_texts_differ_also_across_processes(form, reading):
    # By chance two outputs of these 107 words are equal with probability 2^-500.
    text = " ".join(WORDS)
    nlp = reading(form)
    list(nlp.pipe([text]))
    docs = texts_of(nlp.pipe([text] * 6, n_process=2, batch_size=1))
    assert len(set(docs)) == 6


# With the rest of spaCy


@both_forms
def test_as_tuples_works_with_processes(form, reading):
    pairs = [("The patient was cold.", {"id": 1}), ("A dog.", {"id": 2})]
    got = list(reading(form).pipe(pairs, as_tuples=True, n_process=2))
    assert [context for _, context in got] == [{"id": 1}, {"id": 2}]


@both_forms
def test_words_first_seen_in_a_memory_zone_can_be_used_after_it(form, folder):
    nlp = form(folder, seed=1)
    if not hasattr(nlp, "memory_zone"):
        pytest.skip("this spaCy has no memory zones")
    with nlp.memory_zone():
        inside = texts_of(nlp.pipe(TEXTS))
    assert texts_of(nlp.pipe(TEXTS)) == inside


def test_a_raw_doc_of_another_vocabulary_is_refused(folder):
    nlp, sourced = component_form(folder), spacy.blank("en")
    sourced.add_pipe(
        "textpriv", source=nlp
    )  # it is not asked, and sourced.vocab would be saved as it is
    for use in (lambda: nlp(spacy.blank("en")("A cat zorblax.")), lambda: sourced("A zorblax.")):
        with pytest.raises(RawTextError, match="another vocabulary") as raised:
            use()
        assert "zorblax" not in str(raised.value)
    assert nlp(nlp.make_doc("A horse.")).vocab is nlp.vocab


def test_the_component_fails_closed_if_errors_are_swallowed(folder):
    nlp = component_form(folder / "not_there")
    nlp.set_error_handler(lambda name, proc, docs, error: None)
    with pytest.raises(IndexFolderError):
        nlp("The patient zorblax was cold.")
    with pytest.raises(IndexFolderError):
        list(nlp.pipe(["The patient zorblax was cold."]))


# Mistakes


@both_forms
def test_wrong_options_are_refused_when_the_pipeline_is_made(form, folder):
    for changes in ({"mechanism": None}, {"mechanism": {**MECHANISM, "epsilon": -1.0}}):
        with pytest.raises(MechanismError, match="epsilon"):
            form(folder, **changes)
    with pytest.raises(PolicyError, match="unknown action 'forget'"):
        form(folder, policy={"number": "forget"})
    with pytest.raises(PolicyError, match="no class 'verbs'; there are unknown, number"):
        form(folder, policy={"verbs": "drop"})
    with pytest.raises(ConfigValidationError):
        form(folder, epsilom=3.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"recovery": 10},
        {"epsilon": -1.0},
        {"epsilon": "3"},
        {"epsilon": 3.0, "mechanism": "none"},
        {"recovery": 0.1, "spans": "chats"},
        {"recovery": 0.1, "spans": "chat", "detect": "patterns"},
        {"recovery": 0.1, "spans": "chat", "detect": ["none"]},
        {"recovery": 0.1, "index": "builtin:de"},
        {"recovery": 0.1, "carry": "cats"},
    ],
)
def test_wrong_settings_are_refused_where_they_are_given(changes):
    with pytest.raises(TextprivError):
        spacy.blank("en").add_pipe("textpriv", config=changes)


def test_settings_of_single_calls_are_refused(reading):
    nlp = reading(component_form)
    for use in (nlp, lambda text, **more: list(nlp.pipe([text], **more))):
        with pytest.raises(MechanismError, match="component_cfg"):
            use("A dog.", component_cfg={"textpriv": {"epsilon": 3.0}})


def test_a_named_mechanism_takes_a_recovery():
    nlp = spacy.blank("en")
    config = {"recovery": 0.1, "mechanism": "tem", "index": "builtin:en"}
    mechanism = nlp.add_pipe("textpriv", config=config).prepare().mechanism
    expected = textpriv.epsilon_for(Index.builtin("en"), recovery=0.1, mechanism="tem")
    assert (type(mechanism).__name__, mechanism.epsilon) == ("TEM", expected)


def test_lists_and_expressions_detect_as_in_the_command(tmp_path):
    (tmp_path / "names.txt").write_text("Ann\n")
    names = [f"words:{tmp_path / 'names.txt'}", "regex:ID=#[0-9]+"]
    config = {"epsilon": 3.0, "spans": "chat", "detect": names}
    plan = spacy.blank("en").add_pipe("textpriv", config=config).prepare().spans
    assert [type(each).__name__ for each in plan.detectors] == ["WordsDetector", "RegexDetector"]


def test_auto_detects_as_the_command_does(monkeypatch):
    from textpriv.spans import detectors

    monkeypatch.setattr(detectors, "best_detectors", lambda language: ["patterns"])
    config = {"epsilon": 3.0, "spans": "chat", "detect": ["auto", "patterns"]}
    plan = spacy.blank("en").add_pipe("textpriv", config=config).prepare().spans
    assert [type(each).__name__ for each in plan.detectors] == ["PatternDetector"]


@pytest.mark.parametrize("mechanism", ["tem", dict(MECHANISM)])
def test_a_tokenizer_made_by_hand_is_saved(folder, tmp_path, mechanism):
    nlp = spacy.blank("en")
    amount = {"epsilon": 1.0} if mechanism == "tem" else {}
    nlp.tokenizer = PrivateTokenizer(nlp, index=folder, mechanism=mechanism, seed=7, **amount)
    nlp.to_disk(tmp_path / "saved")
    loaded = spacy.load(tmp_path / "saved")
    assert loaded(TEXTS[0]).text == nlp(TEXTS[0]).text
    with pytest.raises(RawTextError):
        nlp(spacy.blank("en")(TEXTS[0]))


def test_what_a_form_cannot_take_is_named():
    blank = spacy.blank("en")
    with pytest.raises(MechanismError, match="PrivateTokenizer takes a mechanism"):
        PrivateTokenizer(blank, mechanism=lambda index: None)
    with pytest.raises(MechanismError, match="PrivateTokenizer takes the pipeline"):
        PrivateTokenizer(blank.vocab, mechanism="tem")
    with pytest.raises(MechanismError, match="detect takes a list"):
        blank.add_pipe("textpriv", config={"recovery": 0.1, "detect": "patterns"})


@both_forms
def test_a_recovery_gives_the_epsilon_that_the_library_finds(form, folder):
    nlp = form(folder, index=None, mechanism=None, recovery=0.1)
    mechanism = part(nlp).prepare().mechanism
    assert (type(mechanism).__name__, mechanism.prior) == ("TEM", "uniform")
    assert mechanism.epsilon == textpriv.epsilon_for(Index.builtin("en"), recovery=0.1)
    for more in ({}, {"mechanism": None, "epsilon": 3.0}):
        with pytest.raises(MechanismError, match="takes exactly one of recovery, epsilon"):
            form(folder, recovery=0.1, **more)


def test_a_second_form_in_one_pipeline_is_refused(folder):
    with pytest.raises(MechanismError, match="not both"):
        strict_form(folder).add_pipe("textpriv", config=settings(folder))
    late, twice = component_form(folder), component_form(folder)
    late.tokenizer = strict_form(folder).tokenizer
    twice.add_pipe("textpriv", name="again", config=settings(folder))
    for nlp in (late, twice):
        with pytest.raises(MechanismError, match="not both"):
            nlp("The patient was cold.")


@both_forms
def test_a_missing_index_is_told_at_first_use(form, folder):
    nlp = form(folder.parent / "elsewhere")
    with pytest.raises(IndexFolderError, match="elsewhere"):
        nlp("The patient was cold.")


@both_forms
def test_without_an_index_the_built_in_one_is_opened(form, folder):
    nlp = form(folder, index=None)
    assert nlp("chest pain")._.textpriv["counts"]["sampled"] == 2
    assert part(nlp).prepare().mechanism.index is Index.builtin("en")


# Saving and loading


@both_forms
def test_saved_pipeline_loads_without_the_first_index(form, folder, tmp_path):
    own = shutil.copytree(folder, tmp_path / "own.idx")
    nlp = form(own, seed=7)
    expected = texts_of(nlp.pipe(TEXTS))
    nlp.to_disk(tmp_path / "saved")
    shutil.rmtree(own)
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    assert texts_of(spacy.load(tmp_path / "moved").pipe(TEXTS)) == expected


@both_forms
def test_a_pipeline_can_be_saved_over_itself(form, folder, tmp_path):
    nlp = form(folder, seed=7)
    nlp.to_disk(tmp_path / "saved")
    nlp.to_disk(tmp_path / "saved")
    loaded = spacy.load(tmp_path / "saved")
    loaded.to_disk(tmp_path / "saved")
    expected = texts_of(nlp.pipe(TEXTS))
    assert texts_of(loaded.pipe(TEXTS)) == expected
    assert texts_of(spacy.load(tmp_path / "saved").pipe(TEXTS)) == expected


def test_strict_pipeline_can_be_saved_over_a_common_one(folder, tmp_path):
    spacy.blank("en").to_disk(tmp_path / "saved")
    nlp = strict_form(folder, seed=7)
    nlp.to_disk(tmp_path / "saved")
    assert spacy.load(tmp_path / "saved")(TEXTS[0]).text == nlp(TEXTS[0]).text


@both_forms
def test_no_seed_in_what_is_saved(form, folder):
    assert part(form(folder, seed=7)).to_bytes() == part(form(folder)).to_bytes()


@both_forms
def test_pickle_holds_the_path_and_no_array(form, folder):
    nlp = form(folder, seed=7)
    expected = texts_of(nlp.pipe(TEXTS))
    shared = {id(nlp), id(nlp.vocab)}

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return "shared" if id(value) in shared else None

    buffer = io.BytesIO()
    Pickler(buffer).dump(part(nlp))
    assert len(buffer.getvalue()) < 5000
    assert b"textpriv.privatizer" not in buffer.getvalue()  # with it go keys and raw words
    assert texts_of(pickle.loads(pickle.dumps(nlp)).pipe(TEXTS)) == expected


def saved_in_every_way(nlp, path):
    """What each way of saving a pipeline, or a part of it, writes."""
    for name, save in {
        "pipeline": nlp.to_disk,
        "pipeline without lookups": lambda place: nlp.to_disk(
            place, exclude=["lookups", "vectors"]
        ),
        "vocabulary": nlp.vocab.to_disk,
        "vocabulary without lookups": lambda place: nlp.vocab.to_disk(place, exclude=["lookups"]),
        "strings": nlp.vocab.strings.to_disk,
        "part": part(nlp).to_disk,
    }.items():
        save(path / name)
        yield f"{name} on disk", all_bytes(path / name) or (path / name).read_bytes()
    other = spacy.blank("en")
    other.add_pipe("sentencizer", source=nlp)
    copied = pickle.loads(pickle.dumps(nlp))
    copied("A further quiverneth.")
    for name, each in {"pipeline": nlp, "part": part(nlp), "other": other, "copy": copied}.items():
        yield f"{name} as bytes", each.to_bytes()
        yield f"{name} pickled", pickle.dumps(each)
    yield "vocabulary as bytes", nlp.vocab.to_bytes()
    yield "strings as bytes", nlp.vocab.strings.to_bytes().encode()
    copies = {"vocabulary": nlp.vocab, "strings": nlp.vocab.strings, "pipeline": nlp}
    for name, each in copies.items():
        copied = copy.deepcopy(each)
        yield f"{name} copied", pickle.dumps(copied)
        yield f"{name} pickled", pickle.dumps(each)
        yield f"{name} pickled by spaCy", srsly.pickle_dumps(each)
    for name, each in {
        "morphology": nlp.vocab.morphology,
        "matcher": nlp.get_pipe("entity_ruler").phrase_matcher,
        "sentencizer": nlp.get_pipe("sentencizer"),
    }.items():
        yield f"{name} pickled", pickle.dumps(each)


def whitespace(vocab):
    return lambda text: Doc(vocab, words=text.split())


def read_from_docbin(nlp, raw):
    list(DocBin(docs=[raw], attrs=["LEMMA", "ENT_ID"]).get_docs(nlp.vocab))


def read_from_bytes(nlp, raw):
    Doc(nlp.vocab).from_bytes(raw.to_bytes())


def made_and_annotated(nlp, raw):
    doc = Doc(nlp.vocab, words=[token.text for token in raw])
    for token in doc:
        token.lemma_ = token.norm_ = "x" + token.text
        token.set_morph(f"Raw={token.text}")
    doc.spans["raw"] = [Span(doc, 0, 1, label=doc[0].text, kb_id=doc[1].text, span_id=doc[2].text)]


def read_with_the_component_disabled(nlp, raw):
    disabled = [name for name in ("textpriv",) if name in nlp.pipe_names]
    for processes in (1, 2):
        list(nlp.pipe([raw.text] * 2, disable=disabled, n_process=processes))


def read_by_another_tokenizer(nlp, raw):
    own, nlp.tokenizer = nlp.tokenizer, whitespace(nlp.vocab)
    nlp.make_doc(raw.text)
    if nlp.has_pipe("textpriv"):
        nlp(raw.text)
    nlp.tokenizer = own


LEFT_BEHIND = [
    lambda nlp, raw: None,
    lambda nlp, raw: nlp(raw.text),
    lambda nlp, raw: nlp.make_doc(raw.text),
    read_with_the_component_disabled,
    read_by_another_tokenizer,
    read_from_docbin,
    read_from_bytes,
    made_and_annotated,
]
SAVED_TEXT = (
    "The zorblax had fever and cold, hiv-positive... (almost Mumblefrotz film nurse quiverneth"
)


@both_forms
@pytest.mark.parametrize("leave", LEFT_BEHIND)
def test_what_is_saved_shows_no_word_of_a_text(form, folder, tmp_path, leave):
    """Raw or private: of two pipelines with the same words public, none shows which were read."""
    words = {*WORDS, *RAW, "hiv", "(almost", *SAVED_TEXT.split(), *SAVED_TEXT.lower().split()}
    found = []
    for name in ("fresh", "used"):
        nlp = form(folder)
        nlp.add_pipe("sentencizer", first=True)
        nlp.add_pipe("entity_ruler", first=True).add_patterns([{"label": "A", "pattern": "a dog"}])
        if name == "used":
            leave(nlp, spacy.blank("en")(SAVED_TEXT))
        (tmp_path / name).mkdir()
        ways = saved_in_every_way(nlp, tmp_path / name)
        found.append({way: {word for word in words if word.encode() in data} for way, data in ways})
    assert found[0] == found[1]
    assert len(found[0]) > 20


@both_forms
def test_a_pickled_private_doc_shows_its_own_words_alone(form, folder):
    nlp = form(folder)
    fresh = pickle.dumps(nlp(""))
    nlp.make_doc("The garden had a zorblax and a horse, a tree, a river.")
    doc = nlp("A fever and a quiverneth.")
    seen = {word for word in [*WORDS, *RAW] if word.encode() in pickle.dumps(doc)}
    # "arm" is in "warm".
    assert all(each.encode() in fresh or each in doc.text for each in seen)


def test_a_pipeline_that_has_read_keeps_what_it_was_loaded_with(folder, tmp_path):
    plain = spacy.blank("en")
    plain.vocab.strings.add("garden")  # as the labels and vectors of a trained pipeline
    plain.to_disk(tmp_path / "plain")
    saved = []
    for texts in ([], ["The garden had a zorblax."]):
        nlp = spacy.load(tmp_path / "plain")
        list(nlp.pipe(texts))
        nlp.add_pipe("textpriv", config=settings(folder))
        saved.append(sorted(nlp.vocab.strings))
    assert saved[0] == saved[1]
    assert "garden" in saved[0]
    assert "zorblax" not in saved[0]


def test_labels_declared_after_the_guard_are_saved(folder, tmp_path):
    nlp = spacy.blank("en")
    nlp.add_pipe("tagger").add_label("BEFORE")
    nlp.add_pipe("textpriv", config=settings(folder), first=True)
    nlp.get_pipe("tagger").add_label("AFTER")
    nlp.vocab.set_vector("garden", np.ones(3, dtype=np.float32))
    nlp.vocab.to_disk(tmp_path / "vocab")
    strings = Vocab().from_disk(tmp_path / "vocab").strings
    assert all(each in strings for each in ("BEFORE", "AFTER", "garden"))


def test_components_made_before_the_guard_go_on_working(folder):
    nlp = spacy.blank("en")
    ruler = nlp.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "FIRST", "pattern": "zorblax"}])
    nlp.tokenizer.add_special_case("quiverneth", [{"ORTH": "quiver"}, {"ORTH": "neth"}])
    nlp.add_pipe("textpriv", config=settings(folder, carry=["ents"]))
    ruler.add_patterns([{"label": "SECOND", "pattern": "mumblefrotz"}])
    doc = nlp("a zorblax and a mumblefrotz")
    assert [(entity.start, entity.label_) for entity in doc.ents] == [(1, "FIRST"), (4, "SECOND")]
    assert [token.text for token in nlp.make_doc("quiverneth")] == ["quiver", "neth"]


def test_a_used_pipeline_can_load_another_one(folder, tmp_path):
    nlp = component_form(folder)
    nlp.to_disk(tmp_path / "saved")
    nlp(SAVED_TEXT)
    nlp.from_disk(tmp_path / "saved")
    assert nlp.make_doc(SAVED_TEXT).text == SAVED_TEXT
    assert len(nlp(SAVED_TEXT)) > 0


# No raw words


def raw_words_in(nlp, path):
    nlp.to_disk(path)
    places = {
        "disk": all_bytes(path),
        "bytes": nlp.to_bytes(),
        "strings": "\0".join(lexeme.orth_ for lexeme in nlp.vocab).encode(),
        "pickle": pickle.dumps(nlp),
    }
    return {
        place
        for place, data in places.items()
        if any(word.encode() in data.lower() for word in RAW)
    }


def test_strict_pipeline_keeps_no_raw_word_anywhere(folder, tmp_path):
    nlp = strict_form(folder)
    assert isinstance(nlp.tokenizer, PrivateTokenizer)
    for doc in nlp.pipe(TEXTS * 3):
        assert not any(word in doc.text for word in RAW)
    nlp.tokenizer(TEXTS[0])
    assert raw_words_in(nlp, tmp_path / "saved") == set()


def test_a_component_leaves_raw_words_in_memory_alone(folder, tmp_path):
    nlp = component_form(folder)
    for doc in nlp.pipe(TEXTS):
        assert not any(word in doc.text for word in RAW)
    assert raw_words_in(nlp, tmp_path / "saved") == {"strings"}


# Patterns


@both_forms
@pytest.mark.parametrize("ruler", ["entity_ruler", "span_ruler"])
def test_phrases_of_rulers_are_public(form, folder, tmp_path, ruler):
    nlp = form(folder, mechanism=KEEPING)
    nlp.add_pipe(ruler).add_patterns([{"label": "COMPLAINT", "pattern": "Chest pain"}])
    nlp.to_disk(tmp_path / "saved")
    for each in (nlp, spacy.load(tmp_path / "saved")):
        doc = each("The patient has chest pain.")
        (found,) = doc.ents if ruler == "entity_ruler" else doc.spans["ruler"]
        assert (found.text, found.label_) == ("chest pain", "COMPLAINT")
        assert each("A zorblax.").text != "a zorblax."


@both_forms
def test_a_pattern_has_the_tokens_of_a_private_document(form, folder):
    nlp = form(
        folder,
        mechanism=KEEPING,
        policy={"unknown": "keep", "stopword": "keep"},
    )
    text = "The patient (zorblax-2)  didn't have\nchest pain."
    pattern, doc = part(nlp).make_pattern(text), nlp(text)
    assert [token.text for token in pattern] == [token.text for token in doc]
    matcher = PhraseMatcher(nlp.vocab)
    matcher.add("A", [part(nlp).make_pattern("Chest pain.")])
    assert [span.text for span in matcher(doc, as_spans=True)] == ["chest pain."]


# Training on raw documents

CATEGORIES = ("good", "bad")
TRAINING = """
[paths]
train = null
dev = null
vectors = null
init_tok2vec = null

[nlp]
lang = "en"
pipeline = ["textcat"]

[nlp.tokenizer]
@tokenizers = "textpriv.PrivateTokenizer.v1"

[nlp.tokenizer.mechanism]
@textpriv_mechanisms = "textpriv.TEM.v1"
epsilon = 1.0

[components]

[components.textcat]
factory = "textcat"

[components.textcat.model]
@architectures = "spacy.TextCatBOW.v2"
exclusive_classes = true
ngram_size = 1
no_output_layer = false

[corpora]

[corpora.train]
@readers = "textpriv.PrivateCorpus.v1"
path = ${paths.train}

[corpora.dev]
@readers = "textpriv.PrivateCorpus.v1"
path = ${paths.dev}

[training]
max_epochs = 3
eval_frequency = 4

[training.batcher]
@batchers = "spacy.batch_by_sequence.v1"
size = 3
"""


@pytest.fixture(scope="module")
def raw_files(tmp_path_factory):
    """Raw documents as anyone writes them: tokens, words and a lemma outside the vocabulary, categories."""
    path = tmp_path_factory.mktemp("raw")
    nlp = spacy.blank("en")
    for name in ("train", "dev"):
        docs = []
        for number, text in enumerate([*TEXTS, f"A {name} was Grimbledorf and warm."]):
            doc = nlp(text)
            doc.cats = {each: float(number % 2 == place) for place, each in enumerate(CATEGORIES)}
            for token in doc:
                token.lemma_ = "lemma" + token.lower_
            docs.append(doc)
        DocBin(docs=docs).to_disk(path / f"{name}.spacy")
    return path


RAW_OF_FILES = [*RAW, "grimbledorf", "lemma"]


def trained(folder, raw_files, output, **changes):
    """What ``spacy train`` does, in this process."""
    from spacy.cli.init_config import fill_config
    from spacy.cli.train import train

    config = Config().from_str(TRAINING, interpolate=False)
    config["nlp"]["tokenizer"].update({"index": str(folder), **changes.pop("tokenizer", {})})
    config["corpora"].update(changes)
    file = output.parent / f"{output.name}.cfg"
    config.to_disk(file)
    fill_config(file, file)
    paths = {f"paths.{name}": str(raw_files / f"{name}.spacy") for name in ("train", "dev")}
    train(file, output, overrides=paths)
    return output


@pytest.fixture
def texts_drawn(monkeypatch):
    """Every private document that leaves the tokenizer, by the text it was made of."""
    drawn = {}
    release = textpriv.pipeline.PrivateTokenizer._release

    def recorded(self, batch, once=False):
        docs = list(release(self, batch, once))
        for reading, doc in zip(batch, docs, strict=True):
            drawn.setdefault(reading.text, []).append(doc.text)
        return iter(docs)

    monkeypatch.setattr(textpriv.pipeline.PrivateTokenizer, "_release", recorded)
    return drawn


def test_training_saves_no_raw_word_and_draws_each_text_once(
    folder, raw_files, tmp_path, texts_drawn
):
    output = trained(folder, raw_files, tmp_path / "out")
    saved = all_bytes(output).lower()
    assert not any(word.encode() in saved for word in RAW_OF_FILES)
    raw = {doc.text for doc in raw_docs(raw_files) if len(doc)}
    assert raw < set(texts_drawn)
    for text in raw:
        assert len(texts_drawn[text]) > 1  # by the initialization, the training and the evaluations
        assert len(set(texts_drawn[text])) == 1
    nlp = spacy.load(output / "model-last")
    assert set(nlp("The patient was cold.").cats) == set(CATEGORIES)


def raw_docs(raw_files):
    for name in ("train", "dev"):
        yield from DocBin().from_disk(raw_files / f"{name}.spacy").get_docs(Vocab())


def test_training_with_a_raw_reader_is_refused_before_saving(folder, raw_files, tmp_path):
    reader = {"@readers": "spacy.Corpus.v1", "path": "${paths.train}", "gold_preproc": False}
    with pytest.raises(RawTextError, match=r"textpriv\.PrivateCorpus\.v1"):
        trained(folder, raw_files, tmp_path / "out", train=reader, dev=reader)
    written = all_bytes(tmp_path).lower()
    assert not any(word.encode() in written for word in RAW)


def test_training_behind_the_component_is_refused(folder):
    nlp = component_form(folder)
    nlp.add_pipe("textcat_multilabel").add_label("good")
    raw = Example.from_dict(nlp.make_doc("a zorblax"), {"cats": {"good": 1.0}})
    nlp.initialize()
    with pytest.raises(RawTextError, match=r"PrivateTokenizer\.v1"):
        nlp.update([raw])


def test_a_corpus_has_private_words_and_the_categories_alone(folder, raw_files):
    nlp = strict_form(folder)
    examples = list(PrivateCorpus(raw_files)(nlp))
    raw = [doc for doc in raw_docs(raw_files) if len(doc)]
    assert sorted(len(example.reference) for example in examples) == sorted(
        len(spacy.blank("en")(doc.text.lower())) for doc in raw
    )
    for example in examples:
        assert set(example.reference.cats) == set(CATEGORIES)
        assert not example.predicted.cats
        assert not example.reference.has_annotation("LEMMA")
        for doc in (example.predicted, example.reference):
            assert doc.vocab is nlp.vocab
            assert all(token.text in WORDS or token.is_punct for token in doc)
            assert doc._.textpriv["statement"]["proved"]
    assert not any(word in string.lower() for string in nlp.vocab.strings for word in RAW_OF_FILES)


def test_a_corpus_is_drawn_once_in_one_pipeline_and_anew_in_another(folder, raw_files):
    nlp, other = strict_form(folder), strict_form(folder)
    first, again, elsewhere = (
        texts_of(example.reference for example in PrivateCorpus(raw_files)(each))
        for each in (nlp, nlp, other)
    )
    assert first == again != elsewhere


def test_the_reader_carries_entities_and_the_statement_names_them(folder, tmp_path):
    raw = labelled(spacy.blank("en"))
    DocBin(docs=[raw]).to_disk(tmp_path / "raw.spacy")
    nlp = strict_form(folder)
    with pytest.warns(LostAnnotationWarning, match="without ents"):
        (plain,) = PrivateCorpus(tmp_path / "raw.spacy")(nlp)
    (example,) = PrivateCorpus(tmp_path / "raw.spacy", carry=["cats", "ents"])(nlp)
    found = [(entity.start, entity.end, entity.label_) for entity in example.reference.ents]
    assert found == [(2, 3, "PERSON"), (6, 7, "PERSON")]
    assert [list(each.reference.cats) for each in (plain, example)] == [["complaint"]] * 2
    assert not plain.reference.ents
    assert example.get_aligned_ner()[2] == "U-PERSON"
    for each, named in ((plain, 1), (example, 2)):
        for doc in (each.predicted, each.reference):
            exposed = doc._.textpriv["statement"]["not_protected"]
            assert sum("carried over as they were" in line for line in exposed) == named
    assert "carried over" not in str(nlp("A dog.")._.textpriv["statement"])


@pytest.mark.parametrize("content", [None, b"", b"no DocBin", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_a_file_that_is_no_corpus_is_told(folder, tmp_path, content):
    file = tmp_path / "train.spacy"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CorpusError, match=r"train\.spacy"):
        list(PrivateCorpus(file)(strict_form(folder)))


def test_a_corpus_needs_the_strict_tokenizer_and_a_path(folder, raw_files):
    with pytest.raises(MechanismError, match=r"textpriv\.PrivateTokenizer\.v1"):
        next(PrivateCorpus(raw_files)(component_form(folder)))
    with pytest.raises(CorpusError, match=r"paths\.train"):
        spacy.registry.readers.get("textpriv.PrivateCorpus.v1")(None)


# A raw Doc in a strict pipeline


def raw_given(nlp):
    yield Doc(nlp.vocab, words=["The", "patient", "zorblax"])
    yield spacy.blank("en")("The patient zorblax")
    yield spacy.blank("en")("The patient zorblax").to_bytes()


@pytest.mark.parametrize("loaded", [False, True])
def test_a_raw_doc_is_refused_by_a_strict_pipeline(folder, loaded):
    nlp = strict_form(folder)
    if loaded:
        nlp = pickle.loads(pickle.dumps(nlp))
    for raw, use in itertools.product(
        raw_given(nlp),
        (
            nlp,
            lambda raw: list(nlp.pipe([raw])),
            lambda raw: list(nlp.pipe([(raw, 1)], as_tuples=True)),
        ),
    ):
        with pytest.raises(RawTextError, match="not known to be private") as raised:
            use(raw)
        assert "zorblax" not in str(raised.value)


def test_a_private_doc_passes_a_strict_pipeline(folder):
    nlp = strict_form(folder)
    nlp.add_pipe("sentencizer")
    doc = nlp.make_doc(TEXTS[0])
    for private in (doc, doc.copy(), Doc(nlp.vocab).from_bytes(doc.to_bytes()), doc.to_bytes()):
        assert nlp(private).text == doc.text
    assert len(nlp(Doc(nlp.vocab, words=[]))) == 0


# A run key


@pytest.fixture
def key_file(tmp_path):
    key = RunKey.open(tmp_path / "run.key")
    key.keep()
    return key


@both_forms
def test_under_a_run_key_a_text_is_drawn_once_in_all_pipelines(form, folder, key_file):
    text = " ".join(WORDS)
    first, second = (form(folder, run_key=str(key_file.path)) for _ in range(2))
    drawn = {*texts_of(first.pipe([text, text])), second(text).text, second(text.upper()).text}
    assert len(drawn) == 1
    assert first(text + " cat").text.split()[:-1] != drawn.pop().split()


@both_forms
def test_the_statement_names_repeated_draws_of_equal_texts(form, folder, key_file, raw_files):
    def named(doc):
        return any(
            "which texts are equal" in each for each in doc._.textpriv["statement"]["not_protected"]
        )

    def counted_anew(doc):
        return any("drawn again" in each for each in doc._.textpriv["statement"]["notes"])

    plain = form(folder)
    doc = plain(TEXTS[0])
    assert (named(doc), counted_anew(doc)) == (False, True)
    for changes in ({"run_key": str(key_file.path)}, {"seed": 1}):
        doc = form(folder, **changes)(TEXTS[0])
        assert (named(doc), counted_anew(doc)) == (True, False)
    if form is strict_form:
        doc = next(PrivateCorpus(raw_files)(plain)).reference
        assert (named(doc), counted_anew(doc)) == (True, False)
        assert not named(plain(TEXTS[0]))


@both_forms
def test_the_bytes_of_a_run_key_are_never_saved(form, folder, key_file, tmp_path):
    nlp = form(folder, run_key=str(key_file.path))
    nlp.make_doc("the") if form is component_form else nlp("the")
    nlp.to_disk(tmp_path / "saved")
    for saved in (all_bytes(tmp_path / "saved"), nlp.to_bytes(), pickle.dumps(nlp)):
        assert key_file.secret not in saved
    text = " ".join(WORDS)
    assert spacy.load(tmp_path / "saved")(text).text == nlp(text).text


@both_forms
def test_a_missing_run_key_is_reported_and_can_be_left_out(form, folder, key_file, tmp_path):
    with pytest.raises(MechanismError, match=r"nowhere\.key.*run_key"):
        form(folder, run_key=str(tmp_path / "nowhere.key"))
    with pytest.raises(MechanismError, match="not both"):
        form(folder, run_key=str(key_file.path), seed=1)
    form(folder, run_key=str(key_file.path)).to_disk(tmp_path / "saved")
    key_file.path.unlink()
    with pytest.raises(MechanismError, match=r"run\.key"):
        spacy.load(tmp_path / "saved")
    block = "components.textpriv" if form is component_form else "nlp.tokenizer"
    nlp = spacy.load(tmp_path / "saved", config={f"{block}.run_key": None})
    assert len(nlp("The patient.")) == 3


# In a new process


def fresh_process(code, *arguments, cwd):
    root = Path(textpriv.__file__).parents[1]
    paths = [str(root), *(p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p)]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def entry_points_are_installed():
    points = importlib.metadata.entry_points(group="spacy_tokenizers")
    return any(point.name == "textpriv.PrivateTokenizer.v1" for point in points)


needs_entry_points = pytest.mark.skipif(
    not entry_points_are_installed(), reason="the package is not installed, only importable"
)

LOAD = """
import json, sys, warnings
import spacy
warnings.simplefilter("ignore")
texts = json.loads(sys.argv[1])
assert not any(name.startswith("textpriv") for name in sys.modules)
print(json.dumps([[doc.text for doc in spacy.load(path).pipe(texts)] for path in sys.argv[2:]]))
"""

SPAWN = """
import json, multiprocessing, sys, warnings
import spacy
if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    nlp = spacy.load(sys.argv[2])
    docs = nlp.pipe(json.loads(sys.argv[1]), n_process=2, batch_size=2)
    print(json.dumps([doc.text for doc in docs]))
"""


@needs_entry_points
def test_a_new_process_loads_both_forms_by_their_entry_points(folder, tmp_path):
    expected = []
    for form in (component_form, strict_form):
        nlp = form(folder, seed=7)
        nlp.to_disk(tmp_path / form.__name__)
        expected.append(texts_of(nlp.pipe(TEXTS)))
    paths = [tmp_path / form.__name__ for form in (component_form, strict_form)]
    assert fresh_process(LOAD, json.dumps(TEXTS), *paths, cwd=tmp_path) == expected


@needs_entry_points
def test_spawned_workers_give_the_same_output(folder, tmp_path):
    nlp = strict_form(folder, seed=7)
    nlp.to_disk(tmp_path / "saved")
    got = fresh_process(SPAWN, json.dumps(TEXTS), tmp_path / "saved", cwd=tmp_path)
    assert got == texts_of(nlp.pipe(TEXTS))


def test_spacy_evaluate_reads_raw_documents_by_the_tokenizer(folder, tmp_path):
    from spacy.cli.evaluate import evaluate

    nlp = strict_form(folder)
    nlp.add_pipe("textcat")
    raw = spacy.blank("en")("the zorblax was cold")
    raw.cats = {"a": 1.0, "b": 0.0}
    DocBin(docs=[raw]).to_disk(tmp_path / "dev.spacy")
    nlp.initialize(lambda: list(PrivateCorpus(tmp_path / "dev.spacy")(nlp)))
    nlp.to_disk(tmp_path / "model")
    assert "cats_score" in evaluate(str(tmp_path / "model"), tmp_path / "dev.spacy")
