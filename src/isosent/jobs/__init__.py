"""Jobs on files too large for memory."""
