"""What faces the network lets through the Fleet API of registered sites, and a site's lets in its own app."""

import asyncio
import gc
import re
import socket
import ssl
import threading
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from weakref import ref

import httpx
import pytest
import uvicorn
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata
from flwr.proto.node_pb2 import Node
from flwr.supercore.primitives.asymmetric import generate_key_pairs
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from murmura.errors import RunError
from murmura.federation.address import joined
from murmura.federation.engines.flower import free_port, gateway, impatient, tries
from murmura.federation.engines.flower.certificates import new_authority, new_local, new_server
from murmura.federation.engines.flower.gateway import Gateway, _refusal

PULL, PART, APP = "/v1/fleet/pull-messages", "/v1/fleet/push-object", "/v1/fleet/get-fab"
PULLED = "/v1/fleet/pull-object"


def signed(keys):
    """What Flower's own client says of itself, with whose keys it is."""
    request = httpx.Request("POST", "https://localhost")
    context = ProtobufRequestContext("", PushMessagesRequest(), request)
    NodeAuthHttpInterceptor(*keys).intercept(context, lambda _: httpx.Response(200))
    return {name: value for name, value in request.headers.items() if name.startswith("flwr-")}


SIGNED, OTHER = (signed(generate_key_pairs()) for _ in range(2))
KEY = SIGNED["flwr-public-key"]


class Upstream:
    """What stands in for a SuperLink: it tells what reached it."""

    def __init__(self, folder):
        self.reached, self.answers, self.status, self.takes = [], {}, 200, 0.0
        self._free = threading.Event()
        self._free.set()
        tls = folder / "local.crt", folder / "local.key"
        new_local(*tls)
        self.certificate, self.port = tls[0], free_port()
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            port=self.port,
            log_config=None,
            lifespan="off",
            ssl_certfile=str(tls[0]),
            ssl_keyfile=str(tls[1]),
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    async def _answer(self, scope, receive, send):
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        self.reached.append((scope["path"], body, dict(scope["headers"])))
        answers = self.answers.get(scope["path"], [b"ok" * 40])
        answer, status = answers.pop(0) if len(answers) > 1 else answers[0], self.status
        await asyncio.sleep(self.takes)
        while not self._free.is_set():
            await asyncio.sleep(0.01)
        headers = [(b"x-told", b"yes"), (b"location", b"http://127.0.0.1:1/")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    @contextmanager
    def holding(self, reached=1):
        """While it holds its answers back, until so many requests have reached it."""
        self._free.clear()
        try:
            yield
            while len(self.reached) < reached:
                time.sleep(0.01)
        finally:
            self._free.set()

    def close(self):
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)  # at the interpreter's end it would be cut off within libraries that do not stand that


@pytest.fixture
def made(tmp_path):
    """An upstream, and gateways before it."""
    with ExitStack() as opened:
        new_authority(tmp_path / "ca.crt", tmp_path / "ca.key", "tests")
        tls = tmp_path / "server.crt", tmp_path / "server.key"
        new_server(*tls, ["127.0.0.1", "::1"], tmp_path / "ca.crt", tmp_path / "ca.key")
        upstream = Upstream(tmp_path)
        opened.callback(upstream.close)

        def make(host="127.0.0.1", **rules):
            before = f"https://127.0.0.1:{upstream.port}"
            one = Gateway((host, 0), tls, before, upstream.certificate, **rules)
            opened.callback(one.close)
            verifying = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
            url = f"https://{joined(host, one.port)}"
            return httpx.Client(base_url=url, verify=verifying, timeout=20, trust_env=False)

        yield upstream, make


def test_calls_of_the_fleet_go_through_as_they_are(made):
    upstream, make = made
    answer = make().post(PULL, content=b"asked", headers=SIGNED)
    assert answer.content == b"ok" * 40 and answer.headers["x-told"] == "yes"
    [(path, body, headers)] = upstream.reached
    assert (path, body) == (PULL, b"asked") and headers[b"flwr-signature"] == SIGNED["flwr-signature"].encode()


def proxied(monkeypatch, proxy):
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, proxy)


@pytest.mark.parametrize(
    ("rules", "proxy"),
    [({"keys": {KEY}}, "http://127.0.0.1:1"), ({"keys": {KEY}}, "socks5://127.0.0.1:1"), ({}, "http://127.0.0.1:1")],
)
def test_a_proxy_of_the_environment_is_not_asked_for_what_is_on_this_machine(made, monkeypatch, rules, proxy):
    proxied(monkeypatch, proxy)
    client = made[1](**rules)
    assert client.post(PULL, content=b"asked", headers=SIGNED).status_code == 200


def test_a_site_reaches_a_server_elsewhere_by_the_proxy_of_the_environment(made, tmp_path, monkeypatch):
    tls = tmp_path / "server.crt", tmp_path / "server.key"
    with ExitStack() as opened:
        proxy = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        proxied(monkeypatch, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        server = "https://server.example:9443"
        one = opened.enter_context(closing(Gateway(("127.0.0.1", 0), tls, server, tmp_path / "ca.crt")))
        line = opened.enter_context(raw(httpx.Client(base_url=f"https://127.0.0.1:{one.port}"), tmp_path))
        line.sendall(f"POST {PULL} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n".encode())
        proxy.settimeout(20)
        assert proxy.accept()[0].recv(100).startswith(b"CONNECT server.example:9443 ")


@pytest.mark.parametrize("proxy", ["socks5://proxy:1", "ftp://proxy", "http://proxy:port"])
def test_a_proxy_that_cannot_be_used_is_told(made, monkeypatch, proxy):
    proxied(monkeypatch, proxy)
    with pytest.raises(RunError, match="the proxy that the environment names cannot be used"):
        made[1]()


def test_a_server_may_have_an_ipv6_address(made):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert made[1]("::1").post(PULL, content=b"asked").content == b"ok" * 40


def test_nothing_else_does(made):
    upstream, make = made
    client = make()
    for path in (
        "/v1/control/start-run",
        "/v1/runtime/acquire-task",
        "/v1/fleet/register-node",
        "/v1/fleet/unregister-node",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/pull-messages/",
        "/v1/fleet/pull-messages?x=1",
        "/health",
        "/docs",
        "/",
    ):
        assert client.post(path, content=b"x").status_code == 403, path
        assert client.get(path).status_code == 403, path
    assert upstream.reached == []


def pushed(**metadata):
    told = {"message_id": "m", "src_node_id": 7, "dst_node_id": 1, "reply_to_message_id": "asked"} | metadata
    return PushMessagesRequest(node=Node(node_id=7), messages_list=[Message(metadata=Metadata(**told))])


@pytest.mark.parametrize(
    ("body", "passes"),
    [
        (pushed(), True),
        (pushed(reply_to_message_id=""), False),  # an ask, to another site or itself
        (pushed(src_node_id=1), False),  # in the server's name
        (PushMessagesRequest(node=Node(node_id=7), messages_list=[*pushed().messages_list] * 2), True),
        (b"\xff\xff", False),
    ],
)
def test_a_site_sends_answers_of_its_own_and_nothing_else(made, body, passes):
    upstream, make = made
    content = body if isinstance(body, bytes) else body.SerializeToString()
    answer = make(keys=[KEY]).post("/v1/fleet/push-messages", content=content, headers=SIGNED)
    assert answer.status_code == (200 if passes else 403) and len(upstream.reached) == passes


def test_keys_that_are_not_registered_reach_nothing(made):
    upstream, make = made
    client = make(keys={KEY})
    assert client.post(PULL, content=b"x").status_code == 401
    assert client.post(PULL, content=b"x", headers=OTHER).status_code == 401
    assert upstream.reached == []
    assert client.post(PULL, content=b"x", headers=SIGNED).status_code == 200


def raw(client, folder):
    """A connection to a client's gateway, for what no client would send."""
    verifying = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    plain = socket.create_connection(("127.0.0.1", client.base_url.port), timeout=20)
    return verifying.wrap_socket(plain, server_hostname="127.0.0.1")


def head(length, headers=None):
    """Of a request with so long a body."""
    told = {"host": "x", "content-length": length, **(headers or {})}
    lines = [f"POST {PART} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items()), "", ""]
    return "\r\n".join(lines).encode()


@pytest.mark.parametrize("missing", ["flwr-signature", "flwr-timestamp", "flwr-public-key"])
def test_of_who_only_shows_a_key_nothing_is_read(made, tmp_path, missing):
    """Anybody may know it, and Flower's server looks at the signature only when it has everything."""
    upstream, make = made
    client = make(keys={KEY})
    for headers in ({**SIGNED, missing: OTHER[missing]}, {**SIGNED, missing: "x"}, SIGNED | {missing: ""}):
        with raw(client, tmp_path) as line:
            line.sendall(head(2**20, headers))
            assert b" 401 " in line.recv(100)
    assert upstream.reached == []


def test_a_body_that_does_not_come_is_not_waited_for(made, tmp_path, monkeypatch):
    monkeypatch.setattr(gateway, "_BODY", 0.5)
    upstream, make = made
    with raw(make(keys={KEY}), tmp_path) as line:
        line.sendall(head(1000, SIGNED) + b"begun")
        assert b" 503 " in line.recv(100)  # which Flower tries again
        while line.recv(100):  # until it is closed
            pass
    assert upstream.reached == []


@pytest.mark.parametrize("sent", [b"", b"P", b"POST / HTTP/1.1\r\nhost: "])
@pytest.mark.parametrize("first", [b"", head(2, SIGNED) + b"ok"])
def test_a_connection_on_which_no_request_comes_is_closed(made, tmp_path, monkeypatch, first, sent):
    """With as many of them as there may be nobody else would be served."""
    monkeypatch.setattr(impatient, "HEAD", 1.0)
    monkeypatch.setattr(gateway, "_IDLE", 1.0)
    with raw(made[1](keys={KEY}), tmp_path) as line:
        line.sendall(first)
        assert not first or b" 200 " in line.recv(4096)
        for part in (sent[:1], sent[1:]):
            line.sendall(part)
            time.sleep(0.3)
        while line.recv(4096):  # until it is closed
            pass


def test_the_head_of_a_request_is_bounded(made, tmp_path):
    with raw(made[1](), tmp_path) as line, suppress(ConnectionError):  # it may be closed before all is read
        line.sendall(b"POST / HTTP/1.1\r\nx: " + b"x" * 70_000)
        assert b" 400 " in line.recv(100)


def test_a_request_that_has_come_may_take_its_time(made, monkeypatch):
    monkeypatch.setattr(impatient, "HEAD", 0.5)
    upstream, make = made
    upstream.takes = 1.5
    assert make().post(PULL, content=b"x").status_code == 200


def test_a_message_of_two_gigabytes_is_refused_before_it_is_read(made, tmp_path):
    upstream, make = made
    client = make()
    with raw(client, tmp_path) as line:
        line.sendall(f"POST {PULL} HTTP/1.1\r\nhost: x\r\ncontent-length: {2**31}\r\n\r\n".encode())
        assert b" 413 " in line.recv(100)
    parts = (b"x" * 2**20 for _ in range(gateway.AT_ONCE // 2**20 + 2))  # whose size nothing tells beforehand
    with suppress(httpx.TransportError):  # it may be told while it still sends
        assert client.post(PULL, content=parts).status_code == 413
    assert upstream.reached == []


def test_of_an_upload_that_is_cut_off_nothing_is_printed(made, tmp_path, capfd):
    upstream, make = made
    client = make()
    with raw(client, tmp_path) as line:
        line.sendall(f"POST {PULL} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n\r\nbegun".encode())
    for _ in range(3):  # by then the gateway has noticed
        assert client.post(PULL, content=b"x").status_code == 200
    assert len(upstream.reached) == 3 and capfd.readouterr().err == ""


def test_all_parts_of_what_answers_a_message_are_bounded_together(made, monkeypatch):
    upstream, make = made
    monkeypatch.setattr(gateway, "LARGEST", 1000)
    upstream.answers[PULL] = [b"message" * 20, b""]
    client = make(keys={KEY, OTHER["flwr-public-key"]})

    def sent(path, size, headers=SIGNED):
        return client.post(path, content=b"x" * size, headers=headers).status_code

    assert [sent(PART, 600), sent(PART, 600), sent(PART, 400)] == [200, 413, 200]
    assert sent(PART, 600, OTHER) == 200
    assert [sent(PULL, 1), sent(PART, 1000), sent(PULL, 1), sent(PART, 1)] == [200, 200, 200, 413]  # which is none
    assert sum(len(body) for path, body, _ in upstream.reached if path == PART) == 2600


def test_parts_that_are_not_taken_count_for_nothing(made, monkeypatch):
    """What Flower's server refuses uses nothing up."""
    upstream, make = made
    monkeypatch.setattr(gateway, "LARGEST", 1000)
    client, upstream.status = make(), 401
    assert [client.post(PART, content=b"x" * 900).status_code for _ in range(3)] == [401] * 3
    upstream.status = 200
    assert [client.post(PART, content=b"x" * 900).status_code for _ in range(2)] == [200, 413]


def gives_up(client, path, body, headers=None):
    """A try that is not answered in time."""
    with pytest.raises(httpx.ReadTimeout):
        client.post(path, content=body, headers=headers, timeout=httpx.Timeout(20, read=0.2))


@pytest.mark.parametrize("path", [PART, PULLED])
def test_a_further_try_gets_the_reply_to_the_first_one_and_what_is_asked_anew_another(made, path):
    """Of a part that it has Flower's server says that it does not take it, and Flower throws the whole answer away."""
    upstream, make = made
    client, part, upstream.answers[path] = make(), b"p" * 2**20, [b"taken", b"not taken"]
    with upstream.holding():
        gives_up(client, path, part)
        gives_up(client, path, part)
    assert client.post(path, content=part).content == b"taken"
    assert [body for _, body, _ in upstream.reached] == [part]
    assert client.post(path, content=part).content == b"not taken"


def asked(receive):
    return Request({"type": "http", "path": PART, "headers": []}, receive)


def replies(*made):
    """What is replied to the second of two tries, of which the first did not wait; what is forwarded comes to these."""

    async def gone():
        return {"type": "http.disconnect"}

    async def tried():
        found, left = tries.Tries(), iter(made)

        async def forward():
            return next(left)

        with pytest.raises(ClientDisconnect):
            await found.reply(asked(gone), b"part", forward)
        await asyncio.sleep(0.1)
        return await found.reply(asked(asyncio.Event().wait), b"part", forward)

    return asyncio.run(tried())


def test_a_reply_that_nobody_waited_for_is_the_next_try_s_for_a_while(monkeypatch):
    first, second = Response(b"taken"), Response(b"not taken")
    assert replies(first, second) is first
    monkeypatch.setattr(tries, "_KEPT", 0.0)
    assert replies(first, second) is second


@pytest.mark.parametrize("status", [401, 500])
def test_a_failure_is_no_later_try_s(status):
    assert replies(Response(status_code=status), second := Response()) is second


def test_a_reply_that_was_taken_is_kept_no_longer():
    async def taken():
        async def forward():
            return Response(b"p" * 2**20)

        reply = ref(await tries.Tries().reply(asked(asyncio.Event().wait), b"part", forward))
        await asyncio.sleep(0)
        gc.collect()
        return reply() is None

    assert asyncio.run(taken())


def test_what_is_another_request_is_forwarded(made):
    upstream, make = made
    client = make()
    with upstream.holding(reached=5):
        for path, body in ((PART, b"one"), (PART, b"another"), (PULLED, b"one"), (PULL, b"one"), (PULL, b"one")):
            gives_up(client, path, body)
    assert len(upstream.reached) == 5


def test_a_part_counts_once_however_often_it_is_tried(made, monkeypatch):
    upstream, make = made
    monkeypatch.setattr(gateway, "LARGEST", 1000)
    client = make()
    with upstream.holding():
        gives_up(client, PART, b"x" * 600)
    assert [client.post(PART, content=b"x" * size).status_code for size in (600, 401, 400)] == [200, 413, 200]


def test_a_server_hands_nobody_what_another_has_asked_for(made):
    """Another site that sends the same bytes is found out by Flower's own server, which therefore has to be asked."""
    upstream, make = made
    client = make(keys={KEY, OTHER["flwr-public-key"]})
    with upstream.holding():
        gives_up(client, PULLED, b"x", SIGNED)
    assert client.post(PULLED, content=b"x", headers=OTHER).status_code == 200
    assert len(upstream.reached) == 2


def test_an_answer_that_is_too_large_is_not_handed_on(made, monkeypatch):
    upstream, make = made
    monkeypatch.setattr(gateway, "AT_ONCE", 1000)
    upstream.answers[PULL] = [b"x" * 1001]
    assert make().post(PULL, content=b"x").status_code == 502


def test_a_request_for_messages_is_held_until_there_are_some(made):
    upstream, make = made
    upstream.answers[PULL] = [b"", b"", b"message" * 20]
    assert make(holds=True).post(PULL, content=b"x").content == b"message" * 20
    assert len(upstream.reached) == 3
    upstream.answers[PULL] = [b"", b"message" * 20]
    assert make().post(PULL, content=b"x").content == b""


def test_a_site_lets_no_other_app_in(made):
    upstream, make = made
    client = make(app=b"its own")
    for sent, status in ((b"its own", 200), (b"its own.", 403), (b"another", 403), (b"", 403)):
        upstream.answers[APP] = [sent]
        assert client.post(APP, content=b"x").status_code == status


@pytest.mark.parametrize("call", [PULL, APP])
def test_nobody_is_led_past_it_and_nobody_gives_up(made, call):
    """Flower's client follows where it is sent, to plain text too, and would run the app that it gets there. Of errors
    it takes 502 for one of the way alone, and asks again: after a 500, as of a server that ends, it is deaf."""
    upstream, make = made
    client, upstream.answers[APP] = make(app=b"its own"), [b"its own"]
    for status in (201, 206, 301, 302, 303, 307, 308, 500, 501):
        for upstream.status, told in ((status, 502), (200, 200)):
            answer = client.post(call, content=b"x")
            assert answer.status_code == told and "location" not in answer.headers, status


def test_a_site_speaks_with_no_server_whose_certificate_another_authority_signed(made, tmp_path):
    upstream, _ = made
    new_authority(tmp_path / "other.crt", tmp_path / "other.key", "others")
    before = f"https://127.0.0.1:{upstream.port}"
    tls = tmp_path / "server.crt", tmp_path / "server.key"
    with closing(Gateway(("127.0.0.1", 0), tls, before, tmp_path / "other.crt")) as one:
        verifying = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        answer = httpx.post(f"https://127.0.0.1:{one.port}{PULL}", content=b"x", verify=verifying)
    assert answer.status_code == 502
    assert upstream.reached == []


def test_certificates_are_believed_by_who_keeps_to_the_standard(made, tmp_path):
    """As Python does by itself from 3.13 on."""
    upstream, make = made
    url = f"{make().base_url}{PULL}"
    local = f"https://127.0.0.1:{upstream.port}{PULL}"
    for at, authority in ((url, tmp_path / "ca.crt"), (local, upstream.certificate)):
        strict = ssl.create_default_context(cafile=str(authority))
        strict.verify_flags |= ssl.VERIFY_X509_STRICT
        assert httpx.post(at, content=b"x", verify=strict).status_code == 200


@pytest.mark.parametrize("is_there", [True, False])
def test_a_site_is_told_once_why_the_server_is_out_of_reach_and_that_it_is_reached(made, tmp_path, is_there):
    _, make = made
    server, told = make(keys=[KEY]).base_url if is_there else f"https://127.0.0.1:{free_port()}", []
    tls = tmp_path / "server.crt", tmp_path / "server.key"
    before = str(server).rstrip("/")
    with closing(Gateway(("127.0.0.1", 0), tls, before, tmp_path / "ca.crt", notice=told.append)) as one:
        verifying = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
        url, keys = f"https://127.0.0.1:{one.port}{PULL}", (OTHER, OTHER, SIGNED, SIGNED)
        found = [httpx.post(url, verify=verifying, headers=key).status_code for key in keys]
    assert found == ([401, 401, 200, 200] if is_there else [502] * 4)
    assert told[0] and told[1:] == [None] * is_there
    assert ("key" in told[0]) == is_there


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "site's key"),
        (-90, r"this machine's clock is (89|9\d) s ahead"),
        (90, r"this machine's clock is (89|9\d) s behind"),
    ],
)
def test_a_clock_that_is_wrong_is_not_called_a_wrong_key_alone(seconds, told):
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
    assert re.search(told + "$", _refusal(date))


@pytest.mark.parametrize("date", ["", "today", "Mon, 01 Jan 2024 00:00:00 -0000", "Mon, 99 Jan 99999 00:00:00 GMT"])
def test_a_date_that_is_none_tells_nothing_of_a_clock(date):
    assert _refusal(date) == "it does not know this site's key"


def test_a_thousand_connections_leave_room_for_those_who_ask(made):
    _, make = made
    client = make()
    port = client.base_url.port
    with ExitStack() as opened:
        for _ in range(1000):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert client.post(PULL, content=b"x").status_code == 200


def test_a_port_that_is_taken_is_named(made, tmp_path):
    upstream, _ = made
    tls = tmp_path / "server.crt", tmp_path / "server.key"
    with pytest.raises(RunError, match="nothing can listen there") as error:
        Gateway(("127.0.0.1", upstream.port), tls, "https://127.0.0.1:1", upstream.certificate)
    assert str(upstream.port) in str(error.value) and error.value.passing


def test_a_certificate_that_is_not_there_is_named(made, tmp_path):
    tls = tmp_path / "server.crt", tmp_path / "server.key"
    for authority, pair, missing in ((tmp_path / "gone.crt", tls, "gone.crt"), (tls[0], (tmp_path / "x", tls[1]), "x")):
        with pytest.raises(RunError, match="cannot be used") as error:
            Gateway(("127.0.0.1", 0), pair, "https://127.0.0.1:1", authority)
        assert error.value.where == str(tmp_path / missing)
