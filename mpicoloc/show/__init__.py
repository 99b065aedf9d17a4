"""Tables, figures and pages: the output code that all packages share."""
