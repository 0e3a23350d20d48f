"""One MPI process of the contract suite: runs the named programs and writes what came of each as JSON.

Usage: collective_worker.py FOLDER PROGRAM...
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

import collective_programs
from mpi_worker import Patience, connect


def main(folder: str, *names: str) -> None:
    channel = connect(Patience(30))
    outcomes = {}
    for name in names:
        try:
            outcomes[name] = {"value": repr(getattr(collective_programs, name)(channel))}
        except BaseException:  # noqa: BLE001 - reported to the test
            outcomes[name] = {"error": traceback.format_exc()}
    Path(folder, f"{channel.rank}.json").write_text(json.dumps(outcomes))
    channel.close()


main(*sys.argv[1:])
