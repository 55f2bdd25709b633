"""``textpriv playground``: a page on this computer where a text is typed and its private form is seen at once.

Here stand the requests it answers, what it refuses, and the mechanisms it keeps at hand. It holds a text only while it
answers: nothing typed is stored, logged or sent on. It listens on the loopback address, and answers only pages of its own:
another site that is open in the same browser can neither read it nor make it draw (see :class:`Guard`). What is drawn, and
what that guarantees, is the library's.
"""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import json
import math
import socket
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from textpriv import __version__
from textpriv.bounds import odds_in_words
from textpriv.errors import TextprivError
from textpriv.guarantees.epsilon import eps_from_odds
from textpriv.index.index import Index
from textpriv.mechanisms import mechanism_names, registry
from textpriv.metrics import EUCLIDEAN
from textpriv.privatizer import Privatizer
from textpriv.randomness import Stream
from textpriv.vocabulary.sensitive_words import LISTS, words_in
from textpriv.web.pages import asset, content_policy, fill
from textpriv.web.render import kinds_of
from textpriv.web.report import has_law, odds_table, typical_pairs

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from textpriv.mechanisms.base import Mechanism

__all__ = ["LONGEST", "Guard", "Playground", "Refusal", "Settings", "application", "serve"]

LONGEST = 20_000  # characters of a text
_LARGEST = 8 * LONGEST  # bytes of a request: a character may be escaped
_AT_HAND = 8  # mechanisms kept; each holds tables of the words it has met
_WAITING = 4  # mechanisms being prepared, or in line
_PATIENCE = 0.5  # seconds until an answer says that it is not ready yet
_BODY_TIME = 10.0  # seconds for a request to arrive
_CONNECTIONS = 32
_LARGEST_EPSILON = 1e6
_SHOWN_WORDS = 8  # words of a text whose law is looked at: each costs a row at every draw, as nothing typed is stored
_ODDS = 100.0  # of the epsilon the page starts with, at the reference distance of the index

AGAIN = (
    "Every draw of the same text spends epsilon again. Whoever sees n draws of one text can tell two originals at distance "
    "d apart by odds of up to exp(n x epsilon x d): release one draw, and forget the others."
)

_PRIORS = ("zipf", "uniform", "counts")
_RATES = ("half", "calibrated", "best")

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Refusal(Exception):
    """A request that is not answered: a status and a reason, which never quotes what was sent."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Settings:
    """What a text is drawn with.

    Attributes
    ----------
    epsilon : float
    mechanism : str
    prior : str or None
        None where the mechanism takes none, or as its default.
    rate : str or None
        None where the mechanism takes none.
    """

    epsilon: float
    mechanism: str = "tem"
    prior: str | None = None
    rate: str | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Settings:
        """Check the fields of a request.

        Raises
        ------
        Refusal
            422 for a field that is missing, unknown or without meaning.
        """
        epsilon = given.get("epsilon")
        if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
            raise Refusal(422, "epsilon is missing or no number; send one above 0.")
        try:
            number = float(epsilon)
        except OverflowError:
            number = math.inf
        if not 0 < number <= _LARGEST_EPSILON:
            raise Refusal(422, f"epsilon must be above 0 and at most {_LARGEST_EPSILON:g}.")
        mechanism = _one_of("mechanism", given.get("mechanism", "tem"), tuple(mechanism_names()))
        prior, rate = given.get("prior"), given.get("rate")
        if prior is not None:
            _one_of("prior", prior, _PRIORS)
        if rate is not None:
            _one_of("rate", rate, _RATES)
        taken = _options_of(mechanism)
        prior = prior if "prior" in taken else None
        rate = rate if "rate" in taken else None
        return cls(number, mechanism, prior, rate)

    @property
    def slow(self) -> bool:
        """Whether making the mechanism may compute a rate, which takes long for a large vocabulary."""
        return self.rate in ("calibrated", "best") or self.mechanism in ("smoothed", "balanced")

    def options(self) -> dict[str, Any]:
        """Keyword arguments of the registered mechanism."""
        given = {"epsilon": self.epsilon, "prior": self.prior, "rate": self.rate}
        return {name: value for name, value in given.items() if value is not None}


def _options_of(mechanism: str) -> Collection[str]:
    """Names of the settings that a mechanism takes."""
    return inspect.signature(registry.get(mechanism_names()[mechanism])).parameters


def _one_of(name: str, value: object, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise Refusal(422, f"{name} must be one of: {', '.join(known)}.")
    return value


class Playground:
    """The answers, without the web: texts and settings to private texts and what they are worth.

    Parameters
    ----------
    index : Index

    Notes
    -----
    A mechanism is made when it is first asked for, in a thread of its own, and kept with the last few. One whose rate has to
    be computed takes about a minute for 40,000 words; meanwhile :meth:`ready` returns None, and other settings are answered.
    The rate is then recorded with the index, under its public settings.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self.epsilon = _round(eps_from_odds(_ODDS, index.reference_distance or 1.0))
        self._distances = typical_pairs(index)
        self._sensitive = {
            index.vocabulary.id(word)
            for words in LISTS.values()
            for word in words_in(index.vocabulary, words)
        }
        self._lock = threading.Lock()
        self._made: OrderedDict[Settings, tuple[Future[Privatizer], float]] = OrderedDict()
        self._quick = ThreadPoolExecutor(2, thread_name_prefix="playground")
        self._slow = ThreadPoolExecutor(1, thread_name_prefix="playground-rate")
        # Tokens and classes hang on the policy alone, so one reader serves every mechanism.
        self._reader = self._make(Settings(self.epsilon))
        self._reading = threading.Lock()
        self.warm()

    def warm(self) -> None:
        """Compile and load what the first answer would wait for, with a word of the vocabulary."""
        word = next((each for each in self.index.vocabulary.words if each.isalpha()), "a")
        self._reader.privatize(word)

    @property
    def mechanisms(self) -> list[str]:
        """Those that this index can carry."""
        exact = ("smoothed", "balanced")
        return [
            name
            for name in mechanism_names()
            if not (name == "madlib" and self.index.metric.kind != EUCLIDEAN)
            and not (name in exact and not self.index.exact)
        ]

    @property
    def priors(self) -> list[str]:
        """Those that this index can carry."""
        stored = self.index.vocabulary.prior is not None
        return [name for name in _PRIORS if name != "counts" or stored]

    def __len__(self) -> int:
        """Mechanisms at hand or being prepared."""
        return len(self._made)

    def _make(self, settings: Settings) -> Privatizer:
        registered = registry.get(mechanism_names()[settings.mechanism])
        return Privatizer(registered(**settings.options())(self.index))

    def prepare(self, settings: Settings) -> tuple[Future[Privatizer], float]:
        """Return the mechanism of some settings, or its promise, and when it was asked for.

        Raises
        ------
        Refusal
            422 for what this index cannot carry; 503 where too many are being prepared.
        """
        if settings.mechanism not in self.mechanisms:
            raise Refusal(422, f"this index carries only: {', '.join(self.mechanisms)}.")
        if settings.prior is not None and settings.prior not in self.priors:
            raise Refusal(422, f"this index carries only the priors: {', '.join(self.priors)}.")
        with self._lock:
            if settings in self._made:
                self._made.move_to_end(settings)
                return self._made[settings]
            if sum(not future.done() for future, _ in self._made.values()) >= _WAITING:
                raise Refusal(503, "other settings are being prepared; try again in a minute.")
            executor = self._slow if settings.slow else self._quick
            self._made[settings] = executor.submit(self._make, settings), time.monotonic()
            for old in [each for each, (future, _) in self._made.items() if future.done()]:
                if len(self._made) <= _AT_HAND:
                    break
                del self._made[old]
            return self._made[settings]

    def ready(self, settings: Settings, patience: float = _PATIENCE) -> Privatizer | None:
        """Wait a little for a mechanism; None if it is not ready yet."""
        future, _ = self.prepare(settings)
        if not wait([future], timeout=patience).done:
            return None
        try:
            return future.result()
        except Exception as error:
            with self._lock:  # it may go better the next time
                self._made.pop(settings, None)
            if isinstance(error, TextprivError):
                raise Refusal(422, str(error)) from None
            raise

    def privatize(self, text: str, settings: Settings) -> dict[str, Any] | None:
        """Draw a text once; None if the mechanism is not ready yet.

        Returns
        -------
        dict
            ``tokens`` (word, whether a blank follows, kind, whether it came out as it went in), ``text``, ``drawn``,
            ``stays`` (how often words of the text come out as they are, most often first; None without a law),
            ``same``, ``odds``, ``worst_document``, ``statement`` and its parts (``claim``, ``not_protected``,
            ``assumptions``, ``notes``, ``proved``), ``mechanism`` and ``again``.
        """
        privatizer = self.ready(settings)
        if privatizer is None:
            return None
        with self._reading:  # spaCy's tokenizer is not made for several threads
            raw = self._reader.read(text)
        (tokens,) = privatizer.release([raw], [Stream()])
        same = (raw.codes >= 0) & (raw.codes == tokens.outputs)
        drawn = int(np.count_nonzero(tokens.outputs >= 0))
        statement = privatizer.statement
        return {
            "tokens": [
                list(each)
                for each in zip(
                    tokens.words, tokens.spaces, kinds_of(tokens), same.tolist(), strict=True
                )
            ],
            "text": tokens.text,
            "drawn": drawn,
            "stays": self._stays(privatizer.mechanism, raw.codes),
            "same": int(np.count_nonzero(same)),
            "odds": odds_table(statement, self._distances),
            "worst_document": odds_in_words(statement.document_loss(drawn)),
            "statement": statement.paragraph(),
            "claim": replace(statement, assumptions=(), not_protected=(), notes=()).paragraph(),
            "not_protected": list(statement.not_protected),
            "assumptions": list(statement.assumptions),
            "notes": list(statement.notes),
            "proved": statement.proved,
            "mechanism": repr(privatizer.mechanism),
            "again": AGAIN,
        }

    def _stays(
        self, mechanism: Mechanism, codes: NDArray[np.int32]
    ) -> list[tuple[str, float]] | None:
        """How often some words of a text stay as they are: names and illnesses of public lists first, then rare words."""
        if not has_law(mechanism):
            return None
        known = np.unique(codes[codes >= 0])[::-1].tolist()
        chosen = sorted(known, key=lambda word: word not in self._sensitive)[:_SHOWN_WORDS]
        words = self.index.vocabulary.words
        keep = [float(np.exp(mechanism.log_prob(word)[word])) for word in chosen]
        found = zip((words[word] for word in chosen), keep, strict=True)
        return sorted(found, key=lambda each: -each[1])

    def explain(self, word: str, settings: Settings) -> dict[str, Any] | None:
        """Return the law of one word; None if the mechanism is not ready yet.

        Raises
        ------
        Refusal
            404 for a word outside the vocabulary, 422 for a mechanism without a law.
        """
        privatizer = self.ready(settings)
        if privatizer is None:
            return None
        mechanism = privatizer.mechanism
        if not has_law(mechanism):
            raise Refusal(422, f"{mechanism.name} has no law in closed form.")
        known = next((each for each in (word, word.lower()) if each in self.index.vocabulary), None)
        if known is None:
            raise Refusal(404, "the word is not in the vocabulary: all such words share one law.")
        number = self.index.vocabulary.id(known)
        law = np.exp(mechanism.log_prob(number))
        top = np.argsort(-law, kind="stable")[:10]
        distances = self.index.distances_of(np.array([number]))[0]
        words = self.index.vocabulary.words
        return {
            "word": known,
            "keep": float(law[number]),
            "outputs": [[words[i], float(law[i]), float(distances[i])] for i in top],
        }

    def close(self) -> None:
        """Let the threads go."""
        self._quick.shutdown(wait=False, cancel_futures=True)
        self._slow.shutdown(wait=False, cancel_futures=True)


def _round(value: float) -> float:
    return float(f"{value:.2g}")


# ----------------------------------------------------------------------------------------------
# The web
# ----------------------------------------------------------------------------------------------


class Guard:
    """Let through only what a page of this server may ask, and turn every failure into a short answer.

    *Host.* A name that someone else can point at this computer is refused (DNS rebinding): only loopback names pass, and for
    a server that others may reach also addresses written as numbers and this computer's name.

    *Origin.* A request that another site's page makes is refused (cross-site request forgery); so is one that a form could
    make, since a body must be declared as JSON.

    *Size and time.* A body is read up to a limit of bytes and of seconds, before anything looks at it.

    Parameters
    ----------
    inner : ASGI application
    remote : bool
        Whether others than this computer may ask.
    """

    def __init__(self, inner: Any, *, remote: bool = False) -> None:
        self.inner = inner
        self.names = {"localhost"} | ({socket.gethostname().lower()} if remote else set())
        self.remote = remote

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer one request, as ASGI asks for."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.inner(scope, receive, send)
            return
        started = False

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
            await send(message)

        try:
            self._check(scope)
            body = b""
            if scope["method"] == "POST":
                body = await asyncio.wait_for(_read(receive), _BODY_TIME)
            await self.inner(scope, _replay(body, receive), sending)
        except Refusal as refusal:
            await self._answer(scope, receive, sending, refusal.status, str(refusal))
        except asyncio.TimeoutError:
            await self._answer(scope, receive, sending, 408, "the request took too long to arrive.")
        except Exception as error:
            # Neither message nor traceback: they might hold what was typed.
            print(f"playground: {type(error).__name__} in an answer", file=sys.stderr)
            if not started:
                await self._answer(scope, receive, sending, 500, "this could not be answered.")

    def _check(self, scope: _Scope) -> None:
        values: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            values.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
        hosts = values.get("host", [])
        if len(hosts) != 1 or not self._known(hosts[0]):
            raise Refusal(
                421, "this server answers to the address it was started with, and to no other name."
            )
        for origin in values.get("origin", []):
            if origin.lower() != f"http://{hosts[0].lower()}":
                raise Refusal(403, "requests from other sites are not answered.")
        # A link on another site may lead here, and then the page is all it gets.
        link = scope["method"] == "GET" and values.get("sec-fetch-mode") == ["navigate"]
        if values.get("sec-fetch-site", ["none"])[0] not in ("same-origin", "none") and not link:
            raise Refusal(403, "requests from other sites are not answered.")
        if scope["method"] == "POST":
            kind = values.get("content-type", [""])[0].split(";")[0].strip().lower()
            if kind != "application/json":
                raise Refusal(415, "send JSON, with Content-Type: application/json.")
            length = values.get("content-length", ["0"])[0]
            if not length.isascii() or not length.isdigit():
                raise Refusal(400, "Content-Length is no number.")
            if len(length) > 12 or int(length) > _LARGEST:
                raise Refusal(413, f"a request holds at most {_LARGEST:,} bytes.")

    def _known(self, host: str) -> bool:
        name = host.strip().lower()
        if name.startswith("["):
            name, _, port = name[1:].partition("]")
            port = port.removeprefix(":")
        else:
            name, _, port = name.partition(":")
        if port and not (port.isascii() and port.isdigit()):
            return False
        if name in self.names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self.remote

    async def _answer(
        self, scope: _Scope, receive: _Receive, send: _Send, status: int, reason: str
    ) -> None:
        from starlette.responses import JSONResponse

        await JSONResponse({"error": reason}, status)(scope, receive, send)


_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


async def _read(receive: _Receive) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "the request ended early.")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > _LARGEST:
            raise Refusal(413, f"a request holds at most {_LARGEST:,} bytes.")
        if not message.get("more_body", False):
            return b"".join(parts)


def _replay(body: bytes, receive: _Receive) -> _Receive:
    given = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def application(playground: Playground, *, remote: bool = False) -> Guard:
    """Return the web application.

    Parameters
    ----------
    playground : Playground
    remote : bool
        Whether others than this computer may ask: their Host headers are then let through, too.
    """
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.responses import HTMLResponse, JSONResponse
    from starlette.routing import Route

    script = asset("playground.js")
    policy = content_policy(script, connect="'self'") + "; frame-ancestors 'none'"
    index = playground.index
    page = fill(
        "playground.html",
        version=__version__,
        style=asset("style.css"),
        script=script,
        index=index,
        mechanisms=playground.mechanisms,
        takes={
            name: [option for option in ("prior", "rate") if option in _options_of(name)]
            for name in playground.mechanisms
        },
        priors=playground.priors,
        rates=_RATES if index.exact else _RATES[:1],
        longest=LONGEST,
        again=AGAIN,
        epsilon=playground.epsilon,
        lowest=_round(playground.epsilon / 16),
        highest=_round(playground.epsilon * 64),
    )

    async def home(request: Request) -> Response:
        return HTMLResponse(page, headers={"content-security-policy": policy})

    def answering(
        work: Callable[[str, Settings], dict[str, Any] | None], field: str
    ) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            given = _parse(await request.body(), field)
            settings = Settings.read(given)
            answer = await asyncio.to_thread(work, given[field], settings)
            if answer is not None:
                return JSONResponse(answer)
            _, since = playground.prepare(settings)
            seconds = time.monotonic() - since
            return JSONResponse(
                {
                    "preparing": "The rate for these settings is being computed from the public vectors: about a minute for "
                    "40,000 words. It is then kept with the index.",
                    "seconds": round(seconds, 1),
                    "settings": asdict(settings),
                },
                202,
            )

        return endpoint

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        reasons = {404: "there is no such page.", 405: "this address does not take that method."}
        return JSONResponse(
            {"error": reasons.get(error.status_code, "this could not be answered.")},
            error.status_code,
            headers=dict(error.headers or {}),
        )

    inner: Starlette = Starlette(
        routes=[
            Route("/", home, methods=["GET"]),
            Route(
                "/api/privatize",
                answering(playground.privatize, "text"),
                methods=["POST"],
            ),
            Route(
                "/api/word",
                answering(playground.explain, "word"),
                methods=["POST"],
            ),
        ],
        exception_handlers={HTTPException: refused, Refusal: _refuse},
    )
    return Guard(inner, remote=remote)


async def _refuse(request: Request, error: Exception) -> Response:
    from starlette.responses import JSONResponse

    assert isinstance(error, Refusal)
    return JSONResponse({"error": str(error)}, error.status)


_FIELDS = {"text", "word", "epsilon", "mechanism", "prior", "rate"}


def _parse(body: bytes, field: str) -> dict[str, Any]:
    """Read a request's JSON object, and check the one text in it."""
    try:
        given = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise Refusal(400, "the request is not JSON in UTF-8.") from None
    if not isinstance(given, dict):
        raise Refusal(422, "the request must be a JSON object.")
    if set(given) - _FIELDS:
        raise Refusal(422, f"unknown field; known are: {', '.join(sorted(_FIELDS))}.")
    text = given.get(field)
    if not isinstance(text, str):
        raise Refusal(422, f"{field} is missing or no text.")
    if len(text) > LONGEST:
        raise Refusal(413, f"a text holds at most {LONGEST:,} characters here.")
    return given


def bind(host: str, port: int, *, allow_remote: bool = False) -> socket.socket:
    """Open the socket to listen on.

    Raises
    ------
    TextprivError
        For an address that others can reach, unless that is allowed, and for one that cannot be had.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise TextprivError(
            f"{host!r} is no address of this computer; use 127.0.0.1, which is the default."
        ) from None
    family, kind, protocol, _, address = found[0]
    if not allow_remote and not ipaddress.ip_address(str(address[0])).is_loopback:
        raise TextprivError(
            f"{host} can be reached from other computers, and what is typed would travel unencrypted. Use 127.0.0.1, or "
            "pass --allow-remote if that is what you want."
        )
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise TextprivError(
            f"cannot listen on {host} port {port}: {error.strerror or error}. Choose another with --port, or 0 for any."
        ) from None
    return listening


def configuration(playground: Playground, *, remote: bool) -> Any:
    """How uvicorn serves the application: nothing is logged, and what is not needed is off."""
    import uvicorn

    return uvicorn.Config(
        application(playground, remote=remote),
        http="h11",
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        log_level="critical",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=2,
        h11_max_incomplete_event_size=16 * 1024,
    )


def serve(
    index: Index,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    allow_remote: bool = False,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve the playground until interrupted.

    Parameters
    ----------
    index : Index
    host : str
    port : int
        0 takes any that is free.
    allow_remote : bool
        Let other computers in. There is no password, and no encryption.
    on_ready : callable, optional
        Is told the address of the page.

    Raises
    ------
    TextprivError
        If the web packages are missing, or the address cannot be had.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError:
        raise TextprivError(
            "the playground needs Starlette and uvicorn: install them with pip install 'textpriv[playground]'."
        ) from None
    with bind(host, port, allow_remote=allow_remote) as listening:
        playground = Playground(index)
        config = configuration(playground, remote=allow_remote)
        name, number = listening.getsockname()[:2]
        shown = f"[{name}]" if ":" in name else name
        if on_ready is not None:
            on_ready(f"http://{shown}:{number}/")
        try:
            uvicorn.Server(config).run(sockets=[listening])
        except KeyboardInterrupt:
            pass  # how one ends it
        finally:
            playground.close()
