"""One self-contained page for looking at runs: its data, its pictures, its template, and how it is served."""
