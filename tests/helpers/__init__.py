"""What several tests share: the oracle, small data, small runs."""
