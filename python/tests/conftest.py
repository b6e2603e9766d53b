"""How property tests run: the same examples every time, 200 of each operator, 2,000 under `make test-all`."""

from __future__ import annotations

import os
import sys
from typing import Any

from hypothesis import HealthCheck, Phase, settings

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # where there is a GPU, JAX would put its arrays there

settings.register_profile(
    "ci",
    max_examples=2000 if os.environ.get("SWITCHYARD_TESTS") == "full" else 200,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("ci")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    harness: Any = sys.modules.get("harness")
    for op, tally in sorted(harness.tallies.items()) if harness else ():
        terminalreporter.write_line(
            f"{op}: {tally.examples} examples: {tally.answered} answered, {tally.rejected} rejected, "
            f"{tally.spoiled} spoiled on purpose"
        )
