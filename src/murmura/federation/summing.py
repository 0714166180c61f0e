"""Secure sums: what sites are asked besides the method's verb, whose replies leave under masks.

The steps are those of Bonawitz et al. 2017, Figure 4. ``site/masking.py`` is the site's part, and
``server/unmasking.py`` the server's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from murmura.federation.wire.masks import OFFER_BYTES, SIGNATURE_BYTES, packed, unpacked
from murmura.federation.wire.messages import Ask, Reply
from murmura.federation.wire.releases import Keys, WithoutRecords, verb
from murmura.federation.wire.shamir import SEALED_BYTES, SHARE_BYTES

if TYPE_CHECKING:
    from murmura.federation.site.cohort import Cohort


class SecureSumming(WithoutRecords):
    """Every site's steps in a secure sum: keys and shares of keys. What the sum itself costs is the method's verb's.
    Every ask has a field ``sum``, its number."""

    @verb(releases={"keys": Keys("public keys of one sum, and the site's signature of them")}, slots=False)
    def advertise_keys(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Make keys for a sum of replies to ``verb``, of which so many ``sites`` are asked."""
        offers = []
        for site in cohort.sites:
            with site.in_secure_sum(ask.round) as masking:
                offers.append(masking.advertise(ask.round, ask["verb"], ask["sites"], ask["sum"]))
        return cohort.reply(keys=[packed([offer], OFFER_BYTES) for offer in offers])

    @verb(
        releases={"sealed": Keys("shares of the site's secrets of one sum, encrypted for each neighbour")}, slots=False
    )
    def share_keys(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Share the secrets out among the neighbours of these ``names``, whose ``keys`` are [sites, bytes]."""
        names, sealed = ask["names"], []
        offers = unpacked(ask["keys"], len(names), OFFER_BYTES)
        for site in cohort.sites:
            with site.in_secure_sum(ask.round) as masking:
                sealed.append(masking.share(ask["sum"], names, offers))
        return cohort.reply(sealed=[packed(own, SEALED_BYTES) for own in sealed])

    @verb(releases={"signature": Keys("the site's signature of who is in the sum")}, slots=False)
    def check_consistency(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Sign that the sites at the places ``members`` are in the sum."""
        signatures = []
        for site in cohort.sites:
            with site.in_secure_sum(ask.round) as masking:
                signature, told = masking.confirm(ask["sum"], ask["members"])
            signatures.append(signature)
            for one in told:
                site.tell(f"Round {ask.round}: {one}.")
        return cohort.reply(signature=[packed([one], SIGNATURE_BYTES) for one in signatures])

    @verb(
        releases={
            "shares": Keys(
                "shares of what takes the masks off the sum",
                "of each other site one of two: of its own mask's seed if it is in the sum, of the key of its pair "
                "masks if it has dropped out",
            )
        },
        slots=False,
    )
    def unmask(self, cohort: Cohort, ask: Ask) -> list[Reply]:
        """Reveal shares, if the sites at the places ``signers`` have given ``signatures`` [signers, bytes]; ``sealed``
        [holders, bytes] is what others have encrypted for this one, and ``vouchers`` [holders, bytes] what they have
        signed with their masked vectors, where not all are neighbours."""
        signers, revealed = ask["signers"], []
        signatures = unpacked(ask["signatures"], len(signers), SIGNATURE_BYTES)
        given = zip(cohort.given(ask, "sealed"), cohort.given(ask, "vouchers", lambda site: None), strict=True)
        for site, (sealed, vouchers) in zip(cohort.sites, given, strict=True):
            with site.in_secure_sum(ask.round) as masking:
                rows = unpacked(sealed, len(sealed), SEALED_BYTES)
                signed = [] if vouchers is None else unpacked(vouchers, len(vouchers), SIGNATURE_BYTES)
                revealed.append(masking.reveal(ask["sum"], signers, signatures, rows, signed))
        return cohort.reply(shares=[packed(own, SHARE_BYTES) for own in revealed])
