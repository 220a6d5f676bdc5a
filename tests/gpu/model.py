"""A training step of examples/language_model.py on our operators and on torch's, in JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import language_model


def main() -> None:
    device = (*sys.argv[1:], "cuda")[0]
    print(json.dumps(language_model.compare(device), indent=1))


if __name__ == "__main__":
    main()
