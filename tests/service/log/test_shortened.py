"""A long list is cut, and ends with how many are left out."""

from __future__ import annotations

from service.log.shortened import shortened


def test_a_list_shows_how_many_more_there_are() -> None:
    assert shortened(["a", "b"], 2) == "a, b"
    assert shortened(["a", "b", "c"], 2) == "a, b and 1 more"
    assert shortened([]) == ""


def test_texts_of_which_only_the_first_are_kept_are_counted() -> None:
    assert shortened(["a", "b"], 2, count=9, separator="; ") == "a; b and 7 more"
