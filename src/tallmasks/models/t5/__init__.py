"""T5 v1.1 (Raffel et al. 2020; Shazeer 2020), fine-tuned whole or by (IA)^3, by transformers."""

from tallmasks.models.t5.t5_family import T5

FAMILY = T5()
