"""A machine is read from its files: trees of other machines stand in, and the real one is read too."""

from __future__ import annotations

import sys
import time
import venv
from pathlib import Path

import pytest

from raceline.measure import gpus
from raceline.measure.machine import read_environment
from raceline.measure.root import Root, run

OLD_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.141.03  Thu Jun 30 18:45:31 UTC 2022\n"
OPEN_DRIVER = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)\n"
)
UBUNTU = 'NAME="Ubuntu"\nVERSION_ID="22.04"\nID=ubuntu\n'


def tree(folder: Path, files: dict[str, str], variables: dict[str, str] | None = None) -> Root:
    for name, text in files.items():
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Root(folder, variables or {})


def cards(*names: str) -> dict[str, str]:
    return {
        f"/proc/driver/nvidia/gpus/0000:{number:02x}:00.0/information": f"Model: \t\t {name}\nIRQ: 1\n"
        for number, name in enumerate(names)
    }


@pytest.mark.parametrize(("text", "driver"), [(OLD_DRIVER, "470.141.03"), (OPEN_DRIVER, "580.95.05")])
def test_the_driver_is_read_from_the_kernel_module(tmp_path: Path, text: str, driver: str) -> None:
    root = tree(tmp_path, {"/proc/driver/nvidia/version": text, **cards("Tesla V100-SXM2-16GB")})
    assert read_environment(root).driver == driver


def test_equal_cards_are_counted_and_others_stand_apart(tmp_path: Path) -> None:
    names = ("NVIDIA H100 80GB HBM3",) * 8 + ("NVIDIA T400 4GB",)
    root = tree(tmp_path, {"/proc/driver/nvidia/version": OPEN_DRIVER, **cards(*names)})
    found = {item.name: item.count for item in read_environment(root).gpus}
    assert found == {"NVIDIA H100 80GB HBM3": 8, "NVIDIA T400 4GB": 1}


def test_without_a_driver_there_are_no_gpus(tmp_path: Path) -> None:
    found = read_environment(tree(tmp_path, {"/etc/os-release": UBUNTU}))
    assert (found.driver, found.gpus) == (None, ())


@pytest.mark.parametrize(
    ("release", "name", "version"),
    [
        (UBUNTU, "ubuntu", "22.04"),
        ('ID="centos"\nVERSION_ID="7"\n', "centos", "7"),
        ('ID="rocky"\nVERSION_ID="9.3"\n', "rocky", "9.3"),
        ('ID="amzn"\nVERSION_ID="2023"\n', "amazon", "2023"),
        ("ID=debian\nVERSION_ID=\"12\"\n", "debian", "12"),
    ],
)  # fmt: skip
def test_the_distribution_is_read(tmp_path: Path, release: str, name: str, version: str) -> None:
    found = read_environment(tree(tmp_path, {"/etc/os-release": release}))
    assert (found.os, found.os_name, found.os_version) == ("linux", name, version)


def test_alpine_has_another_c_library(tmp_path: Path) -> None:
    files = {"/etc/os-release": "ID=alpine\nVERSION_ID=3.20\n", "/lib/ld-musl-x86_64.so.1": ""}
    assert read_environment(tree(tmp_path, files)).is_musl


def test_wsl_is_told_by_its_kernel(tmp_path: Path) -> None:
    text = "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1)"
    assert read_environment(tree(tmp_path, {"/proc/version": text})).is_wsl


@pytest.mark.parametrize(
    ("files", "variables", "container"),
    [
        ({"/.dockerenv": ""}, {}, "docker"),
        ({"/run/.containerenv": ""}, {}, "podman"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"/proc/1/cgroup": "0::/kubepods/besteffort/pod1\n"}, {}, "kubernetes"),
        ({}, {"APPTAINER_CONTAINER": "/images/torch.sif"}, "apptainer"),
        ({"/proc/1/cgroup": "0::/init.scope\n"}, {}, None),
    ],
)
def test_a_container_is_told(
    tmp_path: Path, files: dict[str, str], variables: dict[str, str], container: str | None
) -> None:
    assert read_environment(tree(tmp_path, files, variables)).container == container


def test_amd_cards_are_read_from_the_topology(tmp_path: Path) -> None:
    node = "/sys/class/kfd/kfd/topology/nodes"
    files = {
        f"{node}/0/properties": "cpu_cores_count 64\ngfx_target_version 0\n",
        f"{node}/1/properties": "simd_count 304\ngfx_target_version 90402\n",
        f"{node}/2/properties": "simd_count 304\ngfx_target_version 90402\n",
        "/opt/rocm/.info/version": "6.2.4-116\n",
    }
    found = read_environment(tree(tmp_path, files, {"HSA_OVERRIDE_GFX_VERSION": "9.4.2"}))
    assert [(item.gfx, item.count) for item in found.gpus] == [("gfx942", 2)]
    assert (found.rocm, found.gfx_override) == ("6.2", "9.4.2")


@pytest.mark.parametrize(
    ("code", "gfx"),
    [(90402, "gfx942"), (90010, "gfx90a"), (110000, "gfx1100"), (100300, "gfx1030"), (110501, "gfx1151")],
)
def test_a_target_is_named_from_the_kernels_number(code: int, gfx: str) -> None:
    assert gpus.gfx_of(code) == gfx


def test_tpu_and_neuron_devices_are_seen(tmp_path: Path) -> None:
    files = {"/dev/neuron0": "", "/sys/module/neuron/version": "2.19.64.0\n", "/dev/accel0": ""}
    found = read_environment(tree(tmp_path, files, {"TPU_ACCELERATOR_TYPE": "v5litepod-8"}))
    assert (found.neuron, found.tpu) == ("2.19.64.0", "v5litepod-8")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("version.json", '{"cuda" : {"name" : "CUDA SDK", "version" : "12.4.1"}}'),
        ("version.txt", "CUDA Version 10.2.89\n"),
    ],
)
def test_the_first_nvcc_on_the_path_counts(tmp_path: Path, name: str, text: str) -> None:
    files = {
        "/opt/cuda/bin/nvcc": "",
        f"/opt/cuda/{name}": text,
        "/usr/local/cuda-11.8/bin/nvcc": "",
        "/usr/local/cuda-12.9/bin/nvcc": "",
    }
    found = read_environment(
        tree(tmp_path, files, {"PATH": "/usr/bin:/opt/cuda/bin:/usr/local/cuda-11.8/bin"})
    )
    assert found.toolkit == ("12.4" if "json" in name else "10.2")
    assert found.other_toolkits == ("12.9", "11.8")


def environment(folder: Path, packages: dict[str, dict[str, str]]) -> Path:
    """A virtual environment's folder with distributions and their RECORDs."""
    site = folder / "venv" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    (folder / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    for name, files in packages.items():
        info = site / f"{name}.dist-info"
        info.mkdir()
        (info / "RECORD").write_text("".join(f"{path},sha256=x,1\n" for path in files))
        (info / "INSTALLER").write_text("uv\n")
        for path, text in files.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_text(text)
    return folder / "venv"


def test_another_environment_is_read_without_importing_it(tmp_path: Path) -> None:
    prefix = environment(
        tmp_path, {"torch-2.8.0+cu128": {"torch/__init__.py": "raise SystemExit('imported')"}}
    )
    found = read_environment(prefix=prefix)
    assert found.python == "3.11.7"
    assert [(item.name, item.version, item.label, item.installer) for item in found.distributions] == [
        ("torch", "2.8.0", "cu128", "uv")
    ]


def test_files_that_two_distributions_own_are_found(tmp_path: Path) -> None:
    library = "nvidia/cudnn/lib/libcudnn.so.9"
    prefix = environment(
        tmp_path,
        {
            "nvidia_cudnn_cu12-9.10.2.21": {library: "a", "nvidia/cudnn/lib/libcudnn_ops.so.9": "a"},
            "nvidia_cudnn_cu13-9.20.0.48": {library: "b", "nvidia/cudnn/lib/libcudnn_ops.so.9": "b"},
            "requests-2.32.0": {"requests/api.py": ""},
        },
    )
    (found,) = read_environment(prefix=prefix).shared_files
    assert (found.first, found.second, found.example, found.count) == (
        "nvidia-cudnn-cu12", "nvidia-cudnn-cu13", library, 2,
    )  # fmt: skip


def test_a_library_that_hides_a_wheels_own_is_found_and_no_user_is_named(tmp_path: Path) -> None:
    prefix = environment(tmp_path, {"nvidia_cudnn_cu12-9.10.2.21": {"nvidia/cudnn/lib/libcudnn.so.9": ""}})
    home = tmp_path / "home" / "jane"
    (home / "cuda" / "lib64").mkdir(parents=True)
    (home / "cuda" / "lib64" / "libcudnn.so.9").write_text("")
    (home / "cuda" / "lib64" / "libcudnn.so.9.1.0").write_text("")
    root = Root("/", {"LD_LIBRARY_PATH": f"{home}/cuda/lib64:/opt/other", "HOME": str(home), "PATH": ""})
    found = read_environment(root, prefix)
    assert [(item.library, item.found_in, item.owned_by) for item in found.shadows] == [
        ("libcudnn.so.9", "~/cuda/lib64", "nvidia-cudnn")
    ]
    assert found.library_path == ("~/cuda/lib64", "/opt/other")
    assert found.cudnn == "9.1.0"
    assert "jane" not in str(found)


def test_conda_packages_are_read_by_their_records(tmp_path: Path) -> None:
    prefix = environment(tmp_path, {"numpy-1.26.4": {"numpy/version.py": ""}})
    (prefix / "conda-meta").mkdir()
    for name in ("pytorch-2.1.0-py3.10_cuda11.8_cudnn8.7.0_0", "mkl-2024.1.0-h1_0", "numpy-1.26.4-py311_0"):
        (prefix / "conda-meta" / f"{name}.json").write_text("{}")
    found = {item.name: item for item in read_environment(prefix=prefix).distributions}
    assert (found["torch"].version, found["torch"].label, found["torch"].installer) == (
        "2.1.0",
        "cu118",
        "conda",
    )
    assert found["mkl"].version == "2024.1.0"
    assert found["numpy"].installer == "uv"


def test_a_folder_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    found = read_environment(prefix=tmp_path / "nowhere")
    assert (found.distributions, found.shared_files, found.python) == ((), (), None)


def test_three_hundred_distributions_are_read_quickly(tmp_path: Path) -> None:
    packages = {f"package_{number}-1.{number}.0": {f"package_{number}/a.py": ""} for number in range(300)}
    prefix = environment(tmp_path, packages)
    best = min(_read_s(prefix) for _ in range(3))
    assert len(read_environment(prefix=prefix).distributions) == 300
    assert best <= 0.3


def _read_s(prefix: Path) -> float:
    start = time.process_time()
    read_environment(prefix=prefix)
    return time.process_time() - start


def test_the_real_machine_is_read() -> None:
    found = read_environment()
    assert found.os in ("linux", "macos", "windows")
    assert found.python is not None
    assert found.python.startswith(f"{sys.version_info.major}.{sys.version_info.minor}")
    assert found.distribution("numpy") is not None


def test_a_real_virtual_environment_is_read(tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=False)
    found = read_environment(prefix=tmp_path / "env")
    assert found.python == ".".join(map(str, sys.version_info[:3]))
    assert found.distributions == ()


def test_a_command_that_hangs_is_ended() -> None:
    start = time.monotonic()
    code, _, complaint = run([sys.executable, "-c", "import time; time.sleep(60)"], limit_s=0.5)
    assert (code, complaint) == (-1, "0.5 s")
    assert time.monotonic() - start < 20


def test_a_command_that_is_not_there_is_told() -> None:
    assert run(["no-such-program-here"], limit_s=1)[0] == -1
