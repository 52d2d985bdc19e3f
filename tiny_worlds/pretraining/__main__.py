"""Pretrain a tiny model from scratch and replace its weights: python -m tiny_worlds.pretraining tiny"""

import argparse

from reproduction.plan.project import open_plan
from tiny_worlds.pretraining.tiny_clip import pretrain_tiny
from tiny_worlds.pretraining.tiny_t5 import pretrain_tiny_t5

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Pretrain a tiny model of params.yaml and replace its weights.")
    parser.add_argument("model", choices=("tiny", "tiny_t5"))
    name = parser.parse_args().model
    plan = open_plan()
    spec = plan.model(name)
    recipe = {**plan.architecture(name), "pretraining": dict(spec["pretraining"]), "tasks": spec["tasks"]}
    weights = plan.named_path(spec["pretrained"])
    if name == "tiny":
        pretrain_tiny(recipe, weights, processes=2)
    else:
        pretrain_tiny_t5(recipe, weights)
