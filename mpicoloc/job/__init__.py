"""Starting and serving one job: launchers, ranks, coordinators, checks."""
