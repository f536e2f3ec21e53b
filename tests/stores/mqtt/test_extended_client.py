"""The private parts of aiomqtt that are used: each must be there in the installed release."""

from __future__ import annotations

import inspect
import re
import tomllib
from importlib import metadata
from pathlib import Path

import aiomqtt
import pytest

from stores.mqtt.extended_client import ATTRIBUTES, METHODS, VERSIONS, ExtendedClient

PROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_the_installed_release_was_read() -> None:
    major, minor, *_ = metadata.version("aiomqtt").split(".")
    first, end = VERSIONS
    assert first <= (int(major), int(minor)) < end


def test_no_other_release_is_allowed() -> None:
    first, end = (".".join(map(str, version)) for version in VERSIONS)
    dependencies = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    assert f"aiomqtt>={first},<{end}" in dependencies


@pytest.mark.parametrize("name", ATTRIBUTES)
async def test_an_attribute_that_is_used_is_there(name: str) -> None:
    assert name in vars(aiomqtt.Client("127.0.0.1"))


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_is_overridden_has_its_parameters(name: str) -> None:
    theirs = inspect.signature(getattr(aiomqtt.Client, name)).parameters
    ours = inspect.signature(getattr(ExtendedClient, name)).parameters
    assert len(theirs) == METHODS[name]
    assert len(ours) == METHODS[name]


def test_no_other_private_part_of_it_is_overridden() -> None:
    theirs = {name for name in vars(aiomqtt.Client) if re.fullmatch("_[a-z].*", name)}
    assert theirs & vars(ExtendedClient).keys() == METHODS.keys()
