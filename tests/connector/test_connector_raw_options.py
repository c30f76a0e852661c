"""Options as texts: names without regard to case, families of names by their prefix, values read as what they mean."""

from __future__ import annotations

import pytest

from pyspark_raftlake.raw_options import RawOptions
from raftlake.errors import ConfigError


def test_names_have_no_case_and_values_no_blanks() -> None:
    options = RawOptions({"MaxRows": " 7 ", "wait": "2 min"}, ("maxRows", "wait", "other"), ())
    assert options.positive("maxrows") == 7 and options.get("other") is None
    assert options.duration_ms("wait", 1) == 120_000 and options.duration_ms("other", 5) == 5
    assert options.given(("other", "WAIT")) == ["WAIT"]


def test_a_family_of_names_is_known_by_its_prefix() -> None:
    raw = {"Store.B": "2", "store.a": "1", "x": "3"}
    assert RawOptions(raw, ("x",), (), "store.").behind("store.") == (("a", "1"), ("b", "2"))
    assert RawOptions({"x": "3"}, ("x",), (), "store.").behind("store.") == ()
    for name in ("store.", "stores.a", "Store"):
        with pytest.raises(ConfigError, match=f"Unknown option '{name}'"):
            RawOptions({name: "1"}, ("x",), (), "store.")
    with pytest.raises(ConfigError, match=r"Unknown option 'store\.a'"):
        RawOptions({"store.a": "1"}, ("x",), ())
