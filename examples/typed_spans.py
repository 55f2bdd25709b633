"""Names, dates and numbers by methods of their kinds, every other word by the mechanism, under one statement.

A detector finds spans (here patterns, and a spaCy pipeline with an EntityRuler; Presidio's analyzer is another one). What it
finds goes to the method of its kind. What it misses is drawn word by word, so no token leaves because a detector missed it.

python examples/typed_spans.py
"""

import spacy

import textpriv
from textpriv.spans.detectors import PatternDetector, SpacyDetector
from textpriv.spans.policy import SpanPolicy

POLICY = {
    "kinds": {
        "PERSON": {
            "method": "surrogate",
            "entries": ["Kim", "Lee", "Ida"],
            "consistent": "document",
        },
        "DATE": {"method": "date-shift", "epsilon": 1 / 365, "scope": "document"},
        "AGE": {"method": "number", "low": 0, "high": 90, "units": "age", "epsilon": 0.4},
        "PHONE": {"method": "mask"},
    }
}
NOTE = (
    "Ms Ray, a 52-year-old teacher, came on 2021-03-04 and again on 2021-03-11. "
    "Ray asks to be called at +61 2 5550 1234 about her knee; Bo will fetch her."
)


def main() -> None:
    """Privatize one note; print it, what became of each kind, and what is not protected."""
    nlp = spacy.blank("en")
    nlp.add_pipe("entity_ruler").add_patterns([{"label": "PERSON", "pattern": "Ray"}])
    index = textpriv.Index.builtin("en")
    mechanism = textpriv.TEM(index, textpriv.epsilon_for(index, recovery=0.1))
    privatizer = textpriv.Privatizer(
        mechanism,
        spans=SpanPolicy.from_dict(POLICY),
        detector=[PatternDetector(), SpacyDetector(nlp)],
    )
    print(privatizer.privatize(NOTE))
    statement = privatizer.statement
    print({name: nats for name, nats in statement.figures.items() if name.startswith("span_loss")})
    for exposed in statement.not_protected:
        print("-", exposed)


if __name__ == "__main__":
    main()
