"""``textpriv doctor``: whether this installation can do what the package promises, and what to do where it cannot.

Each check tries the thing itself (compiles, searches, draws) and reports what was found. Required ones must pass; the others
say which extra would add what. Nothing is installed or changed, and no text is read.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

__all__ = ["Check", "examine"]

_GIB = 1 << 30
_LITTLE_MEMORY = 2 * _GIB  # 40,000 words of 300 numbers with their lists take a quarter of it
_LITTLE_SPACE = 1 * _GIB
_JAVA_SECONDS = 20.0


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes
    ----------
    name : str
    status : str
        "ok", "absent" (an extra that is not installed), "warning" (works, but) or "broken".
    required : bool
        Whether the package cannot work without it.
    found : str
        What was found, in a few words.
    remedy : str
        What to do; empty where nothing need be done.
    """

    name: str
    status: str
    required: bool
    found: str
    remedy: str = ""

    @property
    def fails(self) -> bool:
        """Whether this finding makes the installation unusable."""
        return self.required and self.status == "broken"

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON types."""
        return asdict(self)


class _Finding(Exception):
    """Something optional is not here, or works, but not well: what was found, and what to do."""

    def __init__(self, status: str, found: str, remedy: str) -> None:
        super().__init__(found)
        self.status, self.remedy = status, remedy


@dataclass(frozen=True)
class _Examination:
    name: str
    look: Callable[[], str]
    required: bool = False
    remedy: str = ""


def examine() -> Iterator[Check]:
    """Yield one finding after the other, each when it is there."""
    for each in _EXAMINATIONS:
        yield _outcome(each)


def _outcome(examination: _Examination) -> Check:
    name, required = examination.name, examination.required
    try:
        return Check(name, "ok", required, examination.look())
    except _Finding as finding:
        return Check(name, finding.status, required, str(finding), finding.remedy)
    # Whatever is broken in another package is a finding, not a failure of ours.
    except Exception as error:
        found = f"{type(error).__name__}: {_first_line(error)}"
        return Check(name, "broken", required, found, examination.remedy)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:200]


def _python() -> str:
    version = sys.version_info
    if not (3, 10) <= version[:2] <= (3, 13):
        raise RuntimeError(
            f"Python {version.major}.{version.minor}; this package runs on 3.10 to 3.13"
        )
    if sys.maxsize < 2**32:
        raise RuntimeError("a 32-bit Python; index folders are mapped into 64-bit memory")
    return f"{platform.python_version()}, {platform.system()} {platform.machine()}"


def _packages() -> str:
    """Whether what the package requires is here, in versions that it takes."""
    from packaging.requirements import Requirement

    bad, count = [], 0
    for line in metadata.requires("textpriv") or []:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        count += 1
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            bad.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            bad.append(f"{requirement.name} {version} is not {requirement.specifier}")
    if bad:
        raise RuntimeError("; ".join(bad))
    return f"textpriv {metadata.version('textpriv')}, all {count} requirements met"


def _numba() -> str:
    import numba
    import numpy as np

    started = time.perf_counter()

    @numba.njit
    def total(values: Any) -> float:
        held = 0.0
        for value in values:
            held += value
        return held

    if total(np.arange(5.0)) != 10.0:
        raise RuntimeError("a compiled sum came out wrong")
    return f"{numba.__version__} compiled and ran in {time.perf_counter() - started:.1f} s"


def _cache() -> str:
    """Whether compiled code can be kept: without it every start of the program compiles for half a minute."""
    folder = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parent)
    beside = folder / "__pycache__"
    place = beside if beside.is_dir() else folder
    if os.access(place, os.W_OK):
        return str(place)
    fallback = Path.home() / ".cache"
    if os.access(fallback if fallback.is_dir() else Path.home(), os.W_OK):
        return f"{place} cannot be written; the user's own cache is used"
    raise _Finding(
        "warning",
        f"{place} cannot be written, so every start compiles anew",
        "set NUMBA_CACHE_DIR to a folder of yours that you alone can write",
    )


def _hnswlib() -> str:
    version = _need("hnswlib", "hnsw")
    import hnswlib
    import numpy as np

    points = np.eye(8, dtype=np.float32)
    graph = hnswlib.Index(space="l2", dim=8)
    graph.init_index(max_elements=8, random_seed=1)
    graph.add_items(points, num_threads=1)
    labels, _ = graph.knn_query(points, k=1, num_threads=1)
    if labels[:, 0].tolist() != list(range(8)):
        raise RuntimeError("a point is not its own nearest neighbour")
    return f"{version} built and searched a small index"


def _language_model() -> str:
    from textpriv.language.general_english import general_english

    model = general_english(["the", "white", "house"])
    if model.probability(2, 1, 0) <= model.probability(2):
        raise RuntimeError("context does not make a word likelier that it should")
    return "read the model of general English"


def _spacy() -> str:
    import spacy

    words = [token.text for token in spacy.blank("en")("It works, here.")]
    if words != ["It", "works", ",", "here", "."]:
        raise RuntimeError("the English tokenizer splits a known sentence differently")
    found = {
        group: {point.name for point in metadata.entry_points(group=group)}
        for group in ("spacy_factories", "spacy_tokenizers", "textpriv_mechanisms")
    }
    if "textpriv" not in found["spacy_factories"] or not found["textpriv_mechanisms"]:
        raise RuntimeError("spaCy does not see this package's entry points")
    return f"{spacy.__version__} with {len(found['textpriv_mechanisms'])} mechanisms by entry point"


def _models() -> str:
    import spacy.util

    models = sorted(spacy.util.get_installed_models())
    if not models:
        raise _Finding(
            "absent",
            "no trained pipeline installed; none is needed",
            "to take its vectors or its entities: python -m spacy download en_core_web_md",
        )
    return ", ".join(models)


def _randomness() -> str:
    """The stream cipher against RFC 8439, section 2.3.2, and the operating system's source."""
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

    nonce = bytes.fromhex("01000000" + "000000090000004a00000000")
    cipher = Cipher(ChaCha20(bytes(range(32)), nonce), mode=None).encryptor()
    if cipher.update(bytes(16)).hex() != "10f1e7e4d13b5915500fdd1fa32071c4":
        raise RuntimeError("ChaCha20 does not give the published test vector")
    if os.urandom(16) == os.urandom(16):
        raise RuntimeError("the operating system's randomness repeats itself")
    return "ChaCha20 gives the published test vector; keys from the operating system"


def _mechanism() -> str:
    """Index, law, draw and certificate on six words, from end to end."""
    import numpy as np

    from textpriv.guarantees.certificate import certify
    from textpriv.index.index import Index
    from textpriv.mechanisms.tem import TEM
    from textpriv.privatizer import Privatizer
    from textpriv.vocabulary.vocabulary import Vocabulary

    words = ["good", "bad", "fine", "film", "book", "song"]
    vectors = np.random.default_rng(0).normal(size=(6, 4))
    mechanism = TEM(Index.build(Vocabulary(words, vectors), hnsw=False), epsilon=2.0)
    if abs(np.exp(mechanism.log_prob("good")).sum() - 1) > 1e-12:
        raise RuntimeError("the law of a word does not sum to 1")
    if not set(Privatizer(mechanism).privatize("good bad film").split()) <= set(words):
        raise RuntimeError("a draw left the vocabulary")
    certificate = certify(mechanism)
    if not (certificate.holds and certificate.exact):
        raise RuntimeError("the certificate of a small mechanism does not hold")
    return f"six words indexed, drawn and certified: {certificate.rho:.4g} of 2 claimed"


def _memory() -> str:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return "not told by this system"
    total = pages * size
    limit = _container_limit()
    held = min(total, limit) if limit else total
    available = _available()
    free = held if available is None else min(held, available)
    found = f"{free / _GIB:.1f} of {held / _GIB:.1f} GiB free"
    if free < _LITTLE_MEMORY:
        raise _Finding(
            "warning", found, "take a smaller vocabulary (textpriv index --limit) or close programs"
        )
    return found


def _available() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"^MemAvailable:\s+(\d+) kB", lines, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _container_limit() -> int | None:
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text(encoding="ascii").strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None


def _processors() -> str:
    import numpy as np
    from threadpoolctl import threadpool_info

    from textpriv.index.neighbours import processors

    np.ones((2, 2)) @ np.ones((2, 2))  # loads the linear algebra that is asked about
    found = sorted({f"{each['internal_api']} {each['num_threads']}" for each in threadpool_info()})
    return f"{processors()} for this process; threads: {', '.join(found) or 'none reported'}"


def _temporary() -> str:
    with tempfile.TemporaryDirectory(prefix="textpriv-doctor-") as folder:
        mode = os.stat(folder).st_mode & 0o777
        if os.name == "posix" and mode & 0o077:
            raise RuntimeError(f"temporary folders are open to others here (mode {mode:o})")
        Path(folder, "file").write_bytes(b"x")
        free = shutil.disk_usage(folder).free
    found = f"{tempfile.gettempdir()} can be written, {free / _GIB:.1f} GiB free"
    if free < _LITTLE_SPACE:
        raise _Finding("warning", found, "make room, or set TMPDIR to a folder with more")
    return found


def _torch() -> str:
    _need("torch", "pairwise")
    import torch

    if float(torch.tensor([1.0, 2.0]) @ torch.tensor([3.0, 4.0])) != 11.0:
        raise RuntimeError("a small product came out wrong")
    device = "CPU"
    if torch.cuda.is_available():
        device = f"CUDA {torch.version.cuda}, {torch.cuda.get_device_name(0)}"
    return f"{torch.__version__} on {device}"


def _learning() -> str:
    for name in ("scikit-learn", "dp-accounting", "networkx"):
        _need(name, "pairwise")
    import_module("dp_accounting")
    import_module("sklearn")
    return ", ".join(
        f"{name} {metadata.version(name)}" for name in ("scikit-learn", "dp-accounting")
    )


def _web() -> str:
    for name in ("starlette", "uvicorn"):
        _need(name, "playground")
    import_module("starlette.applications")
    import_module("uvicorn")
    return f"starlette {metadata.version('starlette')}, uvicorn {metadata.version('uvicorn')}"


def _ray() -> str:
    return f"ray {_need('ray', 'ray')}"


def _spark() -> str:
    version = _need("pyspark", "spark")
    home = os.environ.get("JAVA_HOME")
    program = (
        shutil.which("java", path=str(Path(home) / "bin")) if home else None
    ) or shutil.which("java")
    wanted = 17 if int(version.split(".")[0]) >= 4 else 8
    remedy = f"install a Java runtime, version {wanted} or later, or set JAVA_HOME"
    if program is None:
        raise _Finding("absent", f"pyspark {version}, but no Java runtime", remedy)
    answer = subprocess.run(  # noqa: S603 - the program that Spark itself would start
        [program, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False
    )
    told = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if answer.returncode or told is None:
        raise _Finding("warning", f"pyspark {version}, but {program} does not start", remedy)
    if int(told[1]) < wanted:
        raise _Finding(
            "warning", f"pyspark {version} needs Java {wanted}; {program} is Java {told[1]}", remedy
        )
    return f"pyspark {version}, Java {told[1]}"


def _compiler() -> str:
    found = next((name for name in ("c++", "g++", "clang++", "cl") if shutil.which(name)), None)
    if found is None:
        raise _Finding(
            "absent",
            "no C++ compiler",
            "needed only to install the extra hnsw: install g++ or clang++",
        )
    return str(shutil.which(found))


def _need(distribution: str, extra: str) -> str:
    """Return the version of an optional distribution, or say which extra brings it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        from textpriv.optional import how_to_install

        raise _Finding(
            "absent", f"{distribution} is not installed", how_to_install(extra)
        ) from None


_REINSTALL = "install again, in a fresh environment: pip install textpriv"
_AGAIN = "pip install --force-reinstall 'textpriv[{}]'"
_EXAMINATIONS = (
    _Examination("Python", _python, True, "use Python 3.10 to 3.13"),
    _Examination("packages", _packages, True, _REINSTALL),
    _Examination("numba", _numba, True, _REINSTALL + "; numba needs a NumPy that it knows"),
    _Examination("compiled code cache", _cache),
    _Examination("spaCy", _spacy, True, _REINSTALL),
    _Examination("spaCy models", _models),
    _Examination("randomness", _randomness, True, _REINSTALL),
    _Examination("mechanism", _mechanism, True, _REINSTALL),
    _Examination("memory", _memory),
    _Examination("processors", _processors),
    _Examination("temporary files", _temporary, True, "set TMPDIR to a folder that you can write"),
    _Examination("C++ compiler", _compiler),
    _Examination(
        "hnswlib", _hnswlib, remedy="pip install --force-reinstall --no-cache-dir hnswlib"
    ),
    _Examination(
        "language model", _language_model, remedy="pip install --force-reinstall textpriv"
    ),
    _Examination("torch", _torch, remedy=_AGAIN.format("pairwise")),
    _Examination("pairwise", _learning, remedy=_AGAIN.format("pairwise")),
    _Examination("playground", _web, remedy=_AGAIN.format("playground")),
    _Examination("Spark", _spark, remedy=_AGAIN.format("spark")),
    _Examination("Ray", _ray, remedy=_AGAIN.format("ray")),
)
