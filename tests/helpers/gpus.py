"""GPUs for tests on machines that have none."""

from pathlib import Path

LISTED = {str(n): f"GPU-0000000{n}-aaaa-bbbb-cccc-0123456789ab" for n in range(4)}
"""The UUIDs of four fake GPUs by nvidia-smi's number."""


def fake_nvml(folder: Path) -> Path:
    """Put a module `pynvml` that lists them into a folder, for PYTHONPATH."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pynvml.py").write_text(
        f"""
NVMLError = Exception
nvmlInit = lambda: None
nvmlDeviceGetCount = lambda: {len(LISTED)}
nvmlDeviceGetHandleByIndex = int
nvmlDeviceGetUUID = {list(LISTED.values())!r}.__getitem__
"""
    )
    return folder
