"""What stands between Flower and the network: a gateway on each side, which lets through no more than is needed.

Flower's SuperLink serves its Fleet API, which sites need, on one port with its Control API, by which anybody who
reaches it can start a run whose code executes at every site. So it listens on the loopback interface, and the server's
gateway faces the network: TLS, only the Fleet API, only for holders of a registered key, bodies of a bounded size and
in a bounded time, and of messages answers alone: Flower would have a site hand another one, or itself, an ask in the
server's name. A site's gateway stands between its SuperNode and the network: it verifies the server's certificate, and
lets in no app but the site's own. Flower sends what is large in parts, and bounds no sum of them: the gateways do, from
when a site was handed a message on. For a part Flower waits less long than a slow line takes: a site's gateway sends
each over the line once (``tries.py``).

The server's gateway also holds a request for messages until there are some: Flower's SuperNodes would come back for
them three seconds later.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from murmura.errors import RunError
from murmura.federation.address import joined
from murmura.federation.engines.flower import FLEET, LARGEST
from murmura.federation.engines.flower.impatient import Impatient
from murmura.federation.engines.flower.tries import Tries
from murmura.runs.locks import allow_open_files

AT_ONCE = 32 * 1024**2
"""Bytes of a request or an answer: Flower sends what is larger in parts."""
CONNECTIONS = 4096
"""Most connections at once."""

_CALLS = frozenset(
    {
        f"{FLEET}activate-node",
        f"{FLEET}deactivate-node",
        f"{FLEET}send-node-heartbeat",
        f"{FLEET}pull-messages",
        f"{FLEET}push-messages",
        f"{FLEET}get-run",
        f"{FLEET}get-fab",
        f"{FLEET}push-object",
        f"{FLEET}pull-object",
        f"{FLEET}confirm-message-received",
    }
)
_PULL, _PUSH, _PART, _APP = (f"{FLEET}{name}" for name in ("pull-messages", "push-messages", "push-object", "get-fab"))
_LARGE = frozenset({_PART, f"{FLEET}pull-object"})
_KEY, _TIME, _SIGNATURE = "flwr-public-key", "flwr-timestamp", "flwr-signature"
_EMPTY = 64  # bytes; an answer with a message is longer, since its id alone has more
_HOLD = 15.0  # seconds that a request for messages is held
_LOOK, _LOOKS, _LATEST = 0.1, 0.04, 2.0  # seconds between looks: at least; for each one held; at most
_TIMEOUT = httpx.Timeout(30.0, read=60.0)
# A part's, which the system and proxies may take in at once: what two of them, which Flower sends at once, take at 0.6
# Mbit/s; and less than the 180 seconds after one part in which Flower's server takes another, to leave time for a try.
_CROSSING = httpx.Timeout(150.0, connect=30.0)
_IDLE = 180  # seconds that a connection stays after an answer, of which much may still have to cross
_BODY = 180.0  # seconds that a request's body may take; a part that takes longer Flower's server does not take
_START = 15.0
_HERE = ("all://127.0.0.1", "all://localhost", "all://[::1]")  # what no proxy of the environment is asked for
_CLOCK = 3  # seconds; of one that is 5 ahead Flower believes nothing (NTP keeps clocks within less than one)
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "upgrade", "host", "content-length", "te"})
_ELSEWHERE = frozenset({"content-encoding", "location", "content-location", "refresh", "alt-svc", "set-cookie"})


class Gateway:
    """Forwards Fleet calls from an address to another; runs in a thread of its own until it is closed.

    Args:
        listen: host and port; port 0: any that is free.
        tls: certificate and key that it serves with.
        upstream: https://HOST:PORT that it forwards to.
        authority: file with the certificate that the upstream's must be signed by.
        keys: public keys of registered sites, as a SuperNode's header has them; None: any, as at a site.
        app: what an answer with an app must be, to the byte; None: anything.
        holds: whether it holds requests for messages.
        notice: called when the upstream is out of reach, with the reason, and when it is reached, with None; each time
            that this changes, in the gateway's thread.

    Attributes:
        port: where it listens.

    Raises:
        RunError: it cannot listen there, or a certificate cannot be used.
    """

    def __init__(
        self,
        listen: tuple[str, int],
        tls: tuple[Path, Path],
        upstream: str,
        authority: Path,
        *,
        keys: Collection[str] | None = None,
        app: bytes | None = None,
        holds: bool = False,
        notice: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        host, port = listen
        where = joined(host, port)
        try:
            verifying = ssl.create_default_context(cafile=str(authority))
        except OSError as error:  # ssl's are of this kind
            what = f"the certificate of the authority cannot be used ({error.strerror or error})"
            fix = "If it is ca.crt, get it again from whoever made the federation."
            raise RunError(what, where=str(authority), fix=fix) from error
        self._client = _client(upstream, verifying, by_proxy=keys is None)
        try:
            config = uvicorn.Config(
                self._answer,
                interface="asgi3",
                http=Impatient,
                host=host,
                port=port,
                log_config=None,
                ws="none",
                access_log=False,
                server_header=False,
                lifespan="off",
                limit_concurrency=CONNECTIONS,
                timeout_keep_alive=_IDLE,
                ssl_certfile=str(tls[0]),
                ssl_keyfile=str(tls[1]),
            )
            config.load()
        except (OSError, ssl.SSLError) as error:
            what = f"a certificate cannot be used ({error})"
            raise RunError(what, where=str(tls[0])) from error
        allow_open_files(CONNECTIONS)
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # not each handshake that fails
        self._keys, self._app, self._holds = keys, app, holds
        self._notice: Callable[[str | None], None] = notice
        self._problem: str | None = ""  # nothing has been said yet
        self._held = 0  # requests for messages
        # At a server another site could send the same bytes, and be handed what is for this one: Flower's server knows.
        self._tries = Tries() if keys is None else None
        self._sent: Counter[str] = Counter()  # by each key, bytes of parts since it was handed a message
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"gateway {where}")
        self._thread.start()
        self.port = self._listening(where)

    def _run(self) -> None:
        with suppress(SystemExit):  # of uvicorn, which cannot listen
            asyncio.run(self._server.serve())

    def _listening(self, where: str) -> int:
        end = time.monotonic() + _START
        while not self._server.started and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.02)
        if not self._server.started:
            fix = "Stop what does, or choose another port."
            raise RunError("nothing can listen there", where=where, fix=fix, passing=True)
        port: int = self._server.servers[0].sockets[0].getsockname()[1]
        return port

    def close(self) -> None:
        """Take no more requests, and let go of the connections."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # requests that are held end in the middle
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(_START)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        with suppress(ClientDisconnect):  # nobody is there any more who could be answered
            await (await self._respond(Request(scope, receive)))(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path = request.url.path
        if request.method != "POST" or path not in _CALLS or request.url.query:
            return PlainTextResponse("only Flower's Fleet API is served here", 403)
        if self._keys is not None and not (request.headers.get(_KEY) in self._keys and _is_signed(request)):
            return PlainTextResponse("the key is not one of a registered site", 401)
        try:
            async with asyncio.timeout(_BODY):
                body = await _bounded(request)
        except TimeoutError:
            return PlainTextResponse(f"it took more than {_BODY:.0f} seconds", 503, {"connection": "close"})
        if body is None:
            return PlainTextResponse(f"more than {AT_ONCE} bytes at once", 413)
        if path == _PUSH and self._keys is not None and not _are_answers(body):
            return PlainTextResponse("a site answers what it was asked, and sends nothing else", 403)
        headers = {name: value for name, value in request.headers.items() if name not in _HOP}
        forward = partial(self._passed_on, path, headers, body, request)
        if self._tries is not None and path in _LARGE:
            return await self._tries.reply(request, body, forward)
        return await forward()

    async def _passed_on(self, path: str, headers: Mapping[str, str], body: bytes, request: Request) -> Response:
        """What the upstream answers, as far as it is let through."""
        if path == _PART and self._sent[headers.get(_KEY, "")] + len(body) > LARGEST:
            return PlainTextResponse(f"more than {LARGEST} bytes in answer to a message", 413)
        try:
            answer = await self._counted(path, headers, body, request)
        except httpx.HTTPError as error:
            self._notify(str(error) or type(error).__name__)
            return PlainTextResponse(f"what is behind this gateway does not answer ({type(error).__name__})", 502)
        self._notify(_refusal(answer.headers.get("date", "")) if answer.status_code == 401 else None)
        # Flower would follow a redirection past this gateway, and gives up for good after an error that is none of the
        # way, such as that of a server that is about to end: this one it tries again.
        if answer.status_code != 200 and not 400 <= answer.status_code < 500:
            return PlainTextResponse(f"it answers with status {answer.status_code}, which is not let through", 502)
        if path == _APP and self._app is not None and answer.is_success and answer.content != self._app:
            return PlainTextResponse("the server sends another app than this site's own", 403)
        told = {name: value for name, value in answer.headers.items() if name not in _HOP | _ELSEWHERE}
        return Response(answer.content, answer.status_code, told)

    async def _counted(self, path: str, headers: Mapping[str, str], body: bytes, request: Request) -> httpx.Response:
        """As ``_forward``. A part counts while it is on its way, and from then on if it is taken."""
        key, part, answer = headers.get(_KEY, ""), len(body) if path == _PART else 0, None
        self._sent[key] += part
        try:
            answer = await self._forward(path, headers, body, request)
        finally:
            if answer is None or not answer.is_success:
                self._sent[key] -= part
        if path == _PULL and answer.is_success and not _is_empty(answer):
            self._sent[key] = 0
        return answer

    def _notify(self, problem: str | None) -> None:
        if problem != self._problem:
            self._problem = problem
            self._notice(problem)

    async def _forward(self, path: str, headers: Mapping[str, str], body: bytes, request: Request) -> httpx.Response:
        if not self._holds or path != _PULL:
            return await _bounded_answer(self._client, path, headers, body)
        end = time.monotonic() + _HOLD
        self._held += 1
        try:
            while True:
                answer = await _bounded_answer(self._client, path, headers, body)
                if not _is_empty(answer) or time.monotonic() >= end or await request.is_disconnected():
                    return answer
                await asyncio.sleep(min(max(_LOOK, _LOOKS * self._held), _LATEST))
        finally:
            self._held -= 1


def _client(upstream: str, verifying: ssl.SSLContext, by_proxy: bool) -> httpx.AsyncClient:
    """What forwards: a site's by the proxy that the environment names, if any, but not on this machine."""
    try:
        return httpx.AsyncClient(
            base_url=upstream,
            verify=verifying,
            limits=httpx.Limits(max_connections=None),
            mounts=dict.fromkeys(_HERE),
            trust_env=by_proxy,
        )
    except (ImportError, ValueError, httpx.InvalidURL) as error:  # SOCKS, another scheme, no address
        fix = "Name one by http://HOST:PORT (HTTPS_PROXY), or none (NO_PROXY=*)."
        raise RunError(f"the proxy that the environment names cannot be used ({error})", fix=fix) from error


def _is_signed(request: Request) -> bool:
    """Whether whoever asks has the key that they show, which anybody may know. Flower's server looks at that too, and
    at when it was signed, but not before it has all that is sent."""
    try:
        key, signature = (b64decode(request.headers[name], validate=True) for name in (_KEY, _SIGNATURE))
        public = load_pem_public_key(key)
        if isinstance(public, ec.EllipticCurvePublicKey):
            public.verify(signature, request.headers[_TIME].encode("ascii"), ec.ECDSA(SHA256()))
            return True
    except (KeyError, ValueError, InvalidSignature):
        pass
    return False


def _are_answers(body: bytes) -> bool:
    """Whether all messages that are pushed answer others, and are said to come from whoever pushes them."""
    from flwr.proto.fleet_pb2 import PushMessagesRequest
    from google.protobuf.message import DecodeError

    try:
        pushed = PushMessagesRequest.FromString(body)
    except DecodeError:
        return False
    sent = [message.metadata for message in pushed.messages_list]
    return all(one.reply_to_message_id and one.src_node_id == pushed.node.node_id for one in sent)


def _is_empty(answer: httpx.Response) -> bool:
    """Whether there is no message in what is answered to a request for one."""
    return answer.is_success and len(answer.content) < _EMPTY


def _refusal(date: str) -> str:
    """Why a site is not let in, in words.

    Args:
        date: of the answer, by the server's clock.
    """
    why = "it does not know this site's key"
    try:
        ahead = round((datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds())
    except (ValueError, TypeError, OverflowError):  # no date, or one without a zone
        return why
    if abs(ahead) <= _CLOCK:
        return why
    return f"{why}, or does not believe it: this machine's clock is {abs(ahead)} s {'ahead' if ahead > 0 else 'behind'}"


async def _bounded(request: Request) -> bytes | None:
    """The body of a request; None where it is too large, which is found before it is read."""
    if int(request.headers.get("content-length", 0) or 0) > AT_ONCE:
        return None
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > AT_ONCE:
            return None
    return bytes(body)


async def _bounded_answer(
    client: httpx.AsyncClient, path: str, headers: Mapping[str, str], body: bytes
) -> httpx.Response:
    timeout = _CROSSING if path == _PART else _TIMEOUT
    async with client.stream("POST", path, headers=headers, content=body, timeout=timeout) as answer:
        content = bytearray()
        async for part in answer.aiter_bytes():
            content += part
            if len(content) > AT_ONCE:
                raise httpx.DecodingError("more than is allowed", request=answer.request)
        return httpx.Response(answer.status_code, headers=answer.headers, content=bytes(content))
