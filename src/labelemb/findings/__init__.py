"""Audit of arrays: labels that overlap, examples that carry the wrong label, duplicates that disagree."""

from labelemb.findings.arrays import audit
from labelemb.findings.duplicates import DuplicateFinding
from labelemb.findings.examples import ExampleFinding, Examples
from labelemb.findings.labels import LabelFinding, LabelScore, PairFinding
from labelemb.findings.result import Audit, Summary

__all__ = [
    "Audit",
    "DuplicateFinding",
    "ExampleFinding",
    "Examples",
    "LabelFinding",
    "LabelScore",
    "PairFinding",
    "Summary",
    "audit",
]
