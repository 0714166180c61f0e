"""Sites vote for the texts nearest to theirs; the server keeps the winner and the text least like it, varying both."""

import torch

from murmura.federation.method import Method
from murmura.federation.traits import Traits
from murmura.federation.wire.releases import Votes, verb
from murmura.resources import Resource

BEGINNING = ["kidney stones and tablets", "a rash on the skin", "the heart beats fast", "a letter to the clinic"]
KEPT = 2


class Covering(Method):
    traits = Traits(label="Covering", trained_at="nowhere")

    def resources(self):
        return {
            "site_encoder": Resource("encoder", self.config.site_encoder, "site"),
            "server_encoder": Resource("encoder", self.config.server_encoder, "server"),
            "varying": Resource("masked", self.config.varying, "server"),
        }

    def lead(self, server, fleet):
        resources = server.runtime.resources
        server.store.setdefault("texts", BEGINNING)
        for round in server.rounds(self.config.rounds):
            texts, cohort = server.store["texts"], fleet.sample(self.config.sites_per_round, round)
            votes = fleet.sum("vote", cohort, texts=texts)["votes"]
            winner = int(votes.argmax())
            vectors = resources.encoder("server_encoder").embed(texts)
            kept = [texts[winner], texts[int((vectors @ vectors[winner]).argmin())]]
            varied = [vary(text, resources.language_model("varying")) for text in kept]
            server.store["texts"] = [*kept, *varied]
            server.store["votes"] = [*server.store.get("votes", []), [int(count) for count in votes]]

    def outcomes(self, server):
        return {"covering.json": {name: server.store[name] for name in ("texts", "votes")}}

    @verb(releases={"votes": Votes("how many records are nearest to each text")}, slots=False)
    def vote(self, cohort, ask):
        encoder = cohort.runtime.resources.encoder("site_encoder")
        places = encoder.embed(ask["texts"])
        votes = []
        for site in cohort.sites:
            nearest = (encoder.embed([record.instruction for record in site.records]) @ places.T).argmax(1)
            votes.append(torch.bincount(torch.as_tensor(nearest), minlength=len(places)))
        return cohort.reply(votes=votes)


def vary(text, varying):
    """The text with the likeliest word that it does not have in place of its last one."""
    model, tokenizer = varying.model, varying.tokenizer
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    ids[0, -1] = tokenizer.mask_token_id
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, -1].float()
    logits[tokenizer.all_special_ids] = -torch.inf
    return text.rsplit(" ", 1)[0] + tokenizer.decode([int(logits.argmax())])
