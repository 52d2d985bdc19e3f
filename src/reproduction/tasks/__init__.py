"""Tasks, and the catalogues that declare them and write their examples."""
