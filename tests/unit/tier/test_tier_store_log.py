"""What delta-rs' own log may say in processes of ours: its search for credentials not, and nothing where somebody set it."""

from __future__ import annotations

import os
import subprocess
import sys

from raftlake.tier.store_log import LEVELS, VARIABLE, quiet

#: A bucket whose credentials would come from a machine of Amazon, which is not there. The error is printed as it is.
SEARCH = """
from deltalake import DeltaTable
try:
    DeltaTable("s3://no-such/x", storage_options={"retry_timeout": "1s"})
except Exception as error:
    print(error)
"""


def test_what_somebody_has_set_stays() -> None:
    environ = {VARIABLE: "debug"}
    quiet(environ)
    assert environ == {VARIABLE: "debug"}
    quiet(environ := {})
    assert environ == {VARIABLE: LEVELS}


def test_a_search_for_credentials_in_vain_is_one_error_and_no_log() -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", VARIABLE))}
    environ |= {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1", "PYTHONPATH": os.pathsep.join(sys.path)}
    quiet(environ)
    command = [sys.executable, "-c", SEARCH]
    outcome = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=True)
    assert "credentials" in outcome.stdout and outcome.stderr == ""
