"""Tests of full disks fail where they should run and cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import mountkit

REFUSED = subprocess.CompletedProcess([], 32, "", "mount: permission denied\n")


@pytest.mark.parametrize(
    ("ci", "may_administer", "outcome"),
    [
        (None, False, pytest.skip.Exception),
        ("", False, pytest.skip.Exception),
        ("true", False, pytest.fail.Exception),
        (None, True, pytest.fail.Exception),
        ("true", True, pytest.fail.Exception),
    ],
)
def test_a_mount_that_is_refused(
    ci: str | None, may_administer: bool, outcome: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mountkit.subprocess, "run", lambda *_args, **_fields: REFUSED)
    monkeypatch.setattr(mountkit, "_may_administer", lambda: may_administer)
    monkeypatch.delenv("CI", raising=False)
    if ci is not None:
        monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="mounting is not allowed here: mount: permission denied"):
        with mountkit.mounted(tmp_path / "disk", mountkit.MIB):
            raise AssertionError("there is no such file system")


@pytest.mark.parametrize(
    ("effective", "may"), [("000001ffffffffff", True), ("00000000a80425fb", False), ("0000000000200000", True)]
)
def test_who_may_mount_is_what_the_kernel_says(effective: str, may: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    status = f"Name:\tpython\nCapPrm:\t000001ffffffffff\nCapEff:\t{effective}\nSeccomp:\t0\n"
    monkeypatch.setattr(mountkit.Path, "read_text", lambda *_args, **_fields: status)
    assert mountkit._may_administer() is may
