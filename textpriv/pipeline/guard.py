"""The vocabulary of a private pipeline: whatever saves it writes no word of a text.

Every raw `Doc` of a vocabulary leaves its words in the string store. spaCy writes this store with a pipeline, a
vocabulary, a component or a pickled `Doc`, and always by iterating over it. So iterating lists public strings only.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import ref

import srsly
from spacy.language import Language
from spacy.matcher import Matcher, PhraseMatcher
from spacy.strings import StringStore

_OF_A_WORD = ("orth_", "lower_", "norm_", "shape_", "prefix_", "suffix_")


class PublicStrings(StringStore):
    """A string store that lists what it was given or loaded, and names that its pipeline declares, but no words of texts.

    They are found by their hash, raw and private ones alike: so none shows which came raw.
    """

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self._listed = dict.fromkeys(strings)
        self.nlp: Callable[[], Language | None] = lambda: None  # a copy has no pipeline
        super().__init__(self._listed)

    def __iter__(self) -> Iterator[str]:
        nlp = self.nlp()
        return iter(dict.fromkeys([*self._listed, *(_declared(nlp) if nlp else ())]))

    def __reduce__(self) -> tuple[Any, ...]:
        return PublicStrings, (list(self),)

    def _reset_and_load(self, strings: Iterable[str]) -> None:
        # spaCy calls it for `from_disk` and `from_bytes`. Lexemes still point to strings that are not listed.
        found = list(super().__iter__())
        self._listed.update(dict.fromkeys(strings))
        super()._reset_and_load([*self._listed, *found])


def _declared(nlp: Language) -> Iterator[str]:
    """Yield names that components and vectors bring, by which a loaded pipeline must find their hashes."""
    for _, pipe in nlp.components:
        yield from map(str, getattr(pipe, "labels", ()))
        if (kb := getattr(pipe, "kb", None)) is not None:
            yield from [*kb.get_entity_strings(), *kb.get_alias_strings()]
    for key in getattr(nlp.vocab.vectors, "keys", tuple)():
        if key in nlp.vocab.strings:
            yield nlp.vocab.strings[key]


def guard(nlp: Language) -> None:
    """Give a pipeline a vocabulary with `PublicStrings`, also to its tokenizer, components and matchers.

    Words that the old vocabulary has met are not listed, unless the pipeline was loaded with them.
    """
    old = nlp.vocab
    if isinstance(old.strings, PublicStrings):
        old.strings.nlp = ref(nlp)
        return
    met = {getattr(lexeme, name) for lexeme in old for name in _OF_A_WORD}
    file = nlp.path and nlp.path / "vocab" / "strings.json"
    loaded = srsly.read_json(file) if file and file.exists() else []
    strings = PublicStrings([*loaded, *(each for each in old.strings if each not in met)])
    strings.nlp = ref(nlp)
    shared = {id(each): each for each in (old.vectors, old.lookups)}
    new = copy.deepcopy(old, {id(old.strings): strings, **shared})
    new.vectors = old.vectors
    new.writing_system, new.cfg = old.writing_system, old.cfg
    nlp.vocab = new
    if hasattr(nlp, "tokenizer"):  # not while spaCy makes the pipeline
        nlp.tokenizer = _moved(nlp.tokenizer, old, new)
    for _, pipe in nlp.components:
        if getattr(pipe, "vocab", None) is old:
            pipe.vocab = new  # type: ignore[attr-defined]
        for name, part in list(getattr(pipe, "__dict__", {}).items()):
            if isinstance(part, Matcher | PhraseMatcher):
                setattr(pipe, name, _moved(part, old, new))


def _moved(part: Any, old: Any, new: Any) -> Any:
    try:
        part.vocab = new
    except AttributeError:  # of a compiled class
        return copy.deepcopy(part, {id(old): new})
    return part
