"""A bundle folder: fine-tuned models of one base, stored as one merged vector plus a bit mask per task, or as
compressed tensors per task.

    bundle.json                manifest: recipe, location of the base, sha256 of every other file (`manifest.py`)
    merged.safetensors         tau_MTL by tensor: F32, BF16, F16, or I8 with `<name>.scale`, F32 [rows]: one scale per
                               row of the first axis, or one for a tensor with fewer than two axes
    masks/<task>.safetensors   by tensor uint8 [ceil(n / 8)]: value 8 j + i of the flattened tensor is bit i (lowest
                               first) of byte j; the padding bits are 0
    updates/<task>.safetensors replaces the two above in bundles of compressed tensors; see `codings`
    own/<task>.safetensors     tensors that only this task's model has, as they are
    companions/<sha256>        configuration and tokenizer files of the tasks' models
    base/                      the base's files, if included
    README.md                  the model card

Only float tensors that at least one model changed are stored.
"""
