"""Cells for the engine's tests: arithmetic, with waits and faults on request."""

import math
import os
import time
from pathlib import Path
from typing import Any

SCHEMA = 1


def roots(config: dict[str, Any], tell: Any) -> list[dict[str, Any]]:
    """Square roots of n, n + 1, ...; `log` gets a line a computation, of process and n."""
    if "log" in config:
        with Path(config["log"]).open("a") as file:
            file.write(f"{os.getpid()} {config['n']}\n")
    if tell:
        tell(0.5, "half")
    time.sleep(config.get("seconds", 0.0))
    if config.get("fault") == "raise":
        raise ArithmeticError(f"no roots of {config['n']}")
    if config.get("fault") == "die":
        os.kill(os.getpid(), 9)
    return [{"n": config["n"], "i": i, "root": math.sqrt(config["n"] + i)} for i in range(3)]
