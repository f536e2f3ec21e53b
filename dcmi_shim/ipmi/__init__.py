"""The server's BMC, over the kernel's IPMI device or ``ipmitool``."""
