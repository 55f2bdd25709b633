"""The notebook runs from its first cell to its last as it stands, and shows what it says."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "textpriv.ipynb"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The notebook after a run, with the commands and the package of this installation."""
    place = tmp_path_factory.mktemp("notebook")
    command = place / "bin" / "textpriv"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\nfrom textpriv.cli.app import main\nmain()\n")
    command.chmod(0o755)
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        patch.setenv("PATH", str(command.parent), prepend=os.pathsep)
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        resources = {"metadata": {"path": str(place)}}
        NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    return notebook, place


def shown(notebook, containing: str) -> str:
    """All that the cell with these words in its source has put out."""
    (cell,) = (each for each in notebook.cells if containing in each.source)
    parts = []
    for output in cell.outputs:
        parts.append(output.get("text", ""))
        parts += [str(each) for each in output.get("data", {}).values()]
    return "\n".join(parts)


@pytest.mark.slow
def test_every_cell_runs_and_shows_what_it_says(run):
    notebook, place = run
    assert "." in shown(notebook, "textpriv.privatize(")
    assert "3.28" in shown(notebook, "epsilon_for(index, recovery=0.1)")
    assert "TEM (epsilon 3.4" in shown(notebook, ".statement")
    assert "<" in shown(notebook, "textpriv.render")
    assert "copied unchanged: id" in shown(notebook, "!textpriv").replace("\n", " ")
    lines = (place / "private.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["id", "1", "2"]


def test_it_is_stored_without_outputs_and_opens_in_colab():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    assert "colab" in notebook.metadata
    assert "%pip install" in notebook.cells[1].source
