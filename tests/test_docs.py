"""The documentation: it builds strictly, and its Python runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if BLOCK.search(page.read_text(encoding="utf-8"))
)
# What pages of `pairwise` and recipes call their table or their index.
PLACES = ("demo.idx", "glove.idx")


@pytest.mark.parametrize("page", PAGES)
def test_python_of_a_page_runs(page, demo_index, tmp_path, monkeypatch):
    for place in PLACES:
        (tmp_path / place).symlink_to(demo_index)
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_the_page_on_training_runs_as_it_stands_and_saves_no_raw_word(
    demo_index, tmp_path, monkeypatch
):
    (tmp_path / "demo.idx").symlink_to(demo_index)
    monkeypatch.chdir(tmp_path)
    # Of so many processes none needs torch, which spaCy would load.
    paths = [str(ROOT / "tests" / "without_torch"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    page = (ROOT / "docs/guide/spacy-training.md").read_text(encoding="utf-8")
    (config,) = re.findall(r"^```ini\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "train.cfg").write_text(config, encoding="utf-8")
    for block in BLOCK.findall(page):
        exec(compile(block, "spacy-training.md", "exec"), {"__name__": "page"})
    commands = "".join(re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    done = subprocess.run(
        ["sh", "-e", "-c", commands], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no raw word" in done.stdout
    assert "'complaint': " in done.stdout
    raw = ("quiverneth", "goverment")
    corpus = (tmp_path / "train.spacy").read_bytes()
    assert all(word.encode() in zlib.decompress(corpus).lower() for word in raw)
    saved = [
        file.read_bytes().lower() for file in (tmp_path / "model").rglob("*") if file.is_file()
    ]
    assert saved
    assert not any(word.encode() in content for content in saved for word in raw)


def test_every_link_of_the_readme_leads_somewhere():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", text)
    assert targets
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_the_site_builds_strictly(tmp_path):
    pytest.importorskip("mkdocs", reason="the documentation tools are not installed: [docs]")
    pytest.importorskip("mkdocstrings")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert (tmp_path / "guide" / "tutorial" / "index.html").exists()


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "docs/index.md",
        "docs/guide/threats.md",
        "docs/guide/tutorial.md",
        "pyproject.toml",
    ],
)
def test_no_page_says_that_a_word_becomes_one_of_like_meaning(page):
    # It is kept, or becomes a mostly unrelated word; what is promised is that near words are confusable.
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    promised = re.compile(r"(?<!not )(?<!not one )(words?|one) (close|similar|near) in meaning")
    assert not promised.search(text)


def test_every_file_that_a_contributor_is_sent_to_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)`", text)
    # Within a way or a folder's table, paths are those inside one of the packages.
    roots = [ROOT, ROOT / "textpriv", ROOT / "pairwise", ROOT / "textpriv" / "tokenization"]
    roots += [ROOT / "textpriv" / "mechanisms"]
    assert len(named) > 40
    assert [name for name in named if not any((root / name).is_file() for root in roots)] == []


def test_the_layout_names_every_folder_of_both_packages():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for package in ("textpriv", "pairwise"):
        folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        assert folders <= set(re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE))
