"""Lanes and weights that `mpicoloc qos` chose, in the switches that a real subnet manager has set up."""

import json
import re

import pytest
from network_files import profile
from subnet import NEEDED

from mpicoloc.cli.main import main
from mpicoloc.profile import hdf5

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), NEEDED]
TREE = "XGFT(2;4,2;1,2)"
JOBS = {"heavy": 4000, "middle": 2000, "light": 500}
"""Bytes that each sends in 2 s from h0, h1, h2 to the other switch, over links of 1 GB/s."""


@pytest.fixture
def choose(subnet, capsys):
    """Give the policy for the three jobs on this fabric, as JSON, and its files in the fabric's folder."""
    folder = subnet.folder
    subnet.tool("opensm", "-o", "-f", "first.log")
    (folder / "net.ibnetdiscover").write_text(subnet.tool("ibnetdiscover"))
    for i, (name, n_bytes) in enumerate(JOBS.items()):
        hdf5.write(profile(name, n_bytes, (f"h{i}", f"h{i + 4}")), folder / f"{name}.h5")

    def call(*flags):
        files = [str(folder / f"{name}.h5") for name in JOBS]
        flags = ("--topology", str(folder / "net.ibnetdiscover"), "--opensm", str(folder), "--json", *flags)
        assert main(["qos", *files, *flags]) == 0
        return json.loads(capsys.readouterr().out)

    return call


def ports(subnet):
    """LID and number of each connected port of each switch."""
    lid = None
    for line in subnet.tool("ibnetdiscover").splitlines():
        if head := re.match(r"Switch.* lid (\d+) ", line):
            lid = head.group(1)
        elif line.startswith(("Ca", "Rt")):
            lid = None
        elif lid and (port := re.match(r"\[(\d+)\]", line)):
            yield lid, port.group(1)


def cells(line):
    return [int(cell, 0) for cell in line.split("|")[1:] if cell.strip()]


def arbitration(text):
    """Rows (lane, weight) of the low and the high table that smpquery prints."""
    lanes, counts = (
        [cells(line) for line in text.splitlines() if line.startswith(word)] for word in ("VL ", "W")
    )
    return [
        [[lane, n] for lane, n in zip(*table, strict=True) if n] for table in zip(lanes, counts, strict=True)
    ]


def read_back(subnet, lid, port):
    """QoS settings of one port: distinct level-to-lane rows, arbitration tables, number of active lanes."""
    mapping = {tuple(cells(row)) for row in subnet.tool("smpquery", "sl2vl", lid, port).splitlines()[2:]}
    low, high = arbitration(subnet.tool("smpquery", "vlarb", lid, port))
    (lanes,) = re.findall(r"OperVLs:\.*VL0(?:-(\d+))?", subnet.tool("smpquery", "portinfo", lid, port))
    return {
        "lane_of_level": [list(row) for row in mapping],
        "low_rows": low,
        "high_rows": high,
        "n_operational": int(lanes or 0) + 1,
    }


@pytest.mark.parametrize(
    "flags", [(), ("--lanes", "2"), ("--high", "2", "--high-limit", "9"), ("--keep-lane-0", "--mtu", "2048")]
)
def test_every_switch_has_the_lanes_and_weights_that_were_chosen(choose, subnet, flags):
    policy = choose(*flags)
    assert len(policy["low_rows"]) >= 2
    said = subnet.manage("-F", "opensm.conf", "-P", "partitions.conf")
    assert f"qos_high_limit = {policy['high_limit']}" in said, "ibsim's ports do not keep it"
    found = list(ports(subnet))
    assert len(found) == 16, "of both levels, to hosts and to switches"
    for lid, port in found:
        back = read_back(subnet, lid, port)
        assert back.pop("lane_of_level") == [policy["lane_of_level"]]
        assert back == {key: policy[key] for key in back}


def test_a_path_in_the_partition_of_a_lane_has_its_service_level(choose, subnet):
    policy = choose()
    subnet.manage("-F", "opensm.conf", "-P", "partitions.conf")
    lids = dict(re.findall(r'"(h\d+)" lid (\d+) ', subnet.tool("ibnetdiscover")))
    for job in policy["jobs"]:
        ends = ("--slid", lids["h0"], "--dlid", lids["h7"], "--pkey", hex(job["pkey"]))
        found = subnet.tool("saquery", "PathRecord", *ends)
        assert re.findall(r"\bsl\.+0x([0-9A-F]+)", found) == [f"{job['service_level']:X}"]
    assert sorted(job["service_level"] for job in policy["jobs"]) == [0, 1, 2]
