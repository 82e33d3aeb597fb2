"""What people look at: statistics, tables, figures and a page, made from run directories."""
