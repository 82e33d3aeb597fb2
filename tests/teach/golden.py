"""The stored figures of the golden micro-runs, and how to renew them:

    python -m tests.teach.golden [METHOD ...]

Only when results are meant to change; the difference then belongs into the changelog.
"""

import json
from pathlib import Path

PATH = Path(__file__).parent / "golden.json"
COLUMNS = ("teacher/kind", "solved", "length", "return", "level/walls", "student/loss", "teacher/regret")
"""What is compared; methods have those of them that they log."""


def figures(rows) -> dict[str, list[float | None]]:
    """Rounded columns of the metrics of single cycles; None where nothing was measured."""
    return {
        name: [None if row[name] != row[name] else round(float(row[name]), 6) for row in rows]
        for name in COLUMNS
        if name in rows[0]
    }


if __name__ == "__main__":
    import sys

    import tests.conftest  # noqa: F401, the flags must be those of the tests
    from cenie.methods.table import METHODS
    from tests.teach.test_contract import Played

    found = {method: figures(Played(method).rows) for method in sys.argv[1:] or METHODS}
    kept = json.loads(PATH.read_text()) if sys.argv[1:] else {}
    PATH.write_text(json.dumps(dict(sorted((kept | found).items())), indent=1) + "\n")
