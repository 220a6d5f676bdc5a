"""Break the CUDA kernels in a hundred small ways each and count how many are detected.

Each mutant changes one place in the kernels of a room or the device headers they use: a
dropped barrier, wait or fence, `<` for `<=`, an index off by one, a dropped guard or tail.  It
is compiled for the simulator, with the rungs that contain the place, and compared with NumPy
under several schedules with all checks enabled.  A wrong result, a fault, a crash or a hang
kills it.  Needs no GPU.

    python tests/mutants.py             the mutants of every room, writes tests/mutants.json
    python tests/mutants.py --room reduce              those of one room
    python tests/mutants.py --room reduce --count 8    the first 8 of the same list
    python tests/mutants.py --room causal_conv1d --operator "drop a wait"    all of a kind

The last two write nothing.  The file records the survivors.  A mutant that cannot change what
a kernel does (such as a dropped barrier before the end of a kernel) is listed in the room's
EQUIVALENT with its reason and not counted.  See mutation.py for how a mutant is built.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mutants_causal_conv1d import CausalConv1d
from mutants_reduce import Reduce
from mutation import Mutant, Room, Workshop, judged

RESULT = Path(__file__).resolve().with_name("mutants.json")
WANTED = 0.9
ROOMS: tuple[Room, ...] = (Reduce(), CausalConv1d())


def verdicts_of(room: Room, mutants: list[Mutant], jobs: int) -> list[str] | None:
    """How each mutant was detected, empty if it was not; None: the right kernels fail."""
    with tempfile.TemporaryDirectory() as folder:
        workshop = Workshop(room, Path(folder).resolve())
        for rungs in dict.fromkeys(m.rungs for m in mutants):
            workshop.prepare(rungs)
            right = judged(workshop, -1, None, rungs, False)
            if right:
                print(f"{rungs} as they are do not pass: {right}")
                return None

        def judge(number: int) -> str:
            mutant = mutants[number]
            verdict = judged(workshop, number, mutant, mutant.rungs, mutant.large)
            state = verdict if verdict else f"SURVIVED {mutant.after.strip()}"
            print(f"{number + 1:3} {mutant.file}:{mutant.line} {mutant.operator}: {state}",
                  flush=True)  # fmt: skip
            return verdict

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(judge, range(len(mutants))))


def record(room: Room, counted: list[tuple[Mutant, str]], killed: int) -> None:
    """Writes the room's part of the result."""
    survivors = [
        {"file": m.file, "line": m.line, "operator": m.operator, "before": m.before,
         "after": m.after.strip()}
        for m, verdict in counted if not verdict
    ]  # fmt: skip
    operators = {
        operator: {
            "mutants": sum(m.operator == operator for m, _ in counted),
            "killed": sum(m.operator == operator and v != "" for m, v in counted),
        }
        for operator in room.operators
    }
    result = json.loads(RESULT.read_text(encoding="utf-8"))
    result[room.name] = {
        "mutants": len(counted), "killed": killed, "rate": round(killed / len(counted), 3),
        "operators": operators, "survivors": survivors,
    }  # fmt: skip
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def run(room: Room, options: argparse.Namespace) -> int:
    """Draws, judges and counts the mutants of one room."""
    count = room.count if options.count is None else options.count
    mutants = room.drawn(count)
    if options.operator:
        mutants = [m for m in room.all_mutants() if m.operator == options.operator]
        mutants = mutants[: options.count]
    verdicts = verdicts_of(room, mutants, options.jobs)
    if verdicts is None:
        return 2
    counted = room.counted(mutants, verdicts)
    killed = sum(1 for _, verdict in counted if verdict)
    rate = killed / len(counted) if counted else 0.0
    print(f"{room.name}: killed {killed} of {len(counted)} mutants: {rate:.0%}")
    if count == room.count and not options.operator:
        record(room, counted, killed)
    return 0 if rate >= WANTED else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--room", choices=[room.name for room in ROOMS])
    parser.add_argument("--count", type=int)
    parser.add_argument("--operator")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--oracle", help=argparse.SUPPRESS)
    parser.add_argument("--large", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rooms = [room for room in ROOMS if options.room in (None, room.name)]
    if options.oracle:
        rooms[0].oracle(options.oracle.split(","), options.large)
        return 0
    return max(run(room, options) for room in rooms)


if __name__ == "__main__":
    sys.exit(main())
