"""`topicsd check`: verify a data directory and name every inconsistency in it.

Exit code 0 when everything agrees, 1 with problems (one line each, file and position first),
2 when there is nothing to check or a running server holds the directory: what it writes
while we read would look like damage.
"""

from __future__ import annotations

from pathlib import Path

import click

from topicsd.cli.options import refuse


@click.command()
@click.argument("data_dir", type=click.Path(path_type=Path))
@click.option(
    "--cold-dir",
    envvar="TOPICS_COLD_DIR",
    type=click.Path(path_type=Path),
    help="Directory of cold segments, when it is not where the last server had it.",
)
def check(data_dir: Path, cold_dir: Path | None) -> None:
    """Verify the catalog, logs and segments in DATA_DIR against each other."""
    if not data_dir.is_dir():
        refuse(f"{data_dir} is not a directory")
    _lock(data_dir)

    from topicsd.check import check_data_dir

    problems = check_data_dir(data_dir, click.echo, cold_dir)
    for problem in problems:
        click.echo(f"{problem.file}:{problem.position}: {problem.message}", err=True)
    click.echo(_verdict(len(problems)))
    raise click.exceptions.Exit(1 if problems else 0)


def _verdict(count: int) -> str:
    if count == 0:
        return "clean"
    return "1 problem" if count == 1 else f"{count} problems"


def _lock(data_dir: Path) -> None:
    """Hold the directory's lock until this process ends, so that no server starts meanwhile."""
    from topicsd.storage.fs import DirectoryLocked, Files

    path = data_dir / "lock"
    if not path.exists():
        # Never opened by a server: checking must not leave files behind.
        return
    try:
        Files().lock(path)
    except (DirectoryLocked, OSError) as problem:
        refuse(str(problem))
