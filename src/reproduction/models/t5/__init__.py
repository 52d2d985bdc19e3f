"""T5 v1.1 (Raffel et al. 2020; Shazeer 2020) of transformers, with full fine-tuning or (IA)^3."""

from reproduction.models.t5.t5_family import T5

FAMILY = T5()
