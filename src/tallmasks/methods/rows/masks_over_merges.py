"""TALL-mask and consensus rows on merges."""

from tallmasks.methods import ALPHAS_TO_3, Scaled, consensus_row, masking_row

masking_row("sum", name="tall_mask_task_arithmetic", row=100, title="TALL Mask + TA", group="paper")
masking_row("ties_sum", name="tall_mask_ties", row=110, title="TALL Mask + TIES", group="paper")
masking_row("dare", row=112, title="TALL Mask + DARE")
masking_row("breadcrumbs", row=113, title="TALL Mask + Breadcrumbs")
masking_row("tsv_m", row=114, title="TALL Mask + TSV-M")
masking_row("iso_c", row=115, title="TALL Mask + Iso-C")

consensus_row("sum", name="consensus_task_arithmetic", row=50, title="Consensus TA", group="paper")
consensus_row("sum", name="consensus_task_arithmetic_k1", row=52, title="Consensus TA (k = 1)", k=1, group="paper")
consensus_row("ties_sum", name="consensus_ties", row=60, title="Consensus TIES", group="paper")
consensus_row("ties_sum", name="consensus_ties_k1", row=62, title="Consensus TIES (k = 1)", k=1, group="paper")
consensus_row("dare", row=54, title="Consensus DARE")
consensus_row("breadcrumbs", row=56, title="Consensus Breadcrumbs", protocol=Scaled(ALPHAS_TO_3))
