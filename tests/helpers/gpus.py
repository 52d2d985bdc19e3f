"""GPUs for tests on machines that have none."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

LISTED = {str(n): f"GPU-0000000{n}-aaaa-bbbb-cccc-0123456789ab" for n in range(4)}
"""The UUIDs of four fake GPUs by nvidia-smi's number."""


def fake_smi(folder: Path, uuids: Mapping[str, str] = LISTED, name: str = "NVIDIA H100 80GB HBM3") -> Path:
    """Put a program `nvidia-smi` into a folder that lists some GPUs; that folder, for PATH."""
    lines = "\n".join(f"GPU {number}: {name} (UUID: {uuid})" for number, uuid in uuids.items())
    return fake_listing(folder, lines)


def fake_listing(folder: Path, lines: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n[ \"$*\" = -L ] || exit 1\ncat <<'END'\n{lines}\nEND\n")
    program.chmod(0o755)
    return folder


def replaced_cuda(folder: Path, asked: Path) -> Path:
    """A folder for PYTHONPATH in which torch's CUDA module is another: every call to it writes the asking process's
    number into `asked`, and it knows one device."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        f"""
import importlib.util, os, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "torch.cuda":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            def said(answer):
                def call(*arguments, **more):
                    with open({json.dumps(str(asked))}, "a") as file:
                        file.write(f"{{os.getpid()}}\\n")
                    return answer
                return call
            module.is_available, module.device_count = said(True), said(1)
            module.init = module._lazy_init = said(None)

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder())
"""
    )
    return folder


def path_with(folder: Path, path: str) -> str:
    """PATH with a folder before all others, and this Python's own."""
    return f"{folder}:{Path(sys.executable).parent}:{path}"
