#!/usr/bin/env bash
# Makes the pictures of docs/howto/read/export/ anew: each shows an export in the program that it is for.
# Needs, beside an installed mpicoloc with its extras export and test, Debian's packages chromium chromium-driver
# prometheus prometheus-node-exporter pngquant.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
started=()
finish() {
    for process in "${started[@]}"; do kill "$process" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT
background() {
    "$@" >"$work/log" 2>&1 &
    started+=($!)
}
cd "$work"

mpicc -O2 -o heat2d "$here/../../examples/heat2d.c" -lm
export OMPI_MCA_rmaps_base_oversubscribe=1
mpicoloc run -n 4 --trace all --out heat.h5 -- ./heat2d 1500 12
mpicoloc run -n 2 --out first.h5 -- ./heat2d 600 8000 &
mpicoloc run -n 2 --out second.h5 -- ./heat2d 600 8000
wait $!

mpicoloc export heat.h5 --format perfetto --out heat.json
python "$here/screenshots.py" perfetto heat.json perfetto.png

mkdir texts
for job in heat first second; do mpicoloc export $job.h5 --format prometheus --out texts/$job.prom; done
background prometheus-node-exporter --collector.disable-defaults --collector.textfile \
    --collector.textfile.directory=texts --web.listen-address=127.0.0.1:19100
cat >prometheus.yml <<END
global: {scrape_interval: 1s}
scrape_configs: [{job_name: nodes, honor_labels: true, static_configs: [{targets: ["127.0.0.1:19100"]}]}]
END
background prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:19090
sleep 8
python "$here/screenshots.py" prometheus http://127.0.0.1:19090 prometheus.png

for picture in perfetto prometheus; do
    pngquant --force --strip --speed 1 --output "$here/$picture.png" 64 $picture.png
done
ls -l "$here"/*.png
