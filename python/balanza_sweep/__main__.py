"""The command `balanza-sweep`: `balanza simulate sweep` with a cluster.

balanza reads the plan, keeps the records and writes the report. It starts this package with `--units`, which hands runs to
the cluster.
"""

import argparse
import os
import shutil
import sys


def arguments():
    parser = argparse.ArgumentParser(prog="balanza-sweep", description="Runs a sweep of balanza's simulator on a Dask cluster.")
    parser.add_argument("plan", nargs="?", metavar="PLAN.toml", help="the plan of `balanza simulate sweep`")
    parser.add_argument("--scheduler", required=True, metavar="tcp://HOST:PORT", help="Dask's scheduler")
    parser.add_argument("--out", metavar="DIR", help="the directory of the results [default: balanza-sweep/PLAN]")
    parser.add_argument("--balanza", metavar="FILE", default="balanza", help="the program here [default: balanza in PATH]")
    parser.add_argument("--worker-balanza", metavar="FILE", help="the program on the workers [default: where it is here]")
    parser.add_argument("--json", action="store_true", help="print the runs with their results as lines of JSON")
    parser.add_argument("--units", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.scheduler.startswith("tcp://"):
        parser.error(f"--scheduler {given.scheduler}: use tcp://HOST:PORT")
    if given.plan is None and not given.units:
        parser.error("a plan is missing")
    program = shutil.which(given.balanza)
    if program is None:
        parser.error(f"there is no program {given.balanza}: name it with --balanza")
    given.balanza = os.path.abspath(program)
    return given


def main():
    given = arguments()
    if given.units:
        # Dask takes a second to load, which only this needs.
        from . import cluster

        return cluster.run(sys.stdin, given.scheduler, given.balanza, given.worker_balanza or given.balanza)
    command = [given.balanza, "simulate", "sweep", given.plan, "--on", "dask://" + given.scheduler.removeprefix("tcp://")]
    command += ["--python", sys.executable]
    command += ["--out", given.out] if given.out else []
    command += ["--worker-binary", given.worker_balanza] if given.worker_balanza else []
    command += ["--json"] if given.json else []
    os.execv(given.balanza, command)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        # balanza has kept what is done, and says how to go on.
        sys.exit(130)
