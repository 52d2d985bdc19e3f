"""GPUs for tests on machines that have none."""

import json
from collections.abc import Mapping
from pathlib import Path

LISTED = {str(n): f"GPU-0000000{n}-aaaa-bbbb-cccc-0123456789ab" for n in range(4)}
"""The UUIDs of four fake GPUs by nvidia-smi's number."""


def fake_nvml(folder: Path, gpus: Mapping[str, tuple[str, list[str]]] | None = None) -> Path:
    """Put a module `pynvml` into a folder, for PYTHONPATH, that lists some GPUs: by UUID the name, and the UUIDs of the
    parts into which MIG divides it."""
    folder.mkdir(parents=True, exist_ok=True)
    gpus = gpus or {uuid: ("NVIDIA H100 80GB HBM3", []) for uuid in LISTED.values()}
    (folder / "pynvml.py").write_text(f"GPUS = {gpus!r}\n{NVML}")
    return folder


NVML = """
class NVMLError(Exception):
    pass

def nvmlInit():
    pass

def nvmlDeviceGetCount():
    return len(GPUS)

def nvmlDeviceGetHandleByIndex(number):
    return list(GPUS)[number]

def nvmlDeviceGetName(handle):
    return GPUS[handle][0] if handle in GPUS else "a part"

def nvmlDeviceGetUUID(handle):
    return handle

def nvmlDeviceGetMigMode(handle):
    return bool(GPUS[handle][1]), False

def nvmlDeviceGetMaxMigDeviceCount(handle):
    return 7

def nvmlDeviceGetMigDeviceHandleByIndex(handle, place):
    if place >= len(GPUS[handle][1]):
        raise NVMLError("not found")
    return GPUS[handle][1][place]
"""


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
