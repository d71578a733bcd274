# SPDX-License-Identifier: Apache-2.0

"""Finds free ports for listeners that start soon."""

from __future__ import annotations

import pathlib
import random
import socket

_FIRST = 10000
_ATTEMPTS = 100


def free_port(address: str = "127.0.0.1") -> int:
    """Returns a port of `address`, a name or IP address of this host, on which no process listens.

    Prefers ports below the system's ephemeral range, so that no outgoing connection takes the port
    before the caller listens on it.

    Raises:
        OSError: the address does not belong to this host, or no port is free.
    """
    family = socket.getaddrinfo(address, None)[0][0]
    outside = range(_FIRST, max(_first_of_connections(), _FIRST))
    for port in random.sample(outside, min(_ATTEMPTS, len(outside))):
        try:
            return _bind(family, address, port)
        except OSError:
            continue
    return _bind(family, address, 0)


def _bind(family: int, address: str, port: int) -> int:
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.bind((address, port))
        return int(listener.getsockname()[1])


def _first_of_connections() -> int:
    try:
        text = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except OSError:
        return 0
    return int(text.split()[0])
