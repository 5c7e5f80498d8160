"""The kinds of causes that a finding can name; docs/stack.md describes each."""

from __future__ import annotations

from raceline.present.errors import Message, message

KINDS = (
    "driver_too_old", "arch_removed", "arch_too_new", "torch_pair_mismatch", "cudnn_conflict", "onnxruntime_cuda_major",
    "tensorrt_mismatch", "extension_abi", "glibc_too_old", "no_wheel_for_python", "cpu_only_build", "platform_dropped",
    "tensorflow_cuda_libs", "numpy_abi", "protobuf_major", "nccl_conflict", "library_shadow", "nvcc_torch_mismatch",
    "nvcc_gcc", "nvcc_arch", "ptx_newer_than_driver", "forward_compat_unsupported", "bitsandbytes_binary",
    "xformers_pin", "jax_lockstep", "rocm_gfx", "mps_macos", "coremltools_python", "torch_xla_lockstep",
    "neuron_lockstep", "triton", "conda_mkl", "installer_choice",
    # further kinds, not among the reports
    "onnxruntime_flavours", "vllm_pin", "fabric_manager", "feature_needs_gpu", "end_of_line", "python_end_of_life",
    "shared_files", "wsl_driver", "tensorflow_numpy", "requirement_conflict", "not_installed", "plan_hardware",
    "driver_too_new", "rocm_version",
)  # fmt: skip


def title(kind: str) -> Message:
    """What a kind means, in one sentence."""
    return message(f"stack.cause_{kind}")
