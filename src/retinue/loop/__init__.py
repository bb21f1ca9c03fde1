"""The run loop: a job, a model and a mailbox in, events out."""

from retinue.loop.finish import check_schema
from retinue.loop.job import Compaction, Controls, Job
from retinue.loop.run import run_loop

__all__ = ["Compaction", "Controls", "Job", "check_schema", "run_loop"]
