"""An ``ipmitool raw`` for acceptance tests that asks the BMC of ``tests.acceptance.bmc``.

Its first argument is the socket of that BMC; the others are those of ``ipmitool``.
"""

# It is started for each request, and to load ``socket`` would double the time of its start.
import _socket
import sys

_HEAD = 10
_A_LINE = 16


def main() -> int:
    place = sys.argv[1]
    request = bytes(int(word, 0) for word in sys.argv[3:])
    bmc = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        bmc.connect(place)
    except OSError:
        sys.stderr.write("Could not open device at /dev/ipmi0: No such file or directory\n")
        return 1
    bmc.send(bytes(8) + request)
    reply = bmc.recv(2048)[_HEAD:]
    if reply[:1] != b"\0":
        code = f" rsp=0x{reply[0]:x}): failed" if reply else ")"
        sys.stderr.write(f"Unable to send RAW command (channel=0x0 netfn=0x30{code}\n")
        return 1
    for first in range(1, len(reply), _A_LINE):
        sys.stdout.write(f" {reply[first : first + _A_LINE].hex(' ')}\n")
    return 0


sys.exit(main())
