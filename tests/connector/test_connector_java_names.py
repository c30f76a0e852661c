"""The connector in Java knows the options of the one in Python, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark_raftlake import option_names as names

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "jvm_shim/src/main/java/io/raftlake/spark/connector/OptionNames.java"


def java_constants() -> dict[str, str]:
    return dict(re.findall(r'public static final String (\w+) = "([^"]*)";', SOURCE.read_text()))


def java_list(name: str) -> set[str]:
    """The items of a list of names: constants and texts, in any order."""
    declared = re.search(rf"List<String> {name} =(.*?);\n", SOURCE.read_text(), re.DOTALL)
    assert declared is not None, name
    constants = java_constants()
    lists = {each for each in ("SELECTIONS", "STARTS", "ENDS") if each in declared[1]}
    items = set(re.findall(r'"([^"]+)"', declared[1])) | {
        constants[each] for each in re.findall(r"\b[A-Z_]{2,}\b", declared[1]) if each in constants
    }
    return items.union(*(java_list(each) for each in lists))


def test_the_same_options_of_the_source() -> None:
    assert java_list("SOURCE") == set(names.SOURCE_OPTIONS)
    assert java_list("SOURCE_WITHOUT_EFFECT") == set(names.SOURCE_OPTIONS_WITHOUT_EFFECT)


def test_the_same_options_of_the_sink() -> None:
    assert java_list("SINK") == set(names.SINK_OPTIONS)
    assert java_list("SINK_WITHOUT_EFFECT") == set(names.SINK_OPTIONS_WITHOUT_EFFECT)


def test_the_same_settings_of_clients() -> None:
    assert java_list("CLIENT_SETTINGS") == set(names.CLIENT_SETTINGS)
    without_effect = {f"kafka.{name}" for name in java_list("CLIENT_SETTINGS_WITHOUT_EFFECT") - {"kafka."}}
    assert without_effect == set(names.CLIENT_SETTINGS_WITHOUT_EFFECT)
    assert java_list("REFUSED_PREFIXES") == set(names.REFUSED_PREFIXES)


def test_the_same_reasons() -> None:
    text = re.sub(r'"\s*\+ "', "", SOURCE.read_text())
    for name, reason in names.REFUSED_CLIENT_SETTINGS.items():
        assert f'"{name}"' in text or f'"{name.removeprefix("kafka.")}"' in text, name
        told = reason.replace(f"'{names.STARTING_OFFSETS}'", "'\" + STARTING_OFFSETS + \"'")
        assert told in text, name
    assert names.NO_SECURITY in text


def test_the_same_constants() -> None:
    """What stands in both under one name has one value."""
    both = {name: value for name, value in java_constants().items() if hasattr(names, name)}
    assert both == {name: getattr(names, name) for name in both} and len(both) > 30
