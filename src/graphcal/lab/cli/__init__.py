"""Commands of the laboratory. They join `graphcal` by entry point (group ``graphcal.commands``)."""
