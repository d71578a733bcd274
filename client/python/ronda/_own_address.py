# SPDX-License-Identifier: Apache-2.0

"""Finds an address at which processes on other hosts can reach this process."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Sequence

from ronda.errors import InvalidArgumentError

# Linux's request for the IPv4 address of an interface, and its struct ifreq: the interface's name,
# then a sockaddr_in, in which the address begins after 4 bytes.
_SIOCGIFADDR = 0x8915
_IFREQ = "16s24x"
_ADDRESS_IN_IFREQ = slice(20, 24)


def own_address(interfaces: Sequence[str] = ()) -> str:
    """Returns the IPv4 address of the first of these network interfaces that has one. If there are
    none, returns an address of the host's name that is not on loopback (Debian resolves the host's
    own name to 127.0.1.1). Otherwise returns the source address of the route to other hosts, or
    127.0.0.1 if there is no route.

    Raises:
        InvalidArgumentError: interfaces are given, and none of them has an IPv4 address.
    """
    for name in interfaces:
        address = _address_of_interface(name)
        if address is not None:
            return address
    if interfaces:
        names = ",".join(interfaces)
        raise InvalidArgumentError(
            f"RONDA_NETWORK_INTERFACE={names!r}: should name a network interface that is up and has"
            " an IPv4 address"
        )
    return _address_of_name() or _address_of_route() or "127.0.0.1"


def _address_of_interface(name: str) -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            request = struct.pack(_IFREQ, name.encode())
            answer = fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return None
    return socket.inet_ntoa(answer[_ADDRESS_IN_IFREQ])


def _address_of_name() -> str | None:
    try:
        addresses = socket.gethostbyname_ex(socket.gethostname())[2]
    except OSError:
        return None
    return next((each for each in addresses if not each.startswith("127.")), None)


def _address_of_route() -> str | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        try:
            unsent.connect(("192.0.2.1", 9))  # sends nothing; the address is reserved for documents
        except OSError:
            return None
        return str(unsent.getsockname()[0])
