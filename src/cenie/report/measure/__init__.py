"""The numbers of a report, each computed once, for figures, tables and the page. Nothing here draws."""
