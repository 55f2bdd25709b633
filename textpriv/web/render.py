"""Private documents as HTML for notebooks, in the manner of displaCy: each token, its class, and how it was released.

Only what is private already is shown, so a picture tells no more than the document: which words were drawn, masked or kept
is not hidden by the guarantee, but whether a drawn word is the author's own is, and no picture of a document says it. The
page that compares original and private texts is made in ``textpriv.web.report``, for whoever holds the originals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from textpriv.errors import TextprivError
from textpriv.tokenization.policy import FIRST_FIT, MASK, TOKEN_CLASSES

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

    from textpriv.privatizer import PrivateTokens

_DRAWN, _MASKED, _SPAN = "drawn", "masked", "typed span"
# Grounds that let the page's own text colour through, on light and on dark; each kind also has a line of its own, so that
# no colour has to be told from another.
_STYLES = {
    _DRAWN: "background:rgba(66,133,244,.18)",
    _SPAN: "background:rgba(15,157,88,.22);border-bottom:2px solid rgba(15,157,88,.9)",
    "same": "background:rgba(66,133,244,.18);border-bottom:2px dotted currentColor",
    _MASKED: "background:rgba(128,128,128,.45)",
    "kept": "background:rgba(230,124,0,.25);border-bottom:2px solid rgba(230,124,0,.9)",
    "unsure": "background:rgba(66,133,244,.18);border-bottom:2px dashed rgba(230,124,0,.9)",
}


class Rendering:
    """HTML that a notebook shows by itself; ``str()`` of it is the source.

    Attributes
    ----------
    html : str
        One element, without a script and without a style sheet.
    """

    __slots__ = ("html",)

    def __init__(self, html: str) -> None:
        self.html = html

    def _repr_html_(self) -> str:
        return self.html

    def __str__(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"Rendering({len(self.html):,} characters of HTML)"


def render(document: Doc | PrivateTokens | Iterable[Doc | PrivateTokens]) -> Rendering:
    """Show private documents with the class of each token and how it was released.

    Parameters
    ----------
    document : Doc, PrivateTokens, or several of them
        A Doc of the ``textpriv`` component or tokenizer, or what :meth:`Privatizer.release` returns. A Doc holds the number
        of tokens kept of each class and not their places, so where a drawn word looks like a kept token, it says so.

    Raises
    ------
    TextprivError
        For a Doc that is not private: its raw words are never shown.

    Examples
    --------
    >>> import numpy as np, textpriv
    >>> vocabulary = textpriv.Vocabulary(["good", "bad"], np.array([[0.0], [1.0]]))
    >>> privatizer = textpriv.Privatizer(textpriv.TEM(textpriv.Index.build(vocabulary, "euclidean"), epsilon=6.0))
    >>> page = textpriv.render(privatizer.release(privatizer.read("Good, bad!")))
    >>> "2 drawn" in page.html, "2 kept: punctuation" in page.html
    (True, True)
    """
    from spacy.tokens import Doc

    from textpriv.privatizer import PrivateTokens

    several = [document] if isinstance(document, Doc | PrivateTokens) else document
    parts = []
    for number, each in enumerate(several):
        if isinstance(each, Doc):
            parts.append(_of_doc(each, number))
        elif isinstance(each, PrivateTokens):
            parts.append(_of_tokens(each))
        else:
            raise TextprivError(
                f"render shows a private Doc or what Privatizer.release returns; got {type(each).__name__}."
            )
    return Rendering("".join(parts))


def token_spans(words: Sequence[str], spaces: Sequence[bool], kinds: Sequence[str]) -> str:
    """Return tokens as HTML, each on the ground of its kind.

    Parameters
    ----------
    words : sequence of str
    spaces : sequence of bool
        Whether a blank follows.
    kinds : sequence of str
        "drawn", "same" (drawn, and come out as it went in: for the holder of the original only), "masked", "kept: CLASS",
        "drawn, or CLASS kept", or "typed span: KIND", drawn by the mechanism of its kind.
    """
    spans = []
    for word, space, kind in zip(words, spaces, kinds, strict=True):
        if not word.strip():
            spans.append("<br>" * word.count("\n") or " ")
            continue
        spans.append(
            f'<span title="{escape(_TITLES.get(kind, kind))}" style="{_STYLES[_style(kind)]};border-radius:.2em;'
            f'padding:.05em .15em">{escape(word)}</span>'
        )
        if space:
            spans.append(" ")
    return "".join(spans)


_TITLES = {"same": "drawn, and come out as it went in"}


def _style(kind: str) -> str:
    if kind.startswith("kept") or kind.startswith(_SPAN):
        return kind.partition(":")[0]
    return "unsure" if kind.startswith("drawn, or") else kind


def _document(
    words: Sequence[str], spaces: Sequence[bool], kinds: Sequence[str], statement: str
) -> str:
    counts = Counter(kinds)
    legend = " ".join(
        f'<span style="{_STYLES[_style(kind)]};border-radius:.2em;padding:.05em .4em;margin-right:.6em;'
        f'white-space:nowrap">{count:,} {escape(kind)}</span>'
        for kind, count in sorted(counts.items(), key=lambda item: (item[0] != _DRAWN, item[0]))
    )
    below = (
        f'<p style="margin:.4em 0 0;font-size:.85em;opacity:.75">{escape(statement)}</p>'
        if statement
        else ""
    )
    return (
        '<div style="border:1px solid rgba(128,128,128,.4);border-radius:.5em;padding:.7em 1em;margin:.3em 0;'
        'max-width:56em;overflow-wrap:anywhere">'
        f'<p style="margin:0 0 .6em;font-size:.85em">{legend or "no tokens"}</p>'
        f'<div style="line-height:1.9">{token_spans(words, spaces, kinds)}</div>{below}</div>'
    )


def _of_tokens(tokens: PrivateTokens) -> str:
    return _document(tokens.words, tokens.spaces, kinds_of(tokens), "")


def kinds_of(tokens: PrivateTokens) -> list[str]:
    """How each private token was released: the kinds that :func:`token_spans` takes, without "same"."""
    classes = [name for name in tokens.counts if name in TOKEN_CLASSES]
    spans = tokens.spans
    kinds = []
    for place, output in enumerate(tokens.outputs.tolist()):
        if output >= 0:
            kinds.append(_DRAWN)
            continue
        word = tokens.words[place]
        if place in spans:
            kinds.append(f"{_SPAN}: {spans[place]}")
            continue
        kinds.append(_MASKED if word == MASK else f"kept: {_kept_class(word, classes)}")
    return kinds


def _kept_class(word: str, classes: list[str]) -> str:
    """The class of a kept token; blanks and punctuation are told by their characters, and of the rest only what can be."""
    from spacy.lang.lex_attrs import is_punct

    if "space" in classes and word.isspace():
        return TOKEN_CLASSES["space"].title
    if "punctuation" in classes and is_punct(word):
        return TOKEN_CLASSES["punctuation"].title
    rest = [TOKEN_CLASSES[name].title for name in classes if name not in ("space", "punctuation")]
    return " or ".join(rest)


def _of_doc(doc: Doc, place: int) -> str:
    record = doc._.textpriv if doc.has_extension("textpriv") else None
    if record is None:
        raise TextprivError(
            f"document {place} is not private, and raw words are not shown. Make it with the component or the tokenizer of "
            "textpriv."
        )
    counts, statement = record["counts"], record["statement"]
    guessed = [_class_of(token, counts) for token in doc]
    seen = Counter(guessed)
    kinds = []
    for name in guessed:
        if name == _DRAWN or name.startswith(_SPAN):
            kinds.append(name)
        elif seen[name] == counts[name]:
            kinds.append(_MASKED if name == _MASKED else f"kept: {TOKEN_CLASSES[name].title}")
        else:
            kept = TOKEN_CLASSES[name].title if name in TOKEN_CLASSES else "mask"
            kinds.append(f"drawn, or {kept} kept")
    return _document(
        [token.text for token in doc],
        [bool(token.whitespace_) for token in doc],
        kinds,
        _short(statement),
    )


def _class_of(token: Token, counts: dict[str, int]) -> str:
    """A typed span, the first class of those kept that a token may belong to, or "drawn"."""
    if f"span {token.ent_type_}" in counts:
        return f"{_SPAN}: {token.ent_type_}"
    if token.text == MASK and _MASKED in counts:
        return _MASKED
    for name in FIRST_FIT:
        if name in counts and getattr(token, TOKEN_CLASSES[name].feature):
            return name
    is_word = not (token.is_space or token.is_punct)
    return "unknown" if is_word and "unknown" in counts else _DRAWN


def _short(statement: dict[str, Any]) -> str:
    epsilon = statement.get("epsilon")
    claim = "no epsilon" if epsilon is None else f"epsilon {epsilon:g} {statement['unit']}"
    proved = "proved" if statement["proved"] else "NOT PROVED"
    return f"{statement['mechanism']}: {claim}, {proved}. Not protected: {'; '.join(statement['not_protected'])}."
