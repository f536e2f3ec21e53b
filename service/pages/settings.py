"""Settings of the pages that the agent and the aggregator have in common."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from contract.settings import Section

if TYPE_CHECKING:
    from service.login.users import UsersFile
    from service.tls.files import PagesTls


class PagesTlsSection(Section, frozen=True):
    """TLS and login on the address of ``--listen``; certificates and keys are PEM."""

    certificate_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    """With it, pages other than ``/healthz`` and ``/readyz`` demand a client certificate."""
    users_file: Path | None = None
    """With it, a user with a password may read them as well; lines of ``htpasswd -B``."""

    def __post_init__(self) -> None:
        if (self.certificate_file is None) != (self.key_file is None):
            missing = "key_file" if self.key_file is None else "certificate_file"
            raise ValueError(f"{missing} is missing: TLS needs a certificate and its key")
        for name in ("client_ca_file", "users_file"):
            if getattr(self, name) is not None and self.certificate_file is None:
                raise ValueError(
                    f"certificate_file and key_file are missing: {name} needs TLS on the pages"
                )


def pages_tls(section: PagesTlsSection) -> PagesTls | None:
    """Return the certificates of the pages; ``None`` without TLS.

    Raises ``ConfigurationError`` for files that cannot be used.
    """
    if section.certificate_file is None or section.key_file is None:
        return None
    # Imported late: most daemons serve their pages without TLS.
    from service.tls.files import PagesTls

    return PagesTls(section.certificate_file, section.key_file, section.client_ca_file)


def pages_users(section: PagesTlsSection) -> UsersFile | None:
    """Return the users of the pages; ``None`` where no file has any.

    Raises ``ConfigurationError`` for a file that cannot be used.
    """
    if section.users_file is None:
        return None
    # Imported late, as above.
    from service.login.users import UsersFile

    return UsersFile(section.users_file)
