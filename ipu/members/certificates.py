"""Why a worker whose address answers does not join: its certificate, ours, or one side without TLS.

gRPC tells a connection that TLS refuses as one that is not there yet, and tries again until the
time is up. A look by Python's own TLS with the same files says why. Nothing is sent beyond the
handshake, and no key appears in a sentence.

Source    RFC 8446 §6.2 (alerts); RFC 9113 §3.4 (what a server of HTTP/2 sends first).
"""

from __future__ import annotations

import re
import socket
import ssl
from contextlib import suppress

from ipu.members.cluster import Tls, split_address

__all__ = ["trouble"]

#: Seconds that an address may take to answer.
_ANSWER = 2.0
#: What OpenSSL calls the alert of a peer that refuses this side's certificate.
_ALERT = re.compile("ALERT_([A-Z0-9_]+)")
#: Records that are no TLS.
_PLAIN = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")


def trouble(address: str, worker: str, tls: Tls | None) -> str | None:
    """A sentence on what keeps a worker from answering; None where its address is silent or well.

    worker    its name in the sentence.
    tls       of this worker; None: it speaks without.
    """
    try:
        connection = socket.create_connection(split_address(address), _ANSWER)
    except (OSError, ValueError):
        return None
    with connection:
        connection.settimeout(_ANSWER)
        if tls is None:
            return _asks_for_tls(connection, worker)
        return _refusal(connection, split_address(address)[0], worker, tls)


def _refusal(connection: socket.socket, host: str, worker: str, tls: Tls) -> str | None:
    """Why the handshake with our files fails, or what the other side says to our certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(tls.ca)
    try:
        context.load_cert_chain(tls.cert, tls.key)
        with context.wrap_socket(connection, server_hostname=host) as secure:
            if secure.recv(1) == b"":
                return _not_allowed(worker, tls, "it ends the connection")
    except ssl.SSLCertVerificationError as error:
        reason = (error.verify_message or str(error)).rstrip(".")
        return (
            f"{worker} has a certificate that FPSIM_TLS_CA={str(tls.ca)!r} does not allow: "
            f"{reason}; give all workers certificates of one authority, for their addresses and "
            "in date"
        )
    except ssl.SSLError as error:
        alert = _ALERT.search(error.reason or "")
        if alert:
            return _not_allowed(worker, tls, alert[1].lower().replace("_", " "))
        if error.reason in _PLAIN:
            return f"{worker} speaks without TLS; {_BOTH}"
    except OSError:
        pass  # it has ended the connection without a word, as one does that is about to leave
    return None


def _not_allowed(worker: str, tls: Tls, reason: str) -> str:
    """A server of gRPC tells no alert: it ends the connection where HTTP/2 begins."""
    return (
        f"{worker} does not allow this worker's certificate FPSIM_TLS_CERT={str(tls.cert)!r}: "
        f"{reason}; give all workers certificates of one authority, in date"
    )


_BOTH = "set FPSIM_TLS_CA, FPSIM_TLS_CERT and FPSIM_TLS_KEY on all workers, or on none"


def _asks_for_tls(connection: socket.socket, worker: str) -> str | None:
    """Whether an address answers a greeting of TLS; certificates are not looked at."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    # Plain text is an error of TLS, which is one of the system's.
    with suppress(OSError), context.wrap_socket(connection):
        return f"{worker} speaks TLS and this worker does not; {_BOTH}"
    return None
