"""Many fine-tuned models of one base in one folder: theta_0 by reference, one merged vector and a bit mask for each
task, or each task's own compressed tensors.

    bundle.json                what it is, where the base is, the sha256 of every other file (`manifest.py`)
    merged.safetensors         tau_MTL by tensor: F32, BF16, F16, or I8 and `<name>.scale`, F32 [rows]; one scale for
                               each row of the first axis, one for a tensor of less than two axes
    masks/<task>.safetensors   by tensor uint8 [ceil(n / 8)]: bit i, from the lowest, of byte j is the mask of value
                               8 j + i of the flattened tensor; the bits behind the last value are 0
    updates/<task>.safetensors in the place of these two: by tensor what its coding stores (`codings`)
    base/                      the base's files, where it is included
    README.md                  the model card

Only tensors of floats that some model changed are stored.
"""
