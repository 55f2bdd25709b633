"""What private text shows about people: names and identifiers that stay, authors, and who is in a release.

    python recipes/people.py stay --data-dir DATA --out people.csv
    python recipes/people.py authors --data-dir DATA --out people.csv
    python recipes/people.py members --data-dir DATA --out people.csv

``stay`` counts units of personal data that are anywhere in the private text as a whole, in any casing, even as the output
of another word. A unit counts once in a text. Court cases have marked units, prompts units that a language model marked,
and comments what is known of their authors. The detector "auto" is what ``--detect auto`` uses, and is left out where no
spaCy pipeline that finds names is installed. ``authors`` lets a classifier that has other comments of each author guess who
wrote private ones. ``members`` asks whether a comment whose text is known is in a release. A run adds its rows to the file
and prints them; no text is printed. DATA contains ``tab/spans144.jsonl.gz``, ``pupa/prompts.jsonl.gz``,
``bios/synthetic.jsonl.gz`` and ``synthpai/comments.jsonl.gz``.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import spacy
import typer
from numpy.typing import NDArray
from records import DELTA, audit
from scipy.sparse import hstack
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC
from tradeoff import lines_of

import textpriv
from textpriv.ledger import DocumentName
from textpriv.spans.detectors import Detector, best_detectors, finders_of_names, make_detector
from textpriv.spans.policy import SpanPolicy
from textpriv.spans.span import Span
from textpriv.vocabulary.builtin import ILLNESSES

app = typer.Typer(add_completion=False)

DataDir = Annotated[Path, typer.Option(help="Folder with the public sets.")]
Out = Annotated[Path, typer.Option(help="Table that rows are added to.")]
RECOVERIES, EPSILONS = (0.05, 0.1, 0.2), (1.0, 4.0)
DRAWS, AUTHORS, COPIES = 3, 100, 3  # private copies of what an attacker learns from
COMMENTS = "synthpai/comments"
_FOUND = itertools.product(("patterns", "auto"), ("chat", "tickets", "notes"))
SETTINGS = [("none", "-"), ("names", "chat"), *_FOUND]
_KINDS = {
    "PERSON": "full name",
    "LOC": "place",
    "ORG": "organisation",
    "DEM": "nationality, job, illness",
    "DATETIME": "date",
    "CODE": "code",
    "QUANTITY": "quantity",
    "MISC": "other",
}
_KNOWN = {"city_country": "place", "birth_city_country": "place", "occupation": "job", "age": "age"}
_TITLES = {"mr", "mrs", "ms", "miss", "dr", "prof", "sir"}
_NAME_WORD = re.compile(r"[^\W\d_a-z][\w'’-]+")
_RUN = re.compile(r"[A-Z][\w'’-]+(?: [A-Z][\w'’-]+)+")
_NUMBER = re.compile(r"\b\d[\d.,/:-]*\d\b")
_ILLNESS = re.compile(rf"\b(?:{'|'.join(ILLNESSES)})\b", re.IGNORECASE)
_TOKEN = re.compile(r"\w+|[^\w\s]")
_MASK = re.compile(r"\[[A-Z_ -]+\]")
Units = set[tuple[str, str]]  # kind and text of each


class Row(NamedTuple):
    """One line of the table."""

    question: str
    set: str
    kind: str
    detector: str
    policy: str
    setting: str
    units: int
    share: float
    error: float | None = None  # half a 95 % interval
    texts: int | None = None
    of_texts: float | None = None  # texts with at least one unit that stays


def written(row: Row, out: Path) -> None:
    """Add a row to the table, and print it."""
    if not out.exists():
        out.write_text(",".join(Row._fields) + "\n", encoding="utf-8")
    shown = ("" if x is None else f"{x:.4f}" if isinstance(x, float) else str(x) for x in row)
    line = ",".join(f'"{cell}"' if "," in cell else cell for cell in shown)
    with open(out, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    print(line, flush=True)


def found_in(unit: str, text: str) -> bool:
    """Whether a unit is in a text as a whole, in any casing and with any blanks."""
    parts = r"\s*".join(map(re.escape, _TOKEN.findall(unit)))
    return bool(parts) and bool(re.search(rf"(?<!\w){parts}(?!\w)", text, re.IGNORECASE))


def name_words(name: str) -> list[str]:
    """The capitalised words of a name, without titles and initials."""
    found = _NAME_WORD.findall(name)
    return [word for word in found if word.casefold() not in _TITLES]


def of_case(record: dict[str, Any]) -> tuple[str, Units]:
    """A court case, with all that is to be masked in it."""
    text, units = record["text"], set()
    for span in record["spans"]:
        unit, kind = text[span["start"] : span["end"]], span["type"]
        if span["identifier"] != "NO_MASK":
            units.add((_KINDS[kind], unit))
            if span["identifier"] == "DIRECT":
                units.add(("direct identifier", unit))
            if kind == "PERSON":
                units |= {("name word", word) for word in name_words(unit)}
    return text, units


def of_prompt(record: dict[str, Any]) -> tuple[str, Units]:
    """A prompt, with its marked units and those of their words that it writes with a capital."""
    text, marked = record["user_query"], record["pii_units"]
    marked = ast.literal_eval(marked) if isinstance(marked, str) else marked
    units = {("marked unit", unit) for unit in marked if found_in(unit, text)}
    words = {word.casefold() for _, unit in units for word in re.findall(r"[\w'’-]+", unit)}
    capital = {word for word in name_words(text) if word.casefold() in words}
    return text, units | {("capitalised word", word) for word in capital}


def of_biography(record: dict[str, Any]) -> tuple[str, Units]:
    """A biography, which begins with a full name, with its runs of capitalised words, dates and numbers."""
    text = record["text"]
    name = _RUN.match(text)
    units = {("date or number", unit) for unit in _NUMBER.findall(text)}
    units |= {("names of people, places, firms", unit) for unit in _RUN.findall(text)}
    if name is not None:
        units |= {("full name", name[0]), *(("name word", word) for word in name_words(name[0]))}
    return text, units


def of_comments(record: dict[str, Any]) -> tuple[str, Units]:
    """All comments of an author, with what is known of them and said in so many words."""
    text, units = "\n".join(record["comments"]), set()
    for attribute, kind in _KNOWN.items():
        said = record["labels"].get(attribute, {}).get("estimate", "").split(", ")
        units |= {(kind, part) for part in said if part and found_in(part, text)}
    return text, units


SETS = {
    "court cases": ("tab/spans144", of_case),
    "prompts": ("pupa/prompts", of_prompt),
    "biographies": ("bios/synthetic", of_biography),
    "comments": (COMMENTS, of_comments),
}


def marked(data_dir: Path, name: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """The texts of a set, each with kind and text of its units, each once."""
    found = []
    file, read = SETS[name]
    for record in lines_of(data_dir / f"{file}.jsonl.gz"):
        text, units = read(record)
        units |= {("illness", word) for word in _ILLNESS.findall(text)}
        found.append(
            (text, sorted({(kind, " ".join(unit.casefold().split())) for kind, unit in units}))
        )
    return found


class Remembered:
    """What some detectors find in texts, found once."""

    def __init__(self, names: Sequence[str], texts: Sequence[str]) -> None:
        made: list[Detector] = [make_detector(name) for name in names]
        spans = zip(*(map(list, each.detect(texts)) for each in made), strict=True)
        self._found = {text: [*itertools.chain(*of)] for text, of in zip(texts, spans, strict=True)}
        self._names = list(names)

    def detect(self, texts: Sequence[str]) -> list[list[Span]]:
        """Return the spans of each text."""
        return [self._found[text] for text in texts]

    def fingerprint(self) -> str:
        """The names of the detectors."""
        return f"remembered {self._names}"


def stays_in(
    privatizer: textpriv.Privatizer, of_set: list[tuple[str, list[tuple[str, str]]]]
) -> list[dict[str, NDArray[np.bool_]]]:
    """Whether each unit of each text stays, by kind, with a row for each release."""
    stays: list[dict[str, NDArray[np.bool_]]] = []
    for draw in range(DRAWS):
        names = [f"{draw} {number}" for number in range(len(of_set))]
        keys = [DocumentName(each, each) for each in names] if privatizer.spans else names
        private = privatizer.pipe([text for text, _ in of_set], keys=keys)
        for at, (text, (_, units)) in enumerate(zip(private, of_set, strict=True)):
            if not draw:
                kinds = Counter(kind for kind, _ in units)
                stays.append({kind: np.zeros((DRAWS, of), bool) for kind, of in kinds.items()})
            unmasked = _MASK.sub(" ", text)
            for kind, own in stays[at].items():
                own[draw] = [found_in(unit, unmasked) for of, unit in units if of == kind]
    return stays


def numbers_of(own: list[NDArray[np.bool_]]) -> tuple[int, float, float, int, float]:
    """Units, share that stays, half a 95 % interval over texts, texts, and share of texts where one stays."""
    count = np.array([of.shape[1] for of in own])
    kept = np.array([of.sum() / DRAWS for of in own])
    share = kept.sum() / count.sum()
    error = 1.96 * np.sqrt(np.sum((kept - share * count) ** 2)) / count.sum()
    of_texts = np.mean([of.any(axis=1).mean() for of in own])
    return int(count.sum()), float(share), float(error), len(own), float(of_texts)


@app.command()
def stay(
    data_dir: DataDir,
    out: Out = Path("people.csv"),
    only: Annotated[str, typer.Option(help="Sets, with commas.")] = ",".join(SETS),
) -> None:
    """Print the share of units that stay, by set, kind, detector and policy."""
    index = textpriv.Index.builtin("en")
    names = {"none": [], "patterns": ["patterns"], "names": ["names", "patterns"]}
    names["auto"] = best_detectors()
    settings = [each for each in SETTINGS if each[0] != "auto" or finders_of_names()]
    for name, (detector, policy) in itertools.product(only.split(","), settings):
        of_set, given = marked(data_dir, name), dict[str, Any]()
        if detector != "none":
            found = Remembered(names[detector], [text for text, _ in of_set])
            given = {"spans": SpanPolicy.preset(policy), "detector": found}
        for recovery in RECOVERIES:
            mechanism = textpriv.TEM(index, textpriv.epsilon_for(index, recovery=recovery))
            stays = stays_in(textpriv.Privatizer(mechanism, seed=0, **given), of_set)
            for kind in sorted({kind for of in stays for kind in of}):
                numbers = numbers_of([of[kind] for of in stays if kind in of])
                setting = f"recovery {recovery:g}"
                written(Row("stays", name, kind, detector, policy, setting, *numbers), out)


class Attacker:
    """A linear classifier on words, pairs of words and runs of letters, which guesses authors."""

    def __init__(self, texts: Sequence[str], authors: Sequence[int]) -> None:
        self._features = [
            TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2)),
            TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(2, 4)),
        ]
        read = hstack([each.fit_transform(texts) for each in self._features]).tocsr()
        self._model = LinearSVC().fit(read, authors)

    def right(self, texts: Sequence[str], authors: Sequence[int]) -> tuple[float, float]:
        """The share of texts, and of authors by all their texts, that are guessed right."""
        read = hstack([each.transform(texts) for each in self._features]).tocsr()
        scores, own = self._model.decision_function(read), np.array(authors)
        single = float(np.mean(self._model.classes_[scores.argmax(axis=1)] == own))
        sums = np.array([scores[own == each].sum(axis=0) for each in self._model.classes_])
        return single, float(np.mean(sums.argmax(axis=1) == np.arange(len(sums))))


def halves(data_dir: Path, most: int) -> tuple[tuple[list[str], list[int]], ...]:
    """Comments of the authors who wrote most, and their numbers: half of each author's, and the other half."""
    records = lines_of(data_dir / f"{COMMENTS}.jsonl.gz")
    records = sorted(records, key=lambda record: -len(record["comments"]))[:most]
    parts: tuple[tuple[list[str], list[int]], ...] = ([], []), ([], [])
    for number, record in enumerate(records):
        mixed = np.random.default_rng(number).permutation(len(record["comments"]))
        for at, row in enumerate(mixed):
            part = parts[at % 2]
            part[0].append(record["comments"][row])
            part[1].append(number)
    return parts


@app.command()
def authors(data_dir: DataDir, out: Out = Path("people.csv")) -> None:
    """Print how often a classifier guesses the author of a comment, and of all private comments of an author."""
    (known, by), (private, own) = halves(data_dir, AUTHORS)

    def told(kind: str, setting: str, count: int, right: tuple[float, float]) -> None:
        questions = ("author of one text", "author of all texts")
        for question, of, value in zip(questions, (count, AUTHORS), right, strict=True):
            written(Row(question, "comments", kind, "none", "-", setting, of, value), out)

    clear = Attacker(known, by)
    told("clear text", "-", len(own), clear.right(private, own))
    commonest = Counter(own).most_common(1)[0][1] / len(own)
    told("commonest author", "-", len(own), (commonest, 1 / AUTHORS))
    for recovery in RECOVERIES:
        learned = [
            text for _ in range(COPIES) for text in textpriv.privatize(known, recovery=recovery)
        ]
        attacker = Attacker([*known, *learned], by * (COPIES + 1))
        released = list(textpriv.privatize(private, recovery=recovery))
        told("word by word", f"recovery {recovery:g}", len(own), attacker.right(released, own))
    for epsilon in EPSILONS:
        bound = int(np.median(list(Counter(own).values())))
        synthesizer = textpriv.TextSynthesizer(epsilon, DELTA, list(range(AUTHORS)), bound)
        drawn = synthesizer.fit(private, own, authors=own).sample(100 * AUTHORS, random_state=0)
        right = clear.right(drawn["text"].tolist(), drawn["label"].astype(int).tolist())
        told("new records", f"epsilon {epsilon:g}", len(drawn), right)


def likeness(candidates: Sequence[list[str]], released: Sequence[list[str]]) -> list[float]:
    """The largest share of equal tokens in equal places, over released texts of the same length."""
    of_length: dict[int, list[list[str]]] = {}
    for text in released:
        of_length.setdefault(len(text), []).append(text)
    arrays = {length: np.array(of, object) for length, of in of_length.items()}
    found = []
    for text in candidates:
        same = arrays.get(len(text))
        equal = 0.0 if same is None or not text else (same == np.array(text, object)).mean(axis=1)
        found.append(float(np.max(equal)))
    return found


@app.command()
def members(data_dir: DataDir, out: Out = Path("people.csv")) -> None:
    """Print how well somebody who knows a comment distinguishes released ones from others, as AUC."""
    (inside, _), (outside, _) = halves(data_dir, 10**9)
    truth = np.repeat([1, 0], [len(inside), len(outside)])
    question = "is a known text in the release (AUC)"
    index, tokenizer = textpriv.Index.builtin("en"), spacy.blank("en").tokenizer
    known = [[token.lower_ for token in tokenizer(text)] for text in [*inside, *outside]]
    for recovery in RECOVERIES:
        mechanism = textpriv.TEM(index, textpriv.epsilon_for(index, recovery=recovery))
        privatizer = textpriv.Privatizer(mechanism)
        drawn = (privatizer.release(privatizer.read(text), [text]) for text in inside)
        value = float(roc_auc_score(truth, likeness(known, [of[0].words for of in drawn])))
        kind, setting = "word by word", f"recovery {recovery:g}"
        written(Row(question, "comments", kind, "none", "-", setting, len(truth), value), out)
    for epsilon in EPSILONS:
        parts = [(texts, ["comment"] * len(texts)) for texts in (inside, outside)]
        value = audit(*parts, epsilon)["AUC"]
        kind, setting = "new records", f"epsilon {epsilon:g}"
        written(Row(question, "comments", kind, "none", "-", setting, len(truth), value), out)


if __name__ == "__main__":
    app()
