"""Arms of the tiny study."""
