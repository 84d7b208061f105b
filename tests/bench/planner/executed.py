"""What of a sliced plan really runs: Tenon computes once what no sliced index changes, and keeps what
the outer loops leave alone. Every party's plan is charged as Tenon would run it.
"""

import json
import subprocess
import tempfile

from corpus import BenchError
from cost import READ_WRITE_WEIGHT, log10


def fill(binary, network, objective, best):
    """Adds `log10_run` to the figures of a plan: log10 of its score, steps as often as they run."""
    if best is None or "log10_run" in best:
        return
    if best["slices"] == 1:
        best["log10_run"] = best["log10_score"]
        return
    document = {**network.document(), "path_ssa": best["path"], "sliced": best["sliced"]}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        answer = subprocess.run([str(binary), "executed", file.name], capture_output=True,
                                text=True)
    if answer.returncode != 0:
        raise BenchError(f"{binary.name} executed {network.name}: {answer.stderr.strip()}")
    work = json.loads(answer.stdout)
    best["log10_run"] = log10(work["flops"] + READ_WRITE_WEIGHT[objective] * work["read_write"])
