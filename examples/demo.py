"""What `make demo` shows: the digits CNN with two workers, then with one, and the speed-up.

The comparison is fair in cores: each worker has one. Both runs do the same work, the same global batches in the same
order, so their losses agree too. The first epoch is left out of the times, since it compiles the step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

EXAMPLE = Path(__file__).with_name("digits_cnn.py")
UNISONO = [sys.executable, "-m", "unisono"]


def run(workers: int, report: Path) -> tuple[float, float]:
    """Runs the example and lets it print.

    Args:
        workers: Number of workers.
        report: File for its report.

    Returns:
        Test accuracy, and seconds of training after the first epoch.
    """
    command = [*UNISONO, "run", "-n", str(workers), str(EXAMPLE), "--report", str(report)]
    print(f"\n$ unisono run -n {workers} {os.path.relpath(EXAMPLE)}", flush=True)
    # TensorFlow's own remarks would hide the training.
    subprocess.run(command, check=True, env={"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ})
    told = json.loads(report.read_text(encoding="utf-8"))
    return told["accuracy"], sum(told["epoch_seconds"][1:])


def main() -> None:
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        os.sched_setaffinity(0, cores[:2])
        accuracy, two = run(2, Path(folder, "two.json"))
        os.sched_setaffinity(0, cores[:1])
        _, one = run(1, Path(folder, "one.json"))
    print(
        f"\ntest accuracy with two workers  {accuracy:.2%}"
        f"\ntwo workers, one core each      {two:6.2f} s"
        f"\none worker, one core            {one:6.2f} s"
        f"\nspeed-up                        {one / two:6.2f}"
        "\n(training without its first epoch, which compiles; the same batches, so the same losses)"
    )
    if len(cores) < 2:
        print("This machine lets the demo use one core only, so two workers cannot be faster than one.")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failure:
        sys.exit(failure.returncode)
