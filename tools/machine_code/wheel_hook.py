"""What hatchling calls when it makes a wheel for `make wheel`: machine code goes into it, beside its source."""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class MachineCodeHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """A wheel is for this Python and this kind of machine then. An editable installation stays Python."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from tools.machine_code.package import machine_code

        place = machine_code(os.cpu_count() or 1)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in place.rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
            build_data["force_include"][str(path)] = str(path.relative_to(place))
