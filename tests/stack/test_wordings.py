"""Known messages with a small set-up each: the first finding names the cause, and its fix leaves nothing of it."""

from __future__ import annotations

import pytest

from raceline.stack.apply import apply
from raceline.stack.check import check
from raceline.stack.readers import read_text

# what a person pastes, and the cause
REPORTS = (
    ("requirement_conflict", "bitsandbytes==0.50.2\ntorch==2.2.0\nnumpy==1.26.4\n"),
    ("requirement_conflict", "jax==0.9.0\njaxlib==0.9.0\nnumpy==1.26.4\n"),
    ("requirement_conflict", "jax==0.9.0\nlibtpu==0.0.20\n"),
    ("cudnn_conflict", "torch==2.3.0\nonnxruntime-gpu==1.20.0\nnvidia-cudnn-cu12==8.9.2.26\nnumpy==1.26.4\n"),
    ("torch_pair_mismatch", "torch==2.6.0+cu126\ntorchvision==0.21.0+cu124\n"),
    ("rocm_version", "GPU: MI300X\nROCm: 6.1\ntorch==2.11.0+rocm7.2\n"),
    (
        "platform_dropped",
        "OS: macOS 14.5 arm64\ntensorflow==2.17.0\nnumpy==1.26.4\nlist_physical_devices('GPU') returns []\n",
    ),
    ("driver_too_old", "driver: 550.54.14\nGPU: RTX 5090\ntorch==2.8.0\nOS: Ubuntu 24.04\n"),
    ("driver_too_new", "driver: 595.58.03\nGPU: Tesla V100\ntorch==2.10.0+cu126\n"),
    (
        "driver_too_old",
        "torch: 2.1.0+cu121\ndriver: 470.199.02\nUserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). Please update",
    ),
    (
        "driver_too_old",
        "docker: Error response from daemon: nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.1, please update your driver to a newer version\nFROM nvidia/cuda:12.1.0-base-ubuntu22.04\nRUN ls\ndriver: 510.47.03",
    ),
    (
        "tensorflow_cuda_libs",
        "os: ubuntu 22.04\ntensorflow==2.10.0\nCould not load dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared object file: No such file or directory",
    ),
    (
        "arch_removed",
        "torch==1.13.1+cu117\nFound GPU0 Tesla K40c which is of cuda capability 3.5.\nPyTorch no longer supports this GPU because it is too old.\nThe minimum cuda capability supported by this library is 3.7.",
    ),
    (
        "arch_too_new",
        "torch: 1.13.1+cu116\nNVIDIA H100 PCIe with CUDA capability sm_90 is not compatible with the current PyTorch installation.\nThe current PyTorch install supports CUDA capabilities sm_37 sm_50 sm_60 sm_70 sm_75 sm_80 sm_86.",
    ),
    (
        "torch_pair_mismatch",
        "torch==2.1.0\ntorchaudio==2.0.1\nOSError: /x/site-packages/torchaudio/lib/libtorchaudio.so: undefined symbol: _ZN2at4_ops5zeros4callEN3c108ArrayRefIlEE",
    ),
    (
        "torch_pair_mismatch",
        "torch==2.6.0\ntorchvision==0.20.0\nRuntimeError: operator torchvision::nms does not exist",
    ),
    (
        "cpu_only_build",
        "OS: Windows 11\nGPU: RTX 3060\ntorch==2.1.0\nAssertionError: Torch not compiled with CUDA enabled",
    ),
    ("numpy_abi", "torch==2.0.1\nnumpy==2.0.2\nRuntimeError: Numpy is not available"),
    (
        "numpy_abi",
        "pandas==1.5.3\nnumpy==2.1.0\nValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, got 88 from PyObject",
    ),
    (
        "protobuf_major",
        "tensorflow==2.8.0\nprotobuf==4.21.1\nTypeError: Descriptors cannot not be created directly.",
    ),
    ("nccl_conflict", "torch==2.3.0+cu121\nImportError: libtorch_cuda.so: undefined symbol: ncclCommSplit"),
    (
        "xformers_pin",
        "torch==2.0.1+cu118\nxformers==0.0.22.post7\nWARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n    PyTorch 2.1.0+cu121 with CUDA 1201 (you have 2.0.1+cu118)",
    ),
    (
        "jax_lockstep",
        "RuntimeError: jaxlib version 0.4.14 is newer than and incompatible with jax version 0.4.13. Please update your jax and/or jaxlib packages.",
    ),
    (
        "jax_lockstep",
        "jax==0.4.35\njaxlib==0.4.35\njax-cuda12-plugin==0.4.34\nRuntimeWarning: JAX plugin jax_cuda12_plugin version 0.4.34 is installed, but it is not compatible with the installed jaxlib version 0.4.35",
    ),
    (
        "bitsandbytes_binary",
        "os: linux\ntorch==2.1.0+cu121\nbitsandbytes==0.41.1\nRuntimeError: CUDA Setup failed despite GPU being available. Please run the following command",
    ),
    ("rocm_gfx", "GPU: RX 6600\ntorch: 2.3.0+rocm6.0\nRuntimeError: HIP error: invalid device function"),
    (
        "rocm_gfx",
        "torch==2.4.0+rocm6.1\nrocBLAS error: Cannot read /x/rocblas/library/TensileLibrary.dat: No such file or directory for GPU arch : gfx1032",
    ),
    (
        "onnxruntime_cuda_major",
        "onnxruntime-gpu==1.20.0\nCUDA: 11.8\nFailed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.12: cannot open shared object file",
    ),
    (
        "onnxruntime_cuda_major",
        "onnxruntime-gpu==1.23.0\ncudnn: 8.9.7\ncuda: 12.4\nFailed to load library libonnxruntime_providers_cuda.so with error: libcudnn.so.9: cannot open shared object file",
    ),
    (
        "tensorrt_mismatch",
        "onnxruntime-gpu==1.17.0\ntensorrt==10.0.1\nlibnvinfer.so.8: cannot open shared object file: No such file or directory",
    ),
    (
        "nvcc_gcc",
        "CUDA: 11.7\ngcc version: 12.2.0\n/usr/local/cuda/include/crt/host_config.h:132:2: error: #error -- unsupported GNU version! gcc versions later than 11 are not supported!",
    ),
    ("nvcc_arch", "cuda: 11.7 nvcc\nGPU: H100\nnvcc fatal   : Unsupported gpu architecture 'compute_90'"),
    ("nvcc_arch", "cuda: 12.2 nvcc\nnvcc fatal   : Unsupported gpu architecture 'compute_35'"),
    (
        "forward_compat_unsupported",
        "GPU: GTX 1080\ndriver: 470.82.01\nFROM nvidia/cuda:12.2.0-runtime\nRUN true\nError 804: forward compatibility was attempted on non supported HW",
    ),
    (
        "glibc_too_old",
        "OS: CentOS 7\ntorch==2.7.0\nImportError: /lib64/libc.so.6: version `GLIBC_2.28' not found (required by /x/torch/lib/libtorch_cpu.so)",
    ),
    (
        "mps_macos",
        "OS: macOS 12.5 arm64\ntorch: 2.6.0\nRuntimeError: The MPS backend is supported on MacOS 13.0+.Current OS version can be queried using sw_vers",
    ),
    ("triton", "OS: Windows 10\ntorch==2.5.1+cu124\nModuleNotFoundError: No module named 'triton'"),
    (
        "triton",
        "GPU: RTX 5090\ntorch==2.6.0\nptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'",
    ),
    (
        "extension_abi",
        "torch==2.4.0\nflash-attn==2.6.3\nImportError: /x/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
    ),
    (
        "extension_abi",
        "vllm==0.6.0\ntorch==2.5.0\nImportError: /x/vllm/_C.abi3.so: undefined symbol: _ZN5torch3jit17parseSchemaOrNameERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
    ),
    (
        "library_shadow",
        "torch==2.0.1\nLD_LIBRARY_PATH: /usr/local/cuda-11.3/lib64\nImportError: /x/nvidia/cublas/lib/libcublas.so.11: undefined symbol: cublasLtGetStatusString, version libcublasLt.so.11",
    ),
    (
        "library_shadow",
        "torch==2.1.0\nCould not load library libcudnn_cnn_infer.so.8. Error: /usr/lib/libcudnn_cnn_infer.so.8: undefined symbol: _ZN5cudnn3cnn, version libcudnn_ops_infer.so.8",
    ),
    (
        "neuron_lockstep",
        "RuntimeError: NEFF version: 2.0, features: 0x100 are not supported. Currently supporting: 0x80000000000000ff",
    ),
    (
        "torch_xla_lockstep",
        "torch==2.1.0\ntorch-xla==2.0.0\nImportError: /x/_XLAC.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN5torch4lazy13MetricFnValueB5cxx11Ed",
    ),
    (
        "tensorflow_cuda_libs",
        "os: ubuntu\ntensorflow[and-cuda]==2.17.0\nCannot dlopen some GPU libraries. Please make sure the missing libraries mentioned above are installed properly",
    ),
    (
        "no_wheel_for_python",
        "Python 3.13.0\nERROR: Could not find a version that satisfies the requirement torch==2.4.1 (from versions: 2.5.0, 2.5.1)\nERROR: No matching distribution found for torch==2.4.1",
    ),
    (
        "no_wheel_for_python",
        "Python 3.12.1\nERROR: Could not find a version that satisfies the requirement tensorflow==2.15.0 (from versions: 2.16.0rc0, 2.16.1)\nERROR: No matching distribution found for tensorflow==2.15.0",
    ),
    (
        "platform_dropped",
        "os: windows 11\ngpu: RTX 4070\npython: 3.11\ntensorflow==2.15.0\ntf.config.list_physical_devices('GPU') returns []",
    ),
    ("platform_dropped", "OS: macOS 14.2 x86_64\nERROR: No matching distribution found for torch==2.4.0"),
    (
        "ptx_newer_than_driver",
        "driver: 525.85.12\nGPU: A100\nvllm==0.4.0\nRuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    ),
    (
        "cudnn_conflict",
        "jax[cuda12]\ntorch==2.3.0\nnvidia-cudnn-cu12==8.9.2.26\nE external/xla/xla/stream_executor/cuda/cuda_dnn.cc:535] Loaded runtime CuDNN library: 8.9.2 but source was compiled with: 9.1.0.",
    ),
    (
        "cudnn_conflict",
        "torch 2.4.0 installed with tensorflow 2.15\nRuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) but found runtime version (8, 9, 4).",
    ),
    (
        "conda_mkl",
        "torch: conda build\nImportError: /x/libtorch_cpu.so: undefined symbol: iJIT_IsProfilingActive",
    ),
    (
        "nvcc_torch_mismatch",
        "RuntimeError:\nThe detected CUDA version (12.1) mismatches the version that was used to compile\nPyTorch (11.8). Please make sure to use the same CUDA versions.",
    ),
    ("coremltools_python", "python: 3.12\ncoremltools==7.1\nRuntimeError: BlobWriter not loaded"),
    (
        "installer_choice",
        "uv pip install torch --torch-backend=auto\ngpu: Tesla P40\ndriver: 550.54.14\nno kernel image is available for execution on the device",
    ),
    (
        "feature_needs_gpu",
        "GPU: Tesla T4\nflash-attn==2.5.8\ntorch==2.3.0\nRuntimeError: FlashAttention only supports Ampere GPUs or newer.",
    ),
    ("onnxruntime_flavours", "onnxruntime==1.20.0\nonnxruntime-gpu==1.20.0"),
    ("fabric_manager", "driver: 535.104.05\nGPU: H100 x8\nError 802: system not yet initialized"),
    ("cudnn_conflict", "torch==2.13.0\ntensorflow[and-cuda]==2.21.0\njax[cuda12]"),
)

# set-ups that work: nothing in them may be called broken
HEALTHY = (
    "driver: 450.80.02\ntorch==2.7.1+cu118\nGPU: T4\nPython: 3.11\n",
    "driver: 510.108.03\nGPU: A100\ntorch==2.0.1+cu117\nnumpy==1.26.4\nPython: 3.10\n",
    "driver: 510.108.03\nGPU: A100\ntorch==2.5.1+cu118\nPython: 3.10\n",
    "driver: 550.54.14\nGPU: GTX 1080 Ti\ntorch==2.8.0+cu126\ntorchvision==0.23.0+cu126\nPython: 3.12\n",
    "driver: 525.60.13\nGPU: RTX 3090\ntorch==2.4.1+cu124\ntorchvision==0.19.1+cu124\ntorchaudio==2.4.1+cu124\nPython: 3.11\n",
    "driver: 535.183.01\nGPU: RTX 3090\ntorch==2.8.0\nPython: 3.12\n",
    "driver: 580.95.05\nGPU: RTX 5090\ntorch==2.13.0\nPython: 3.12\n",
    "driver: 580.95.05\nGPU: H100\nvllm==0.32.0\ntorch==2.13.0\nPython: 3.12\n",
    "driver: 535.183.01\nGPU: V100\ntorch==2.10.0\nPython: 3.12\n",
    "driver: 470.82.01\nGPU: Tesla K80\ntorch==2.0.1+cu118\nnumpy==1.26.4\nPython: 3.10\n",
    "GPU: H100\ndriver: 535.183.01\njax==0.9.0\njaxlib==0.9.0\njax-cuda12-plugin==0.9.0\njax-cuda12-pjrt==0.9.0\nPython: 3.12\n",
    "tensorflow==2.17.0\nnumpy==1.26.4\nprotobuf==4.25.3\nPython: 3.11\nOS: Ubuntu 22.04\n",
    "OS: macOS 14.5 arm64\ntorch==2.9.0\nPython: 3.12\nGPU: M3\n",
    "OS: macOS 13.0 x86_64\ntorch==2.2.2\nnumpy==1.26.4\nPython: 3.11\n",
    "OS: Windows 11\nGPU: RTX 4070\ndriver: 572.83\ntorch==2.6.0+cu124\nPython: 3.11\n",
    "GPU: RX 7900 XTX\ntorch==2.8.0+rocm6.4\nPython: 3.12\nOS: Ubuntu 24.04\n",
    "OS: CentOS 7\ntorch==2.6.0\nPython: 3.11\n",
    "OS: ubuntu 22.04 on WSL2\ndriver: 560.94\nGPU: RTX 4080\ntorch==2.6.0+cu126\nPython: 3.12\n",
    "torch==2.13.0\nPython: 3.13\nOS: Debian 12\n",
    "xformers==0.0.30\ntorch==2.7.0\nGPU: A100\ndriver: 550.54.14\nPython: 3.12\n",
    "flash-attn==2.7.4.post1\ntorch==2.6.0+cu124\nGPU: A100\ndriver: 550.54.14\nOS: Ubuntu 20.04\nPython: 3.11\n",
    "onnxruntime-gpu==1.22.0\nnvidia-cudnn-cu12==9.10.2.21\nGPU: L4\ndriver: 550.54.14\nPython: 3.12\n",
    "onnxruntime==1.22.0\nnumpy==2.2.0\nPython: 3.12\n",
    "bitsandbytes==0.49.0\ntorch==2.8.0\nGPU: RTX 3090\ndriver: 550.54.14\nPython: 3.11\n",
    "deepspeed==0.17.0\ntorch==2.8.0\nCUDA: 12.8 nvcc\nGPU: A100\ndriver: 570.86.10\nPython: 3.11\n",
    "torch-xla==2.8.0\ntorch==2.8.0\nPython: 3.12\n",
    "coremltools==9.0\nPython: 3.13\nOS: macOS 15.0 arm64\n",
    "torch[anything]>=2\nnumpy\n",
    "pandas==2.2.3\nnumpy==2.1.0\nscipy==1.14.0\nPython: 3.12\n",
    "driver: 620.10\nGPU: B200\ntorch==2.14.1\nPython: 3.13\n",
)


@pytest.mark.parametrize(
    ("cause", "text"), REPORTS, ids=[f"{cause}-{number}" for number, (cause, _) in enumerate(REPORTS)]
)
def test_the_cause_is_named_first_and_has_a_fix(cause: str, text: str) -> None:
    told = read_text(text)
    report = check(told)
    first = report.findings[0]
    assert (first.cause, first.verdict) in ((cause, "will_fail"), (cause, "may_fail"))
    assert first.fixes
    left = [item.cause for item in check(apply(told, first.fixes[0])).findings if item.verdict == "will_fail"]
    assert cause not in left


@pytest.mark.parametrize("text", HEALTHY, ids=range(len(HEALTHY)))
def test_a_set_up_that_works_is_not_called_broken(text: str) -> None:
    assert [item for item in check(read_text(text)).findings if item.verdict == "will_fail"] == []
