"""Commands of the laboratory. They join `graphcal` by entry point (group ``graphcal.commands``)."""

import graphcal.cli  # noqa: F401  (it loads these commands by entry point; first here, so that each can be imported alone)
