"""Which nodes packets pass on their way, like traceroute: route.py HOST...  (on a host of the lab)."""

import socket
import sys

IP_RECVERR = 11  # the socket module has no name for it
PORT_UNREACHABLE = 3
PORT = 33434  # where nobody listens


def route(host):
    """Names of the nodes on the way: a packet that may pass so many of them comes back from the last."""
    names = []
    for n_hops in range(1, 64):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, n_hops)
            probe.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
            probe.settimeout(2)
            probe.connect((host, PORT))
            probe.send(b"")
            try:
                probe.recv(1)
            except TimeoutError:
                return [*names, "*"]
            except OSError:
                pass  # the answer is an error, and waits in the queue of errors
            (_, _, data) = probe.recvmsg(512, 512, socket.MSG_ERRQUEUE)[1][0]
        # struct sock_extended_err with the type of the answer, then the address that it came from
        names.append(socket.gethostbyaddr(socket.inet_ntoa(data[20:24]))[0])
        if data[5] == PORT_UNREACHABLE:
            return names
    return names


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(*route(name))
