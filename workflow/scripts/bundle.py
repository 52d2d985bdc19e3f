"""Lay out a bundle of the store as its files."""

from job import Job, main
from results_io import publish
from tallmasks.io.file_archives import archived_files


def run(job: Job) -> None:
    files = archived_files(job.input("bundle"))
    publish(job, files)
    folder = job.outputs["folder"]
    for path in [*folder.glob("masks/*"), *folder.glob("updates/*"), *folder.glob("merged.safetensors")]:
        if path.relative_to(folder).as_posix() not in files:  # of a set of tasks, or a method, that it had before
            path.unlink()
    print(f"{folder}: {len(files)} files, {sum(content.size for content in files.values()) / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main(run)
