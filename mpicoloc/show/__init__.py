"""Terminal output, figures and pages that all subjects draw with."""
