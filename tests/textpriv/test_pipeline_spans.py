"""spaCy and Presidio: entities become typed spans, and private documents carry their kinds."""

from __future__ import annotations

import pytest
import spacy
from spacy.tokens import DocBin

from textpriv import TEM
from textpriv.errors import SpanError, TextprivError
from textpriv.index import Index
from textpriv.privatizer import Privatizer
from textpriv.spans.mechanisms.surrogates import Mask, Surrogate
from textpriv.spans.plan import UnknownLabelWarning
from textpriv.spans.policy import UNDETECTED_PASS, SpanPolicy

SPANS = {
    "kinds": {
        "PERSON": {"method": "surrogate", "entries": ["Kim Roe", "Lee"], "consistent": "document"},
        "EMAIL": {"method": "mask"},
    }
}
TEXT = "Ask Ann Kay, or mail ann@example.org. Ann Kay knows the good film."


@pytest.fixture(scope="module")
def ruled(demo_index):
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Ann Kay"}])
    config = {
        "index": str(demo_index),
        "epsilon": 30.0,
        "seed": 3,
        "spans": SPANS,
        "detect": ["patterns"],
    }
    nlp.add_pipe("textpriv", config=config)
    return nlp


def test_entities_of_a_raw_document_come_out_as_private_ones_of_the_same_kinds(ruled, recwarn):
    doc = ruled(TEXT)
    found = [(ent.text, ent.label_) for ent in doc.ents]
    assert [kind for _, kind in found] == ["PERSON", "EMAIL", "PERSON"]
    assert found[0] == found[2]
    assert found[0][0] in ("Kim Roe", "Lee")
    assert "Ann" not in doc.text
    assert doc._.textpriv["counts"]["span PERSON"] == 2
    assert "span_loss_PERSON" in doc._.textpriv["statement"]["figures"]
    assert not [each for each in recwarn if each.category is not UnknownLabelWarning]
    (again,) = ruled.pipe([TEXT])
    assert again.text == doc.text


def test_an_entity_whose_label_the_policy_does_not_know_warns_once(demo_index):
    nlp = spacy.blank("en")
    patterns = [{"label": name, "pattern": name.lower()} for name in ("HOSP", "PATIENT")]
    nlp.add_pipe("entity_ruler").add_patterns(patterns)
    own = {"preset": "chat", "labels": {"PATIENT": "PERSON"}}
    config = {"index": str(demo_index), "epsilon": 30.0, "spans": own}
    nlp.add_pipe("textpriv", config=config)
    with pytest.warns(UnknownLabelWarning, match=r"detector: HOSP\.") as warned:
        docs = list(nlp.pipe(["a hosp and a patient"] * 2))
    assert len(warned) == 1
    assert [ent.text for doc in docs for ent in doc.ents] == ["[PERSON]"] * 2


def test_private_entities_go_through_a_docbin(ruled):
    doc = ruled(TEXT)
    (back,) = DocBin().from_bytes(DocBin(docs=[doc]).to_bytes()).get_docs(spacy.blank("en").vocab)
    assert back.text == doc.text
    assert [(ent.text, ent.label_) for ent in back.ents] == [
        (ent.text, ent.label_) for ent in doc.ents
    ]


def test_the_strict_tokenizer_finds_spans_by_itself(demo_index):
    from textpriv.pipeline.components import PrivateTokenizer

    nlp = spacy.blank("en")
    settings = {"index": demo_index, "epsilon": 30.0, "spans": "chat", "detect": ["patterns"]}
    nlp.tokenizer = PrivateTokenizer(nlp, **settings)
    doc = nlp(TEXT)
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("[EMAIL]", "EMAIL")]
    assert "ann@example.org" not in nlp.vocab.strings


def test_what_does_not_go_with_spans_is_refused(demo_index):
    for more, message in (
        ({"carry": ["ents"], "spans": "chat"}, "out of carry"),
        ({"spans": "notes", "detect": ["patterns"]}, "once for each person"),
        ({"detect": ["patterns"]}, "needs a policy"),
    ):
        with pytest.raises(TextprivError, match=message):
            spacy.blank("en").add_pipe(
                "textpriv", config={"index": str(demo_index), "epsilon": 3.0, **more}
            )


def test_presidios_engine_draws_by_the_mechanisms_and_the_statement_says_what_passes(demo_index):
    pytest.importorskip("presidio_anonymizer")
    from presidio_anonymizer import AnonymizerEngine, OperatorConfig, RecognizerResult

    from textpriv.pipeline.presidio import TextprivOperator

    mechanisms = {
        "PERSON": Surrogate(["Kim", "Lee", "Ida"], consistent="document"),
        "DATE": Mask("DATE"),
    }
    mechanism = TEM(Index.load(demo_index), 3.0)
    passing = Privatizer(mechanism, spans=SpanPolicy(mechanisms, undetected=UNDETECTED_PASS))
    found = [
        RecognizerResult("PERSON", 0, 3, 0.9),
        RecognizerResult("DATE_TIME", 9, 19, 0.9),
        RecognizerResult("PERSON", 27, 30, 0.9),
        RecognizerResult("US_SSN", 34, 37, 0.9),
    ]
    engine = AnonymizerEngine()
    engine.add_anonymizer(TextprivOperator)

    def anonymized(privatizer, **document):
        given = {"privatizer": privatizer, **(document or {"document": "a"})}
        operators = {"DEFAULT": OperatorConfig("textpriv", given)}
        return engine.anonymize("Ann came 2020-01-02, says. Ann is 123", found, operators).text

    first, *rest = anonymized(passing).split(" ", 1)
    assert first in ("Kim", "Lee", "Ida")
    assert rest == [f"came [DATE], says. {first} is [SPAN]"]
    assert "everything the detector misses" in passing.statement.not_protected
    names = [anonymized(passing, document=number).split(" ", 1)[0] for number in range(30)]
    assert len(set(names)) > 1  # all alike by chance with probability below 1e-13
    with pytest.raises(SpanError, match="name of the document"):
        anonymized(passing, document=None)
    with pytest.raises(SpanError, match="analyzer misses"):
        anonymized(Privatizer(mechanism, spans=SpanPolicy(mechanisms)))
