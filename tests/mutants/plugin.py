"""`pytest -p tests.mutants.plugin` with RAFTLAKE_MUTANT=name: runs the tests with that bug planted."""

from __future__ import annotations

import os

from tests.mutants.catalogue import find
from tests.mutants.plant import plant

plant(find(os.environ["RAFTLAKE_MUTANT"]))
