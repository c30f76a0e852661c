"""The archive of Spark's classes: named where it is there, and made anew for another Java or Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

import class_archive


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each archive was made of."""
    of: list[str] = []
    archive = tmp_path / "spark.jsa"
    monkeypatch.setattr(class_archive, "ARCHIVE", archive)
    monkeypatch.setattr(class_archive, "STAMP", tmp_path / "spark.of")
    monkeypatch.setattr(class_archive, "stamp", lambda: "java 17, these jars")

    def make() -> None:
        of.append(class_archive.stamp())
        archive.touch()

    monkeypatch.setattr(class_archive, "make", make)
    return of


def test_it_is_made_once_and_anew_for_another_java(made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        class_archive.main()
    monkeypatch.setattr(class_archive, "stamp", lambda: "java 21, these jars")
    for _ in range(2):
        class_archive.main()
    assert made == ["java 17, these jars", "java 21, these jars"]
    class_archive.ARCHIVE.unlink()
    class_archive.main()
    assert len(made) == 3


def test_one_that_could_not_be_made_is_told_of_and_tried_again(
    made: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tests run without it."""
    with monkeypatch.context() as patch:
        patch.setattr(class_archive, "make", lambda: "no room")
        class_archive.main()
    assert "no room\n" in capsys.readouterr().out and class_archive.options() == class_archive.LIGHT
    class_archive.main()
    assert len(made) == 1


def test_a_jvm_is_told_of_one_that_is_there(made: list[str]) -> None:
    """With a file that is missing a JVM would do without the archive of its own classes, too."""
    assert class_archive.options() == class_archive.LIGHT
    class_archive.main()
    assert class_archive.options().endswith(f" -XX:SharedArchiveFile={class_archive.ARCHIVE}")
