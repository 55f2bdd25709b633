"""The steps of the Dockerfile in a root of their own, with Debian's Python and no compiler, where there is no docker.

They need root, a network, debootstrap and minutes, so they run only where TEXTPRIV_FRESH_ROOT names a folder to make them
in (CI does so); a base root that is there already, FOLDER/base, is used again. What the files say is looked at in every run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = "/usr/local/python"  # stands for the interpreter of the image
IGNORED = shutil.ignore_patterns("__pycache__", ".git", "site", "docs", "tests", ".*")


def instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


def value_of(name: str) -> str:
    """What the last instruction of a name says."""
    return [rest for each, rest in instructions() if each == name][-1]


# What the files say


def test_the_image_runs_as_nobody_in_particular_and_is_warm():
    user = value_of("USER").split(":")[0]
    assert user.isdigit()
    assert int(user) > 0
    after = [name for name, _ in instructions()].index("USER")
    assert "RUN" not in [name for name, _ in instructions()[after:]]
    assert json.loads(value_of("ENTRYPOINT")) == ["textpriv"]
    assert any(name == "RUN" and "textpriv" in rest for name, rest in instructions())


def test_the_image_installs_no_compiler_and_no_source_package():
    steps = " ".join(rest for name, rest in instructions() if name == "RUN")
    assert "--only-binary :all:" in steps
    assert not re.search(r"apt|gcc|g\+\+|build-essential", steps)


def test_what_is_built_from_is_let_into_the_build():
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert rules[0] == "*"
    for rule in rules[1:]:
        if rule.startswith("!"):
            assert (ROOT / rule[1:]).exists(), rule


# In a root


class Fresh:
    """A root folder in which commands run as in a container: own mounts, own environment, perhaps no network."""

    def __init__(self, folder: Path, base: Path) -> None:
        subprocess.run(["cp", "-a", base, folder], check=True)
        self.folder = folder
        self.environment = {
            "PATH": f"{PYTHON}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
        }
        self.packages = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "http"))}
        for file in ("/etc/resolv.conf", os.environ.get("PIP_CERT", "")):
            if file:
                (folder / file[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, folder / file[1:])

    def run(self, command: str, *, user: str = "0:0", closed: bool = False, given: str = "") -> str:
        settings = [f"{k}={v}" for k, v in (self.environment | self.packages).items()]
        apart = ["unshare", "--mount", "--pid", "--fork", *(["--net"] if closed else [])]
        inside = ["chroot", f"--userspec={user}", self.folder, "env", "-i", *settings]
        script = f"mount -t proc proc {shlex.quote(str(self.folder))}/proc && exec {shlex.join(map(str, inside))} "
        done = subprocess.run(
            [*apart, "sh", "-c", script + f"sh -ec {shlex.quote(command)}"],
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def base():
    given = os.environ.get("TEXTPRIV_FRESH_ROOT")
    if not given:
        pytest.skip("takes minutes and a network: set TEXTPRIV_FRESH_ROOT to a folder to run it in")
    folder = Path(given) / "base"
    if not folder.exists():
        packages = "--include=python3,python3-venv,ca-certificates"
        subprocess.run(
            ["debootstrap", "--variant=minbase", packages, "bookworm", folder],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return folder


@pytest.fixture(scope="module")
def image(base, tmp_path_factory):
    """The root after all steps of the Dockerfile."""
    stages: dict[str, Fresh] = {}
    place = tmp_path_factory.mktemp("image")
    current: Fresh | None = None
    for name, rest in instructions():
        if name == "FROM":
            title = rest.partition(" AS ")[2] or "last"
            current = stages[title] = Fresh(place / title, base)
            current.run(f"/usr/bin/python3 -m venv {PYTHON}")
            continue
        assert current is not None
        if name == "RUN":
            current.run(rest)
        elif name == "ENV":
            pairs = (pair.partition("=") for pair in shlex.split(rest))
            current.environment.update({key: value for key, _, value in pairs})
        elif name == "COPY":
            stage, source, target = re.fullmatch(r"(?:--from=(\w+) )?(\S+) (\S+)", rest).groups()
            origin = ROOT / source if stage is None else stages[stage].folder / source[1:]
            shutil.copytree(origin, current.folder / target[1:], ignore=IGNORED)
        elif name == "WORKDIR":
            (current.folder / rest[1:]).mkdir(parents=True, exist_ok=True)
        else:
            assert name in ("USER", "ENTRYPOINT", "CMD"), (
                f"a step that this test does not know: {name}"
            )
    yield stages["last"]
    shutil.rmtree(place, ignore_errors=True)


def test_the_steps_make_private_text_as_another_user_without_a_network(image):
    command = shlex.join(
        [*json.loads(value_of("ENTRYPOINT")), "privatize", "-", "-", "--epsilon", "60"]
    )
    given = "The patient was admitted with chest pain.\n"
    assert image.run(command, user=value_of("USER"), closed=True, given=given) == given.lower()


def test_the_image_starts_warm(image):
    entry = shlex.join(json.loads(value_of("ENTRYPOINT")))
    timed = f"echo pain | {entry} privatize - - --epsilon 60 > /dev/null; times"
    shown = image.run(timed, user=value_of("USER"), closed=True).splitlines()[-1]
    seconds = sum(60 * int(m) + float(s) for m, s in re.findall(r"(\d+)m([\d.]+)s", shown))
    print(f"{seconds:.2f} s of processor time")
    assert seconds < 5.0


def test_nothing_in_the_root_compiles(image):
    assert image.run("command -v cc gcc g++ c++ clang || true") == ""


def test_what_was_installed_is_what_the_package_asks_for(image):
    names = json.loads(image.run("python -m pip list --format json"))
    installed = {each["name"].lower() for each in names}
    assert {"textpriv", "spacy", "numba"} <= installed
    assert not {"torch", "hnswlib", "gensim", "pandas", "matplotlib"} & installed
