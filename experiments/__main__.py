"""An experiment by its name: `python experiments newton-table4` runs `newton/table4.py`, and `all` runs every one."""

from __future__ import annotations

import runpy
import sys

from all_tables import SCRIPTS, main

if __name__ == "__main__":
    name = sys.argv[1].replace("_", "-") if len(sys.argv) > 1 else ""
    if name not in ("all", *SCRIPTS):
        print(f"{name!r} is no experiment; there are: all, {', '.join(SCRIPTS)}", file=sys.stderr)
        sys.exit(2)
    sys.argv = [name, *sys.argv[2:]]
    try:
        if name == "all":
            sys.exit(main())
        runpy.run_module(SCRIPTS[name], run_name="__main__")
    except KeyboardInterrupt:
        print("\nstopped" + ("; the same command goes on from here" if name == "all" else ""))
        sys.exit(130)
