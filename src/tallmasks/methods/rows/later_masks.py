"""Rows that no paper has: TALL-masks and consensus over merges that came later, a line each."""

from tallmasks.methods import consensus_row, masking_row

masking_row("dare", row=112, title="TALL Mask + DARE")
masking_row("breadcrumbs", row=113, title="TALL Mask + Breadcrumbs")
masking_row("tsv_m", row=114, title="TALL Mask + TSV-M")
masking_row("iso_c", row=115, title="TALL Mask + Iso-C")

consensus_row("dare", row=54, title="Consensus DARE")
consensus_row("breadcrumbs", row=56, title="Consensus Breadcrumbs")
