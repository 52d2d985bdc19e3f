# What the stages of dvc.yaml and experiments/<model>/dvc.yaml ask for.
for _model in config["models"]:

    rule:
        name:
            f"checkpoints_{_model}"
        input:
            BRIDGE.store.missing(_model, "examples", "pretrained", "head", "checkpoint", "imported"),
        localrule: True
        message:
            "Every checkpoint is there"

    rule:
        name:
            f"experiment_{_model}"
        input:
            BRIDGE.store.missing(_model),
            BRIDGE.views.tables([_model]),
        localrule: True
        message:
            "Every table is there, and all that it was made from"
