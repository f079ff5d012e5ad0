"""Arms of the study: ready-made options, one module each."""
