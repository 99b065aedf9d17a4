"""Programs that say what those of some version of Slurm do."""


def stand_in(folder, monkeypatch, scripts):
    """Lines of shell by the name of the program; {0} in them is the folder."""
    for name, script in scripts.items():
        (folder / name).write_text("#!/bin/sh\n" + script.format(folder) + "\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin")
