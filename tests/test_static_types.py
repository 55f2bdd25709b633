"""What a type checker sees of both packages from outside, under ``mypy --strict``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pairwise
import textpriv

pytest.importorskip("mypy")

ROOT = Path(textpriv.__file__).resolve().parents[1]
# Libraries that a user's own type checker reads or not; skipping them makes one run take seconds.
CONFIGURATION = """
[mypy]
strict = true
follow_imports = silent
ignore_missing_imports = true
[mypy-spacy.*,networkx.*,numba.*,scipy.*,sklearn.*,pyspark.*,ray.*,datasets.*,pyarrow.*,IPython.*]
follow_imports = skip
[mypy-matplotlib.*,PIL.*,cryptography.*,rich.*,typer.*,phonenumbers.*,markdown_it.*,pandas.*]
follow_imports = skip
"""
SCRIPT = """
import numpy as np
import pairwise
import textpriv
from pairwise import DPPMetricLearner, PrivateAUCClassifier, PrivateMetricLearner
from textpriv import TEM, Index, Privatizer, TokenPolicy, Vocabulary, certify

X, y = np.zeros((8, 2)), np.zeros(8)
budget = pairwise.PrivacyBudget(epsilon=4.0, delta=1e-5)
clf: PrivateAUCClassifier = PrivateAUCClassifier(epsilon=1.0, delta=1e-5, budget=budget).fit(X, y)
scores: float = float(clf.decision_function(X)[0]) + clf.sensitivity()
statement: pairwise.DataSetStatement = clf.statement_
metric = PrivateMetricLearner(epsilon=1.0, n_components=2).fit(X, y)
matrix = metric.get_mahalanobis_matrix() @ metric.transform(X).T
dpp = DPPMetricLearner(epsilon=4.0, delta=1e-5, kappa=3).fit(X, y)

vocabulary = Vocabulary(["a", "b"], X[:2])
index: Index = Index.build(vocabulary, "euclidean", k=1)
mechanism = TEM(index, epsilon=6.0)
proved: bool = certify(mechanism).holds
texts: list[str] = list(Privatizer(mechanism, policy=TokenPolicy()).pipe(["One text."]))
"""


@pytest.fixture(scope="module")
def mypy_report(tmp_path_factory):
    """Lines that one strict run prints about a user's script that reveals every public name at its end."""
    folder = tmp_path_factory.mktemp("user")
    names = [f"{package.__name__}.{n}" for package in (pairwise, textpriv) for n in package.__all__]
    reveals = "\n".join(f"reveal_type({name})" for name in names)
    wrong = 'PrivateAUCClassifier(epsilon="one")'
    (folder / "user.py").write_text(f"{SCRIPT}\n{reveals}\n{wrong}\n", encoding="utf-8")
    (folder / "mypy.ini").write_text(CONFIGURATION, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "user.py"],
        cwd=folder,
        env={"MYPYPATH": str(ROOT), "PATH": "", "MYPY_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    return names, done.stdout.splitlines()


def test_every_public_name_has_a_type_of_its_own(mypy_report):
    names, lines = mypy_report
    revealed = [line for line in lines if "Revealed type is" in line]
    assert len(revealed) == len(names)
    vague = [name for name, line in zip(names, revealed, strict=True) if re.search(r'"Any"', line)]
    assert vague == []


def test_a_users_script_checks_under_strict_and_a_wrong_setting_does_not(mypy_report):
    _, lines = mypy_report
    errors = [line for line in lines if " error: " in line]
    assert len(errors) == 1, errors
    assert 'incompatible type "str"; expected "float"' in errors[0]
