"""The table `[network]` of a client file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from kernfed.errors import ConfigError
from kernfed.section import GIVEN, Only, Section
from kernfed.wire.proxy import Proxy, parse_proxy

MAX_PASSWORD_BYTES = 1024


class ProxySection(Section):
    """The way from this site to the coordinator."""

    proxy: str | None = Field(
        None,
        description="HTTP proxy that allows CONNECT, as http://HOST:PORT; unset: that of https_proxy in the "
        "environment, if there is one. Hosts in no_proxy are dialled straight.",
    )
    user: Annotated[str, Only(proxy=GIVEN)] = Field("", max_length=200, description="Our name at the proxy (Basic).")
    password_file: Annotated[Path | None, Only(proxy=GIVEN)] = Field(
        None, description="File that holds our password at the proxy; relative to the client file."
    )

    @model_validator(mode="after")
    def _is_a_proxy(self) -> Self:
        if self.proxy is not None:
            try:
                found = parse_proxy(self.proxy, "proxy")
            except ConfigError as err:
                raise ValueError(str(err)) from err
            if found.user:
                raise ValueError("proxy: this file is not the place of a password; give user and password_file")
        if (self.password_file is None) != (not self.user):
            raise ValueError("user and password_file go together; give both, or none")
        return self

    def placed(self, base: Path) -> ProxySection:
        """With the path of the password taken from a folder."""
        return self.model_copy(update={"password_file": self.password_file and base / self.password_file})

    def to_proxy(self) -> Proxy | None:
        """The proxy that the table names; None: none.

        Raises:
            ConfigError: The password cannot be read.
        """
        if self.proxy is None:
            return None
        found = parse_proxy(self.proxy, "proxy")
        if self.password_file is None:
            return found
        where = f"network.password_file: {self.password_file}"
        try:
            with self.password_file.open("rb") as file:
                text = file.read(MAX_PASSWORD_BYTES + 1).decode().strip()
        except OSError as err:
            raise ConfigError(f"{where}: cannot be read ({err.strerror or err}); check path and rights") from err
        except UnicodeDecodeError:
            text = ""
        if not text or len(text) > MAX_PASSWORD_BYTES or len(text.splitlines()) > 1:
            raise ConfigError(f"{where}: holds no password; write it there as one line of UTF-8 text")
        return Proxy(found.host, found.port, self.user, text)
