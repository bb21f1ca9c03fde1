"""The terminal app: it sends commands and draws events, nothing else."""

from retinue.faces.tui.terminal import TerminalHost as TerminalHost
from retinue.faces.tui.terminal import run_app as run_app
