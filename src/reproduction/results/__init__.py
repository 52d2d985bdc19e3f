"""Tables, figures and published reference numbers."""
