"""The report: one HTML file about a run or a comparison and its learned labels."""

from labelemb.lab.report.write import write_page, write_report

__all__ = ["write_page", "write_report"]
