"""A status for browsers and Prometheus, on this machine alone: ``/``, ``/status.json`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from murmura.errors import CheckpointError, RunError, explaining
from murmura.runs import jsontext
from murmura.status.status import Status, look
from murmura.status.view import lines

HOST = "127.0.0.1"
"""Nobody elsewhere sees it: to show it further is for a proxy that knows who may look."""
SECONDS = 5
"""Between two looks of a page."""
_GAUGES = {
    "running": ("Whether a process works on the run.", lambda one: one.state in ("running", "waiting")),
    "finished": ("Whether the run is finished.", lambda one: one.state == "finished"),
    "rounds": ("Rounds that there are to be.", lambda one: one.rounds),
    "round_saved": ("The last round that was saved.", lambda one: one.done),
    "sites_asked": ("Sites that are being asked.", lambda one: one.asked),
    "sites_left": ("Those of them that have not answered yet.", lambda one: one.left),
    "bytes_up": ("Bytes that have left the sites, but for measuring.", lambda one: one.bytes_up),
    "bytes_down": ("Bytes that were sent to sites, but for measuring.", lambda one: one.bytes_down),
    "epsilon": ("Guaranteed, by all that the run's ledgers hold.", lambda one: one.epsilon),
    "seconds_left": ("At the pace of the last rounds.", lambda one: one.seconds_left),
}

Start = Callable[..., Any]


def page(status: Status) -> str:
    """HTML that looks again by itself."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("murmura.status", ".")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template("page.html.j2").render(status=status, lines=lines(status), seconds=SECONDS)


def metrics(status: Status) -> bytes:
    """In Prometheus' text format; what is not known is left out.

    Raises:
        RunError: its library is not installed.
    """
    if find_spec("prometheus_client") is None:
        raise RunError("prometheus-client is not installed", fix="pip install 'murmura[watch]'")
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    told = CollectorRegistry()
    for name, (what, of) in _GAUGES.items():
        if (value := of(status)) is not None:
            Gauge(f"murmura_{name}", what, ["run"], registry=told).labels(status.name).set(value)
    waited = Gauge("murmura_site_waited_for", "Sites that are waited for.", ["run", "site"], registry=told)
    for site in status.waiting:
        waited.labels(status.name, site).set(1)
    measured = Gauge("murmura_figure", "Figures measured last.", ["run", "figure"], registry=told)
    for key, figure in status.figures.items():
        measured.labels(status.name, key).set(figure)
    return generate_latest(told)


def application(folder: Path) -> Callable[[dict[str, Any], Start], Iterable[bytes]]:
    """WSGI, of what anybody may see of the run in a folder."""
    kinds: dict[str, tuple[str, Callable[[Status], bytes]]] = {
        "/": ("text/html; charset=utf-8", lambda status: page(status).encode()),
        "/status.json": ("application/json", lambda status: jsontext.dumps(asdict(status)).encode()),
        "/metrics": ("text/plain; version=0.0.4; charset=utf-8", metrics),
    }

    def answer(environ: dict[str, Any], start: Start) -> Iterable[bytes]:
        kind, write = kinds.get(environ.get("PATH_INFO", "/"), (None, None))
        if kind is None or write is None:
            code, kind, body = "404 Not Found", "text/plain", b"There are /, /status.json and /metrics.\n"
        else:
            try:
                code, body = "200 OK", write(look(folder).published)
            except (CheckpointError, RunError) as error:
                code, kind, body = "503 Service Unavailable", "text/plain; charset=utf-8", f"{error}\n".encode()
        start(code, [("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")])
        return [body]

    return answer


class _Server(ThreadingMixIn, WSGIServer):
    """Answers others while somebody who has connected asks nothing, as browsers do in advance."""

    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    """Says nothing of every look."""

    def log_message(self, format: str, *args: Any) -> None:
        return


def serve(folder: Path, port: int, ready: Callable[[str], None]) -> None:
    """Answer until it is interrupted.

    Args:
        ready: is called with the page's address when it can be looked at.

    Raises:
        CheckpointError: there is no run, or nobody but its owner may watch it.
        RunError: something else listens at this port.
    """
    _ = look(folder).published
    with explaining(f"the page cannot be served at port {port}", None, "or choose another port", kind=RunError):
        server = make_server(HOST, port, application(folder), _Server, _Quiet)
    with server:
        ready(f"http://{HOST}:{server.server_port}/")
        server.serve_forever()
