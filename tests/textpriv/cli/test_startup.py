"""How commands begin and end: what is left out can still be had, and an end without taking everything down loses nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest

from textpriv.cli import app as cli

BEGUN = "from textpriv.startup import load_numba_alone, load_spacy_alone, leave\n"


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    # Its output ends when nobody holds it any more, so a process that is left behind shows as a time that runs out.
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def holds(*lines: str) -> None:
    """Fail unless these lines of a program run to their end."""
    done = python("\n".join((BEGUN, *lines)))
    assert done.returncode == 0, done.stderr


# Loading


def test_spacy_alone_cuts_texts_without_its_commands_and_torch():
    holds(
        "load_spacy_alone()",
        "import sys, spacy",
        "assert [token.text for token in spacy.blank('en')('well, yes')] == ['well', ',', 'yes']",
        "assert not {'torch', 'spacy.cli', 'spacy.cli.info'} & set(sys.modules)",
    )


def test_what_spacy_alone_leaves_out_can_still_be_had():
    holds(
        "load_spacy_alone()",
        "import spacy",
        "told = spacy.info(silent=True)",
        "import spacy.cli",
        "assert told == spacy.cli.info(silent=True) and told['spacy_version'] == spacy.__version__",
        "assert callable(spacy.cli.download)",
    )


def test_spacy_that_is_there_stays_as_it_is():
    holds(
        "import spacy",
        "load_spacy_alone()",
        "assert spacy.info.__module__ == 'spacy.cli.info'",
    )


def test_numba_alone_calls_compiled_functions_without_linear_algebra_of_scipy():
    holds(
        "load_numba_alone()",
        "import sys, numpy, textpriv.metrics",
        "points = numpy.eye(2)",
        "assert textpriv.metrics.row_distance(0, points, 0, points, 1) == 2**0.5",
        "assert 'scipy.linalg' not in sys.modules",
    )


def test_what_numba_alone_leaves_out_can_still_be_had():
    holds(
        "load_numba_alone()",
        "import numpy, numba",
        "product = numba.njit(lambda a, b: a @ b)",
        "solved = numba.njit(lambda a, b: numpy.linalg.solve(a, b))",
        "folded = numba.njit(lambda a, b: numpy.convolve(a, b))",
        "a, b = numpy.array([[2.0, 1.0], [0.0, 4.0]]), numpy.array([3.0, 8.0])",
        "assert product(a, b).tolist() == [14.0, 32.0]",
        "assert solved(a, b).tolist() == [0.5, 2.0]",
        "assert folded(b, b).tolist() == [9.0, 48.0, 64.0]",
        "import scipy.linalg; assert scipy.linalg.det(a) == 8",
    )


@pytest.mark.parametrize(
    ("arguments", "begun"),
    [
        (["privatize", "a", "b", "--workers", "2"], [2]),
        (["privatize", "--workers=3", "a", "b"], [3]),
        (["privatize", "a", "b", "--workers", "2", "--workers", "4"], [4]),
        (["privatize", "a", "b", "--workers", "2", "--engine", "local"], [2]),
        (["privatize", "a", "b", "--workers", "2", "--engine=spark"], []),
        (["privatize", "a", "b", "--workers", "1"], []),
        (["privatize", "a", "b"], []),
        (["privatize", "a", "b", "--workers", "two"], []),
        (["privatize", "a", "b", "--workers", "9" * 5000], []),
        (["privatize", "a", "b", "--workers", "-2"], []),
        (["privatize", "a", "b", "--workers"], []),
        (["privatize", "--workers", "2", "--help"], []),
        (["privatize", "--workers", "2", "-h"], []),
        (["explain", "--workers", "2"], []),
        ([], []),
    ],
)
def test_processes_that_cut_begin_before_the_command_line_is_read_where_it_asks_for_them(
    monkeypatch, arguments, begun
):
    found = []
    monkeypatch.setattr("textpriv.engines.cutters.begin_early", found.append)
    cli._begin_early(arguments)
    assert found == begun


def test_processes_that_cannot_begin_early_are_left_to_the_command(monkeypatch):
    def refused(workers):
        raise BlockingIOError("no more processes")

    monkeypatch.setattr("textpriv.engines.cutters.begin_early", refused)
    cli._begin_early(["privatize", "a", "b", "--workers", "2"])


# Ending


@pytest.mark.parametrize("code", [0, 1, 2, 130, 143])
def test_an_end_has_its_code_and_loses_nothing_that_was_printed(code):
    printed = "import sys\nprint('x' * 100_000)\nsys.stderr.write('y' * 9)\n"
    done = python(f"{BEGUN}{printed}leave({code})")
    assert done.returncode == code
    assert done.stdout == "x" * 100_000 + "\n"
    assert done.stderr == "y" * 9


def test_at_the_end_folders_are_removed_and_whoever_asked_is_told(tmp_path):
    code = (
        "import atexit, sys, tempfile\n"
        "folder = tempfile.TemporaryDirectory(dir=sys.argv[1])\n"
        "atexit.register(lambda: print('told'))\n"
    )
    done = python(f"{BEGUN}{code}leave(0)", str(tmp_path))
    assert done.stdout == "told\n"
    assert not list(tmp_path.iterdir())


def test_an_end_leaves_no_process_behind():
    code = (
        "import multiprocessing, time\n"
        "other = multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,), daemon=True)\n"
        "other.start()\n"
        "print(other.pid, flush=True)\n"
    )
    done = python(f"{BEGUN}{code}leave(0)")
    assert done.returncode == 0
    assert int(done.stdout) > 0


def test_an_end_waits_for_a_thread_that_is_to_be_waited_for():
    code = (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.3), print('done'))).start()\n"
        "leave(3)\n"
        "print('not left')"
    )
    assert python(BEGUN + code).stdout == "not left\ndone\n"


def test_output_that_cannot_be_written_is_left_to_pythons_own_end():
    code = "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('x')\nleave(0)\nsys.stderr.write('not left')"
    assert python(BEGUN + code).stderr.startswith("not left")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--help"], 0), (["explain", "nowhere", "word", "--epsilon", "6"], 1), (["nothing"], 2)],
)
def test_the_script_ends_with_the_code_of_its_command(arguments, code):
    done = python("from textpriv.cli import script; script()", *arguments)
    assert done.returncode == code
    assert (done.stdout + done.stderr).strip()
    assert "Traceback" not in done.stderr


def test_the_script_ends_with_what_is_no_code_as_python_does(monkeypatch, capsys):
    monkeypatch.setattr(cli, "main", lambda: sys.exit("why"))
    with pytest.raises(SystemExit, match="why"):
        cli.script()
