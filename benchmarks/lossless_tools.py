"""Fine-tuned models stored without loss beside their base, by `compress --method lossless` and by other tools.

    python3.12 -m venv TOOLS
    TOOLS/bin/pip install zipnn==0.5.4 ptwm==1.1.0 bigsmall==4.0.0 z4ai==0.2.0 zstandard==0.25.0
    python benchmarks/lossless_tools.py --tools TOOLS/bin/python --base FILE --task FILE ... [--dtype bfloat16]

Takes safetensors files with the base's tensors in the same order.  Prints a line for each tool: the bytes that it
stores per model without the base, as a mean; the processor seconds for writing and for reading all models, user and
system of all processes, start-up included; and whether the restored files have the sha256 of the originals, or else the
same values.  A tool that the Python of --tools cannot import is skipped, with the error.

xz and zstd take the XOR of the files' tensors with the base's, and the header is copied; so for zipnn and ptwm, which
XOR themselves.  ptwm 1.1.0 (Python 3.12) is called by its API, since `ptwm compress --delta` ends with "TypeError:
Unsupported input type for compression: str".  z4ai is its model_delta, bigsmall its `compress --delta-from`.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from measured import Failed, cost_of
from safetensors import safe_open
from safetensors.torch import load_file, save_file

OURS = (sys.executable, "-m", "tallmasks.cli.main")
BUFFERS = """
import sys, pathlib, numpy, {module}
def split(path):
    whole = pathlib.Path(path).read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    return whole[:start], whole[start:]
def xor(one, other):
    return (numpy.frombuffer(one, numpy.uint8) ^ numpy.frombuffer(other, numpy.uint8)).tobytes()
given, base, out = sys.argv[1:]
(header, data), (_, base) = split(given), split(base)
pathlib.Path(out).write_bytes(header + {expression})
"""
"""Writes or reads with a tool that takes buffers; the header stands before what it makes of the tensors."""
ZIPNN = "zipnn.ZipNN(bytearray_dtype='{dtype}', delta_compressed_type='byte').%s(data, delta_second_data=base)"
PTWM = "ptwm.Compressor(ptwm.CompressionConfig(bytearray_dtype='{dtype}')).compress(data, delta_second_data=base)"
Z4AI = "import sys; from z4ai import model_delta; model_delta.%s_file(*sys.argv[1:])"
PLAIN = ("%s.compress(xor(data, base), %s)", "xor(%s.decompress(data), base)")
TOOLS = {
    "xz, preset 1": ("lzma", PLAIN[0] % ("lzma", "preset=1"), PLAIN[1] % "lzma"),
    "zstd, level 3": ("zstandard", PLAIN[0] % ("zstandard", 3), PLAIN[1] % "zstandard"),
    "zstd, level 19": ("zstandard", PLAIN[0] % ("zstandard", 19), PLAIN[1] % "zstandard"),
    "zipnn": ("zipnn", ZIPNN % "compress", ZIPNN % "decompress"),
    "ptwm": ("ptwm", PTWM, "ptwm.Decompressor(ptwm.DecompressionConfig(delta_second_data=base)).decompress(data)"),
    "z4ai": ("z4ai", Z4AI % "compress", Z4AI % "decompress"),
    "bigsmall": ("bigsmall", *2 * ["from bigsmall.cli import main; main()"]),
}
"""The module of each tool, and the code that writes and that reads."""


def ours(base: Path, tasks: Sequence[Path], place: Path) -> tuple[int, float, float]:
    """Bytes of a lossless bundle of all models, and the seconds for it and for each model out of it."""
    bundle, named = place / "bundle", [f"--task=task{n}={task}" for n, task in enumerate(tasks)]
    wrote = cost_of([*OURS, "compress", "--base", base, *named, "--method", "lossless", "-o", bundle])
    reads = [[*OURS, "export", bundle, f"--task=task{n}", "-o", place / f"{n}.safetensors"] for n in range(len(tasks))]
    stored = sum(path.stat().st_size for path in bundle.rglob("*") if path.is_file())
    return stored, wrote.cpu_s, sum(cost_of(read).cpu_s for read in reads)


def theirs(name: str, python: str, dtype: str, base: Path, tasks: Sequence[Path], place: Path) -> tuple:
    """The same of a tool's file for each model."""
    module, *codes = TOOLS[name]
    if module not in ("z4ai", "bigsmall"):
        codes = [BUFFERS.format(module=module, expression=code.format(dtype=dtype)) for code in codes]
    stored, seconds = 0, [0.0, 0.0]
    for number, task in enumerate(tasks):
        packed, again = place / f"packed{number}", place / f"{number}.safetensors"
        words: list[list[str | Path]] = [[task, base, packed], [packed, base, again]]
        if name == "bigsmall":
            words = [["compress", task, "--delta-from", base, "-o", packed], ["apply", base, packed, "-o", again]]
        for turn in (0, 1):
            seconds[turn] += cost_of([python, "-c", codes[turn], *words[turn]]).cpu_s
        stored += packed.stat().st_size
    return stored, *seconds


def same(one: Path, other: Path) -> str:
    """What of a file came back."""
    if hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest():
        return "yes"
    given, again = load_file(one), load_file(other)
    equal = given.keys() == again.keys() and all(map(torch.equal, given.values(), map(again.get, given)))
    return "no, the same values" if equal else "no"


def row(name: str, arguments: argparse.Namespace, folder: Path) -> str:
    """A line of the table."""
    base, *tasks = paths = [path.resolve() for path in (arguments.base, *arguments.task)]
    dtype = arguments.dtype or str(next(iter(load_file(base).values())).dtype).removeprefix("torch.")
    if arguments.dtype:
        base, *tasks = [folder / f"cast{number}.safetensors" for number in range(len(paths))]
        for path, out in zip(paths, (base, *tasks), strict=True):
            cast = {name: tensor.to(getattr(torch, dtype)) for name, tensor in load_file(path).items()}
            save_file(cast, out, safe_open(path, "pt").metadata())
    given = base, tasks, folder
    stored, wrote, read = ours(*given) if name == "tallmasks" else theirs(name, arguments.tools, dtype, *given)
    found = {same(task, folder / f"{n}.safetensors") for n, task in enumerate(tasks)}
    return f"{name:14} {stored / len(tasks):15,.0f} {wrote:9.1f} {read:9.1f}   {' / '.join(sorted(found))}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--task", type=Path, action="append", required=True, help="a fine-tuned model; repeat")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), help="cast all models to it first")
    parser.add_argument("--tools", default=sys.executable, help="the Python that the other tools are installed for")
    parser.add_argument("--only", nargs="+", choices=("tallmasks", *TOOLS), default=("tallmasks", *TOOLS))
    arguments = parser.parse_args()
    print(f"{'tool':14} {'bytes per model':>15} {'write, s':>9} {'read, s':>9}   same sha256", flush=True)
    for name in arguments.only:
        with tempfile.TemporaryDirectory() as folder:
            try:
                print(row(name, arguments, Path(folder)), flush=True)
            except Failed as error:
                print(f"{name:14} skipped: {str(error).splitlines()[-1]}", flush=True)


if __name__ == "__main__":
    main()
