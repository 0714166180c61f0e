"""Keys and certificates of a federation: its own authority, its server, and what each site is known by to Flower.

Certificates name their own key and their issuer's, as RFC 5280 has it: from 3.13 on Python believes no others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from murmura import atomic
from murmura.errors import CheckpointError, ConfigError, explaining

_DAYS = {"authority": 3650, "server": 825, "local": 825}
_EARLY = timedelta(hours=1)  # clocks differ
LOCAL = ("localhost", "127.0.0.1")


def new_authority(certificate: Path, key: Path, name: str) -> None:
    """A certificate authority of the federation's own.

    Raises:
        CheckpointError: a file cannot be written.
    """
    private = ec.generate_private_key(ec.SECP256R1())
    known = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Murmura {name}"[:64])])
    made = (
        _begun(known, known, private.public_key(), _DAYS["authority"])
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(private, SHA256())
    )
    _write(key, _private(private), private=True)
    _write(certificate, made.public_bytes(Encoding.PEM), private=False)


def new_server(certificate: Path, key: Path, hosts: Sequence[str], authority: Path, authority_key: Path) -> None:
    """A certificate for a server with these names or addresses, signed by an authority.

    Raises:
        ConfigError: the authority's files are no certificate and key.
        CheckpointError: a file cannot be read or written.
    """
    try:
        issuer = x509.load_pem_x509_certificate(_read(authority))
        signer = load_pem_private_key(_read(authority_key), None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        what = f"this is not a certificate authority ({error})"
        raise ConfigError(what, where=str(authority), fix="Name the folder that `federation new` has made.") from None
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    private = ec.generate_private_key(ec.SECP256R1())
    signed_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    begun = _for_server(private, hosts, issuer.subject, _DAYS["server"])
    made = begun.add_extension(signed_by, critical=False).sign(signer, SHA256())
    _write(key, _private(private), private=True)
    _write(certificate, made.public_bytes(Encoding.PEM), private=False)


def new_local(certificate: Path, key: Path) -> None:
    """A certificate for connections within one machine, signed by itself.

    Raises:
        CheckpointError: a file cannot be written.
    """
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, LOCAL[0])])
    made = _for_server(private, LOCAL, name, _DAYS["local"]).sign(private, SHA256())
    _write(key, _private(private), private=True)
    _write(certificate, made.public_bytes(Encoding.PEM), private=False)


def ends(certificate: Path) -> datetime:
    """Until when a certificate counts.

    Raises:
        ConfigError: the file is none.
        CheckpointError: it cannot be read.
    """
    try:
        return x509.load_pem_x509_certificate(_read(certificate)).not_valid_after_utc
    except ValueError as error:
        fix = "Restore it from a copy, or have `murmura federation certify` make another."
        raise ConfigError(f"this is no certificate ({error})", where=str(certificate), fix=fix) from None


def node_key(path: Path) -> str:
    """The key by which Flower's SuperLink knows a site (NIST P-384); made when there is none. Returns its public part,
    a line of OpenSSH's form.

    Raises:
        CheckpointError: it cannot be read or written, or is no such key.
    """
    if not path.exists():
        made = ec.generate_private_key(ec.SECP384R1())
        _write(path, made.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()), private=True)
    from cryptography.hazmat.primitives.serialization import load_ssh_private_key

    try:
        key = load_ssh_private_key(_read(path), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        fix = "Restore it from a copy, or remove it and have the federation take up the new one."
        raise CheckpointError("this is not a private key of an elliptic curve", where=str(path), fix=fix)
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _for_server(
    key: ec.EllipticCurvePrivateKey, hosts: Sequence[str], issuer: x509.Name, days: int
) -> x509.CertificateBuilder:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    return (
        _begun(name, issuer, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_host(one) for one in hosts]), critical=False)
    )


def _begun(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(**given: bool) -> x509.KeyUsage:
    names = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    more = ("key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
    return x509.KeyUsage(**dict.fromkeys((*names, *more), False) | given)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read(path: Path) -> bytes:
    with explaining("this key or certificate cannot be read", path):
        return path.read_bytes()


def _write(path: Path, data: bytes, *, private: bool) -> None:
    with explaining("this key or certificate cannot be written", path):
        atomic.write(path, data, private=private)
