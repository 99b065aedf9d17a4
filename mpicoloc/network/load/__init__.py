"""Routes on a fat-tree, and what the messages of jobs load on its levels and links. Pure functions."""
