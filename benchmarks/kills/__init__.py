"""The kill campaign: trainings that are killed at every phase must end as if nothing had happened."""
