"""The report: one HTML file to look at a run or a comparison, and at what was learned about its labels."""

from labelemb.lab.report.write import write_page, write_report

__all__ = ["write_page", "write_report"]
