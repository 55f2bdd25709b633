"""``textpriv choose``, ``explain``, ``certify`` and ``report``: answer a question about mechanisms, and release nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from textpriv.cli.messages import print_json, print_table, say, waiting, warn
from textpriv.cli.options import (
    CONTEXT,
    FORCE,
    JSON,
    RECOVERY,
    RECOVERY_ON,
    MechanismOptions,
    ReleaseOptions,
    flag,
    in_domain,
    option,
    public_texts,
    refuse_lost,
)
from textpriv.errors import OutOfReachError, TextprivError

if TYPE_CHECKING:
    from textpriv.guarantees.epsilon import MechanismRanking
    from textpriv.index.index import Index
    from textpriv.mechanisms.base import Mechanism


def choose(
    *,
    index: list[str] | None = option(
        metavar="DIR",
        help="Folder made by 'textpriv index'; repeat to compare several of the same words. Default: built-in English.",
    ),
    mechanism: list[str] | None = option(
        metavar="NAME", help="Compare this mechanism too. Repeat for several."
    ),
    recovery: float | None = RECOVERY,
    recovery_on: str | None = RECOVERY_ON,
    context: str | None = CONTEXT,
    as_json: bool = JSON,
) -> None:
    """Choose how to protect texts, by the share of content words that an attacker may recover.

    It compares priors of the default mechanism at that recovery rate (default: 0.1), and mechanisms that you name. The last
    line is the command to run.

    **Example:** textpriv choose --recovery 0.1
    """
    from textpriv.guarantees.epsilon import choose as compare
    from textpriv.index.builtin import ENGLISH, open_index

    with waiting("comparing mechanisms"):
        found = compare(
            {name: in_domain(open_index(name), recovery_on) for name in index or [ENGLISH]},
            recovery=0.1 if recovery is None else recovery,
            context=public_texts(context),
            mechanisms=mechanism or (),
        )
    if as_json:
        print_json(found.to_dict())
    else:
        _print_comparison(found, context is not None)
    reached = {each.mechanism for each in found.candidates}
    if missed := [name for name in mechanism or () if name not in reached]:
        raise OutOfReachError(
            f"{', '.join(missed)} cannot be set to this recovery, as said above. Choose another one."
        )


def _print_comparison(found: MechanismRanking, in_context: bool) -> None:
    """Print mechanisms at the same recovery rate, the default first."""
    header = "mechanism", "index", "prior", "epsilon", "recovered", "whole texts"
    rows = [(*header, "stay", "distance")]
    for each in found.candidates:
        made = each.mechanism, each.index, each.prior, f"{each.epsilon:g}"
        whole = "unknown" if each.reader is None else f"{each.reader:.1%}"
        rates = f"{each.recovered:.1%}", whole, f"{each.kept:.1%}"
        rows.append((*made, *rates, f"{each.distance:.2f}"))
    print_table(rows)
    attackers = "an attacker who guesses word by word recovers: exact for mechanisms that draw each word by itself."
    tried = "on text drawn from the language model (--context: on yours)"
    if in_context:
        attackers = "the better of two attackers recovers: one who guesses word by word, and a reader of whole texts."
        tried = "on one draw of your public text"
    print(
        f"\nrecovered: share of content words that {attackers}\n"
        f"whole texts: share that a reader of whole texts recovers, estimated {tried}. A better reader may recover more.\n"
        "distance: mean distance to the output; 1 is that of two unrelated words."
    )
    if any(each.mechanism == "contextual" for each in found.candidates):
        print(
            "contextual: recovery is an estimate. The other figures are for the start of a document."
        )
    for reason in found.left_out:
        say(reason)
    print(f"\nRecommended:\n{found.best.command}")


def explain(
    words: list[str] | None = typer.Argument(None, metavar="WORD [WORD]", help="One or two words."),
    *,
    documents: tuple[Path, Path] | None = option(
        metavar="A B", help="Instead of words: two text files with the same number of tokens."
    ),
    amount: MechanismOptions,
    as_json: bool = JSON,
) -> None:
    """Show what a word becomes, or how well two words or two documents can be distinguished.

    **Example:** textpriv explain movie --recovery 0.1
    """
    words = words or []
    if len(words) not in ((1, 2) if documents is None else (0,)):
        raise typer.BadParameter("give one word, two words, or --documents A B", param_hint="WORD")
    mechanism = amount.build()
    if documents is not None:
        from textpriv.guarantees.documents import compare_texts
        from textpriv.privatizer import Privatizer

        texts = (each.read_text("utf-8") for each in documents)
        found = compare_texts(Privatizer(mechanism), *texts)
        if as_json:
            print_json({**found.to_dict(), "statement": mechanism.statement.to_dict()})
        else:
            print("\n".join(found.sentences()))
        warn("computed from these texts: as private as they are")
    elif len(words) == 2:
        _explain_pair(mechanism, words, as_json)
    else:
        _explain_word(mechanism, words[0], as_json)


def _explain_word(mechanism: Mechanism, word: str, as_json: bool) -> None:
    """Print the likeliest outputs of a word, and its groups in a hierarchy."""
    import numpy as np

    number = _id_of(mechanism.index, word)
    chances, outputs = np.exp(mechanism.log_prob(word)), mechanism.explain(word, n=10)
    stays = float(chances[number])
    groups = mechanism.index.groups_of(number, chances, mechanism.statement.loss_at)
    if as_json:
        names = ("word", "probability", "distance")
        told = {
            "word": word,
            "epsilon": mechanism.epsilon,
            "keep_probability": stays,
            "function_word": not mechanism.index.vocabulary.is_content[number],
            "outputs": [dict(zip(names, each, strict=True)) for each in outputs],
            "groups": [each._asdict() for each in groups],
            "statement": mechanism.statement.to_dict(),
        }
        print_json(told)
        return
    where = ", at the start of a document" if mechanism.reads_context else ""
    kind = "content" if mechanism.index.vocabulary.is_content[number] else "function"
    print(
        f"{word} stays with probability {stays:.4f} (epsilon {mechanism.epsilon:g}{where}). It counts as a {kind} word.\n"
    )
    rows = [(other, f"{chance:.4f}", f"{apart:.3f}") for other, chance, apart in outputs]
    rest = max(0.0, 1.0 - sum(probability for _, probability, _ in outputs))
    rows.append(("all other words", f"{rest:.4f}", ""))
    print_table([("output", "probability", "distance"), *rows])
    for depth, group in enumerate(reversed(groups)):
        from textpriv.web.report import group_in_words

        print(f"{'  ' * depth}{group_in_words(group)}")
    print(f"\n{mechanism.statement.typical_odds}")
    for each in mechanism.statement.not_protected:
        print(f"Not protected: {each}.")


def _explain_pair(mechanism: Mechanism, words: list[str], as_json: bool) -> None:
    from textpriv.statement import odds_in_words

    apart = mechanism.index.distance(*(_id_of(mechanism.index, word) for word in words))
    loss = mechanism.statement.loss_at(apart)
    if as_json:
        print_json({"words": words, "distance": apart, "epsilon": mechanism.epsilon, "loss": loss})
        return
    print(f"{words[0]} and {words[1]}: distance {apart:.4g}")
    unproved = "" if mechanism.statement.proved else " (claimed, NOT PROVED)"
    print(f"One output turns even odds between them into at most {odds_in_words(loss)}{unproved}.")


def _id_of(index: Index, word: str) -> int:
    """Return the id of a typed word. An error does not quote it: messages are kept in logs."""
    vocabulary = index.vocabulary
    if word in vocabulary:
        return vocabulary.id(word)
    raise TextprivError(
        f"The vocabulary of {len(vocabulary):,} words lacks this word. Check its spelling; most words are in lower case. "
        "All words outside the vocabulary share one output distribution."
    )


def certify(
    *,
    amount: MechanismOptions,
    audit: bool = flag("--audit", "Attack it with many draws."),
    as_json: bool = JSON,
) -> None:
    """Compute what a mechanism really guarantees on these vectors, and whether its claim holds.

    Exit codes: 0 the claim holds, 1 it does not, 2 wrong usage or not computed. With --audit, a pass is no proof. A failure
    names the claim that it refutes, or says that nothing proved is claimed.

    **Example:** textpriv certify --recovery 0.1
    """
    if audit:
        from textpriv.guarantees.audit import audit as attack

        with waiting("attacking"):
            done = attack(amount.mechanism_name, **amount.mechanism_options())
        if all(check.name == "made" for check in done.checks):
            raise TextprivError(done.checks[0].detail)  # a wrong setting is no refutation
        holds, content = done.passed, done.to_dict()
    else:
        from textpriv.guarantees.certificate import certify as compute

        found = compute(amount.build(), progress=sys.stderr.isatty())
        holds, content = found.holds, found.to_dict()
    if as_json:
        print_json(content)
    elif audit:
        print("\n- ".join([f"{done}\nWhat this could not have seen:", *done.unseen]))
    else:
        print(found.verdict)
        print_table([*found.rows(), *(("also", each) for each in found.observed)])
        for note in found.notes:
            print(f"{note}.")
    if not holds:
        raise typer.Exit(1)


def report(
    *,
    release: ReleaseOptions,
    output: Path = option("--output", "-o", default=..., help="HTML file to write."),
    context: str | None = CONTEXT,
    force: bool = FORCE,
) -> None:
    """Write a web page that shows what your settings protect, and what they do to words and names.

    Nothing on the page is computed from private texts.

    **Example:** textpriv report --recovery 0.1 --output report.html
    """
    from textpriv.corpus import files_of
    from textpriv.evaluation.best_attacker import PublicText
    from textpriv.guarantees.certificate import certify as compute
    from textpriv.web.report import report_page, write_page

    settings = release.privatizer_settings()
    refuse_lost(output, "--output", [context, *release.read, *files_of(settings)])
    if output.exists() and not force:
        raise TextprivError(f"{output} exists. Name another file, or replace it with --force.")
    privatizer = settings.build(release.opened)
    mechanism, texts = privatizer.mechanism, public_texts(context)
    certificate = compute(mechanism, progress=sys.stderr.isatty())
    with waiting("looking at words"):
        text = None if texts is None else PublicText.read(texts, mechanism.index)
        page = report_page(
            privatizer, certificate=certificate, public_text=text, chosen=release.chosen
        )
    write_page(page, output)
    print(f"{output}: {len(page.encode()) / 1e6:.2f} MB")
