"""A generator behind an OpenAI-compatible server: vLLM, llama.cpp's, a hosted one."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from murmura.config import names_user
from murmura.errors import ConfigError, RunError
from murmura.synthesis.generators import Answer, Request
from murmura.synthesis.prompts import one_line

if TYPE_CHECKING:
    from openai import APIError, OpenAI

_MOST_REFUSED = 8  # prompts in a row; then it is not the prompts
_RETRIES = 8  # of a request, before the server counts as down
_TIMEOUT = 120.0  # seconds until an answer is there
_LONGEST = 300  # characters that are shown of what a server says
_CUT = (None, "length", "content_filter")  # finish reasons: who gives none may have cut an answer off


class Endpoint:
    """A model that a server writes with.

    Requests that fail for a while (429, 5xx, time-outs, connections that break) are repeated, after pauses that double
    up to 8 seconds, or are as long as the server asks for. What the server draws is its own business: a seed is sent
    with each request. Where the server says that it takes no seed, or another option without which the answers are of
    the same kind, it is asked without.

    Args:
        url: where the protocol's paths begin, such as http://localhost:8000/v1.
        model: what the server calls the model.
        chat: ask by ``chat/completions``, for models that only converse; else by ``completions``.
        temperature: at which tokens are drawn; 0: the likeliest one each time.
        top_p: of the fewest likeliest tokens that together have this probability; 1: of all.
        max_tokens: of an answer.
        stop: strings that end an answer.
        can_lack: options, besides the seed, that a server need not take.
        concurrency: requests on their way at the same time, at least 1.
        most_refused: prompts without an answer between them, after which the server counts as refusing everything; None
            where it may refuse any number.
        key_variable: of the environment, that holds the key; None where the server wants none. The key is read when it
            is needed and is kept nowhere.
        again: how the user goes on after a failure.

    Attributes:
        refusal: of the prompt that was refused last; None before one was.

    Raises:
        ConfigError: the address is none, the variable is empty, or the client is not installed.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        chat: bool = False,
        temperature: float = 1.0,
        top_p: float = 1.0,
        max_tokens: int = 85,
        stop: Sequence[str] = (),
        can_lack: Collection[str] = (),
        concurrency: int = 16,
        most_refused: int | None = _MOST_REFUSED,
        key_variable: str | None = None,
        again: str = "start again with --resume",
    ) -> None:
        self._url, self._chat, self._concurrency, self._again = url, chat, concurrency, again
        self._most_refused = most_refused
        self._options: dict[str, Any] = {"model": model, "max_tokens": max_tokens}
        self._options |= {"temperature": temperature, "top_p": top_p}
        self._key_variable, self._stop = key_variable, list(stop)
        self._can_lack, self._lacking = {"seed", *can_lack}, set[str]()
        self.refusal: RunError | None = None
        if not _is_address(url):
            raise ConfigError(f"'{url}' is not the address of a server", fix="Write one like http://localhost:8000/v1.")
        if names_user(url):
            fix = "Leave them out, and name an environment variable that holds a key."
            raise ConfigError("a name or a password in the address would be written down in reports", fix=fix)
        if key_variable is not None and not os.environ.get(key_variable):
            fix = "Set it to the key, or name another one."
            raise ConfigError(f"the environment variable {key_variable} is empty", fix=fix)
        if importlib.util.find_spec("openai") is None:
            raise ConfigError("an endpoint needs the openai client", fix="Install it: pip install 'murmura[endpoint]'.")

    @property
    def described(self) -> Mapping[str, Any]:
        """See ``Generator``. The server may move, so its address is no part of it."""
        return self._options | {"chat": self._chat}

    def answers(self, requests: Iterable[Request]) -> Iterator[list[Answer]]:
        """See ``Generator``. When it is stopped, by the server or by hand, it waits for what is on its way."""
        waiting, flying = iter(requests), dict[Future[Answer], None]()
        refused: list[Answer] = []  # not handed out before it is clear that prompts are refused, and not everything
        stopped: BaseException | None = None
        with self._client() as client, ThreadPoolExecutor(self._concurrency, "endpoint") as pool:
            while True:
                if stopped is None:
                    more = islice(waiting, self._concurrency - len(flying))
                    flying |= dict.fromkeys(pool.submit(self._ask, client, request) for request in more)
                if not flying:
                    break
                try:
                    done, _ = wait(flying, return_when=FIRST_COMPLETED)
                except KeyboardInterrupt as interrupt:
                    stopped = interrupt
                    continue
                found: list[Answer] = []
                for future in done:
                    del flying[future]
                    if (error := future.exception()) is not None:
                        stopped = stopped or error
                    elif (answer := future.result()).text is None:
                        refused.append(answer)
                    else:
                        found.append(answer)
                if found:
                    yield found + refused
                    refused = []
                elif self._most_refused is not None and len(refused) >= self._most_refused:
                    stopped = stopped or self.refusal
        if stopped is not None:
            raise stopped
        if refused:
            yield refused

    def _ask(self, client: OpenAI, request: Request) -> Answer:
        import openai

        options = self._sent(request)
        try:
            text, finished = self._written(client, request, options)
            if text is None:
                self.refusal = self._failure("gives no answers, though it refuses nothing", "Check its model")
            return Answer(request, text, finished)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            if wrong := self._not_taken(options, error.message):
                self._lacking |= wrong
                return self._ask(client, request)
            self.refusal = self._failure(f"refuses every prompt ({_said(error)})", "Check its model and its options")
            return Answer(request, None, finished=False)
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            named = f"Check the environment variable {self._key_variable}"
            fix = named if self._key_variable else "Name the environment variable that holds the key"
            raise self._failure(f"refuses the key ({error.status_code})", fix) from error
        except (openai.RateLimitError, openai.InternalServerError) as error:
            fix = "Wait, or send it fewer requests at once"
            raise self._failure(f"keeps failing ({_said(error)})", fix, passing=True) from error
        except openai.APIStatusError as error:
            raise self._failure(f"cannot write ({_said(error)})", "Check its address and the model's name") from error
        except openai.APIError as error:
            fix = "Start it, or check its address"
            raise self._failure(f"does not answer ({_said(error)})", fix, passing=True) from error
        except (ValueError, TypeError, AttributeError) as error:  # what the client makes of an answer that is none
            raise self._failure("speaks another protocol", "Check its address") from error

    def _not_taken(self, options: Collection[str], said: str) -> set[str]:
        """Which of the options the server does not take, by what it says, that it can be asked without. Of models that
        think before they answer, max_tokens has another name."""
        renamed = self._chat and "max_completion_tokens" in said and "support" in said.lower()
        return {name for name in options if name in said} & {*self._can_lack, *(["max_tokens"] if renamed else [])}

    def _sent(self, request: Request) -> dict[str, Any]:
        """The options of a request: all but those that the server has said it does not take."""
        options = self._options | ({"stop": self._stop} if self._stop else {})
        options["seed"] = request.stream.integer() >> 32  # of 31 bits, which every server takes
        if "max_tokens" in self._lacking:
            options["max_completion_tokens"] = options["max_tokens"]
        return {name: value for name, value in options.items() if name not in self._lacking}

    def _written(self, client: OpenAI, request: Request, options: Mapping[str, Any]) -> tuple[str | None, bool]:
        """The answer, None where there is none, and whether it came to its end."""
        if self._chat:
            chat = client.chat.completions.create(messages=[{"role": "user", "content": request.prompt}], **options)
            said = [(one.message.content, one.finish_reason) for one in chat.choices[:1]]
        else:
            plain = client.completions.create(prompt=request.prompt, **options)
            said = [(one.text, one.finish_reason) for one in plain.choices[:1]]
        [(text, reason)] = said or [(None, None)]
        if text is not None:  # JSON can hold half of a pair of surrogates, which no file can
            text = text.encode(errors="replace").decode()
        return text, text is not None and reason not in _CUT

    def _client(self) -> OpenAI:
        from openai import OpenAI

        key = os.environ[self._key_variable] if self._key_variable else "none"
        return OpenAI(api_key=key, base_url=self._url, timeout=_TIMEOUT, max_retries=_RETRIES)

    def _failure(self, what: str, fix: str, *, passing: bool = False) -> RunError:
        fix = f"{fix}, then {self._again}: what was answered is kept."
        return RunError(f"the endpoint {what}", where=self._url, fix=fix, passing=passing)


def _is_address(url: str) -> bool:
    """Whether it can be the address of a server: what the client cannot read it would say when it is asked first."""
    try:
        found = urlsplit(url)
        names = bool(found.hostname and found.hostname.encode("idna")) and found.port != 0
    except ValueError:  # brackets, a host's name, or a port that are none
        return False
    return names and url.startswith(("http://", "https://")) and url.isprintable() and " " not in url


def _said(error: APIError) -> str:
    """What the server or the client says, in one line."""
    return one_line(error.message)[:_LONGEST]
