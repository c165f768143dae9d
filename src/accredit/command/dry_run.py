"""`accredit train RECIPE --dry-run`: all that a run would refuse, before it is one.

Data, model, critic and verifier are built and tried as by a run. Nothing is sampled,
nothing is trained, and no folder is made.
"""

import json
import sys
from contextlib import closing

from accredit.recipe.config import RunConfig

DONE = 0


def dry_run(config: RunConfig) -> int:
    """Prints the resolved recipe, and beside it what a run would say first.

    Raises:
        ValueError: a run would be refused.
    """
    from accredit.reports.trackers import require_tracker
    from accredit.runs.assembly import assemble
    from accredit.runs.first_lines import first_warnings
    from accredit.tasks.trials import tried

    for name in config.trackers:
        require_tracker(name)
    with closing(assemble(config)) as assembly:
        told = tried(assembly.task, config.seed)
        told += first_warnings(assembly)
        print(json.dumps(config.model_dump(mode="json"), indent=2))
        for line in (assembly.plan, *(f"warning: {line}" for line in told)):
            print(line, file=sys.stderr)
    return DONE
