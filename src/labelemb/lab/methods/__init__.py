"""Methods: names with options that become heads."""
