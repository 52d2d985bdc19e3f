"""Pretrain a tiny model from nothing, into the place of the weights that ship; no part of the chain.

python workflow/scripts/pretrain.py tiny
"""

import sys

from job import use_threads
from tallmasks.plan.project import open_plan
from tallmasks.training.tiny_pretraining import pretrain_tiny
from tallmasks.training.tiny_t5_pretraining import pretrain_tiny_t5

if __name__ == "__main__":
    recipe, weights = open_plan().pretraining(sys.argv[1])
    if recipe["params"]["family"] == "t5":
        use_threads(1)
        pretrain_tiny_t5(recipe["params"], weights)
    else:
        use_threads(2)
        pretrain_tiny(recipe["params"], weights, processes=2)
