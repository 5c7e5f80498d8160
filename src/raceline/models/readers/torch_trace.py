"""Running a PyTorch module on tensors without storage, and noting each operator and what it keeps."""

from __future__ import annotations

from typing import Any

import msgspec

from raceline.models.graph import Convolution, Embedding, Matmul
from raceline.models.readers.aten import VIEWS, Call, step_of
from raceline.models.readers.trace import MOST_STEPS, Kept, Step, Value
from raceline.present.errors import InputError

# Operators whose gradient needs their result; of the others only statistics (further results) are kept.
_NEED_RESULT = (
    "relu", "sigmoid", "tanh", "softmax", "_softmax", "_log_softmax", "exp", "sqrt", "rsqrt", "reciprocal",
)  # fmt: skip
_ELEMENTS = {"torch.float32": "fp32", "torch.int64": "int64", "torch.bool": "byte", "torch.uint8": "byte"}


class Recorder:
    """The steps of one forward pass. Run it inside `recording`."""

    def __init__(self, module: Any, batch: int) -> None:
        self.batch = batch
        self.steps: list[Step] = []
        self.path: list[str] = [""]
        self.muted = False
        # storages must stay alive, or their addresses would name other tensors
        self.alive: list[Any] = []
        self.pending: list[Any] = []
        # where each kept storage stands: the index of the step that needs it first
        self.kept_at: dict[int, int] = {}
        self.results: set[int] = set()
        self.names = {id(child): name for name, child in module.named_modules()}
        self.parameters = {_key(value): name for name, value in module.named_parameters()}
        self.buffers = {_key(value) for value in module.buffers()}
        self.default = next((value.dtype for value in module.parameters()), None)

    def enter(self, module: Any, *_: Any) -> None:
        """A module starts: what follows stands under its path."""
        self.path.append(self.names.get(id(module), self.path[-1]))

    def leave(self, *_: Any) -> None:
        """A module has ended."""
        self.path.pop()

    def keep(self, tensor: Any) -> Any:
        """Autograd keeps a tensor: for the call that it is about to make, or for the last one."""
        if not self.muted and _is_tensor(tensor):
            self.pending.append(tensor)
        return tensor

    def note(self, name: str, arguments: Any, named: dict[str, Any], result: Any) -> None:
        """An operator was called."""
        results = [item for item in _flat(result) if _is_tensor(item)]
        self.alive.extend(results)
        sources = {_key(item) for item in _flat(arguments) if _is_tensor(item)}
        if name in VIEWS or not results or (_key(results[0]) in sources and not name.endswith("_")):
            return
        call = Call(
            name=name.rstrip("_"),
            arguments=tuple(self._values(item) for item in arguments),
            named={key: self._values(item) for key, item in named.items()},
            results=tuple(self._values(item) for item in results),
            path=self.path[-1] or "model",
            batch=self.batch,
        )
        step = step_of(call)
        if step is None:
            return
        if len(self.steps) >= MOST_STEPS:
            raise InputError("models.program_too_long", limit=MOST_STEPS)
        own = results if call.name in _NEED_RESULT else results[1:]
        self._give(step, {_key(item) for item in own})

    def _give(self, step: Step, results: set[int]) -> None:
        """Autograd packs inputs before a call and outputs after it: what waits is the last call's output
        or the new call's input."""
        waiting, self.pending = self.pending, []
        before = [tensor for tensor in waiting if _key(tensor) in self.results]
        self._attach(before)
        self.steps.append(step)
        self._attach([tensor for tensor in waiting if _key(tensor) not in self.results])
        self.results = results

    def finish(self) -> None:
        """Give what is still waiting to the last call."""
        waiting, self.pending = self.pending, []
        self._attach(waiting)

    def _attach(self, tensors: list[Any]) -> None:
        if not self.steps:
            return
        last = self.steps[-1]
        kept = [made for tensor in tensors if (made := self._kept(tensor, _is_for_weight(last)))]
        if kept:
            self.steps[-1] = msgspec.structs.replace(last, kept=(*last.kept, *kept))

    def add_kept(self, tensors: list[Any]) -> None:
        """Let the last step keep these, as a fused kernel does."""
        self._attach(tensors)

    def _kept(self, tensor: Any, for_weight: bool) -> Kept | None:
        key = _key(tensor)
        if key in self.parameters or key in self.buffers or not tensor.numel():
            return None
        if key in self.kept_at:
            if not for_weight:
                self._need_always(key)
            return None
        self.kept_at[key] = len(self.steps) - 1
        self.alive.append(tensor)
        elements = tensor.untyped_storage().nbytes() / tensor.element_size()
        element = (
            "activation" if tensor.dtype == self.default else _ELEMENTS.get(str(tensor.dtype), "activation")
        )
        width = tensor.shape[-1] if tensor.ndim else 1
        share = elements / self.batch if elements >= self.batch else elements
        return Kept(str(key), share, width, element, for_weight)  # type: ignore[arg-type]

    def _need_always(self, key: int) -> None:
        """A tensor kept for a weight's gradient so far is needed without it too."""
        index = self.kept_at[key]
        step = self.steps[index]
        kept = tuple(
            msgspec.structs.replace(item, for_weight=False) if item.key == str(key) else item
            for item in step.kept
        )
        self.steps[index] = msgspec.structs.replace(step, kept=kept)

    def _values(self, item: Any) -> Any:
        if _is_tensor(item):
            return Value(tuple(int(size) for size in item.shape), self.parameters.get(_key(item)))
        if isinstance(item, (list, tuple)):
            return [self._values(inner) for inner in item]
        return item


def _is_for_weight(step: Step) -> bool:
    """Whether a kept input serves the weight's gradient alone."""
    return bool(step.weights) and isinstance(step.op, (Matmul, Convolution, Embedding))


def _key(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_tensor(item: Any) -> bool:
    import torch

    return isinstance(item, torch.Tensor)


def _flat(values: Any) -> list[Any]:
    """The leaves of nested lists, tuples and mappings, in order."""
    from torch.utils._pytree import tree_flatten

    return list(tree_flatten(values)[0])


def _operators(recorder: Recorder) -> Any:
    """A mode that notes every operator. The class needs PyTorch, so it is made where it is used."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operators(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if not recorder.muted:
                recorder.note(func.overloadpacket.__name__, args, kwargs or {}, result)
            return result

    return Operators()


def _attention_taken_whole(recorder: Recorder, original: Any) -> Any:
    """Fused attention as one call that keeps what a fused kernel keeps, before PyTorch takes it apart."""

    import torch

    def attention(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> Any:
        recorder.muted = True
        try:
            result = original(query, key, value, *rest, **named)
            if result.ndim == 4:
                # fused kernels lay their result out as the projections before them: heads innermost
                result = result.transpose(1, 2).contiguous().transpose(1, 2)
        finally:
            recorder.muted = False
        recorder.note("scaled_dot_product_attention", (query, key, value, *rest), named, result)
        if result.requires_grad:
            statistics = torch.empty(result.shape[:-1], dtype=torch.float32, device=result.device)
            recorder.add_kept([query, key, value, result, statistics])
        return result

    return attention


def record(module: Any, arguments: tuple[Any, ...], named: dict[str, Any], batch: int) -> list[Step]:
    """The steps of ``module(*arguments, **named)``."""
    recorder = Recorder(module, batch)
    import torch

    before = torch.nn.modules.module.register_module_forward_pre_hook(recorder.enter)
    after = torch.nn.modules.module.register_module_forward_hook(recorder.leave)
    hooks = torch.autograd.graph.saved_tensors_hooks(recorder.keep, lambda tensor: tensor)
    functional: Any = torch.nn.functional
    original = functional.scaled_dot_product_attention
    functional.scaled_dot_product_attention = _attention_taken_whole(recorder, original)
    try:
        with torch.enable_grad(), hooks, _operators(recorder):
            module(*arguments, **named)
    finally:
        functional.scaled_dot_product_attention = original
        before.remove()
        after.remove()
    recorder.finish()
    return recorder.steps
