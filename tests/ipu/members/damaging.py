"""The program, on a worker whose third gradient piece is damaged on its way: HOW arguments….

HOW is bit (one bit of the payload), format or count (of another tensor, with a right checksum).
"""

from __future__ import annotations

import sys
from typing import Any

from ipu.experiments.programs import distributed_training
from ipu.members import grpc_transport
from ipu.members.pieces import BYTES, HEADER, Label, pack, read


def damaged(how: str, message: bytes) -> bytes:
    """What arrives in place of the message."""
    label, payload = read(message)
    if how == "bit":
        return message[:HEADER] + bytes([payload[0] ^ 1]) + bytes(payload[1:])
    if how == "format":
        return pack(label._replace(format="bfloat16"), payload)
    assert how == "count"
    return pack(label._replace(elements=label.elements + 1), bytes(payload) + bytes(2))


def main(how: str, arguments: list[str]) -> int:
    """Run the program; the transport damages one piece."""
    send, sent = grpc_transport.GrpcTransport.send, 0

    def spoiling(self: Any, to: int, message: bytes) -> None:
        nonlocal sent
        label: Label = read(message)[0]
        if label.format != BYTES and self.rank == 1:
            sent += 1
            if sent == 3:
                message = damaged(how, message)
        send(self, to, message)

    grpc_transport.GrpcTransport.send = spoiling  # type: ignore[method-assign]
    return distributed_training.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
