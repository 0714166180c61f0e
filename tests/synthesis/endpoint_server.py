"""A server of the OpenAI protocol, with the standard library alone, whose answers and failures are written in a plan.

Called as ``endpoint_server.py FOLDER``. It writes its port to FOLDER/port and a line for each request to FOLDER/log.
FOLDER/plan is a JSON list of what becomes of the first requests, in their order; its last entry is for all others:

* ``answer``: a text that follows from the prompt;
* ``hold``: the same, but not before there is a file FOLDER/go;
* ``length``, ``silent``: the same, cut off; the second does not say whether it was;
* ``half``: the same, with half of a pair of surrogates behind it;
* ``empty``, ``null``, ``other``: an answer of no words, one without text, one of another protocol;
* ``drop``: the connection is closed without an answer;
* a number: this status, to be tried again in a millisecond. It says that there is something wrong with the seed, if
  there is one, and otherwise with the prompt;
* a sentence: status 400, which says this.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WORDS = "the nurse calls about your blood test and a new letter on monday".split()  # noqa: SIM905


def text_after(prompt: str) -> str:
    """Eight words that no other prompt gets, and the beginning of another sample."""
    number = hashlib.sha256(prompt.encode()).digest()
    return (
        " ".join(WORDS[byte % len(WORDS)] for byte in number[:8]) + f" {number.hex()[:6]}\nOriginal Text Sample 5\nno"
    )


class Handler(BaseHTTPRequestHandler):
    """Does what the plan says."""

    protocol_version = "HTTP/1.1"
    folder: Path
    plan: list[str | int]
    lock = threading.Lock()
    asked = 0

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        with self.lock:
            Handler.asked += 1
            what = self.plan[min(Handler.asked, len(self.plan)) - 1]
            entry = {"path": self.path, "key": self.headers["Authorization"], "what": what, "prompt": prompt} | body
            with (self.folder / "log").open("a") as log:
                log.write(json.dumps(entry) + "\n")
        while what == "hold" and not (self.folder / "go").exists():
            time.sleep(0.01)
        if what == "drop":
            self.close_connection = True
        elif what == "other":
            self.reply(200, ["hello"])
        elif isinstance(what, str) and " " in what:
            self.reply(400, {"error": {"message": what, "code": 400}})
        elif isinstance(what, int):
            wrong = "seed is not supported" if "seed" in body else "the prompt is not acceptable"
            self.reply(what, {"error": {"message": wrong, "code": what}})
        else:
            text = {"empty": "", "null": None}.get(what, text_after(prompt))
            if what in ("length", "silent"):
                text = text.partition("\n")[0]
            if what == "half":
                text += " \ud83d"
            choice = {"message": {"role": "assistant", "content": text}} if "messages" in body else {"text": text}
            reason = {"length": "length", "silent": None}.get(what, "stop")
            self.reply(200, {"id": "1", "choices": [{"index": 0, "finish_reason": reason, **choice}]})

    def reply(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Retry-After-Ms", "1")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass


if __name__ == "__main__":
    Handler.folder = Path(sys.argv[1])
    Handler.plan = json.loads((Handler.folder / "plan").read_text())
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    draft = Handler.folder / "port.partial"
    draft.write_text(str(server.server_address[1]))
    draft.rename(Handler.folder / "port")
    server.serve_forever()
