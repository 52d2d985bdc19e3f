# Targets of the stages in dvc.yaml and experiments/<model>/dvc.yaml.
for _model in config["models"]:

    rule:
        name:
            f"checkpoints_{_model}"
        input:
            BRIDGE.missing(_model, "examples", "pretrained", "head", "finetune", "import_checkpoint"),
        localrule: True

    rule:
        name:
            f"experiment_{_model}"
        input:
            BRIDGE.missing(_model),
            BRIDGE.tables([_model]),
        localrule: True
