"""The terminal app: it sends commands and draws events, nothing else."""

from retinue.frontends.tui.terminal import TerminalHost as TerminalHost
from retinue.frontends.tui.terminal import run_app as run_app
