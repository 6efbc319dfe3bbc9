"""An authority and certificates for mutual TLS on loopback."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path
from typing import Any

from ipu.members.cluster import Tls


def authority(folder: Path, name: str) -> Any:
    """A new authority, whose certificate is written to the folder: its key and certificate."""
    return _issued(folder, name, None)


def worker(
    folder: Path, name: str, issuer: Any, ca: str, *, host: str = "127.0.0.1", days: int = 1
) -> Tls:
    """A worker's files, signed by an authority.

    days    until the end of its validity; below 0: it is over.
    """
    _issued(folder, name, issuer, host, days)
    return Tls(folder / f"{ca}.pem", folder / f"{name}.pem", folder / f"{name}.key")


def _issued(folder: Path, name: str, issuer: Any, host: str = "127.0.0.1", days: int = 1) -> Any:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer, parent = issuer or (key, None)
    now = datetime.datetime.now(datetime.UTC)
    hosts = [x509.IPAddress(ipaddress.ip_address(host))]
    if host == "127.0.0.1":
        hosts.append(x509.DNSName("localhost"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if parent is None else parent.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(signer, hashes.SHA256())
    )
    text = serialization.Encoding.PEM
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(text))
    private = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(text, private, serialization.NoEncryption())
    (folder / f"{name}.key").write_bytes(secret)
    return key, certificate
