"""The documentation: it builds strictly, and its Python runs as it stands."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zlib
from html import unescape
from pathlib import Path

import pytest
import typer
from browser import PROGRAM, Browser

from textpriv.cli.app import app

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    if BLOCK.search(page.read_text(encoding="utf-8"))
)
# Pages that alternate between Python and commands, which run as well.
ALTERNATING = (
    "docs/guide/private-reviews.md",
    "docs/guide/private-table.md",
    "docs/guide/synthesize.md",
)
COMMANDS_TOO = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# What pages of `pairwise` and recipes call their table or their index.
PLACES = ("demo.idx", "glove.idx")


@pytest.mark.parametrize("page", ALTERNATING)
def test_a_page_of_python_and_commands_runs_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    names: dict[str, object] = {"__name__": "page"}
    blocks = COMMANDS_TOO.findall((ROOT / page).read_text(encoding="utf-8"))
    for number, (kind, block) in enumerate(blocks, 1):
        if kind == "python":
            exec(compile(block, f"{page}, block {number}", "exec"), names)
            continue
        done = subprocess.run(
            ["sh", "-e", "-c", block], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ALTERNATING])
def test_python_of_a_page_runs(page, demo_index, tmp_path, monkeypatch):
    for place in PLACES:
        (tmp_path / place).symlink_to(demo_index)
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    names: dict[str, object] = {"__name__": "page"}
    for number, block in enumerate(blocks, 1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


def test_the_fastapi_example_answers_and_repeats_no_body():
    from starlette.testclient import TestClient

    page = (ROOT / "docs/guide/serving.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(block, "serving.md", "exec"), names)
    with TestClient(names["app"]) as client:  # type: ignore[arg-type]
        assert client.post("/privatize", json={"text": "good film."}).json()["text"].endswith(".")
        refused = client.post("/privatize", json={"txt": "Quiverneth"})
    assert refused.status_code == 422
    assert "Quiverneth" not in refused.text


@pytest.mark.slow
def test_the_nightly_job_leaves_finished_partitions_and_takes_up_new_ones(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    monkeypatch.setenv("PATH", path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    page = (ROOT / "docs/guide/nightly.md").read_text(encoding="utf-8")
    begin, key, job, counted = (block for kind, block in COMMANDS_TOO.findall(page))
    subprocess.run(["sh", "-e", "-c", begin + key + "rm raw/2026-11-26.jsonl\n" + job], check=True)
    (first,) = Path("private").glob("*.jsonl")
    before = first.read_bytes(), first.stat().st_mtime_ns
    subprocess.run(["sh", "-e", "-c", begin + job], check=True)
    assert (first.read_bytes(), first.stat().st_mtime_ns) == before
    assert len(list(Path("private").glob("*.jsonl"))) == 2
    subprocess.run(["sh", "-e", "-c", counted], check=True)
    assert len(list(Path().glob("counted-*.jsonl"))) == 2
    Path("raw/2026-11-25.jsonl").write_text('{"id": "a1", "text": "The film was bad."}\n')
    done = subprocess.run(["sh", "-e", "-c", job], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "made otherwise (changed: input)" in done.stderr
    assert first.read_bytes() == before[0]


@pytest.mark.slow
def test_the_page_on_training_runs_as_it_stands_and_saves_no_raw_word(
    demo_index, tmp_path, monkeypatch
):
    (tmp_path / "demo.idx").symlink_to(demo_index)
    monkeypatch.chdir(tmp_path)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
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
    for kind in ("categories", "entities"):
        assert f"the {kind} of a document" in done.stdout
    assert {"ner", "textcat"} <= {part.name for part in (tmp_path / "model/model-last").iterdir()}
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


def test_the_readme_has_at_most_six_sections():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^## ", text, re.MULTILINE)) <= 6


def test_each_of_the_six_cases_has_one_answer():
    text = (ROOT / "docs/guide/which-protection.md").read_text(encoding="utf-8")
    _, _, cases = text.partition("## Six cases")
    answers = re.findall(r"^\| (?:[^|]+) \| \*\*([^|*]+)\*\* \|", cases, re.MULTILINE)
    assert len(answers) == 6
    assert set(answers) <= {"`privatize --detect auto`", "`synthesize`", "none"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The documentation, built; a warning is an error (with --quiet it would be none)."""
    pytest.importorskip("mkdocs", reason="the documentation tools are not installed: [docs]")
    pytest.importorskip("mkdocstrings")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--site-dir",
            folder,
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return folder


def test_the_site_builds_strictly(site):
    assert (site / "guide" / "tutorial" / "index.html").exists()


@pytest.mark.parametrize("package", ["textpriv", "pairwise"])
def test_every_public_name_has_a_page_and_a_line_in_the_table(site, package):
    stub = (ROOT / package / "__init__.pyi").read_text(encoding="utf-8")
    public = re.findall(r"^from .*import \w+ as (\w+)$", stub, re.MULTILINE)
    names = [f"{package}.{name}" for name in public]
    pages = {name: site / "reference" / name / "index.html" for name in names}
    assert [name for name in names if f'id="{name}"' not in pages[name].read_text("utf-8")] == []
    table = (site / "reference" / package / "index.html").read_text(encoding="utf-8")
    line = '<td><a href="../{}/">[^\n]*</td>\n<td>\\w'
    assert [name for name in names if len(re.findall(line.format(name), table)) != 1] == []


def test_every_name_that_a_page_imports_is_in_the_reference(site):
    shown = "".join(page.read_text("utf-8") for page in site.glob("reference/*/index.html"))
    names = {
        each.name
        for page in PAGES
        for block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
        for line in ast.walk(ast.parse(block))
        if isinstance(line, ast.ImportFrom)
        and (line.module or "").startswith(("textpriv", "pairwise"))
        for each in line.names
        if not each.name.isupper()
    }
    assert [name for name in sorted(names) if not re.search(rf'id="[\w.]+[.]{name}"', shown)] == []


def test_the_reference_shows_no_source_of_a_link(site):
    for page in site.glob("reference/*/index.html"):
        assert re.findall(r":(?:func|meth|class|attr|mod):", page.read_text("utf-8")) == [], page


def test_the_reference_shows_every_option_of_every_command(site):
    page = (site / "reference/commands/index.html").read_text(encoding="utf-8")
    for name, command in typer.main.get_command(app).commands.items():
        _, _, section = page.partition(f'<h2 id="textpriv-{name}">')
        section, _, _ = section.partition("<h2 ")
        options = {option for each in command.params for option in each.opts if "--" in option}
        missing = [option for option in options - {"--help", "--help-all"} if option not in section]
        assert missing == [], name


def test_every_formula_of_the_site_is_mathml_and_none_is_left_as_its_source(site):
    formulas = 0
    for page in site.rglob("index.html"):
        article = re.sub(r"<(pre|code|script)\b.*?</\1>", "", _article(page), flags=re.DOTALL)
        formulas += article.count("<math")
        assert "arithmatex" not in article
        text = unescape(re.sub(r"<[^>]+>", "", article))
        assert re.findall(r"\\[a-zA-Z(\[{|]|\$[^\s$][^$\n]*\$", text) == [], page
    assert formulas > 1000


def _article(page: Path) -> str:
    (article,) = re.findall(r"<article.*</article>", page.read_text(encoding="utf-8"), re.DOTALL)
    return article


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="no Chromium on this machine")
def test_every_page_of_the_site_fits_a_wide_and_a_narrow_screen_with_its_formulas(
    site, tmp_path_factory
):
    browser = Browser(tmp_path_factory.mktemp("profile"))
    small = "[...document.querySelectorAll('math')].filter((m) => m.getBoundingClientRect().height < 4).length"
    for page in sorted(site.rglob("index.html")):
        browser.open(page.as_uri())
        for width in (1280, 400):
            browser.resize(width)
            assert browser.evaluate("document.documentElement.scrollWidth") <= width, page
            assert browser.evaluate(small) == 0, page
    browser.close()


def test_every_file_that_a_contributor_is_sent_to_is_there():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.(?:py|csv))`", text)
    roots = [ROOT, ROOT / "textpriv", ROOT / "pairwise"]
    assert named
    assert [name for name in named if not any((root / name).is_file() for root in roots)] == []


def test_the_layout_names_every_folder_of_both_packages():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for package in ("textpriv", "pairwise"):
        folders = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
        assert folders <= set(re.findall(r"^\| `(\w+)/` \|", text, re.MULTILINE))
