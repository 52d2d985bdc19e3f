"""Unpack a bundle artifact into its files."""

from job import Job, main
from results_io import publish
from tallmasks.io.file_archives import archived_files


@main
def run(job: Job) -> None:
    files = archived_files(job.input("bundle"))
    publish(job, files)
    folder = job.folder
    for path in [*folder.glob("masks/*"), *folder.glob("updates/*"), *folder.glob("merged.safetensors")]:
        if path.relative_to(folder).as_posix() not in files:  # left from an earlier set of tasks or method
            path.unlink()
    print(f"{folder}: {len(files)} files, {sum(content.size for content in files.values()) / 1e6:.1f} MB", flush=True)
