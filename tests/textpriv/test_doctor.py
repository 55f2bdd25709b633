"""``textpriv doctor``: findings are tried, not assumed, and only what is required fails."""

from __future__ import annotations

import json
from importlib import metadata

import pytest
from typer.testing import CliRunner

from textpriv import doctor
from textpriv.cli.app import app
from textpriv.doctor import Check, examine

REQUIRED = {
    "Python",
    "packages",
    "numba",
    "spaCy",
    "randomness",
    "mechanism",
    "temporary files",
}


@pytest.fixture(scope="module")
def checks() -> dict[str, Check]:
    return {check.name: check for check in examine()}


def outcome(name):
    return doctor._outcome(next(each for each in doctor._EXAMINATIONS if each.name == name))


def run(*arguments):
    return CliRunner().invoke(app, ["doctor", *arguments])


def test_this_installation_is_sound(checks):
    assert {name for name, check in checks.items() if check.required} == REQUIRED
    assert [name for name, check in checks.items() if check.fails] == []
    assert all(checks[name].status in ("ok", "warning") for name in REQUIRED)


def test_what_does_not_work_comes_with_what_to_do(checks):
    for check in checks.values():
        assert check.status in ("ok", "absent", "warning", "broken")
        assert check.found
        assert (check.status == "ok") or check.remedy


def test_a_missing_extra_is_absent_and_names_the_command(monkeypatch):
    def nothing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", nothing)
    for name, extra in (
        ("torch", "pairwise"),
        ("hnswlib", "hnsw"),
        ("pairwise", "pairwise"),
        ("playground", "playground"),
        ("Spark", "spark"),
        ("Ray", "ray"),
    ):
        check = outcome(name)
        assert check.status == "absent"
        assert f"textpriv[{extra}]" in check.remedy
        assert not check.fails


def test_a_missing_requirement_is_broken_and_fails(monkeypatch):
    original = metadata.version

    def missing(name):
        if name == "scipy":
            raise metadata.PackageNotFoundError(name)
        return original(name)

    monkeypatch.setattr(doctor.metadata, "version", missing)
    check = outcome("packages")
    assert check.fails
    assert "scipy is missing" in check.found


def test_an_old_requirement_is_broken(monkeypatch):
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: ["numpy>=999"])
    assert outcome("packages").fails
    assert ">=999" in outcome("packages").found


def test_a_search_that_finds_the_wrong_point_is_broken(monkeypatch):
    import hnswlib

    class Wrong(hnswlib.Index):
        def knn_query(self, *arguments, **options):
            labels, distances = super().knn_query(*arguments, **options)
            return labels[::-1], distances

    monkeypatch.setattr(hnswlib, "Index", Wrong)
    assert outcome("hnswlib").status == "broken"


def test_a_mechanism_whose_law_is_wrong_is_broken(monkeypatch):
    from textpriv.mechanisms.tem import TEM

    original = TEM.log_prob
    monkeypatch.setattr(TEM, "log_prob", lambda self, word: original(self, word) + 0.01)
    assert outcome("mechanism").fails


def test_randomness_that_repeats_is_broken(monkeypatch):
    monkeypatch.setattr(doctor.os, "urandom", bytes)
    assert outcome("randomness").fails


def test_a_temporary_folder_that_cannot_be_written_is_broken(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.tempfile, "tempdir", str(tmp_path / "none"))
    check = outcome("temporary files")
    assert check.fails
    assert "TMPDIR" in check.remedy


def test_little_memory_is_a_warning(monkeypatch):
    monkeypatch.setattr(doctor, "_available", lambda: 1 << 20)
    check = outcome("memory")
    assert check.status == "warning"
    assert "--limit" in check.remedy


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ('openjdk version "17.0.9" 2023-10-17', "ok"),
        ('openjdk version "21" 2023-09-19', "ok"),
        ('java version "1.8.0_392"', "warning"),
        ("no version here", "warning"),
    ],
)
def test_java_must_be_one_that_spark_takes(monkeypatch, answer, status):
    class Done:
        returncode, stdout, stderr = 0, "", answer

    monkeypatch.setattr(doctor.metadata, "version", lambda _: "4.0.0")
    monkeypatch.setattr(doctor.shutil, "which", lambda name, path=None: "/usr/bin/java")
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: Done)
    assert outcome("Spark").status == status


def test_spark_without_java_says_so(monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(doctor.metadata, "version", lambda _: "4.0.0")
    monkeypatch.setattr(doctor.shutil, "which", lambda name, path=None: None)
    check = outcome("Spark")
    assert check.status == "absent"
    assert "JAVA_HOME" in check.remedy


def test_the_command_prints_one_row_for_each_check_and_ends_with_0(monkeypatch, checks):
    monkeypatch.setattr(doctor, "examine", lambda: iter(checks.values()))
    result = run()
    assert result.exit_code == 0
    assert all(name in result.stdout for name in checks)
    assert "Everything that is required works." in result.stdout


def test_the_command_prints_json(monkeypatch, checks):
    monkeypatch.setattr(doctor, "examine", lambda: iter(checks.values()))
    told = json.loads(run("--json").stdout)
    assert told["sound"] is True
    assert {each["name"] for each in told["checks"]} == set(checks)


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_the_command_ends_with_1_where_something_required_is_broken(monkeypatch, arguments):
    broken = Check("numba", "broken", True, "ImportError: no", "install again")
    monkeypatch.setattr(doctor, "examine", lambda: iter([broken]))
    result = run(*arguments)
    assert result.exit_code == 1
    assert "install again" in result.stdout


def test_the_command_ends_with_0_where_only_an_extra_is_broken(monkeypatch):
    broken = Check("Ray", "broken", False, "ImportError: no", "install again")
    monkeypatch.setattr(doctor, "examine", lambda: iter([broken]))
    assert run().exit_code == 0
