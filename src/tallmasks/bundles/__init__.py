"""A bundle folder: fine-tuned models of one base as integers, either of each task, or of one merged vector with a mask
per task. docs/python.md describes the format.

    bundle.json                manifest: recipe, location of the base, sha256 of every other file (`manifest`)
    updates/<task>.safetensors the task's integers: multiples of steps (`vectors.multiples`), or differences of bit
                               patterns (`updates`), as compressed `streams`; and its buffers as they are
    merged.safetensors         in a bundle of masks instead: the multiples of tau_MTL,
    masks/<task>.safetensors   and the task's masks, packed into 16-bit words, with its buffers
    own/<task>.safetensors     tensors that only this task's model has, as they are
    companions/<sha256>        configuration and tokenizer files of the tasks' models
    base/                      the base's files, if included
    README.md                  the model card

Only float tensors that at least one model changed are stored.
"""
