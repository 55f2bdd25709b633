"""``textpriv demo``, ``playground`` and ``doctor``: see what it does, and whether this installation works."""

from __future__ import annotations

import sys

import typer

from textpriv import __version__
from textpriv.cli.messages import print_json, print_table, waiting
from textpriv.cli.options import INDEX, JSON, RECOVERY, option
from textpriv.errors import how_to_install, installed, needs

SAMPLES = {
    "review": "The battery of this laptop lasts only two hours, and the screen arrived with a crack. I would not buy it.",
    "ticket": "Hello, I changed my password yesterday and now I cannot open my account. Please help me before the weekend.",
    "note": "The patient was admitted with chest pain and asthma. She was given insulin and went home on Friday.",
}
RECOVERIES = (0.05, 0.1, 0.2)
_MEANING = (
    "Each run draws new words. The number and order of words and the punctuation are not hidden. The attacker knows the "
    "mechanism and how common each word is, and reads whole texts with a language model. A better model may recover more."
)
_EXTRAS = {
    "hnswlib": ("hnsw", "Madlib's default search"),
    "phonenumbers": ("spans", "--detect patterns"),
    "presidio_analyzer": ("presidio", "--detect presidio"),
    "uvicorn": ("playground", "textpriv playground"),
    "pyspark": ("spark", "--engine spark"),
    "ray": ("ray", "--engine ray"),
    "fsspec": ("stores", "object stores"),
    "sklearn": ("pairwise", "the package pairwise"),
}


def demo(index: str | None = INDEX) -> None:
    """Show private text in seconds: a review, a ticket and a note at three recovery rates.

    **Example:** textpriv demo
    """
    from textpriv.guarantees.epsilon import choose_epsilon
    from textpriv.index.builtin import ENGLISH, open_index
    from textpriv.settings import PrivatizerSettings

    with waiting("opening the index (the first time: some seconds)"):
        opened = open_index(index or ENGLISH)
        found = [choose_epsilon(opened, recovery=each) for each in RECOVERIES]
        amounts = ({"epsilon": each.epsilon} for each in found)
        made = [PrivatizerSettings(options=each, run_key=None).build(opened) for each in amounts]
    for sample in SAMPLES.values():
        print(f"original         {sample}")
        for asked, privatizer in zip(RECOVERIES, made, strict=True):
            print(f"--recovery {asked:<4}  {privatizer.privatize(sample)}")
        print()
    rows = [("content words recovered", "epsilon", "word by word", "from whole texts")]
    for asked, each in zip(RECOVERIES, found, strict=True):
        whole = "unknown" if each.reader is None else f"{each.reader:.1%}"
        rows.append((f"--recovery {asked:g}", f"{each.epsilon:.3g}", f"{each.value:.1%}", whole))
    print_table(rows)
    where = "" if index is None else f" --index {index}"
    print(
        f"\n{made[1].mechanism.statement.typical_odds}\n{_MEANING}\n\nNext:\n"
        f'  echo "{SAMPLES["note"]}" | textpriv privatize - -{where} --recovery 0.1\n'
        f"  textpriv explain pain{where} --epsilon {found[1].epsilon:.3g}"
    )


def playground(
    *,
    index: str | None = INDEX,
    recovery: float | None = RECOVERY,
    port: int = option(default=8765, help="Port to listen on; 0 takes any free port.", max=65535),
) -> None:
    """Open a local page: type a text and see its private version at once. Ctrl-C ends it.

    It starts at the epsilon of --recovery; for the built-in words that of 0.1. Only this computer can reach the page.
    Nothing typed is stored or logged.

    **Example:** textpriv playground
    """
    needs("uvicorn", "playground")
    needs("starlette", "playground")
    from textpriv.guarantees.epsilon import choose_epsilon
    from textpriv.index.builtin import ENGLISH, open_index
    from textpriv.web.server import serve

    opened, epsilon = open_index(index or ENGLISH), None
    recovery = 0.1 if recovery is None and index is None else recovery
    if recovery is not None:
        epsilon = choose_epsilon(opened, recovery=recovery).epsilon
    serve(opened, epsilon, port)


def _look_at_spacy() -> str:
    import spacy.util

    spacy.blank("en").add_pipe("textpriv", config={"epsilon": 2.0})
    pipelines = ", ".join(sorted(spacy.util.get_installed_models()))
    return f"{spacy.__version__}; trained pipelines: {pipelines or 'none (none is needed)'}"


def _look_at_index(name: str) -> str:
    from textpriv.settings import PrivatizerSettings

    privatizer = PrivatizerSettings(name, options={"epsilon": 2.0}, seed=1).build()
    privatizer.privatize("Good, bad and 7.")
    return f"{len(privatizer.mechanism.index):,} words in {name}; a text was drawn"


def doctor(index: str | None = INDEX, as_json: bool = JSON) -> None:
    """Check this installation and an index, and list the extras that are installed.

    Ends with 1 if something required does not work.

    **Example:** textpriv doctor
    """
    from textpriv.index.builtin import ENGLISH
    from textpriv.spans.detectors import finders_of_names

    required = ("spaCy", _look_at_spacy), ("index", lambda: _look_at_index(index or ENGLISH))
    rows = [("package", "ok", f"textpriv {__version__} on Python {sys.version.split()[0]}")]
    for name, look in required:
        try:
            rows.append((name, "ok", look()))
        except Exception as error:  # whatever is broken in another package is a finding
            rows.append((name, "BROKEN", f"{type(error).__name__}: {error}"))
    broken = any(result == "BROKEN" for _, result, _ in rows)
    for package, (extra, use) in _EXTRAS.items():
        found = installed(package)
        missing = "" if found else f". {how_to_install(extra)}"
        rows.append((extra, "installed" if found else "absent", f"for {use}{missing}"))
    names = ", ".join(finders_of_names())
    told = names or "none; python -m spacy download en_core_web_sm"
    rows.append(("names", "installed" if names else "absent", f"for --detect auto: {told}"))
    if as_json:
        checks = [dict(zip(("name", "status", "found"), row, strict=True)) for row in rows]
        print_json({"sound": not broken, "checks": checks})
    else:
        print_table([("check", "result", "found"), *rows])
    if broken:
        raise typer.Exit(1)
