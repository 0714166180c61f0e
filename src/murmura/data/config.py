"""Where records come from and how they are shared out."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from murmura.config import ModelSource, Section, Source
from murmura.data.records import Kind


class FewShot(Section):
    """Few records that still cover what many are about: k-means over their embeddings, then some from each cluster."""

    clusters: int = Field(100, ge=1)
    """How many clusters."""
    per_cluster: int = Field(10, ge=1)
    """Records drawn from each cluster; all of them if it has fewer."""


class SitesConfig(Section):
    """How records become sites."""

    by: Literal["file", "column", "partition"] = "file"
    """file: one file a site in the folder data.train; column: the column that names a record's owner; partition: one
    file shared out."""
    column: str | None = Field(None, min_length=1)
    """The column, for by = "column"."""
    count: int | None = Field(None, ge=1)
    """How many sites, for by = "partition"."""
    scheme: Literal["iid", "dirichlet", "dirichlet-equal"] = "iid"
    """iid; dirichlet: each label's records by shares drawn from Dir(alpha); dirichlet-equal: FedNLP's form, sites of
    equal size whose mix of labels is drawn from Dir(alpha·prior)."""
    alpha: float = Field(1.0, gt=0)
    """Concentration of the Dirichlet distribution; the smaller, the more the sites differ."""
    label: str | None = Field(None, min_length=1)
    """Column to draw the mix over; k-means clusters of the records' embeddings if not given."""
    clusters: int = Field(100, ge=1)
    """How many k-means clusters, where there is no label column and no few_shot, which has clusters of its own."""
    records: int | None = Field(None, ge=1)
    """At most this many records per site, drawn at random from those that can be used."""
    ignore: list[str] = Field([])
    """Files or folders beside the sites' files in the folder data.train that are no site's, by name or by pattern:
    ["old", "*.ods"]. Whatever else cannot be read is refused."""
    fields: dict[str, dict[str, str]] = Field({})
    """Column of each field in the files of single sites, where these have other names than `data.fields` says:
    {clinic-b = {instruction = "Frage"}}."""

    @model_validator(mode="after")
    def _complete(self) -> SitesConfig:
        if self.by == "column" and not self.column:
            raise ValueError('by = "column" needs column = "..."')
        if self.by == "partition" and not self.count:
            raise ValueError('by = "partition" needs count = ...')
        if self.by != "partition":
            self.refuse_idle(["count", "scheme", "alpha", "label", "clusters"], f'with by = "{self.by}"')
        if self.by != "file":
            self.refuse_idle(["ignore", "fields"], f'with by = "{self.by}"')
        if self.by != "column":
            self.refuse_idle(["column"], f'with by = "{self.by}"')
        if self.scheme == "iid":
            self.refuse_idle(["alpha", "label", "clusters"], 'with scheme = "iid"')
        if self.label is not None:
            self.refuse_idle(["clusters"], "with 'label', whose values are what is mixed")
        return self


class DataConfig(Section):
    """The sites' private records, the held-out ones to measure on, and how they become text. What cannot be used is
    left out first, so that numbers of records are of those that fit `max_length` and have no unknown label."""

    train: Source | None = None
    """A JSONL, CSV (.gz too), Excel or Parquet file, a folder with one such file a site, or a Hugging Face id. Left
    out where sites are on machines of their own."""
    kind: Kind | None = None
    """What each record is, where the method works with several kinds: instruction, document or preference; else the
    method's."""
    heldout: Source | None = None
    """Public records to measure on, of the same kind; without them, give heldout_records."""
    heldout_records: int | None = Field(None, ge=1)
    """Number of held-out records: drawn at random from `heldout`, or taken out of `train`: of one file before it is
    shared out; else of each site in proportion, such that each keeps one. Those are its own, and no ε covers them."""
    nonmember_records: int | None = Field(None, ge=1)
    """Number of records taken out of `train` to compare members with in attacks, drawn as members are. Held-out records
    serve if they come out of `train` too; those of another kind are easier or harder, whoever trained on what."""
    split: str = "train"
    """Split of a Hugging Face data set."""
    heldout_split: str = "test"
    """Split of a Hugging Face held-out set."""
    fields: dict[str, str] = Field({})
    """Column of each field, where the names differ: {instruction = "question"}; {input = ""} leaves out a field that
    records may do without."""
    heldout_fields: dict[str, str] | None = None
    """The same for `heldout`, if its columns have other names than those of `train`."""
    user: str | None = Field(None, min_length=1)
    """Column of `train` that names the person a record is about, where one person has several records."""
    records_per_user: int | None = Field(None, ge=1)
    """At most so many records of one person at a site, drawn at random; the others are left out. A guarantee for single
    records then is one for persons too, a weaker one, which is told to each site, and in reports beside the ledgers."""
    skip_bad: bool = False
    """Leave out and count records that cannot be used, held-out ones that a site has too, and sites without a usable
    record, instead of refusing them."""
    template: Literal["alpaca", "alpaca-merged", "feddca", "flowertune", "chat"] = "alpaca"
    """Text around a record: Stanford Alpaca's, OpenFedLLM's, FedDCA's, FlowerTune's, or the tokenizer's chat
    template."""
    max_length: int = Field(512, ge=16)
    """Most tokens of a record; a prompt is shortened to fit, a record whose response does not fit is dropped before any
    is held out, chosen or shared out."""
    opening: Literal["tokenizer", "always"] | None = None
    """Of documents, whether a beginning-of-sequence token stands before each (the end-of-sequence token where there is
    no such), so that the first token of a text counts too: tokenizer, where the tokenizer sets one; always. If not
    given, what suits the method."""
    encoder: ModelSource = "minilm"
    """Sentence encoder for few_shot and for partitions by clusters: an alias, a folder, or a Hugging Face id."""
    few_shot: FewShot | None = None
    """Choose a few of many records before sharing them out."""
    sites: SitesConfig = SitesConfig()

    @field_validator("train", mode="before")
    @classmethod
    def _is_one(cls, value: object) -> object:
        if isinstance(value, list):
            raise ValueError("several files go into a folder of their own, whose name stands here: each is a site")
        return value

    @property
    def may_cluster(self) -> bool:
        """Whether records are chosen or shared out by an encoder's vectors, unless they have labels."""
        return self.few_shot is not None or (self.sites.scheme != "iid" and self.sites.label is None)

    @property
    def takes_from_sites(self) -> bool:
        """Whether records are set apart to measure with that are sites' own, and so not public. Of a file that is
        shared out, they are set apart before any site owns one."""
        return self.sites.by != "partition" and (self.heldout is None or self.nonmember_records is not None)

    @model_validator(mode="after")
    def _heldout_from_somewhere(self) -> DataConfig:
        if self.train is None and (self.heldout is None or self.nonmember_records is not None):
            raise ValueError("'train' is missing; sites that have records of their own need 'heldout' = a file")
        if self.train is None:
            self.sites.refuse_idle(["fields"], "without 'train': each site has its own in site.toml")
        if self.heldout is None and self.heldout_records is None:
            raise ValueError("give heldout = a file, or heldout_records = a number to take out of train")
        if self.heldout is None:
            self.refuse_idle(["nonmember_records"], "without 'heldout', since held-out records of `train` serve")
            self.refuse_idle(["heldout_fields", "heldout_split"], "without 'heldout'")
        if (self.user is None) != (self.records_per_user is None):
            raise ValueError("'user' and 'records_per_user' go together: give both, or neither")
        if self.few_shot and self.sites.by != "partition":
            raise ValueError('few_shot needs sites.by = "partition"')
        if self.few_shot:
            self.sites.refuse_idle(["clusters"], "in sites beside few_shot, whose clusters serve for both")
        return self
