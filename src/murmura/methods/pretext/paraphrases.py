"""DP-Prompt (Utpala et al. 2023): each site paraphrases its texts under local differential privacy, and sends these."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from murmura.methods.pretext.ballots import chosen_texts
from murmura.methods.pretext.config import PretextConfig
from murmura.methods.pretext.population import public_texts, sent, too_many
from murmura.privacy import local_text
from murmura.privacy.entropy import OSEntropy
from murmura.privacy.guarantee import Guarantee
from murmura.privacy.journal import Journal, now
from murmura.progress import phase
from murmura.synthesis.dp_prompt import DPPrompt, logit_bounds, paraphrased

if TYPE_CHECKING:
    from murmura.federation.server.fleet import Fleet
    from murmura.federation.server.rounds import Server
    from murmura.federation.site.cohort import Cohort

ACCOUNTANT = "the formula of DP-Prompt"
ASKED = "paraphrases"
"""The server's journal of how often sites were asked: a line is on disk before any of them is."""
OPTION = "paraphraser"
"""Of the method, which names the model."""
_asked = partial(Journal, what="journal of paraphrases")
_READ = 64  # public texts, by which logits are bounded


def gathered(config: PretextConfig, server: Server, fleet: Fleet) -> list[str]:
    """All sites' paraphrases, empty ones left out. What they have cost is noted: as often as they have been asked for.

    Raises:
        DataError: there are no public texts to bound logits by.
    """
    texts = public_texts(config, server.evaluation_set.subjects)
    read = (server.stream / "bounds").python().sample(texts, min(_READ, len(texts)))
    with phase("score"):
        low, high = logit_bounds(server.runtime.another(OPTION), read, config.paraphrase_tokens)
    server.journal(ASKED, _asked).append({"at": now()})
    refused = partial(too_many, most=config.texts_per_site)
    found = sent(fleet.ask("paraphrase", fleet.sites, refused=refused, low=low, high=high), fleet.sites)
    note_privacy(config, server, fleet)
    return [text for text in found if text.strip()]


def written(config: PretextConfig, cohort: Cohort, low: float, high: float) -> list[list[str]]:
    """Of each site, a paraphrase of each of its texts, at most S of them.

    The temperature follows from ε and the bounds here, so that whatever bounds a server sends, ε holds.

    Raises:
        PrivacyError: the bounds are none.
    """
    assert config.epsilon is not None, "the options need it"
    texts = [chosen_texts(config, cohort, site) for site in cohort.sites]
    tokens, most = config.paraphrase_tokens, config.texts_per_site
    temperature = local_text.temperature(config.epsilon, tokens, low, high, documents=most)
    with phase("generate"):
        how = DPPrompt(tokens, low, high, temperature)
        return paraphrased(cohort.runtime.another(OPTION), texts, how, OSEntropy())


def plan(config: PretextConfig) -> str:
    """What protects a site, in words."""
    return (
        f"site-level, any texts in place of as many others; at most {config.texts_per_site} texts a site, each "
        f"paraphrased once with {config.paraphrase_tokens} tokens drawn by the exponential mechanism (DP-Prompt); δ = 0"
    )


def guarantee(config: PretextConfig) -> Guarantee:
    """The ε of a site's texts, however the server behaves.

    Raises:
        PrivacyError: it is none that tokens can be drawn with.
    """
    assert config.epsilon is not None, "the options need it"
    local_text.temperature(config.epsilon, config.paraphrase_tokens, 0.0, 1.0, documents=config.texts_per_site)
    return Guarantee("site", None, ACCOUNTANT, plan(config), config.epsilon)


def note_privacy(config: PretextConfig, server: Server, fleet: Fleet) -> None:
    """Note ε of the site that may have answered most often: a round that was repeated after it was stopped has sent
    other paraphrases of the same texts. All sites are asked each time, and answers may have left that never came here;
    a failure of power may undo the count of messages, and not the journal.
    """
    assert config.epsilon is not None, "the options need it"
    noted = len(server.journal(ASKED, _asked).lines)
    times = max(1, noted, math.ceil(server.asks("paraphrase") / len(fleet.sites)))
    server.note_privacy(
        {
            "unit": "site",
            "adjacency": "replace-one, by as many texts",
            "delta": 0.0,
            "epsilon": times * config.epsilon,
            "refused": None,
            "accountant": ACCOUNTANT,
            "claimed_per_step": None,
            "plan": plan(config) + (f"; sent {times} times" if times > 1 else ""),
        }
    )
